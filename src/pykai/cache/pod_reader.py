"""One look at each pod: what it says by itself, as numbers that hold until the pod is replaced.

Forty thousand pods do not fit into a processor's cache, so every pass over them costs as much as what it computes:
there is one for the templates and one for all the rest, and the few pods that need thought are picked out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import astuple

from pykai.cache.classes import KindMemo
from pykai.cache.numbering import NamedRows, NumberedNames, Numbers, column
from pykai.model.params import SchedulerParams
from pykai.model.resources import Rows
from pykai.model.status import Status
from pykai.objects import names
from pykai.objects.kinds import Pod, PodSpec
from pykai.objects.pod_template import TEMPLATE_PARTS

KIND, GANG, NODE, STATUS, MARKS = range(5)
"""Fields: numbers of the kind, of the PodGroup (-1: none, or not ours to schedule) and of the node; the status that the
pod alone tells; what is special about it."""
IN_SUBGROUP, RESERVATION, FOREIGN = 1, 2, 4
"""Marks, added up: it names a sub-group; it is a reservation pod of ours; it is another scheduler's and no utility pod
of ours. The last two are set where there is no PodGroup."""

_NOTHING: dict[str, str] = {}
_NODE_NAME, _SCHEDULER_NAME = map(PodSpec.__struct_fields__.index, ("node_name", "scheduler_name"))
_PHASES = {
    "Running": Status.RUNNING,
    "Pending": Status.PENDING,
    "": Status.PENDING,
    "Succeeded": Status.SUCCEEDED,
    "Failed": Status.FAILED,
}


@dataclass
class _Found:
    """What one pass over the pods finds: columns, and rows of pods that need a second look."""

    kind: list[int] = field(default_factory=list)
    node: list[str] = field(default_factory=list)
    gang: NamedRows = field(default_factory=NamedRows)
    """Names of PodGroups of ours."""
    unsteady: list[int] = field(default_factory=list)
    """Pods that do not simply run."""
    labelled: list[int] = field(default_factory=list)
    """Pods that name a sub-group."""


@dataclass(frozen=True)
class PodReader:
    """Reads pods, numbering what it meets."""

    kinds: KindMemo
    gangs: NumberedNames
    nodes: Numbers[str]
    params: SchedulerParams

    def read(self, pods: Sequence[Pod]) -> Rows:
        """The block [field, pod]."""
        kinds, key_sets, ours = self.kinds, self.kinds.key_sets, self.params.scheduler_name
        group_key, label_key = names.POD_GROUP_ANNOTATION, names.SUBGROUP_LABEL
        found, last, namespace = _Found(), None, None
        add_kind, add_node = found.kind.append, found.node.append
        for row, pod in enumerate(pods):
            meta, fields = pod.metadata, astuple(pod.spec)
            annotations, labels, parts = meta.annotations, meta.labels, fields[:TEMPLATE_PARTS]
            if parts != last:
                template, last = kinds.template(parts, pod), parts
                kind = template.kind
            add_node(fields[_NODE_NAME])
            relevant: Sequence[str] = ()
            if annotations:
                group = annotations.get(group_key)
                if group is None or len(annotations) > 1:
                    relevant = key_sets[tuple(annotations)]
                if group is not None and fields[_SCHEDULER_NAME] == ours:
                    if meta.namespace != namespace:
                        namespace = meta.namespace
                        members, groups = found.gang.of(namespace)
                    members.append(row)
                    groups.append(group)
            add_kind(kinds.number(pod, template, relevant) if relevant or kind < 0 else kind)
            if pod.status.phase != "Running" or meta.deletion_timestamp is not None:
                found.unsteady.append(row)
            if labels and label_key in labels:
                found.labelled.append(row)
        return self._block(pods, found)

    def _block(self, pods: Sequence[Pod], found: _Found) -> Rows:
        block = np.zeros((5, len(pods)), dtype=np.int64)
        nodes = map(self.nodes.__getitem__, found.node)
        block[KIND], block[NODE] = column(found.kind), np.fromiter(nodes, dtype=np.int64, count=len(pods))
        block[GANG], block[STATUS] = self.gangs.column(len(pods), found.gang), Status.RUNNING
        block[STATUS, found.unsteady] = [self._status(pods[row], found.kind[row]) for row in found.unsteady]
        alone = np.flatnonzero(block[GANG] < 0).tolist()
        block[MARKS, alone] = [self.marks(pods[row]) for row in alone]
        block[MARKS, found.labelled] += IN_SUBGROUP
        return block

    def _status(self, pod: Pod, kind: int) -> Status:
        status = own_status(pod)
        gated = status is Status.PENDING and self.kinds.kinds[kind].template.decoded.gated
        return Status.GATED if gated else status

    def marks(self, pod: Pod) -> int:
        """What a pod without a gang is."""
        app, params = (pod.metadata.labels or _NOTHING).get(names.APP_LABEL), self.params
        if app == params.reservation_app:
            return RESERVATION
        foreign = app != params.scaling_app and pod.spec.scheduler_name != params.scheduler_name
        return FOREIGN if foreign else 0


def own_status(pod: Pod) -> Status:
    """What a pod is doing as far as it says itself: others know whether it is being bound or stuck on its way out."""
    status = _PHASES.get(pod.status.phase, Status.UNKNOWN)
    if pod.metadata.deletion_timestamp is not None and status in (Status.RUNNING, Status.PENDING):
        return Status.RELEASING
    return Status.BOUND if status is Status.PENDING and pod.spec.node_name else status
