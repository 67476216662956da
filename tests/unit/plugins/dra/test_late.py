"""A node whose device is free comes before one where the device is still to be given up."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.objects import kinds
from pykai.plugins.dra import DynamicResources
from pykai.plugins.predicates import LateStart
from pykai.plugins.scoring import NodeAvailability
from tests.builders import as_kind
from tests.unit.plugins.small_clusters import Fields, cycle, node, placed, pod

PLUGINS = (DynamicResources(), NodeAvailability(), LateStart())
WIDE, ON_A, ON_B = {"allNodes": True}, {"nodeName": "a"}, {"nodeName": "b"}


def published(name: str, where: Fields) -> Any:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "card.example.com", "pool": pool, "devices": [{"name": "d"}], **where}
    return as_kind(kinds.ResourceSlice, {"metadata": {"name": name}, "spec": spec})


def claim(name: str, pool: str = "", user: str = "") -> Any:
    exactly = {"deviceClassName": "card", "allocationMode": "ExactCount", "count": 1}
    status: Fields = {}
    if pool:
        results = [{"request": "r", "driver": "card.example.com", "pool": pool, "device": "d"}]
        status = {"allocation": {"devices": {"results": results}}}
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": user}]
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return as_kind(kinds.ResourceClaim, {"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": status})


def uses(name: str, **rest: Any) -> Fields:
    return {"resourceClaims": [{"name": "c", "resourceClaimName": name}], **rest}


CASES = [  # where the device is that somebody leaves, where another one is, where the next pod goes
    (WIDE, ON_B, "b"),
    (ON_A, ON_B, "b"),
    (ON_A, ON_A, "a"),
    (WIDE, {"nodeName": "elsewhere"}, "~a"),
]


@pytest.mark.parametrize(("left", "other", "where"), CASES)
def test_a_free_device_is_better(left: Fields, other: Fields, where: str) -> None:
    objects = [node("a"), node("b"), as_kind(kinds.DeviceClass, {"metadata": {"name": "card"}, "spec": {}})]
    objects += [published("one", left), published("two", other), claim("old", "one", "o"), claim("new")]
    pods = [pod("o", uses("old", nodeName="a"), terminating=True), pod("p", uses("new"))]
    assert placed(cycle([*objects, *pods], PLUGINS)) == {"p": where}
