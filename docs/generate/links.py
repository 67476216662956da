"""Links and anchors of Markdown pages, as GitHub reads them. Code is no place for links: it is left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})[^\n]*\n.*?^(?P=indent)(?P=fence)`*~* *$", re.M | re.S)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.S)
_INLINE = re.compile(r"(?P<before>\]\()(?P<path>[^)\s#]*)(?P<anchor>#[^)\s]*)?(?P<after>(?:\s+\"[^\"]*\")?\))")
_HEADING = re.compile(r"^#{1,6} (.*?)(?: #+)?$", re.M)
_HTML_ANCHOR = re.compile(r"<a (?:name|id)=\"([^\"]+)\"")
_LINKED_TEXT = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


class Link(NamedTuple):
    """The target of a link: a path relative to its page (empty: the page itself) and an anchor with its `#`."""

    path: str
    anchor: str

    @property
    def external(self) -> bool:
        """Whether it leads out of the project."""
        return "://" in self.path or self.path.startswith("mailto:")


def without_code(text: str) -> str:
    """The page with all code blanked out; every other character stays where it is."""
    return _CODE.sub(_blank, _FENCE.sub(_blank, text))


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def links(text: str) -> list[Link]:
    """All links and images of a page."""
    return [Link(found["path"], found["anchor"] or "") for found in _INLINE.finditer(_linkable(text))]


def _linkable(text: str) -> str:
    """Fenced blocks hold no links, and code in backticks none but around it: [`a`](b) is a link."""
    return _CODE.sub(lambda found: "`" + " " * (len(found[0]) - 2) + "`", _FENCE.sub(_blank, text))


def with_links(text: str, change: Callable[[Link], Link]) -> str:
    """The page with every link changed."""
    parts, at = [], 0
    for found in _INLINE.finditer(_linkable(text)):
        new = change(Link(found["path"], found["anchor"] or ""))
        parts += [text[at : found.start("path")], new.path, new.anchor]
        at = found.start("after")
    return "".join([*parts, text[at:]])


def anchors(text: str) -> set[str]:
    """The names by which the headings of a page are linked to; the second of two equal ones ends in -1."""
    found, seen = set(_HTML_ANCHOR.findall(text)), Counter[str]()
    for heading in _HEADING.findall(_FENCE.sub(_blank, text)):
        name = re.sub(r"[^\w\- ]", "", _LINKED_TEXT.sub(r"\1", heading).strip().lower()).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found
