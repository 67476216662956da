"""Pods that differ in the names of their claims alone are of one class, where the claims make no difference."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.model.params import SchedulerParams
from pykai.objects import kinds
from tests.builders import as_kind, decoded, pod, snapshot
from tests.unit.plugins.dra.dra_objects import allocated, claim, claiming, request

BOUND = {"phase": "Bound"}


def classes(*objects: Any, **params: Any) -> list[int]:
    """The class of each pod."""
    flat = [each for item in objects for each in (item if isinstance(item, list) else [item])]
    found: list[int] = snapshot(flat, params=SchedulerParams(**params)).pods.klass.tolist()
    return found


def mounting(name: str, *claims: str, **spec: Any) -> Any:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return decoded(pod(name, spec={"volumes": volumes, **spec}))


def disk(name: str, zone: str = "z1", labels: dict[str, str] | None = None, **fields: Any) -> list[Any]:
    """A claim and the volume it is bound to; `fields` are of the claim's spec, or its status."""
    status, csi = fields.pop("status", BOUND), fields.pop("csi", None)
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": zone, "operator": "Exists"}]}]}}
    meta = {"name": name, "namespace": "ns", **fields.pop("metadata", {})}
    return [
        as_kind(
            kinds.PersistentVolumeClaim,
            {"metadata": meta, "spec": {"volumeName": f"v-{name}", **fields}, "status": status},
        ),
        as_kind(
            kinds.PersistentVolume,
            {"metadata": {"name": f"v-{name}", "labels": labels or {}}, "spec": {"nodeAffinity": affinity, "csi": csi}},
        ),
    ]


LIMITED = as_kind(
    kinds.CSINode,
    {"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "d", "allocatable": {"count": 1}}]}},
)
ALIKE: list[tuple[list[Any], dict[str, Any], bool]] = [  # what the second pod's disk is like, parameters, one class
    (disk("y"), {}, True),
    (disk("y", labels={"made-for": "y"}), {}, True),
    (disk("y", "z2"), {}, False),
    (disk("y", labels={"topology.kubernetes.io/zone": "a"}), {}, False),
    (disk("y", accessModes=["ReadWriteOncePod"]), {}, False),
    (disk("y", status={"phase": "Lost"}), {}, False),
    (disk("y", status={"phase": "Pending"}), {}, False),
    (disk("y", metadata={"deletionTimestamp": "2020-01-01T00:00:00Z"}), {}, False),
    (disk("y")[:1], {}, False),
    ([], {}, False),
    ([*disk("y", csi={"driver": "d"}), LIMITED], {}, False),
    ([*disk("y", csi={"driver": "other"}), LIMITED], {}, True),
    (disk("y"), {"schedule_csi_storage": True}, False),
]


@pytest.mark.parametrize(("second", "params", "one"), ALIKE)
def test_bound_claims_count_by_where_their_volumes_can_be_used(
    second: list[Any], params: dict[str, Any], one: bool
) -> None:
    found = classes(disk("x"), second, mounting("p", "x"), mounting("q", "y"), **params)
    assert (found[0] == found[1]) is one


def test_pods_with_bound_claims_differ_in_all_else_that_distinguishes_pods() -> None:
    pods = [mounting("p", "x"), mounting("q", "y", nodeSelector={"a": "b"}), mounting("r", "x", "y"), mounting("s")]
    assert len(set(classes(disk("x"), disk("y"), *pods))) == 4


@pytest.mark.parametrize("claim", [None, {}])
def test_a_volume_that_names_no_claim_is_no_claim(claim: Any) -> None:
    pods = [decoded(pod(name, spec={"volumes": [{"name": "v", "persistentVolumeClaim": claim}]})) for name in "pq"]
    found = classes(disk("x"), *pods, mounting("r", "x"))
    assert found[0] == found[1] != found[2]


DEVICES: list[tuple[list[Any], bool]] = [  # claims and pods beside pod p with claim a, the last one q; one class
    ([claim("b"), claiming("q", "b")], True),
    ([claim("b", request(count=2)), claiming("q", "b")], False),
    ([claim("b", request(selectors=[{"cel": {"expression": "true"}}])), claiming("q", "b")], False),
    ([claim("b", status=allocated("n", "0")), claiming("q", "b")], False),
    ([claim("b", status=allocated("n", "0", holders=("q",))), claiming("q", "b", spec={"nodeName": "n"})], True),
    ([claiming("q", "b")], False),
    ([claim("b"), claiming("r", "b"), claiming("q", "b")], False),
    ([claiming("q", "a")], True),
]


@pytest.mark.parametrize(("others", "one"), DEVICES)
def test_claims_for_devices_count_by_what_they_ask_for(others: list[Any], one: bool) -> None:
    found = classes(claim("a"), claiming("p", "a"), *others)
    assert (found[0] == found[-1]) is one
