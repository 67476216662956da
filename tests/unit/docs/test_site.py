"""The documentation site: every page is in its navigation, every link of the copy it is built from has its page."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from docs.generate import site
from docs.generate.links import links


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without calling what its tags name."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
SETTINGS = yaml.load((site.ROOT / "mkdocs.yml").read_text(), _Loader)


def in_navigation(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    children = entry if isinstance(entry, list) else entry.values()
    return [page for child in children for page in in_navigation(child)]


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(in_navigation(SETTINGS["nav"])) == site.pages()


def test_every_link_of_the_copy_has_its_page() -> None:
    made, images = site.source(), set(site.copied())
    assert set(site.pages()) < set(made)
    for page in site.pages():
        for link in links(made[page]):
            if link.path and not link.external:
                target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link.path))
                assert target in made or target in images, (page, link)


def test_a_linked_file_becomes_a_page_with_its_text() -> None:
    made = site.source()
    assert "kind: Queue" in made["examples/concepts/fair-share.yaml.md"]
    assert "## 2-queues.yaml" in made["examples/quickstart/README.md"]
    assert "../../examples/concepts/fair-share.yaml.md" in made["docs/concepts/fair-share.md"]


def test_the_site_asks_for_nothing_from_outside() -> None:
    assert SETTINGS["theme"]["font"] is False
    assert not any(re.search(r"^```mermaid", text, re.MULTILINE) for text in site.source().values())


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.html", '<script src="https://cdn/x.js">', 1),
        ("a.html", '<link rel="stylesheet" href="//cdn/x.css">', 1),
        ("a.html", '<a href="https://kubernetes.io">read</a><script src="x.js"></script>', 0),
        ("a.css", "@import url(https://fonts/x);", 1),
        ("a.css", "a{background:url(data:image/svg+xml;x)}", 0),
    ],
)
def test_what_a_built_site_loads_from_outside_is_found(tmp_path: Path, name: str, text: str, found: int) -> None:
    (tmp_path / name).write_text(text)
    assert len(list(site.loaded_from_outside(tmp_path))) == found


def test_the_copy_is_written_anew(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "old.md").write_text("old")
    assert site.main("write", str(folder)) == 0
    assert not (folder / "old.md").exists()
    assert (folder / "docs" / "img" / "concepts" / "gangs.svg").is_file()
    assert site.main("check", str(folder)) == 0
