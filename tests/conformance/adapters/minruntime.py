"""Minimum run times: resolution over the queue tree, victim filters, scenario checks, durations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pykai.plugins.minruntime import (
    METHODS,
    MinRuntimePolicy,
    MinRuntimes,
    configured_seconds,
    is_elastic,
    keeps_minimum,
    protected,
)
from tests.conformance.cases import NotApplicable, choose

ACTIVE_USED = {"Allocated", "Bound", "Binding", "Running", "Pipelined", "Releasing", "StuckInReleasing"}
Case = dict[str, Any]


class Tree:
    """The queues of a case as rows; a queue named by the case but absent from its tree stands alone at the top."""

    def __init__(self, given: Case, method: str | None = None) -> None:
        config = given["config"]
        mentioned = [given.get(key) for key in ("queue", "preemptor_queue", "preemptee_queue")]
        queues = {**{q["uid"]: q for q in mentioned if q}, **config["queues"]}
        self.names = list(queues)
        rows = {uid: row for row, uid in enumerate(queues)}
        self.rows = rows
        policy = MinRuntimePolicy(
            config.get("default_preempt_min_runtime_seconds", 0),
            config.get("default_reclaim_min_runtime_seconds", 0),
            METHODS.get(method or config.get("reclaim_resolve_method", ""), "lca"),
        )
        self.runtimes = MinRuntimes(
            [rows.get(q.get("parent_queue", ""), -1) for q in queues.values()],
            [q.get("preempt_min_runtime_seconds") for q in queues.values()],
            [q.get("reclaim_min_runtime_seconds") for q in queues.values()],
            policy,
        )

    def row(self, queue: Case | None) -> int:
        return self.rows[queue["uid"]] if queue else -1

    def min_runtime(self, kind: str, reclaimer: str, victim: str) -> float:
        """The default where a queue does not exist."""
        policy, ours, theirs = self.runtimes.policy, self.rows.get(reclaimer), self.rows.get(victim)
        if kind == "preempt":
            return policy.preempt if theirs is None else self.runtimes.preempt_min_runtime(theirs)
        if ours is None or theirs is None:
            return policy.reclaim
        return self.runtimes.reclaim_min_runtime(ours, theirs)


def resolved(resolve: Callable[[], float], expected: Case, default: float) -> list[str]:
    """A queue that does not exist is refused; the caller would then be left with the default."""
    try:
        seconds, refused = resolve(), False
    except ValueError:
        seconds, refused = default, True
    bad = [] if refused == ("error" in expected) else [f"refused: {refused}, expected {expected}"]
    return bad + ([] if seconds == expected["seconds"] else [f"{seconds} s, expected {expected['seconds']}"])


def resolve_preempt(case: Case) -> list[str]:
    tree = Tree(case["input"])
    row = tree.row(case["input"]["queue"])
    runtimes = tree.runtimes
    return resolved(lambda: runtimes.preempt_min_runtime(row), case["expected"], runtimes.policy.preempt)


def resolve_reclaim(method: str | None) -> Callable[[Case], list[str]]:
    """`method` None: the one of the case, where anything but `lca` is `queue`."""

    def check(case: Case) -> list[str]:
        given = case["input"]
        tree = Tree(given, method or ("lca" if given.get("resolve_method") == "lca" else "queue"))
        pair = tree.row(given["preemptor_queue"]), tree.row(given["preemptee_queue"])
        runtimes = tree.runtimes
        return resolved(lambda: runtimes.reclaim_min_runtime(*pair), case["expected"], runtimes.policy.reclaim)

    return check


def path(case: Case) -> list[str]:
    tree = Tree(case["input"])
    start = tree.row(case["input"]["queue"])
    try:
        got = [tree.names[row] for row in tree.runtimes.path(start)] if start >= 0 else []
    except ValueError as error:
        raise NotApplicable(str(error)) from error
    return [] if got == case["expected"]["path"] else [f"path {got}, expected {case['expected']['path']}"]


def is_protected(job: Case, min_runtime: float) -> bool:
    return bool(protected(job.get("last_start_offset_seconds", np.nan), min_runtime, 0.0))


def elastic(job: Case) -> bool:
    sets = job["pod_sets"]
    return is_elastic([len(s.get("pods", {})) for s in sets], [s.get("min_available", 0) for s in sets])


def victim_allowed(kind: str) -> Callable[[Case], list[str]]:
    def check(case: Case) -> list[str]:
        given = case["input"]
        victim = given["victim"]
        minimum = Tree(given).min_runtime(kind, given["pending_job"]["queue"], victim["queue"])
        return result(case, elastic(victim) or not is_protected(victim, minimum))

    return check


def scenario_valid(kind: str) -> Callable[[Case], list[str]]:
    """Only elastic victims count: of the others none that is protected gets into a scenario."""

    def check(case: Case) -> list[str]:
        scenario, tree = case["input"]["scenario"], Tree(case["input"])
        valid = True
        for victim in scenario["victims"].values():
            job = victim["job"]
            if not elastic(job):
                continue
            minimum = tree.min_runtime(kind, scenario["preemptor"]["queue"], job["queue"])
            valid &= not is_protected(job, minimum) or keeps_minimum(*counts(job, victim["tasks"]))
        return result(case, valid)

    return check


def counts(job: Case, tasks: list[Case]) -> tuple[list[int], list[int], list[int]]:
    leaving = {task["uid"] for task in tasks}
    sets = job["pod_sets"]
    active = [sum(status in ACTIVE_USED for status in s.get("pods", {}).values()) for s in sets]
    return active, [len(leaving & set(s.get("pods", {}))) for s in sets], [s.get("min_available", 0) for s in sets]


def result(case: Case, got: bool) -> list[str]:
    return [] if got == case["expected"].get("result", False) else [f"got {got}"]


def parse(case: Case) -> list[str]:
    got = configured_seconds(case["input"]["value"])
    return [] if got == case["expected"]["seconds"] else [f"{got} s, expected {case['expected']['seconds']}"]


OPERATIONS: dict[str, Callable[[Case], list[str]]] = {
    "parse_duration": parse,
    "queue_hierarchy_path": path,
    "resolve_preempt_min_runtime": resolve_preempt,
    "resolve_reclaim_min_runtime": resolve_reclaim(None),
    "resolve_reclaim_min_runtime_lca": resolve_reclaim("lca"),
    "resolve_reclaim_min_runtime_queue": resolve_reclaim("queue"),
    "preempt_victim_allowed": victim_allowed("preempt"),
    "reclaim_victim_allowed": victim_allowed("reclaim"),
    "preempt_scenario_valid": scenario_valid("preempt"),
    "reclaim_scenario_valid": scenario_valid("reclaim"),
}

SUITES = {"minruntime/minruntime": lambda case, _document: choose(OPERATIONS, case["input"]["operation"])(case)}
