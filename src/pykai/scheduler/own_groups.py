"""Pods that name no group: one that owns a PodGroup is in it.

A group is made for every pod that comes by itself, and its name is written into the pod when the pod is bound. Until
then the group says whose it is: the pod is its owner. What a pod says itself counts more.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec import structs

from pykai.objects import names
from pykai.objects.kinds import Pod, PodGroup

Key = tuple[str, str]


class OwnGroups:
    """The PodGroups that pods own, by the pod's uid."""

    def __init__(self) -> None:
        self._names: defaultdict[str, set[str]] = defaultdict(set)

    def change(self, old: PodGroup | None, new: PodGroup | None) -> set[Key]:
        """Take in a change of a group, None where there is none; the pods that own it, or did, if that changed."""
        before, after = _owners(old), _owners(new)
        if before == after:
            return set()
        for uid in before:
            self._names[uid].discard(old.metadata.name)  # type: ignore[union-attr]
            if not self._names[uid]:
                del self._names[uid]
        for uid in after:
            self._names[uid].add(new.metadata.name)  # type: ignore[union-attr]
        return {*before.values(), *after.values()}

    def joined(self, pod: Pod, expected: str = "") -> Pod:
        """The pod with the name of the group it was expected in, or of its own one, where it names none itself."""
        known, annotations = self._names.get(pod.metadata.uid), pod.metadata.annotations or {}
        name = expected or (min(known) if known else "")
        if not name or names.POD_GROUP_ANNOTATION in annotations:
            return pod
        named = {**annotations, names.POD_GROUP_ANNOTATION: name}
        return structs.replace(pod, metadata=structs.replace(pod.metadata, annotations=named))


def _owners(group: PodGroup | None) -> dict[str, Key]:
    """The pods that own a group, by uid."""
    if group is None:
        return {}
    meta = group.metadata
    pods = [owner for owner in meta.owner_references or () if owner.kind == "Pod" and owner.uid]
    return {owner.uid: (meta.namespace, owner.name) for owner in pods}
