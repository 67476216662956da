"""The beginning and the end of a deletion, as pure functions of the object's state.

An object goes at once if nothing holds it. A grace period (pods on a node) or finalizers hold it: it then carries a
deletionTimestamp, and the last of the two to go takes the object with it. A second delete can only shorten the grace.
"""

from __future__ import annotations

from pykai.kube.api import Deletion, Object, Propagation
from pykai.kube.memory.kinds import Kind
from pykai.kube.memory.metadata import modified, timestamp
from pykai.kube.memory.pods import grace as pod_grace

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_FINALIZER = {Propagation.ORPHAN: ORPHAN, Propagation.FOREGROUND: FOREGROUND}


def check_preconditions(kind: Kind, body: Object, how: Deletion) -> None:
    """Conflict if the object is not the one, or not in the state, the caller meant."""
    metadata = body["metadata"]
    for word, mine, theirs in (("UID", how.uid, "uid"), ("ResourceVersion", how.version, "resourceVersion")):
        if mine and mine != metadata[theirs]:
            why = f"Precondition failed: {word} in precondition: {mine}, {word} in object meta: {metadata[theirs]}"
            raise modified(kind.resource, metadata["name"], why)


def begun(kind: Kind, body: Object, how: Deletion, now: float) -> Object:
    """The object with its deletion under way; `finished` tells whether anything still holds it."""
    metadata = dict(body["metadata"])
    seconds = pod_grace(body, how.grace_seconds) if kind.resource.qualified == "pods" else 0
    finalizers = _finalizers(metadata, how)
    metadata.pop("finalizers", None)
    if finalizers:
        metadata["finalizers"] = finalizers
    running = metadata.get("deletionGracePeriodSeconds")
    if running is None or seconds < running:
        if running is None and "generation" in metadata:
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = timestamp(now + seconds)
        metadata["deletionGracePeriodSeconds"] = seconds
    return {**body, "metadata": metadata}


def _finalizers(metadata: Object, how: Deletion) -> list[str]:
    present = list(metadata.get("finalizers") or [])
    if how.propagation is None:
        return present
    wanted = _FINALIZER.get(how.propagation)
    kept = [finalizer for finalizer in present if finalizer not in _FINALIZER.values() or finalizer == wanted]
    return kept if wanted is None or wanted in kept else [*kept, wanted]


def finished(body: Object) -> bool:
    """Whether a deletion is under way and nothing holds the object any more."""
    metadata = body["metadata"]
    held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in metadata and not held


def without_finalizer(body: Object, name: str) -> Object:
    """The object without one finalizer."""
    rest = [finalizer for finalizer in body["metadata"].get("finalizers") or [] if finalizer != name]
    metadata = {key: value for key, value in body["metadata"].items() if key != "finalizers"}
    return {**body, "metadata": {**metadata, "finalizers": rest} if rest else metadata}
