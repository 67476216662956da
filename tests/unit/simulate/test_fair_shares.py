"""Fair shares of queues in a request: the known answer, what is taken where nothing is said, what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from pykai.config.fields import FieldError
from pykai.simulate.fair_shares import simulated

TOTAL = {"GPU": 100, "CPU": 16000, "Memory": 32_000_000}
NOW = 1_800_000_000.0
Queue = dict[str, Any]


def queue(uid: str, gpu: Mapping[str, float | None] | None = None, **more: Any) -> Queue:
    return {"uid": uid, "resourceShare": {"gpu": gpu or {}}, **more}


def answer(*queues: Queue, **total: float) -> dict[str, dict[str, float]]:
    request = {"totalResource": total or TOTAL, "queues": list(queues)}
    return simulated(json.dumps(request).encode(), NOW)


def gpus(*queues: Queue, total: float) -> list[float]:
    return [share["gpu"] for share in answer(*queues, GPU=total).values()]


def test_the_known_answer() -> None:
    wish = {"deserved": 10, "request": 100}
    found = answer(queue("queue1", {**wish, "overQuotaWeight": 3}), queue("queue2", {**wish, "overQuotaWeight": 1}))
    assert found == {
        "queue1": {"gpu": 70.0, "cpu": 16000.0, "memory": 100000.0},
        "queue2": {"gpu": 30.0, "cpu": 16000.0, "memory": 100000.0},
    }


def test_a_block_that_is_there_has_no_quota_of_its_own() -> None:
    """A queue without a block may have all cpu; an empty block is a quota of 0 and a part of the surplus."""
    whole = answer(queue("a"), queue("b"), CPU=1000)
    parts = answer(*({"uid": uid, "resourceShare": {"cpu": {}}} for uid in "ab"), CPU=1000)
    unsaid = answer(*({"uid": uid, "resourceShare": {"cpu": None}} for uid in "ab"), CPU=1000)
    assert [share["cpu"] for share in whole.values()] == [1000.0, 1000.0]
    assert [share["cpu"] for share in parts.values()] == [500.0, 500.0]
    assert unsaid == whole


@pytest.mark.parametrize(
    ("queues", "total", "expected"),
    [
        ([queue("a"), queue("b")], 10, [5, 5]),
        ([queue("a", {"maxAllowed": 2}), queue("b")], 10, [2, 8]),
        ([queue("a", {"request": 3}), queue("b")], 10, [3, 7]),
        ([queue("a", {"deserved": -1}), queue("b")], 10, [10, 0]),
        ([queue("a", priority=1), queue("b")], 10, [10, 0]),
        ([queue("a", {"overQuotaWeight": 0}), queue("b")], 10, [0, 10]),
        ([queue("b"), queue("a")], 5, [2, 3]),
        ([queue("a"), queue("b", creationTimestamp="2020-01-01T00:00:00Z")], 5, [2, 3]),
        ([queue("a"), queue("b", creationTimestamp="long ago")], 5, [3, 2]),
        ([queue("a", {"fairShare": 4, "request": 6}), queue("b")], 10, [6, 8]),
        ([queue("a", {"allocated": 9, "allocatedNotPreemptible": 9, "absoluteUsage": 1}), queue("b")], 10, [5, 5]),
        ([queue("a", {"overQuotaWeight": None, "deserved": None}, priority=None), queue("b")], 10, [5, 5]),
        ([{"uid": "a", "resourceShare": None}, queue("b", name=None)], 10, [5, 5]),
        ([queue("a", {"vacantAdjustedUsage": None}, childQueues=None, parentQueue="x"), queue("b")], 10, [5, 5]),
    ],
)
def test_shares_of_the_gpus(queues: list[Queue], total: float, expected: list[float]) -> None:
    assert gpus(*queues, total=total) == expected


def test_nobody_gets_nothing() -> None:
    assert answer() == {}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "not JSON: Input data was truncated"),
        ("\xff", "not JSON"),
        ("[]", "expected a map, got a list"),
        ('{"queues": []}', "totalResource is missing"),
        ('{"totalResource": {"TPU": 1}, "queues": []}', "totalResource: unknown field 'TPU'"),
        ('{"totalResource": {"GPU": "1"}, "queues": []}', "totalResource.GPU: expected a number, got a string"),
        ('{"totalResource": {"GPU": -4}, "queues": []}', "totalResource.GPU: -4 is negative"),
        (json.dumps({"totalResource": {}, "queues": [{}]}), "queues[0]: uid is missing"),
        (json.dumps({"totalResource": {}, "queues": [None]}), "queues[0]: expected a map, got nothing"),
        (json.dumps({"totalResource": {}, "queues": [queue("")]}), "queues[0].uid: is empty"),
        (json.dumps({"totalResource": {}, "queues": [queue("a"), queue("a")]}), "queues[1].uid: 'a' is given twice"),
        (
            json.dumps({"totalResource": {}, "queues": [queue("a", {"maxAllowed": -5})]}),
            "queues[0].resourceShare.gpu.maxAllowed: -5 is negative (-1 means unlimited)",
        ),
        (
            json.dumps({"totalResource": {}, "queues": [queue("a", {"overQuotaWeight": -1})]}),
            "queues[0].resourceShare.gpu.overQuotaWeight: -1 is negative",
        ),
        (
            json.dumps({"totalResource": {}, "queues": [queue("a", {"wieght": 1})]}),
            "queues[0].resourceShare.gpu: unknown field 'wieght'",
        ),
        (json.dumps({"totalResource": {}, "queues": [queue("a", priority=1 << 40)]}), "queues[0].priority: "),
    ],
)
def test_what_is_wrong_is_refused_by_name(body: str, message: str) -> None:
    with pytest.raises(FieldError) as error:
        simulated(body.encode("latin-1"), NOW)
    assert message in str(error.value)
