"""GPU groups: one shared device of one node, and how pods and bind requests say that they use it.

A group's id comes from the scheduler; a group means something on its node only. A pod that shares one device carries
the id as the value of one label, a pod that shares several carries one label per device. Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pykai.cache.pods import request_failed
from pykai.objects import names
from pykai.objects.gpu_request import positive_count
from pykai.objects.kinds import ABSENT, BindRequest, Pod

Key = tuple[str, str]
"""(namespace, name)."""
FINISHED = ("Succeeded", "Failed")
SUCCEEDED = "Succeeded"


class GroupKey(NamedTuple):
    """One shared device: the node and the id of the GPU group."""

    node: str
    group: str


def key_of(obj: Pod | BindRequest) -> Key:
    """(namespace, name) of an object."""
    return obj.metadata.namespace, obj.metadata.name


def labelled_groups(labels: Mapping[str, str] | None) -> set[str]:
    """The group ids that labels name, in either form."""
    return {value for label, value in (labels or {}).items() if is_group_label(label) and value}


def is_group_label(label: str) -> bool:
    """Whether a label names a group."""
    return label == names.GPU_GROUP_LABEL or label.startswith(names.GPU_GROUP_LABEL_PREFIX)


def group_labels(annotations: Mapping[str, str] | None, groups: Sequence[str]) -> dict[str, str]:
    """The labels of a pod that shares the devices of these groups."""
    devices = positive_count((annotations or {}).get(names.GPU_FRACTION_DEVICES, "1")) or 1
    if devices > 1 or len(groups) > 1:
        return {f"{names.GPU_GROUP_LABEL_PREFIX}{group}": group for group in groups}
    return {names.GPU_GROUP_LABEL: groups[0]} if groups else {}


def may_hold(pod: Pod) -> bool:
    """Whether a pod on no node may have something from a request that is no more: a device by its label, or claims."""
    return pod.spec.resource_claims is not ABSENT or bool(labelled_groups(pod.metadata.labels))


def label_changes(labels: Mapping[str, str] | None, wanted: Mapping[str, str]) -> dict[str, str | None]:
    """What must change for a pod to carry exactly the wanted group labels; None removes one."""
    held = {label: value for label, value in (labels or {}).items() if is_group_label(label)}
    gone: dict[str, str | None] = {label: None for label in held if label not in wanted}
    return gone | {label: value for label, value in wanted.items() if held.get(label) != value}


def pod_groups(pod: Pod) -> set[GroupKey]:
    """The shared devices that a bound pod's labels name; empty for a pod on no node."""
    if not pod.spec.node_name:
        return set()
    return {GroupKey(pod.spec.node_name, group) for group in labelled_groups(pod.metadata.labels)}


def request_groups(request: BindRequest) -> tuple[GroupKey, ...]:
    """The shared devices a bind request asks for, in its order; empty unless it is for a fraction."""
    spec = request.spec
    if spec.received_resource_type != names.RECEIVED_FRACTION:
        return ()
    return tuple(GroupKey(spec.selected_node, group) for group in spec.selected_gpu_groups or ())


def requested_pod(request: BindRequest) -> Key:
    """The pod that a bind request is about."""
    return request.metadata.namespace, request.spec.pod_name


def is_open(request: BindRequest) -> bool:
    """Whether the binder still has something to do for a request."""
    alive = request.metadata.deletion_timestamp is None
    return alive and request.status.phase != SUCCEEDED and not request_failed(request)


def is_meant_for(request: BindRequest, pod: Pod) -> bool:
    """Whether a request is about this very pod, not about an earlier one of the same name."""
    owners = [owner.uid for owner in request.metadata.owner_references or () if owner.kind == "Pod" and owner.uid]
    return not owners or pod.metadata.uid in owners


def is_over(pod: Pod) -> bool:
    """Whether a pod's containers have ended for good: it uses no device any more."""
    return pod.status.phase in FINISHED
