"""Queue arithmetic: limits and non-preemptible quota, and who may reclaim what from whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pykai.engine import queues
from pykai.engine.cycle import Cycle
from pykai.engine.policy import Policy
from pykai.engine.queues import ZERO, Claim, OverCapacity, QueueBook, Triple, over_limit, over_non_preemptible_quota
from tests.conformance.adapters import clusters
from tests.conformance.cases import NotApplicable, choose

Case = dict[str, Any]
RESOURCES = ("cpu", "memory", "gpu")
NEVER = float("-inf")  # a queue without a creation time is older than all others


def triple(amounts: Case | None) -> Triple:
    cpu, memory, gpu = (float((amounts or {}).get(resource, 0)) for resource in RESOURCES)
    return cpu, memory, gpu


def column(queues: list[Case], key: str) -> list[Triple]:
    return [triple({r: q.get(r, {}).get(key, 0) for r in RESOURCES}) for q in queues]


def paths(queues: list[Case]) -> list[tuple[int, ...]]:
    rows = {q["uid"]: row for row, q in enumerate(queues)}

    def upwards(row: int) -> tuple[int, ...]:
        parent = rows.get(queues[row].get("parent_queue") or None, -1)
        return (row, *upwards(parent)) if parent >= 0 else (row,)

    return [upwards(row) for row in range(len(queues))]


def book(queues: list[Case], total: Triple = ZERO) -> QueueBook:
    return QueueBook(
        names=[q["uid"] for q in queues],
        titles=[q.get("name") or q["uid"] for q in queues],
        paths=paths(queues),
        priority=[q.get("priority", 0) for q in queues],
        creation=[q.get("creation_offset_seconds", NEVER) for q in queues],
        deserved=column(queues, "deserved"),
        limit=column(queues, "max_allowed"),
        fair=column(queues, "fair_share"),
        allocated=column(queues, "allocated"),
        allocated_non_preemptible=column(queues, "allocated_not_preemptible"),
        total=total,
    )


def row_of(names: Sequence[str], uid: str) -> int:
    if uid not in names:
        raise NotApplicable(f"the queue {uid} is not among those of the case")
    return list(names).index(uid)


# --------------------------------------------------------------------------------------------------------- capacity
def gang_request(given: Case) -> Triple:
    tasks = given["tasks_to_allocate"]
    pods = [clusters.pod(str(at), task) for at, task in enumerate(tasks)]
    cycle = Cycle(clusters.snapshot(pods), Policy(()), now=0.0)
    return cycle.queue_request(list(range(len(tasks))), given.get("max_node_gpu_memory_mib", 0))


def pod_request(given: Case) -> Triple:
    """What one pod takes on the given node."""
    pods = [clusters.pod("pod", given["task"])]
    trial = Cycle(clusters.snapshot([clusters.node(given["node"]), *pods]), Policy(()), now=0.0).trial
    return trial.quota_amounts(trial.of_class(0), 0)


def given_request(given: Case) -> Triple:
    return triple(given["requested_share"])


Rule = Callable[[QueueBook, int, Triple], OverCapacity | None]
CAPACITY: dict[str, tuple[Callable[[Case], Triple], tuple[Rule, ...]]] = {
    "check_queue_limit": (given_request, (over_limit,)),
    "check_non_preemptible_quota": (given_request, (over_non_preemptible_quota,)),
    "is_job_over_queue_capacity": (gang_request, (over_limit, over_non_preemptible_quota)),
    "is_non_preemptible_job_over_quota": (gang_request, (over_non_preemptible_quota,)),
    "is_task_allocation_on_node_over_capacity": (pod_request, (over_limit, over_non_preemptible_quota)),
}


def capacity(case: Case, _document: Case) -> list[str]:
    given, expected = case["input"], case["expected"]
    queues, queue = list(given["queues"].values()), given["job"]["queue"]
    request_of, rules = choose(CAPACITY, given["operation"])
    request = request_of(given)
    if given["job"]["preemptibility"] == "preemptible":
        rules = tuple(rule for rule in rules if rule is not over_non_preemptible_quota)
    uids = [q["uid"] for q in queues]
    if queue not in uids:
        rules = ()  # a queue that does not exist bounds nothing
    over = next((found for rule in rules if (found := rule(book(queues), row_of(uids, queue), request))), None)
    got = {"is_schedulable": over is None, **({"reason": over.reason, "message": over.message} if over else {})}
    return [] if got == expected else [f"expected {expected}", f"got      {got}"]


# ---------------------------------------------------------------------------------------------------------- reclaim
def claim(given: Case, known: QueueBook) -> Claim:
    who = given["reclaimer"]
    row = row_of(known.names, who["queue"])
    return Claim(row, triple(who.get("required_resources")), who.get("is_preemptable", False))


def can_reclaim(given: Case, known: QueueBook) -> bool:
    return queues.can_reclaim(known, claim(given, known))


def filter_victim(given: Case, known: QueueBook) -> bool:
    if "reclaimer" not in given or given["reclaimee_queue_id"] not in known.names:
        return True  # nothing to judge by
    return queues.may_lose(known, claim(given, known), row_of(known.names, given["reclaimee_queue_id"]))


def reclaimable(given: Case, known: QueueBook) -> bool:
    lost = given["reclaimee_resources_by_queue"]
    losses = {row_of(known.names, uid): [triple(block) for block in blocks or ()] for uid, blocks in lost.items()}
    return queues.reclaimable(known, claim(given, known), losses, given["saturation_multiplier"])


RECLAIM: dict[str, Callable[[Case, QueueBook], bool]] = {
    "can_reclaim_resources": can_reclaim,
    "filter_victim": filter_victim,
    "reclaimable": reclaimable,
}


def fits_quota(given: Case) -> bool:
    return queues.within_quota(book([given["reclaimer_queue"]]), 0, triple(given.get("reclaimer_resources")))


def exceeds_quota(given: Case) -> bool:
    return queues.above_quota(book([given["reclaimee_queue"]]), 0, triple(given["reclaimee_remaining_share"]))


def exceeds_fair_share(given: Case) -> bool:
    return queues.keeps_fair_share(book([given["reclaimee_queue"]]), 0, triple(given["reclaimee_remaining_share"]))


STRATEGIES: dict[str, Callable[[Case], bool]] = {
    "reclaimer_fits_deserved_quota": fits_quota,
    "reclaimee_exceeds_deserved_quota": exceeds_quota,
    "strategy_guarantee_deserved_quota": lambda given: fits_quota(given) and exceeds_quota(given),
    "strategy_maintain_fair_share": exceeds_fair_share,
    "fits_maintain_fair_share": exceeds_fair_share,
    "fits_reclaim_strategy": lambda given: exceeds_fair_share(given) or (fits_quota(given) and exceeds_quota(given)),
}


def reclaim(case: Case, _document: Case) -> list[str]:
    given = case["input"]
    if given["operation"] in STRATEGIES:
        got = STRATEGIES[given["operation"]](given)
    else:
        got = choose(RECLAIM, given["operation"])(given, book(list(given["queues"].values())))
    expected = case["expected"].get("result", False)
    return [] if got == expected else [f"expected {expected}, got {got}"]


SUITES = {"fairshare/capacity_policy": capacity, "fairshare/reclaimable": reclaim}
