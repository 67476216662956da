"""The table of extension points in docs/plugins.md, from the Protocols of engine/plugin_api.py.

The text between the two marks is replaced; everything else on the page is written by hand.
"""

from __future__ import annotations

import inspect
from typing import Any

from docs.generate import markdown
from pykai.engine import plugin_api
from pykai.plugins import registry

BEGIN = "<!-- generated from src/pykai/engine/plugin_api.py by `make docs` -->\n"
END = "<!-- end of the generated part -->\n"


def methods(point: type[Any]) -> list[str]:
    """Each method with the names of its arguments, as a plugin writes it; a property by its name."""
    found = {name: member for name, member in vars(point).items() if not name.startswith("_")}
    properties = [f"`{name}`" for name, member in found.items() if isinstance(member, property)]
    functions = {name: member for name, member in found.items() if inspect.isfunction(member)}
    return [*properties, *(f"`{name}({', '.join(_arguments(member))})`" for name, member in functions.items())]


def _arguments(method: Any) -> list[str]:
    return [name for name in inspect.signature(method).parameters if name != "self"]


def users(point: type[Any]) -> list[str]:
    """Names, as in the configuration, of the built-in plugins that implement the point."""
    return [f"`{name}`" for name in registry.PLUGINS if any(isinstance(one, point) for one in registry.make(name))]


def table() -> str:
    """The generated part of the page."""
    rows = [
        (
            f"`{point.__name__}`",
            inspect.cleandoc(point.__doc__ or ""),
            "<br>".join(methods(point)),
            ", ".join(users(point)),
        )
        for point in plugin_api.all_points()
    ]
    return markdown.table(
        ("extension point", "how several compose, and what it is for", "methods", "built-in plugins"), rows
    )


def with_table(page: str) -> str:
    """The page with the generated part as it should be."""
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"
