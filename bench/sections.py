"""Sections of docs/performance.md with a command of their own, each between its marks; the rest is `make bench`'s."""

from __future__ import annotations

import re

_SECTION = re.compile(r"<!-- written by `make (?P<name>[\w-]+)` -->\n.*?<!-- end of `make (?P=name)` -->\n", re.DOTALL)


def with_section(page: str, command: str, text: str) -> str:
    """The page with the section of `make command` replaced, or added at its end."""
    section = f"<!-- written by `make {command}` -->\n{text}<!-- end of `make {command}` -->\n"
    old = next((found[0] for found in _SECTION.finditer(page) if found["name"] == command), None)
    return page.replace(old, section) if old else f"{page.rstrip()}\n\n{section}"


def kept_in(new: str, old: str) -> str:
    """A new page with the sections of the old one at its end."""
    return "\n".join([new, *(found[0] for found in _SECTION.finditer(old))])
