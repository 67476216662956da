"""Every relative link of every page leads to something that exists, anchors included."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from docs.generate.links import Link, anchors, links, with_links
from docs.generate.site import ROOT, pages


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    home = (ROOT / page).parent
    for link in links((ROOT / page).read_text()):
        if not link.external:
            target = (home / link.path).resolve() if link.path else ROOT / page
            assert target.exists(), link
            assert target.is_relative_to(ROOT), link
            assert not link.anchor or link.anchor[1:] in _anchors(target), link


def test_docstrings_point_into_the_project() -> None:
    """The specification the project was built from is not part of it: what a reader needs is in docs/concepts."""
    sources = (ROOT / "src").rglob("*.py")
    assert [str(path) for path in sources if re.search(r"\bspec/\w+\.md|\bspec §", path.read_text())] == []


@cache
def _anchors(page: Path) -> set[str]:
    return anchors(page.read_text()) if page.suffix == ".md" else set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](b.md)", [Link("b.md", "")]),
        ("![a](b.svg) and [c](#d)", [Link("b.svg", ""), Link("", "#d")]),
        ("[`code`](../b.md#c-d)", [Link("../b.md", "#c-d")]),
        ('[a](b.md "a title")', [Link("b.md", "")]),
        ("`[a](b.md)` is code", []),
        ("```\n[a](b.md)\n```\n[c](d.md)", [Link("d.md", "")]),
        ("````md\n```\n[a](b.md)\n```\n````\n", []),
    ],
)
def test_links_are_found_outside_of_code(text: str, expected: list[Link]) -> None:
    assert links(text) == expected


def test_a_link_can_be_changed_in_place() -> None:
    text = "[a](b.py#c), `[d](e)`, [f](g.md)"
    changed = with_links(text, lambda link: Link(f"x/{link.path}", link.anchor))
    assert changed == "[a](x/b.py#c), `[d](e)`, [f](x/g.md)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# A b, C!", {"a-b-c"}),
        ("## `kai simulate`: a cluster", {"kai-simulate-a-cluster"}),
        ("## [ADR](x.md) / more", {"adr--more"}),
        ("# Same\n# Same", {"same", "same-1"}),
        ("```\n# no heading\n```", set()),
        ('<a name="old"></a>', {"old"}),
    ],
)
def test_anchors_are_those_of_github(text: str, expected: set[str]) -> None:
    assert anchors(text) == expected
