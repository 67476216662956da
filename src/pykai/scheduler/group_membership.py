"""Which PodGroup a pod belongs in before the pod itself says so.

`OwnGroups`: a pod that names no group and owns a PodGroup is in it. A group is made for every pod that comes by itself,
and its name is written into the pod when the pod is bound. What a pod says itself counts more.

`ExpectedGroups`: groups that the pod grouper of the same process has decided and not written yet. A scheduler in a
process of its own learns both from the API server, two writes later. Where both share a process, a pod can be decided
at once: its group is created meanwhile, and the bind writes the group's name into the pod. Nothing is lost with the
process: the next one's grouper derives what was not written from the pod alone.
Invariant: a group is expected from its announcement until the watch shows it, and only while a pod is in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from msgspec import structs

from pykai.model.plan import Key
from pykai.objects import names
from pykai.objects.kinds import Pod, PodGroup


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
            self._names[uid] -= {old.metadata.name} if old else set()
            if not self._names[uid]:
                del self._names[uid]
        for uid in after:
            self._names[uid] |= {new.metadata.name} if new else set()
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


MOST = 5_000
"""How many groups may be ahead of their writing: beyond that the API server is too far behind."""


class ExpectedGroups:
    """Groups by (namespace, name), and the names of the groups of pods by the pods' uids.

    `listen` connects the informers: `group(group, gone)` is called for an added or removed group,
    `pod(key)` for its pods.
    """

    def __init__(self) -> None:
        self._groups: dict[Key, PodGroup] = {}
        self._pods: dict[str, tuple[Key, Key]] = {}
        """By uid: the pod and its group."""
        self._members: dict[Key, set[str]] = {}
        self._group: Callable[[PodGroup, bool], None] = lambda group, gone: None
        self._pod: Callable[[Key], None] = lambda pod: None
        self._is_shown: Callable[[Key], bool] = lambda group: False

    def listen(
        self, group: Callable[[PodGroup, bool], None], pod: Callable[[Key], None], is_shown: Callable[[Key], bool]
    ) -> None:
        """Report changes to these; `is_shown`: whether the watch shows a group."""
        self._group, self._pod, self._is_shown = group, pod, is_shown

    # ----------------------------------------------------------------------------------------- announced by the grouper
    def expect(self, pod: Key, uid: str, group: PodGroup) -> bool:
        """The pod of this uid belongs in this group, which is being created or exists; False: too many are expected."""
        key = group.metadata.key
        if key not in self._groups and not self._is_shown(key):
            if len(self._groups) >= MOST:
                return False
            self._groups[key] = group
            self._group(group, False)
        known = self._pods.get(uid)
        if known is None or known[1] != key:
            self.gone(uid)
            self._pods[uid] = pod, key
            self._members.setdefault(key, set()).add(uid)
            self._pod(pod)
        return True

    def withdraw(self, uid: str) -> None:
        """The announcement of this pod is void: it belongs in no group, or the group cannot be created."""
        known = self._pods.get(uid)
        if known is not None:
            self.gone(uid)
            self._pod(known[0])

    # --------------------------------------------------------------------------------------------- shown by the watches
    def shown(self, group: Key) -> None:
        """The watch shows the group, or that it is gone: what was expected of it counts no more."""
        self._groups.pop(group, None)

    def named(self, uid: str) -> None:
        """The pod names its group itself; a group that is not written yet still needs its pods."""
        known = self._pods.get(uid)
        if known is not None and known[1] not in self._groups:
            self.gone(uid)

    def gone(self, uid: str) -> None:
        """Forget a pod, and its group if that is not written and no other pod is in it."""
        known = self._pods.pop(uid, None)
        if known is None:
            return
        members = self._members[known[1]]
        members.discard(uid)
        if members:
            return
        del self._members[known[1]]
        if (group := self._groups.pop(known[1], None)) is not None:
            self._group(group, True)

    def group_of(self, uid: str) -> str:
        """The name of the group a pod belongs in; empty where none was announced."""
        known = self._pods.get(uid)
        return known[1][1] if known is not None else ""
