"""Extended resources that device classes serve."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pykai.objects import kinds
from pykai.objects.pod_template import decode_template
from pykai.plugins.dra import DynamicResources
from pykai.plugins.dra.extended import extended_demand, served_names
from tests.builders import as_kind
from tests.unit.plugins.dra.dra_objects import device, device_class, devices_of, devices_slice, gpus, session
from tests.unit.plugins.small_clusters import Fields, cycle, node, placed, pod, reason, row

NIC = "example.com/nic"
GPU = "nvidia.com/gpu"


def container(name: str, restart: str = "", **wanted: int) -> Fields:
    names = {"nic": NIC, "gpu": GPU}
    limits = {names[key]: str(count) for key, count in wanted.items()}
    return {"name": name, "resources": {"limits": limits}, **({"restartPolicy": restart} if restart else {})}


def demand(init: list[Fields], containers: list[Fields], classes: dict[str, str]) -> Any:
    spec = as_kind(kinds.PodSpec, {"initContainers": init, "containers": containers})
    return extended_demand(decode_template(spec), classes)


def counts(found: Any) -> dict[str, int]:
    return {request["name"]: request["exactly"]["count"] for request in found.requests}


def mappings(found: Any) -> list[tuple[str, str]]:
    return [(item["containerName"], item["requestName"]) for item in found.mappings]


def test_one_request_per_container_and_resource() -> None:
    found = demand([], [container("a", nic=1, gpu=2), container("b"), container("c", gpu=1)], {NIC: "n", GPU: "g"})
    assert counts(found) == {"container-0-request-0": 1, "container-0-request-1": 2, "container-2-request-0": 1}
    assert [m["resourceName"] for m in found.mappings] == [NIC, GPU, GPU]
    assert found.requests[1]["exactly"]["deviceClassName"] == "g"


def test_resources_without_a_class_are_left_to_the_node() -> None:
    assert demand([], [container("a", nic=1)], {GPU: "g"}) is None


def test_init_containers_reuse_what_comes_after_them() -> None:
    found = demand([container("init", gpu=2)], [container("a", gpu=1), container("b", gpu=1)], {GPU: "g"})
    assert counts(found) == {"container-1-request-0": 1, "container-2-request-0": 1}
    assert mappings(found)[2:] == [("init", "container-1-request-0"), ("init", "container-2-request-0")]


def test_a_greedy_init_container_gets_only_the_difference() -> None:
    found = demand([container("init", gpu=3)], [container("a", gpu=1)], {GPU: "g"})
    assert counts(found) == {"container-1-request-0": 1, "container-0-request-0": 2}


def test_sidecars_that_run_already_are_not_robbed() -> None:
    found = demand([container("side", "Always", gpu=1), container("init", gpu=1)], [container("a")], {GPU: "g"})
    assert counts(found) == {"container-0-request-0": 1, "container-1-request-0": 1}


def test_a_modest_init_container_takes_a_part() -> None:
    found = demand([container("init", gpu=1)], [container("a", gpu=3)], {GPU: "g"})
    assert counts(found) == {"container-1-request-0": 1, "container-1-request-1": 2}
    assert mappings(found) == [
        ("a", "container-1-request-0"),
        ("a", "container-1-request-1"),
        ("init", "container-1-request-0"),
    ]


def lists(size: int) -> st.SearchStrategy[list[tuple[bool, int]]]:
    return st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=size)


@given(lists(4), lists(3))
def test_a_claim_has_as_many_devices_as_the_pod_requests(
    before: list[tuple[bool, int]], beside: list[tuple[bool, int]]
) -> None:
    """The sum of what runs together, at its largest; every container gets what it asked for, and no two that run at
    the same time the same devices."""
    init = [container(f"i{at}", "Always" if always else "", gpu=n) for at, (always, n) in enumerate(before)]
    main = [container(f"c{at}", gpu=n) for at, (_, n) in enumerate(beside)]
    running, most = 0, 0
    together: list[set[str]] = []
    sidecars: set[str] = set()
    for at, (always, n) in enumerate(before):
        most = max(most, running + n)
        together.append(sidecars | {f"i{at}"})
        running += n if always else 0
        sidecars |= {f"i{at}"} if always else set()
    most = max(most, running + sum(n for _, n in beside))
    together.append(sidecars | {f"c{at}" for at in range(len(beside))})
    found = demand(init, main, {GPU: "g"})
    if most == 0:
        assert found is None
        return
    sizes = counts(found)
    assert sum(sizes.values()) == most
    wanted = {c["name"]: int(c["resources"]["limits"][GPU]) for c in [*init, *main]}
    for name, n in wanted.items():
        assert sum(sizes[request] for who, request in mappings(found) if who == name) == n
    for group in together:
        used = [request for who, request in mappings(found) if who in group]
        assert len(set(used)) == len(used)


def test_names_that_classes_serve() -> None:
    classes = {c.metadata.name: c for c in (device_class("a", extendedResourceName=GPU), device_class("b"))}
    assert served_names(classes) == {
        GPU: "a",
        "deviceclass.resource.kubernetes.io/a": "a",
        "deviceclass.resource.kubernetes.io/b": "b",
    }


def wanting(name: str, **wanted: int) -> list[Any]:
    return pod(name, {"containers": [container("main", "", **wanted)]})


def test_gpus_by_claim_where_there_is_no_device_plugin() -> None:
    served = device_class("gpus", extendedResourceName=GPU)
    objects = [served, node("m"), node("n", allocatable={GPU: "1"}), gpus("m", 1)]
    of = cycle([*objects, wanting("p", gpu=1), wanting("q", gpu=1), wanting("r", gpu=1)], [DynamicResources()])
    assert placed(of) == {"p": "m", "q": "n", "r": ""}
    made = session(of).extended_allocation(row(of, "p"))
    assert made is not None
    assert devices_of(made["allocation"]) == ["m/0"]
    assert made["containerMappings"] == [
        {"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"}
    ]
    assert session(of).extended_allocation(row(of, "q")) is None, "the node's device plugin serves it"


def test_a_resource_no_node_offers_comes_as_a_claim() -> None:
    served = device_class("nics", extendedResourceName=NIC)
    nics = devices_slice({"nodeName": "m"}, [device("0")])
    of = cycle([served, node("m"), node("n"), nics, wanting("p", nic=1), wanting("q", nic=1)], [DynamicResources()])
    assert placed(of) == {"p": "m", "q": ""}
    assert "cannot allocate all DRA claims on node(s)" in reason(of, "q")


def test_the_claim_made_for_a_pod_is_not_counted_beside_its_requests() -> None:
    meta = {
        "name": "p-extended",
        "namespace": "ns",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "p", "apiVersion": "v1"}],
    }
    request = {"name": "container-0-request-0", "exactly": {"deviceClassName": "gpus", "count": 1}}
    own = as_kind(kinds.ResourceClaim, {"metadata": meta, "spec": {"devices": {"requests": [request]}}})
    served = device_class("gpus", extendedResourceName=GPU)
    running = pod("p", {"containers": [container("main", gpu=1)], "nodeName": "n"})
    of = cycle([served, node("n"), gpus("n", 2), own, running], [DynamicResources()])
    assert of.trial.idle[2].tolist() == [1.0]
