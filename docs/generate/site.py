"""The source of the documentation site: the project's pages, and whatever they link to, as pages as well.

MkDocs reads one folder, while the pages of this project link to examples and code beside `docs/`. So the site is built
from a copy in which every page has the path that it has in the project, a linked file is a page with its text, and a
linked folder is a page with its files. All links then work on any web server, without the repository.

    python -m docs.generate.site write FOLDER     # the copy
    python -m docs.generate.site check SITE       # fails if a built page loads anything from outside the site
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from docs.generate.links import Link, links, with_links

ROOT = Path(__file__).parents[2]
BESIDE_DOCS = (
    "README.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "charts/kai-scheduler/README.md",
    "examples/README.md",
)
IMAGES = (".png", ".svg")
COPIED = (*IMAGES, ".css")
LANGUAGES = {".json": "json", ".py": "python", ".toml": "toml", ".yaml": "yaml"}
_FENCE = "`" * 8
_LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\s\"'>]*", re.I)
_STYLES = re.compile(
    r"<link\b(?=[^>]*rel=[\"']?(?:stylesheet|preconnect|icon|preload))[^>]*href=[\"']?(?:https?:)?//\S+", re.I
)
_IN_STYLES = re.compile(r"(?:@import\s+|url\()[\"']?(?:https?:)?//[^\s\"')]*", re.I)


def pages() -> list[str]:
    """Every page that people write, by its path in the project."""
    found = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    return sorted([*BESIDE_DOCS, *found])


def source() -> dict[str, str]:
    """The text of every page of the copy, by path."""
    made: dict[str, str] = {}
    linked = set[str]()
    for page in pages():
        text = (ROOT / page).read_text()
        made[page] = with_links(text, lambda link, page=page: _as_page(page, link))  # type: ignore[misc]
        linked |= {target for link in links(text) if (target := _target(page, link))}
    return made | {_page_of(target): _shown(target) for target in linked if _page_of(target) not in made}


def copied() -> list[str]:
    """Files that are copied as they are."""
    return [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*") if path.suffix in COPIED]


def _target(page: str, link: Link) -> str:
    """The path of a linked file or folder in the project; empty for the page itself, images and other sites."""
    if link.external or not link.path or link.path.endswith(IMAGES):
        return ""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link.path))


def _page_of(target: str) -> str:
    """The page of the copy that stands for a file or a folder."""
    if (ROOT / target).is_dir():
        return f"{target}/README.md"
    return target if target.endswith(".md") else f"{target}.md"


def _as_page(page: str, link: Link) -> Link:
    target = _target(page, link)
    if not target:
        return link
    return Link(posixpath.relpath(_page_of(target), posixpath.dirname(page) or "."), link.anchor)


def _shown(target: str) -> str:
    """A page with the text of a file, or of all files of a folder; left out of the search, which is for pages."""
    path = ROOT / target
    files = sorted(each for each in path.rglob("*") if each.suffix in LANGUAGES) if path.is_dir() else [path]
    head = "---\nsearch:\n  exclude: true\n---\n\n"
    blocks = [_block(each, f"## {each.relative_to(path).as_posix()}\n\n" if path.is_dir() else "") for each in files]
    return f"{head}# {target}\n\n" + "\n".join(blocks)


def _block(path: Path, title: str) -> str:
    return f"{title}{_FENCE}{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text().rstrip()}\n{_FENCE}\n"


def write(folder: Path) -> None:
    """Write the copy; what was in the folder before is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in source().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in copied():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)


def loaded_from_outside(site: Path) -> Iterator[str]:
    """What pages and styles of a built site load from other hosts; links that people click are not loads."""
    for path in sorted(site.rglob("*.html")):
        text = path.read_text()
        yield from (f"{path.relative_to(site)}: {found}" for found in (*_LOADED.findall(text), *_STYLES.findall(text)))
    for path in sorted(site.rglob("*.css")):
        yield from (f"{path.relative_to(site)}: {found}" for found in _IN_STYLES.findall(path.read_text()))


def main(command: str, folder: str) -> int:
    if command == "write":
        write(Path(folder))
        return 0
    problems = list(loaded_from_outside(Path(folder)))
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
