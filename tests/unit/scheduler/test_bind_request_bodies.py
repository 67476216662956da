"""Bind requests as they are written, and names of shared devices that last."""

from __future__ import annotations

from pykai.model.params import SchedulerParams
from pykai.model.plan import Bind
from pykai.objects import kinds
from pykai.scheduler.bind_requests import DeviceNames, request_body

POD = kinds.Pod(metadata=kinds.ObjectMeta(name="a", namespace="team", uid="u"))


def test_a_device_is_named_once_for_all_who_share_it() -> None:
    names = DeviceNames({"known"})
    first = names.name("new-1", "node", "u1")
    assert names.name("new-1", "node", "u2") == first
    assert names.name("known", "node", "u3") == "known"
    assert len({first, names.name("new-2", "node", "u1"), names.name("new-3", "other", "u1")}) == 3


def test_the_same_decision_gets_the_same_name() -> None:
    assert DeviceNames(set()).name("new-1", "node", "u") == DeviceNames(set()).name("new-7", "node", "u")


def test_a_name_in_use_is_not_taken_again() -> None:
    """The pod's first attempt failed, but others joined its device meanwhile."""
    first = DeviceNames(set()).name("new-1", "node", "u")
    assert DeviceNames({first}).name("new-1", "node", "u") != first


def test_everything_a_bind_says_is_in_the_request() -> None:
    allocation = {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "0"}]}}
    extended = {"allocation": allocation, "deviceRequests": [], "containerMappings": []}
    bind = Bind(
        pod=("team", "a"),
        node="n",
        resource_type="Fraction",
        devices=2,
        portion=0.255,
        claims=(("gpu", allocation),),
        extended_claim=extended,
        numa_zones=(("node-0", {"cpu": "4000m"}),),
    )
    params = SchedulerParams(node_pool="fast")
    body = request_body(bind, POD, ["g1", "g2"], params)
    assert body["metadata"]["labels"] == {"selected-node": "n", "kai.scheduler/node-pool": "fast"}
    assert "annotations" not in body["metadata"]
    assert body["spec"] == {
        "podName": "a",
        "selectedNode": "n",
        "receivedResourceType": "Fraction",
        "receivedGPU": {"count": 2, "portion": "0.26"},
        "selectedGPUGroups": ["g1", "g2"],
        "selectedFractionalGpuGroups": [
            {"id": "g1", "computeSharingMode": "time-slicing"},
            {"id": "g2", "computeSharingMode": "time-slicing"},
        ],
        "resourceClaimAllocations": [{"name": "gpu", "allocation": allocation}],
        "extendedResourceClaimAllocation": extended,
        "predictedNUMAZones": [{"zone": "node-0", "amount": {"cpu": "4000m"}}],
    }


def test_a_node_whose_name_is_no_label_gets_pods_all_the_same() -> None:
    node = "n" * 60 + ".example.com"
    body = request_body(Bind(("team", "a"), node, "Regular", 0, 0.0), POD, [], SchedulerParams())
    assert body["metadata"]["labels"] == {}
    assert body["spec"]["selectedNode"] == node
