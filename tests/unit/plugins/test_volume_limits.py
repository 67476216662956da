from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pykai.engine.cycle import Cycle
from pykai.objects import kinds
from pykai.plugins import volume_limits, volumes
from pykai.plugins.volume_limits import AttachLimits, Disks, ExclusiveClaims
from pykai.plugins.volumes import VolumeReach
from tests.builders import as_kind
from tests.unit.plugins.small_clusters import closed, cycle, node, placed, pod, reason, rejected, resource, row
from tests.unit.plugins.test_volumes import LATE, claim, uses, volume

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
NODES = [node("a"), node("b")]


def bound(name: str, **rest: Any) -> Any:
    return claim(name, phase="Bound", volumeName=f"v-{name}", **rest)


def disk(name: str, driver: str = "x.io/disk", **rest: Any) -> Any:
    return volume(f"v-{name}", csi={"driver": driver, "volumeHandle": name}, **rest)


# ------------------------------------------------------------------------------------------------------- one pod each
ONE = bound("one", accessModes=["ReadWriteOncePod"])
MANY = bound("many", accessModes=["ReadWriteOnce"])


def one_pod(*objects: Any) -> Cycle:
    return cycle([*NODES, ONE, MANY, disk("one"), disk("many"), *objects], [ExclusiveClaims()])


def test_a_claim_for_one_pod_has_one_user() -> None:
    made = one_pod(pod("user", uses("one", where="a")), pod("p", uses("one")))
    assert placed(made) == {"p": ""}
    assert volume_limits.IN_USE in reason(made, "p")
    assert placed(one_pod(pod("user", uses("many", where="a")), pod("p", uses("many")))) == {"p": "a"}
    assert placed(one_pod(pod("user", uses("one", where="a")), pod("p", uses("many")))) == {"p": "a"}


def test_two_pods_of_a_cycle_do_not_share_a_claim_for_one_pod() -> None:
    assert sorted(placed(one_pod(pod("p", uses("one")), pod("q", uses("one")))).values()) == ["", "a"]


def test_a_pod_waits_for_the_claim_of_one_that_leaves() -> None:
    leaving = pod("user", uses("one", where="a"), terminating=True)
    assert placed(one_pod(leaving, pod("p", uses("one")))) == {"p": "~a"}


def test_a_claim_of_the_same_name_elsewhere_is_another_one() -> None:
    other = claim("one", metadata={"namespace": "other"}, phase="Bound", volumeName="v-one")
    far = pod("user", uses("one", where="a"), namespace="other")
    assert placed(one_pod(other, far, pod("p", uses("one")))) == {"p": "a"}


def test_nothing_is_opened_where_nothing_is_limited() -> None:
    made = cycle([*NODES, MANY, disk("many"), pod("p", uses("many"))], [ExclusiveClaims(), AttachLimits(), Disks()])
    assert made.resources.states == ()


# --------------------------------------------------------------------------------------- disks named by pods themselves
def names_disk(kind: str, where: str = "", **disk: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "d", kind: disk}], **({"nodeName": where} if where else {})}


GCE, EBS, ISCSI, RBD = "gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"
READS = {"readOnly": True}
SAME_DISK: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({GCE: {"pdName": "x"}}, {GCE: {"pdName": "x"}}, True),
    ({GCE: {"pdName": "x"}}, {GCE: {"pdName": "y"}}, False),
    ({GCE: {"pdName": "x", **READS}}, {GCE: {"pdName": "x", **READS}}, False),
    ({GCE: {"pdName": "x", **READS}}, {GCE: {"pdName": "x"}}, True),
    ({EBS: {"volumeID": "x", **READS}}, {EBS: {"volumeID": "x", **READS}}, True),
    ({EBS: {"volumeID": "x"}}, {GCE: {"pdName": "x"}}, False),
    ({ISCSI: {"iqn": "x", "lun": 0}}, {ISCSI: {"iqn": "x", "lun": 1}}, True),
    (
        {RBD: {"monitors": ["m", "n"], "pool": "p", "image": "i"}},
        {RBD: {"monitors": ["n"], "pool": "p", "image": "i"}},
        True,
    ),
    (
        {RBD: {"monitors": ["m"], "pool": "p", "image": "i"}},
        {RBD: {"monitors": ["n"], "pool": "p", "image": "i"}},
        False,
    ),
    (
        {RBD: {"monitors": ["m"], "pool": "p", "image": "i"}},
        {RBD: {"monitors": ["m"], "pool": "q", "image": "i"}},
        False,
    ),
    ({"emptyDir": {}}, {"emptyDir": {}}, False),
]


@pytest.mark.parametrize(("ours", "theirs", "same"), SAME_DISK)
def test_pods_that_name_the_same_disk_do_not_share_a_node(
    ours: dict[str, Any], theirs: dict[str, Any], same: bool
) -> None:
    def spec(disk: dict[str, Any], where: str = "") -> dict[str, Any]:
        return {"volumes": [{"name": "d", **disk}], **({"nodeName": where} if where else {})}

    made = cycle([*NODES, pod("user", spec(theirs, "a")), pod("p", spec(ours))], [Disks()])
    assert placed(made) == {"p": "b" if same else "a"}
    alone = cycle([node("a"), pod("user", spec(theirs, "a")), pod("p", spec(ours))], [Disks()])
    assert placed(alone) == {"p": "" if same else "a"}
    if same:
        assert "node(s) had no available disk" in reason(alone, "p")


def test_a_pod_waits_for_the_disk_of_one_that_leaves_and_pods_of_one_cycle_keep_apart() -> None:
    leaving = pod("user", names_disk(GCE, "a", pdName="x"), terminating=True)
    assert placed(cycle([node("a"), leaving, pod("p", names_disk(GCE, pdName="x"))], [Disks()])) == {"p": "~a"}
    both = [pod(name, names_disk(GCE, pdName="x")) for name in ("p", "q")]
    assert sorted(placed(cycle([*NODES, *both], [Disks()])).values()) == ["a", "b"]
    different = [pod(name, names_disk(GCE, pdName=name)) for name in ("p", "q")]
    assert sorted(placed(cycle([*NODES, *different], [Disks()])).values()) == ["a", "a"]


# -------------------------------------------------------------------------------------------------- volumes per node
def limited(most: int, *objects: Any) -> Cycle:
    claims = [bound(name) for name in "wxyz"]
    disks = [disk(name) for name in "wxyz"]
    limits = as_kind(
        kinds.CSINode,
        {
            "metadata": {"name": "a"},
            "spec": {"drivers": [{"name": "x.io/disk", "allocatable": {"count": most}}, {"name": "y.io/disk"}]},
        },
    )
    return cycle([*NODES, LATE, limits, *claims, *disks, *objects], [AttachLimits()])


@pytest.mark.parametrize(
    ("most", "others", "wanted", "full"),
    [
        (1, [], ["x"], False),
        (1, [pod("o", uses("y", where="a"))], ["x"], True),
        (2, [pod("o", uses("y", where="a"))], ["x"], False),
        (2, [pod("o", uses("y", where="a"))], ["x", "z"], True),
        (2, [pod("o", uses("y", where="a"))], ["x", "y"], False),
        (1, [pod("o", uses("x", where="a"))], ["x"], False),
        (1, [pod("o", uses("y", where="b"))], ["x"], False),
        (2, [pod("o", uses("y", where="a")), pod("o2", uses("y", where="a"))], ["x"], False),
        (0, [], ["x"], True),
        (1, [pod("o", uses("y", where="a"), terminating=True)], ["x"], False),
        (1, [claim("new"), pod("o", uses("y", where="a"))], ["new"], True),
    ],
)
def test_a_node_attaches_as_many_volumes_as_it_says(most: int, others: Any, wanted: list[str], full: bool) -> None:
    made = limited(most, *others, pod("p", uses(*wanted)))
    assert closed(made, AttachLimits(), "p") == ({"a": volume_limits.TOO_MANY} if full else {})


def test_pods_of_a_cycle_count() -> None:
    made = limited(1, *(pod(name, uses(name)) for name in "xyz"))
    assert sorted(placed(made).values()) == ["a", "b", "b"]


def test_a_pod_waits_for_the_volume_of_one_that_leaves() -> None:
    leaving = pod("o", uses("y", where="a"), terminating=True)
    made = limited(1, leaving, pod("o2", {"nodeName": "b", **uses()}), pod("p", uses("x")))
    state = resource(made, AttachLimits())
    assert state.must_wait(row(made, "p"), np.arange(2)).tolist() == [True, False]  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------------------------------- zones
ZONED = [
    node("a", {ZONE: "1", REGION: "r"}),
    node("b", {ZONE: "2", REGION: "r"}),
    node("c", {OLD_ZONE: "1"}),
    node("d", {REGION: "r"}),
    node("e"),
]


@pytest.mark.parametrize(
    ("labels", "elsewhere"),
    [
        ({}, ""),
        ({ZONE: "1"}, "bcd"),
        ({ZONE: "1__2"}, "cd"),
        ({REGION: "r"}, "c"),
        ({ZONE: "1", REGION: "q"}, "abcd"),
        ({OLD_ZONE: "1"}, "bd"),
        ({"zone": "1"}, ""),
    ],
)
def test_a_volume_with_a_zone_stays_in_it(labels: dict[str, str], elsewhere: str) -> None:
    disk = as_kind(kinds.PersistentVolume, {"metadata": {"name": "v-x", "labels": labels}, "spec": {}})
    made = cycle([*ZONED, disk, bound("x"), pod("p", uses("x"))], [VolumeReach()])
    assert rejected(made, VolumeReach(), "p") == dict.fromkeys(elsewhere, volumes.OTHER_ZONE)
