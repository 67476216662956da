from __future__ import annotations

from typing import Any

import pytest

from pykai.engine.cycle import Cycle
from pykai.objects import kinds
from pykai.plugins import volumes
from pykai.plugins.gates import SchedulingConditions
from pykai.plugins.volumes import ClaimsExist, VolumeChoice, VolumeChoices, VolumeReach
from tests.builders import as_kind
from tests.unit.plugins.small_clusters import closed, cycle, node, placed, pod, reason, rejected, row

PLUGINS = (SchedulingConditions((ClaimsExist(),)), VolumeReach(), VolumeChoice())
NODES = [node("a", {"zone": "1", "host": "a"}), node("b", {"zone": "1", "host": "b"}), node("c", {"zone": "2"})]


def choices(of: Cycle) -> VolumeChoices:
    found = of.resources.get(VolumeChoices)
    assert found is not None
    return found


def storage_class(name: str, mode: str = "WaitForFirstConsumer", **rest: Any) -> Any:
    fields = {"metadata": {"name": name}, "provisioner": "x.io/disk", "volumeBindingMode": mode, **rest}
    return as_kind(kinds.StorageClass, fields)


def claim(name: str, of: str = "late", size: str = "1G", **rest: Any) -> Any:
    meta = {"name": name, "namespace": "ns", **rest.pop("metadata", {})}
    status = {"phase": rest.pop("phase", "Pending")}
    spec = {"storageClassName": of, "resources": {"requests": {"storage": size}}, **rest}
    return as_kind(kinds.PersistentVolumeClaim, {"metadata": meta, "spec": spec, "status": status})


def volume(name: str, host: str = "", of: str = "late", size: str = "1G", **rest: Any) -> Any:
    spec = {"storageClassName": of, "capacity": {"storage": size}, **rest}
    if host:
        only = {"matchExpressions": [{"key": "host", "operator": "In", "values": [host]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [only]}}
    return as_kind(kinds.PersistentVolume, {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}})


def uses(*claims: str, where: str = "") -> dict[str, Any]:
    found = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    return {"volumes": found, **({"nodeName": where} if where else {})}


LATE, EAGER = storage_class("late"), storage_class("eager", "Immediate")
LOCAL = storage_class("local", provisioner="kubernetes.io/no-provisioner")
PROBLEMS = [  # objects, what the refusal says
    ([], 'persistentvolumeclaim "x" not found'),
    (
        [claim("x", phase="Lost", volumeName="v")],
        'persistentvolumeclaim "x" bound to non-existent persistentvolume "v"',
    ),
    (
        [claim("x", metadata={"deletionTimestamp": "2020-01-01T00:00:00Z"})],
        'persistentvolumeclaim "x" is being deleted',
    ),
    ([EAGER, claim("x", "eager")], "pod has unbound immediate PersistentVolumeClaims"),
    ([claim("x", "no-such-class")], "pod has unbound immediate PersistentVolumeClaims"),
    ([LATE, claim("x", volumeName="v")], "pod has unbound immediate PersistentVolumeClaims"),
]


@pytest.mark.parametrize(("objects", "says"), PROBLEMS)
def test_problems_with_claims(objects: list[Any], says: str) -> None:
    made = cycle([*NODES, *objects, pod("p", uses("x"))], PLUGINS)
    assert placed(made) == {"p": ""}
    assert reason(made, "p") == f"Scheduling conditions were not met for pod ns/p:\nVolumeBinding: {says}."


@pytest.mark.parametrize(
    ("owner", "says"),
    [
        ("p", None),
        ("q", "PVC ns/p-scratch was not created for pod ns/p (pod is not owner)"),
        ("", 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"'),
    ],
)
def test_ephemeral_volumes_belong_to_their_pod(owner: str, says: str | None) -> None:
    owned = {"ownerReferences": [{"kind": "Pod", "name": owner, "uid": owner}]}
    claims = [claim("p-scratch", metadata=owned)] if owner else []
    spec = {"volumes": [{"name": "scratch", "ephemeral": {}}]}
    made = cycle([*NODES, LATE, *claims, pod("other", spec), pod("p", spec)], PLUGINS)
    assert ClaimsExist().problem(made, row(made, "p")) == says


BOUND = {"phase": "Bound", "volumeName": "v"}
ZONE_2 = [{"matchLabelExpressions": [{"key": "zone", "values": ["2"]}]}]
PLACES = [  # objects, nodes a pod with claim x can use
    ([claim("x", **BOUND), volume("v")], "abc"),
    ([claim("x", **BOUND), volume("v", "b")], "b"),
    ([claim("x", **BOUND)], ""),
    ([LATE, claim("x")], "abc"),
    ([storage_class("late", allowedTopologies=ZONE_2), claim("x")], "c"),
    ([LATE, claim("x", metadata={"annotations": {"volume.kubernetes.io/selected-node": "b"}})], "b"),
    ([LATE, claim("x", metadata={"annotations": {"volume.kubernetes.io/selected-node": "b"}}), volume("v", "a")], "b"),
    ([LOCAL, claim("x", "local")], ""),
    ([LOCAL, claim("x", "local"), volume("v", "a", "local"), volume("w", "b", "local")], "ab"),
    ([LOCAL, claim("x", "local", "2G"), volume("v", "a", "local"), volume("w", "b", "local", "2G")], "b"),
    ([LOCAL, claim("x", "local"), volume("v", "a", "other")], ""),
    ([LOCAL, claim("x", "local", accessModes=["ReadWriteMany"]), volume("v", "a", "local")], ""),
    ([LOCAL, claim("x", "local", volumeMode="Block"), volume("v", "a", "local")], ""),
    ([LOCAL, claim("x", "local", selector={"matchLabels": {"k": "v"}}), volume("v", "a", "local")], ""),
    ([LOCAL, claim("x", "local"), volume("v", "a", "local", claimRef={"namespace": "ns", "name": "y"})], ""),
    (
        [LATE, claim("x"), volume("v", "a"), volume("w", "b", claimRef={"namespace": "ns", "name": "x"})],
        "b",
    ),
]


@pytest.mark.parametrize(("objects", "nodes"), PLACES)
def test_where_claims_can_be_served(objects: list[Any], nodes: str) -> None:
    made = cycle([*NODES, *objects, pod("p", uses("x"))], PLUGINS)
    shut = rejected(made, VolumeReach(), "p").keys() | closed(made, VolumeChoice(), "p").keys()
    assert "".join(sorted(set("abc") - shut)) == nodes


def test_reasons() -> None:
    gone = cycle([NODES[0], claim("x", **BOUND), pod("p", uses("x"))], PLUGINS)
    away = cycle([NODES[0], claim("x", **BOUND), volume("v", "b"), pod("p", uses("x"))], PLUGINS)
    none = cycle([NODES[0], LOCAL, claim("x", "local"), pod("p", uses("x"))], PLUGINS)
    for made, says in [(gone, volumes.VOLUME_GONE), (away, volumes.NOT_REACHABLE), (none, volumes.NO_VOLUME)]:
        assert placed(made) == {"p": ""}
        assert reason(made, "p") == f"no nodes with enough resources were found: 1 {says}."


LOCALS = [LOCAL, volume("va", "a", "local"), volume("vb", "b", "local")]


def test_two_claims_do_not_get_one_volume() -> None:
    claims = [claim(f"c{i}", "local") for i in range(3)]
    pods = [pod(f"p{i}", uses(f"c{i}")) for i in range(3)]
    assert placed(cycle([*NODES, *LOCALS, *claims, *pods], PLUGINS)) == {"p0": "a", "p1": "b", "p2": ""}
    together = cycle([*NODES, *LOCALS, *claims, pod("p", uses("c0", "c1"))], PLUGINS)
    assert placed(together) == {"p": ""}


def test_a_claim_that_a_pod_names_twice_is_one() -> None:
    made = cycle([*NODES, *LOCALS, claim("c", "local"), pod("p", uses("c", "c"))], PLUGINS)
    assert placed(made) == {"p": "a"}


def test_a_pod_on_its_way_holds_its_volume() -> None:
    claims = [claim("c0", "local"), claim("c1", "local")]
    bound = pod("old", uses("c0", where="a"))
    assert placed(cycle([*NODES, *LOCALS, *claims, bound, pod("p", uses("c1"))], PLUGINS)) == {"p": "b"}


def test_pods_with_one_claim_go_where_the_first_one_went() -> None:
    pods = [pod(f"p{i}", uses("c")) for i in range(9)]
    assert set(placed(cycle([*NODES, LATE, claim("c"), *pods], PLUGINS)).values()) == {"a", ""}
    local = cycle([*NODES, *LOCALS, claim("c", "local"), *pods], PLUGINS)
    assert set(placed(local).values()) == {"a", ""}


def test_an_undone_placement_gives_its_volume_back() -> None:
    claims = [claim("c0", "local"), claim("c1", "local")]
    made = cycle([*NODES, *LOCALS, *claims, pod("p0", uses("c0")), pod("p1", uses("c1"))], PLUGINS)
    plugin, mark = VolumeChoice(), made.trial.mark()
    choices(made).reserve(row(made, "p0"), 0)
    assert closed(made, plugin, "p1").keys() == {"a", "c"}
    made.trial.undo_to(mark)
    assert closed(made, plugin, "p1") == {"c": volumes.NO_VOLUME}


@pytest.mark.parametrize(("second", "nowhere"), [("", "c"), ("c0", "ac")])
def test_a_place_that_is_taken_back_gives_its_volume_back(second: str, nowhere: str) -> None:
    """Unless another pod with the same claim has its place still."""
    claims = [claim("c0", "local"), claim("c1", "local")]
    pods = [pod("p0", uses("c0")), pod("p1", uses(*filter(None, [second]))), pod("p2", uses("c1"))]
    made, plugin = cycle([*NODES, *LOCALS, *claims, *pods], PLUGINS), VolumeChoice()
    for name in ("p0", "p1"):
        choices(made).reserve(row(made, name), 0)
    choices(made).release(row(made, "p0"))
    assert "".join(closed(made, plugin, "p2")) == nowhere


def test_a_pod_on_its_way_leaves_its_volume_to_nobody() -> None:
    claims = [claim("c0", "local"), claim("c1", "local")]
    bound = pod("old", uses("c0", where="a"))
    made, plugin = cycle([*NODES, *LOCALS, *claims, bound, pod("p", uses("c1"))], PLUGINS), VolumeChoice()
    choices(made).release(row(made, "old"))
    choices(made).reserve(row(made, "old"), 0)
    choices(made).release(row(made, "old"))
    assert closed(made, plugin, "p").keys() == {"a", "c"}


def driver(publishes: bool) -> Any:
    return as_kind(kinds.CSIDriver, {"metadata": {"name": "x.io/disk"}, "spec": {"storageCapacity": publishes}})


def pool(name: str, size: str, labels: dict[str, str] | None, **rest: Any) -> Any:
    fields = {"metadata": {"name": name, "namespace": "ns"}, "storageClassName": "late", "capacity": size, **rest}
    if labels is not None:
        fields["nodeTopology"] = {"matchLabels": labels}
    return as_kind(kinds.CSIStorageCapacity, fields)


@pytest.mark.parametrize(
    ("pools", "publishes", "where"),
    [
        ([], True, ""),
        ([], False, "a"),
        ([pool("x", "2G", {"zone": "2"})], True, "c"),
        ([pool("x", "500M", {"zone": "2"})], True, ""),
        ([pool("x", "2G", {"zone": "2"}, maximumVolumeSize="500M")], True, ""),
        ([pool("x", "2G", None)], True, ""),
    ],
)
def test_a_new_volume_needs_a_pool_with_room(pools: list[Any], publishes: bool, where: str) -> None:
    made = cycle([*NODES, LATE, driver(publishes), *pools, claim("x"), pod("p", uses("x"))], PLUGINS)
    assert placed(made) == {"p": where}
    if not where:
        assert reason(made, "p") == f"no nodes with enough resources were found: 3 {volumes.NO_ROOM}."
