"""Volumes as directories: each is filled once per pod, and every container links to those that it mounts.

POD/volumes/NAME/...           the content, written anew from time to time as a kubelet does
POD/containers/NAME/PATH       a link to the volume mounted at PATH
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pykai.local.containers.environment import Content, NotYetError, Sources

Object = dict[str, Any]


def _chosen(content: Content, source: Object) -> Content:
    """All entries, or those that `items` lists, under the paths it gives them."""
    items = source.get("items")
    if not items:
        return content
    missing = [item["key"] for item in items if item["key"] not in content]
    if missing and not source.get("optional"):
        raise NotYetError(f"there is no key {missing[0]!r}")
    return {item["path"]: content[item["key"]] for item in items if item["key"] in content}


async def _config_map(source: Object, sources: Sources) -> Content:
    return _chosen(await sources.config_map(source["name"], bool(source.get("optional"))), source)


async def _secret(source: Object, sources: Sources) -> Content:
    name = source.get("secretName") or source["name"]
    return _chosen(await sources.secret(name, bool(source.get("optional"))), source)


async def _downward(source: Object, sources: Sources) -> Content:
    return {row["path"]: sources.field(row["fieldRef"]["fieldPath"]).encode() for row in source.get("items") or ()}


async def _token(source: Object, sources: Sources) -> Content:
    return {source["path"]: await sources.token(source)}


async def _projected(source: Object, sources: Sources) -> Content:
    content: Content = {}
    for row in source.get("sources") or ():
        ((kind, inner),) = row.items()
        content |= await KINDS[kind](inner, sources)
    return content


async def _nothing(source: Object, sources: Sources) -> Content:
    return {}


KINDS: Mapping[str, Callable[[Object, Sources], Awaitable[Content]]] = {
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward,
    "serviceAccountToken": _token,
    "projected": _projected,
    "emptyDir": _nothing,
}
"""How to fill each kind of volume, or part of a projected one; a hostPath is the host's own directory."""


async def fill(folder: Path, volumes: Iterable[Object], sources: Sources) -> None:
    """Write the content of all volumes; NotYetError if something is not there yet, ValueError if it cannot be had."""
    for volume in volumes:
        name = volume["name"]
        ((kind, source),) = ((key, value) for key, value in volume.items() if key != "name")
        if kind == "hostPath":
            _link(folder / name, Path(source["path"]))
        elif kind in KINDS:
            _write(folder / name, await KINDS[kind](source, sources))
        else:
            raise ValueError(f"volume {name}: volumes of kind {kind} are not supported here")


def _write(folder: Path, content: Content) -> None:
    """Files are replaced whole, so a reader sees an old one or a new one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        fresh.touch(mode=0o600)
        fresh.write_bytes(text)
        fresh.replace(target)


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def mount(root: Path, mounts: Iterable[Object], volumes: Path) -> None:
    """Link what a container mounts into its `root`."""
    for row in mounts:
        _link(root / row["mountPath"].strip("/"), volumes / row["name"] / row.get("subPath", ""))


def relocated(text: str, root: Path, mounts: Iterable[Object]) -> str:
    """The text with every path under a mount replaced by where that lies on this machine."""
    for row in mounts:
        path = row["mountPath"].rstrip("/")
        text = re.sub(rf"(?<![\w/.-]){re.escape(path)}(?![\w.-])", f"{root}{path}", text)
    return text
