"""The PodGroup of a pod whose annotation does not name it yet. The annotation, once present, takes precedence.

`OwnGroups`: a pod without the annotation that owns a PodGroup belongs to it. The pod grouper creates such a group for
every standalone pod; the bind writes its name into the pod.

`ExpectedGroups`: groups that the pod grouper in the same process has decided but not written yet. A scheduler in a
separate process sees them only after two writes to the API server. In one process, the pod can be scheduled at once:
the group is created meanwhile, and the bind writes its name into the pod. A restart loses nothing, because the pod
grouper derives the same group from the pod again.
Invariant: a group is expected from its announcement until the watch shows it, and only while it has pods.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from msgspec import structs

from pykai.model.plan import Key
from pykai.objects import names
from pykai.objects.kinds import Pod, PodGroup


class OwnGroups:
    """The PodGroups that pods own, by pod uid."""

    def __init__(self) -> None:
        self._names: defaultdict[str, set[str]] = defaultdict(set)

    def change(self, old: PodGroup | None, new: PodGroup | None) -> set[Key]:
        """Apply a change of a group (None: absent); return its old and new owner pods if they differ."""
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
        """Return the pod annotated with `expected`, else with its own group; unchanged if already annotated."""
        known, annotations = self._names.get(pod.metadata.uid), pod.metadata.annotations or {}
        name = expected or (min(known) if known else "")
        if not name or names.POD_GROUP_ANNOTATION in annotations:
            return pod
        named = {**annotations, names.POD_GROUP_ANNOTATION: name}
        return structs.replace(pod, metadata=structs.replace(pod.metadata, annotations=named))


def _owners(group: PodGroup | None) -> dict[str, Key]:
    """Return the pods that own a group, by uid."""
    if group is None:
        return {}
    meta = group.metadata
    pods = [owner for owner in meta.owner_references or () if owner.kind == "Pod" and owner.uid]
    return {owner.uid: (meta.namespace, owner.name) for owner in pods}


MOST = 5_000
"""The maximum number of groups that are expected but not written; beyond it the API server lags too far behind."""


class ExpectedGroups:
    """Expected groups by (namespace, name), and the group of each pod by pod uid.

    `listen` connects the informers: `group(group, gone)` is called for an added or removed group, `pod(key)` for its
    pods.
    """

    def __init__(self) -> None:
        self._groups: dict[Key, PodGroup] = {}
        self._pods: dict[str, tuple[Key, Key]] = {}
        """Pod uid -> keys of the pod and of its group."""
        self._members: dict[Key, set[str]] = {}
        self._group: Callable[[PodGroup, bool], None] = lambda group, gone: None
        self._pod: Callable[[Key], None] = lambda pod: None
        self._is_shown: Callable[[Key], bool] = lambda group: False

    def listen(
        self, group: Callable[[PodGroup, bool], None], pod: Callable[[Key], None], is_shown: Callable[[Key], bool]
    ) -> None:
        """Report changes to these callbacks; `is_shown` returns whether the watch shows a group."""
        self._group, self._pod, self._is_shown = group, pod, is_shown

    # ----------------------------------------------------------------------------------------- announced by the grouper
    def expect(self, pod: Key, uid: str, group: PodGroup) -> bool:
        """Announce that the pod belongs to this group, existing or being created; False: `MOST` groups are expected."""
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
        """Revoke the announcement of a pod: it belongs to no group, or its group cannot be created."""
        known = self._pods.get(uid)
        if known is not None:
            self.gone(uid)
            self._pod(known[0])

    # --------------------------------------------------------------------------------------------- shown by the watches
    def shown(self, group: Key) -> None:
        """The watch shows the group or its deletion: it is no longer expected."""
        self._groups.pop(group, None)

    def named(self, uid: str) -> None:
        """The pod's annotation names its group: drop the pod, unless its group is still expected."""
        known = self._pods.get(uid)
        if known is not None and known[1] not in self._groups:
            self.gone(uid)

    def gone(self, uid: str) -> None:
        """Forget a pod, and its group if that is still expected and has no other pod."""
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
        """Return the name of the group announced for a pod; "" if none."""
        known = self._pods.get(uid)
        return known[1][1] if known is not None else ""
