"""Fair-share division: queues of one level, the over-quota half alone, and the whole tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pykai.kernels.fairshare import QueueColumns, divide_level, divide_over_quota, fair_shares
from tests.conformance.cases import NotApplicable, choose

RESOURCES = ("cpu", "memory", "gpu")
COLUMNS = ("deserved", "max_allowed", "over_quota_weight", "request", "usage")
DIVISIONS = dict.fromkeys(("divide_one_resource", "divide_over_quota_only", "divide_all_resources"), "")
TOLERANCE = 1e-6
NEVER = -np.inf  # a queue without a creation time is older than all others


def column(queues: list[dict[str, Any]], key: str) -> np.ndarray:
    return np.array([[float(q.get(r, {}).get(key, 0)) for q in queues] for r in RESOURCES])


def columns(queues: list[dict[str, Any]]) -> QueueColumns:
    order = sorted(q["uid"] for q in queues)
    deserved, limit, weight, request, usage = (column(queues, key) for key in COLUMNS)
    return QueueColumns(
        deserved=deserved,
        limit=limit,
        weight=weight,
        request=request,
        usage=usage,
        priority=np.array([q.get("priority", 0) for q in queues]),
        creation=np.array([q.get("creation_offset_seconds", NEVER) for q in queues]),
        rank=np.array([order.index(q["uid"]) for q in queues]),
    )


def vector(total: dict[str, float]) -> np.ndarray:
    return np.array([float(total.get(r, 0)) for r in RESOURCES])


def differences(expected: dict[str, Any], got: dict[str, Any]) -> list[str]:
    keys = sorted(set(expected) | set(got))
    return [
        f"{k}: expected {expected.get(k)}, got {got.get(k)}"
        for k in keys
        if k not in expected or k not in got or abs(expected[k] - got[k]) > TOLERANCE
    ]


def by_queue(queues: list[dict[str, Any]], fair: np.ndarray) -> dict[str, float]:
    return {f"{q['uid']}/{r}": float(fair[i, n]) for n, q in enumerate(queues) for i, r in enumerate(RESOURCES)}


def flat(expected: dict[str, dict[str, float]]) -> dict[str, float]:
    return {f"{uid}/{r}": amount for uid, shares in expected.items() for r, amount in shares.items()}


def one_resource(case: dict[str, Any], queues: list[dict[str, Any]]) -> list[str]:
    given = case["input"]
    row = choose(dict(zip(RESOURCES, range(3), strict=True)), given["resource"])
    total = np.zeros(3)
    total[row] = given.get("total", 0)
    before = column(queues, "fair_share")
    if given["operation"] == "divide_over_quota_only":
        fair = divide_over_quota(total, before, columns(queues), given["k_value"])
        remaining = total[row] - (fair - before)[row].sum()
    else:
        fair = divide_level(total, columns(queues), given["k_value"])
        remaining = max(0.0, total[row] - fair[row].sum())
    got = {q["uid"]: float(fair[row, n]) for n, q in enumerate(queues)}
    return differences(
        {**case["expected"]["fair_share"], "remaining": case["expected"]["remaining"]}, {**got, "remaining": remaining}
    )


def division(case: dict[str, Any], _document: dict[str, Any]) -> list[str]:
    given = case["input"]
    choose(DIVISIONS, given["operation"])
    queues = list(given["queues"].values())
    if given["operation"] != "divide_all_resources":
        return one_resource(case, queues)
    fair = divide_level(vector(given["total"]), columns(queues), given["k_value"])
    return differences(flat(case["expected"]["fair_share"]), by_queue(queues, fair))


def _hangs_loose(parent: Sequence[int]) -> bool:
    known = {-1}
    while more := {row for row, above in enumerate(parent) if above in known} - known:
        known |= more
    return len(known) <= len(parent)


def hierarchy(case: dict[str, Any], _document: dict[str, Any]) -> list[str]:
    given = case["input"]
    queues = list(given["queues"].values())
    rows = {q["uid"]: n for n, q in enumerate(queues)}
    parent = [rows.get(q.get("parent_queue", ""), -1) for q in queues]
    if _hangs_loose(parent):
        raise NotApplicable("queues hang on no top-level queue")
    fair = fair_shares(np.array(parent, dtype=np.int64), vector(given["total"]), columns(queues), given["k_value"])
    return differences(flat(case["expected"]["fair_share"]), by_queue(queues, fair))


SUITES = {"fairshare/division": division, "fairshare/hierarchy": hierarchy}
