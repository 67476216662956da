"""Who goes first: two queues, gangs, pods or sub-groups -> negative (left first), 0, positive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place, served, threshold
from pykai.engine.plugin_api import PodOrder
from pykai.engine.policy import Policy
from pykai.engine.queues import ZERO, Triple, queue_key, total
from pykai.plugins.ordering import Elastic, Kubeflow, Ray, SubGroupOrder, TaskPriority
from tests.conformance.adapters import clusters
from tests.conformance.adapters.quota import book, triple
from tests.conformance.cases import choose

Case = dict[str, Any]


def compared(left: Any, right: Any) -> int:
    return -1 if left < right else int(right < left)


def gang(job: Case, plugins: tuple[object, ...]) -> Cycle:
    """A cluster with nothing but the job."""
    members = [(name, p["name"]) for p in job["pod_sets"] for name in p.get("pods", {})]
    pods = [clusters.pod(name or "pod", job["pods"].get(name, {}), "job", podset) for name, podset in members]
    statuses = {name or "pod": s for p in job["pod_sets"] for name, s in p.get("pods", {}).items()}
    group = clusters.pod_group("job", job["root_sub_group_set"])
    return Cycle(clusters.snapshot([group, *pods], statuses), Policy(plugins), now=0.0)


def gangs(given: Case) -> int:
    left, right = (Elastic().gang_key(gang(given[side], ()).trial, 0) for side in "lr")
    return compared(left, right)


def pods_by(plugin: PodOrder) -> Callable[[Case], int]:
    def check(given: Case) -> int:
        left, right = (given[side]["k8s"].get("metadata", {}).get("labels", {}) for side in "lr")
        return compared(*(plugin.pod_key(labels.get(plugin.pod_label)) for labels in (left, right)))

    return check


def sub_groups(given: Case) -> int:
    """Both sides as the only member of a gang: served and threshold are counted by the engine."""
    return compared(*(member_key(given[side]) for side in "lr"))


def member_key(member: Case) -> Any:
    root = {"pod_sets" if "min_available" in member else "sub_group_sets": [member]}
    members = [(name, status, p["name"]) for p in clusters.podsets(root) for name, status in p["pods"].items()]
    pods = [clusters.pod(name, {}, "job", podset) for name, _, podset in members]
    statuses = {name: status for name, status, _ in members}
    snapshot = clusters.snapshot([clusters.pod_group("job", root), *pods], statuses)
    (child,) = snapshot.gangs.tree(0).children
    trial = Cycle(snapshot, Policy(()), now=0.0).trial
    return SubGroupOrder().member_key(served(trial, child), threshold(child))


def next_request(job: Case | None, device_memory: float) -> Triple:
    """What the job would take next."""
    if not job:
        return ZERO
    cycle = gang(job, (SubGroupOrder(), TaskPriority()))
    return cycle.queue_request(pods_to_place(cycle.trial, cycle.orders, 0), device_memory)


def lost(victims: Sequence[Case] | None) -> Triple:
    """What the jobs hold that would be evicted."""
    held = (triple(pod.get("request")) for job in victims or () for pod in job["pods"].values() if is_allocated(pod))
    return total(held) if victims else ZERO


def is_allocated(pod: Case) -> bool:
    return pod["status"] in {"Allocated", "Bound", "Binding", "Running"}


def queues(given: Case) -> int:
    """The right queue is the first row: of queues that nothing tells apart the cases want the right one first."""
    capacity = triple({name.lower(): amount for name, amount in given.get("total_resources", {}).items()})
    known = book([{**given["r_queue"], "uid": "r"}, {**given["l_queue"], "uid": "l"}], capacity)
    memory = given.get("min_node_gpu_memory", 0)
    right, left = (
        queue_key(known, row, next_request(given.get(f"{side}_job_info"), memory), lost(given.get(f"{side}_victims")))
        for row, side in enumerate("rl")
    )
    return compared(left, right)


OPERATIONS: dict[str, Callable[[Case], int]] = {
    "elastic.JobOrderFn": gangs,
    "kubeflow.TaskOrderFn": pods_by(Kubeflow()),
    "ray.TaskOrderFn": pods_by(Ray()),
    "taskorder.TaskOrderFn": pods_by(TaskPriority()),
    "subgrouporder.SubGroupOrderFn": sub_groups,
    "queue_order.GetQueueOrderResult": queues,
}


def compare(case: Case, _document: Case) -> list[str]:
    got = choose(OPERATIONS, case["input"]["operation"])(case["input"])
    expected = case["expected"].get("result", 0)
    return [] if compared(expected, 0) == got else [f"expected {expected}, got {got}"]


SUITES = {"ordering/compare": compare}
