"""Resolves a target such as `train-0`, `pod/train-0`, `job/train` or `podgroup/pg-train` to gangs."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from pykai.explain.source import Decided
from pykai.explain.why import find
from pykai.model.plan import Key
from pykai.objects import names

_PODS = ("pod", "pods", "po")
_GROUPS = ("podgroup", "podgroups", "pg")


class TargetError(ValueError):
    """No gang matches the target."""


def gangs_of(decided: Decided, target: str, namespace: str) -> list[Key]:
    """Return the gangs of a pod, PodGroup or workload; TargetError, with similar names, if there is none."""
    kind, _, name = target.rpartition("/")
    kind = kind.lower().split(".", 1)[0]
    found: list[Key] = []
    if kind in ("", *_PODS):
        of_pod = find(decided, (namespace, name))
        found = [] if of_pod is None else [of_pod]
    if not found and kind in ("", *_GROUPS):
        found = list(decided.snapshot.gangs.rows_of([(namespace, name)]))
    if not found and kind not in (*_PODS, *_GROUPS):
        found = list(_gangs_owned_by(decided, kind, name, namespace))
    if not found:
        raise TargetError(_not_found_message(decided, target, name, namespace))
    return found


def _gangs_owned_by(decided: Decided, kind: str, name: str, namespace: str) -> Iterator[Key]:
    """Yield the gangs of an object: those it owns, and those of pods that it owns, directly or as top owner."""
    gangs = decided.snapshot.gangs
    for row, group in enumerate(gangs.objects):
        if group.metadata.namespace == namespace and any(
            _names_kind(kind, owner_kind) and owner == name for owner_kind, owner in _owners(decided, row, group)
        ):
            yield namespace, group.metadata.name


def _owners(decided: Decided, row: int, group: Any) -> Iterator[tuple[str, str]]:
    for owner in group.metadata.owner_references or ():
        yield owner.kind, owner.name
    for pod in decided.snapshot.gangs.pods(row)[:1]:
        for owner in decided.snapshot.pods.objects[pod].metadata.owner_references or ():
            yield owner.kind, owner.name
    top = (group.metadata.annotations or {}).get(names.TOP_OWNER_METADATA, "")
    stated = dict(part.strip().split(":", 1) for part in top.splitlines() if ":" in part)
    if "name" in stated:
        yield stated.get("kind", "").strip(), stated["name"].strip()


def _names_kind(said: str, kind: str) -> bool:
    """Whether `said` names this kind, in any case, singular or plural; an empty `said` names every kind."""
    return said in ("", kind.lower(), f"{kind.lower()}s", f"{kind.lower()}es")


def _not_found_message(decided: Decided, target: str, name: str, namespace: str) -> str:
    snapshot = decided.snapshot
    known: dict[str, str] = {}
    for objects in (snapshot.pods.objects, snapshot.gangs.objects):
        for obj in objects:
            known.setdefault(obj.metadata.name, obj.metadata.namespace)
    text = f"nothing named {target!r} waits or runs in namespace {namespace}"
    elsewhere = known.get(name, namespace)
    if elsewhere != namespace:
        return f"{text}; there is one in namespace {elsewhere} (-n {elsewhere})"
    here = [each for each, where in known.items() if where == namespace]
    close = get_close_matches(name, here, n=1)
    return text + (f": did you mean {close[0]!r}?" if close else "")
