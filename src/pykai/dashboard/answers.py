"""Requests of pages to the engine: why a workload is pending, its remedies, and what-if.

Each is decided on a copy of the moment, in a thread; nothing is written. Answers are redacted for the viewer.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from pykai.dashboard.redaction import RedactedView
from pykai.explain.changes import AddNodes, ChangeError, ClusterChange, Delete, Drain, parse_set
from pykai.explain.remedies import remedies
from pykai.explain.running_workloads import expected_start
from pykai.explain.what_if import WhatIfResult, what_if
from pykai.explain.why import Explanation, explain
from pykai.model.plan import Key
from pykai.simulate.manifests import parse

T = TypeVar("T", bound=msgspec.Struct)
PASTED = "manifest"
"""The origin of a pasted manifest in messages."""
MOST_NODES = 10_000


class Question(msgspec.Struct, frozen=True):
    """A manifest, and changes with the flags of `kai what-if`: `--add-nodes 2 --set queue/a.gpu.quota=8`.

    Deletions name PodGroups: `--delete NAMESPACE/NAME`.
    """

    manifest: str = ""
    changes: str = ""


def explanation(view: RedactedView, gang: Key) -> Explanation:
    """Return why a workload is pending and the smallest changes that start it."""
    with view.moment.questions:
        decided = view.moment.own
        found = explain(decided, gang)
        if gang in view.moment.decided.waiting:
            start = expected_start(decided, gang)
            found = msgspec.structs.replace(found, remedies=remedies(decided, gang), start=start)
    return redacted(view, found)


def answer(view: RedactedView, question: Question) -> WhatIfResult:
    """Return the effects of a manifest and of changes; ValueError if they are invalid."""
    manifests = parse(question.manifest, PASTED)
    edits = list(parse_changes(question.changes))
    if not manifests and not edits:
        raise ValueError("Paste a manifest, or name a change.")
    for each in manifests:
        meta = each.obj.get("metadata")
        namespace = (meta.get("namespace") or "default") if isinstance(meta, dict) else "default"
        if not view.viewer.sees(str(namespace)):
            raise ValueError("metadata.namespace: you may not list pods in this namespace")
    with view.moment.questions:
        return redacted(view, what_if(view.moment.own, manifests, edits))


def parse_changes(text: str) -> Iterator[ClusterChange]:
    """Parse changes in the flags of `kai what-if`; ChangeError if they are invalid."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise ChangeError(f"changes: {error}") from error
    given = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    pairs = list(zip(given[::2], given[1::2], strict=False))
    if len(given) % 2:
        raise ChangeError(f"changes: {given[-1]!r} has no value")
    like = next((value for flag, value in pairs if flag == "--like"), "")
    for flag, value in pairs:
        if flag == "--add-nodes":
            if not value.isdecimal() or not 0 < int(value) <= MOST_NODES:
                raise ChangeError(f"--add-nodes: {value!r} is not a number of nodes from 1 to {MOST_NODES}")
            yield AddNodes(int(value), like)
        elif flag == "--set":
            yield parse_set(value)
        elif flag == "--drain":
            yield Drain(value)
        elif flag == "--delete":
            namespace, _, name = value.rpartition("/")
            yield Delete(((namespace or "default", name),))
        elif flag != "--like":
            raise ChangeError(f"changes: {flag!r} is none of --add-nodes, --like, --set, --drain, --delete")


def redacted(view: RedactedView, answer: T) -> T:
    """Return the answer without names that the viewer may not see."""
    if view.viewer.sees_all:
        return answer
    return msgspec.convert(_redact(view, msgspec.to_builtins(answer)), type(answer))


def _redact(view: RedactedView, value: Any) -> Any:
    if isinstance(value, str):
        return view.text(value)
    if isinstance(value, dict):
        return {view.text(key): _redact(view, each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redact(view, each) for each in value]
    return value
