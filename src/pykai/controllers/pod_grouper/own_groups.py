"""Pods that need not name their group before they are bound: the bind writes the name, or this does if none comes soon.

Most pods are bound a moment after their group was made, and a bind carries annotations at no cost: a write to every
single pod is saved, and everybody who watches pods is spared a change. Nothing depends on it: a scheduler knows a pod
that names no group by the group that the pod owns (`scheduler/own_groups.py`), and one in this process is told of all
others (`announcing.py`).
Invariant: a pod that was left to its bind is looked at again, after a while and until it names its group, unless
another group was found for it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from pykai.controllers.grouping import GroupSpec
from pykai.controllers.loop import Pace, ReconcileLoop
from pykai.controllers.pod_grouper.announcing import Announcer
from pykai.controllers.pod_grouper.writes import GroupWriter
from pykai.kube.replica import Key
from pykai.kube.watch import SharedWatch
from pykai.objects import kinds, names

WAIT_SECONDS = 0.5
ANNOUNCED_SECONDS = 2.0
"""How long a pod is left to its bind; longer where the scheduler was told, because a gang waits for its last pod."""
WRITERS = 4
"""Few, because they wait for a quiet moment: whoever is bound meanwhile need not be written to."""


class OwnGroups:
    """Pods that were left to their bind; `failed(pod, error)` is told why one could not be written to."""

    def __init__(
        self,
        pods: SharedWatch[kinds.Pod],
        writer: GroupWriter,
        announcer: Announcer,
        failed: Callable[[kinds.Pod, Exception], None],
    ) -> None:
        self._pods = pods
        self._writer = writer
        self._announcer = announcer
        self._failed = failed
        self._specs: dict[Key, tuple[str, GroupSpec]] = {}
        """By pod: its uid and its group."""
        self._loop: ReconcileLoop[Key] = ReconcileLoop("pod-group-name", Pace(WRITERS, first_seconds=1.0))

    def leave_to_bind(self, pod: kinds.Pod, spec: GroupSpec) -> bool:
        """Whether the pod's bind may write all there is to write; if so, it is seen to that somebody does."""
        meta = pod.metadata
        announced = self._announcer.has_announced(pod, spec)
        alone = spec.owner.get("uid") == meta.uid and spec.sub_group_of(meta.namespace, meta.name) is None
        if not (alone or announced) or pod.spec.node_name or _names_group(pod):
            return False
        key = (meta.namespace, meta.name)
        self._specs[key] = meta.uid, spec
        self._loop.add_after(key, ANNOUNCED_SECONDS if announced else WAIT_SECONDS)
        return True

    def forget(self, pod: Key) -> None:
        """The pod is being looked at anew: what it was left with does not count any more."""
        self._specs.pop(pod, None)

    async def run(self) -> None:
        """Write to pods that are not bound in time, until cancelled."""
        await self._loop.run(self._write)

    async def _write(self, key: Key) -> None:
        left, pod = self._specs.pop(key, None), self._pods.get(key[1], key[0])
        if left is None or pod is None or pod.metadata.uid != left[0] or _names_group(pod):
            return
        try:
            await self._writer.assign(pod, left[1], patient=True)
        except Exception as error:
            self._specs.setdefault(key, left)
            self._failed(pod, error)
            raise


def _names_group(pod: kinds.Pod) -> bool:
    return names.POD_GROUP_ANNOTATION in (pod.metadata.annotations or {})
