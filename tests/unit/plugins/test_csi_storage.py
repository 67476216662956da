from __future__ import annotations

from typing import Any

import pytest

from pykai.engine.cycle import Cycle
from pykai.objects import kinds
from pykai.plugins.predicates import LateStart
from pykai.plugins.scoring import NodeAvailability
from pykai.plugins.storage import CLAIMS_DELETED, NO_POOL, NO_ROOM, StoragePools
from pykai.plugins.volumes import VolumeChoice, VolumeReach
from tests.builders import as_kind
from tests.unit.plugins.small_clusters import cycle, node, placed, pod, reason

PLUGINS = (StoragePools(), VolumeReach(), VolumeChoice(), NodeAvailability(), LateStart())
BASE = [
    node("a", {"host": "a"}),
    node("b", {"host": "b"}),
    as_kind(
        kinds.StorageClass,
        {"metadata": {"name": "fast"}, "provisioner": "x.io/disk", "volumeBindingMode": "WaitForFirstConsumer"},
    ),
    as_kind(kinds.CSIDriver, {"metadata": {"name": "x.io/disk"}, "spec": {"storageCapacity": True}}),
]


def pool(name: str, host: str, size: str = "10G", **rest: Any) -> Any:
    topology = {"matchLabels": {"host": host}}
    fields = {"metadata": {"name": name}, "storageClassName": "fast", "capacity": size, "nodeTopology": topology}
    return as_kind(kinds.CSIStorageCapacity, {**fields, **rest})


def claim(name: str, size: str = "6G", owner: str = "", **spec: Any) -> Any:
    owners = {"ownerReferences": [{"kind": "Pod", "uid": owner, "name": owner}]} if owner else {}
    fields = {"storageClassName": "fast", "resources": {"requests": {"storage": size}}, **spec}
    status = {"phase": "Bound" if "volumeName" in spec else "Pending"}
    meta = {"name": name, "namespace": "ns", **owners}
    return as_kind(kinds.PersistentVolumeClaim, {"metadata": meta, "spec": fields, "status": status})


def uses(*claims: str, where: str = "") -> dict[str, Any]:
    found = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    return {"volumes": found, **({"nodeName": where} if where else {})}


def made(*objects: Any, enabled: bool = True) -> Cycle:
    return cycle([*BASE, *objects], PLUGINS, schedule_csi_storage=enabled)


def waiting(count: int) -> list[Any]:
    return [item for i in range(count) for item in (claim(f"c{i}"), pod(f"p{i}", uses(f"c{i}")))]


def test_claims_of_one_cycle_share_the_pools() -> None:
    of = made(pool("x", "a"), pool("y", "b"), *waiting(3))
    assert placed(of) == {"p0": "a", "p1": "b", "p2": ""}
    assert reason(of, "p2") == f"no nodes with enough resources were found: 2 {NO_ROOM.format('fast')}."


def test_without_the_flag_pools_are_only_compared_with_single_claims() -> None:
    assert placed(made(pool("x", "a"), pool("y", "b"), *waiting(3), enabled=False)) == {"p0": "a", "p1": "a", "p2": "a"}


def test_claims_of_placed_pods_without_volume_are_drawn_already() -> None:
    old = [claim("old"), pod("o", uses("old", where="a"))]
    assert placed(made(pool("x", "a"), *old, *waiting(1))) == {"p0": ""}
    served = [claim("old", volumeName="v"), pod("o", uses("old", where="a"))]
    assert placed(made(pool("x", "a"), *served, *waiting(1))) == {"p0": "a"}


def test_a_claim_two_pods_share_is_drawn_once() -> None:
    objects = [claim("c0"), pod("p0", uses("c0")), pod("p1", uses("c0"))]
    assert placed(made(pool("x", "a"), *objects)) == {"p0": "a", "p1": "a"}


def test_a_claim_that_is_drawn_needs_no_more_room() -> None:
    """The pool holds less than was drawn already; that does not keep a second user of the claim away."""
    objects = [claim("c0", "9G"), pod("o", uses("c0", where="a")), pod("p0", uses("c0"))]
    assert placed(made(pool("x", "a", "8G"), *objects)) == {"p0": "a"}


def test_several_claims_of_a_pod_add_up() -> None:
    objects = [claim("c0"), claim("c1"), pod("p0", uses("c0", "c1"))]
    assert placed(made(pool("x", "a", "12G"), *objects)) == {"p0": "a"}
    assert placed(made(pool("x", "a", "11G"), *objects)) == {"p0": ""}
    once = [claim("c0"), pod("p0", uses("c0", "c0"))]
    assert placed(made(pool("x", "a", "11G"), *once)) == {"p0": "a"}


NO_USABLE = [[], [pool("x", "a"), pool("y", "a")], [pool("x", "a", storageClassName="slow")]]


@pytest.mark.parametrize("pools", NO_USABLE)
def test_a_node_needs_exactly_one_pool(pools: list[Any]) -> None:
    of = made(*pools, *waiting(1))
    assert placed(of) == {"p0": ""}
    assert reason(of, "p0") == f"no nodes with enough resources were found: 2 {NO_POOL.format('fast')}."


def test_a_volume_larger_than_the_pool_gives_in_one_piece() -> None:
    assert placed(made(pool("x", "a", maximumVolumeSize="5G"), *waiting(1))) == {"p0": ""}


def test_what_a_leaving_pod_alone_owns_can_be_waited_for() -> None:
    owned = claim("old", owner="o", volumeName="v")
    volume = as_kind(kinds.PersistentVolume, {"metadata": {"name": "v"}, "spec": {"storageClassName": "fast"}})
    leaving = pod("o", uses("old", where="a"), terminating=True)
    full = pool("x", "a", "1G", maximumVolumeSize="20G")
    assert placed(made(full, volume, owned, leaving, *waiting(1))) == {"p0": "~a"}
    kept = claim("old", volumeName="v")
    assert placed(made(full, volume, kept, leaving, *waiting(1))) == {"p0": ""}


LEFT = [  # who owns the claim of a pod that leaves before its volume exists, size of the pool, where the next one goes
    ("", "10G", ""),
    ("", "12G", "a"),
    ("o", "10G", "~a"),
    ("o", "12G", "a"),
    ("other", "10G", ""),
]


@pytest.mark.parametrize(("owner", "size", "where"), LEFT)
def test_a_claim_is_drawn_until_its_only_owner_is_gone(owner: str, size: str, where: str) -> None:
    old = [
        claim("old", owner=owner),
        pod("o", uses("old", where="a"), terminating=True),
        pod("other", {"nodeName": "b"}),
    ]
    assert placed(made(pool("x", "a", size), *old, *waiting(1))) == {"p0": where}


def test_a_node_with_room_is_better_than_one_where_it_is_given_up() -> None:
    old = [claim("old", owner="o"), pod("o", uses("old", where="a"), terminating=True)]
    assert placed(made(pool("x", "a"), pool("y", "b"), *old, *waiting(1))) == {"p0": "b"}


def test_claims_whose_owner_is_gone_are_about_to_be_deleted() -> None:
    objects = [claim("c0", owner="gone"), pod("p0", uses("c0"))]
    of = made(pool("x", "a"), *objects)
    assert placed(of) == {"p0": ""}
    assert CLAIMS_DELETED.format("ns/c0") in reason(of, "p0")
