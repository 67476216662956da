"""Allocation results as the API server keeps them (resource.k8s.io/v1 AllocationResult), written and read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pykai.plugins.dra.allocator import Grant
from pykai.plugins.dra.demand import ClaimDemand, DeviceRequest
from pykai.plugins.dra.devices import DeviceId
from pykai.plugins.dra.nodeselector import only_node, together

Allocation = Mapping[str, Any]


def allocation(demand: ClaimDemand, grants: Sequence[Grant], classes: Mapping[str, Any], node: str) -> Allocation:
    """The result of granting devices on a node; `classes`: device class name -> DeviceClass."""
    devices: dict[str, Any] = {"results": [_result(grant) for grant in grants]}
    chosen = list(dict.fromkeys(grant.request for grant in grants))
    config = [*_class_config(chosen, classes), *_claim_config(chosen, demand.config)]
    if config:
        devices["config"] = config
    selector = _node_selector(grants, node)
    return {"devices": devices} if selector is None else {"devices": devices, "nodeSelector": selector}


def _result(grant: Grant) -> dict[str, Any]:
    driver, pool, device = grant.device.id
    result: dict[str, Any] = {"request": grant.request.name, "driver": driver, "pool": pool, "device": device}
    if grant.request.admin:
        result["adminAccess"] = True
    if grant.request.tolerations:
        result["tolerations"] = [dict(toleration) for toleration in grant.request.tolerations]
    return result


def _class_config(chosen: Sequence[DeviceRequest], classes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The configuration of each class once, for all requests of the class."""
    for name in dict.fromkeys(request.device_class for request in chosen):
        requests = [request.name for request in chosen if request.device_class == name]
        for config in classes[name].spec.get("config") or ():
            yield {"source": "FromClass", "requests": requests, **config}


def _claim_config(chosen: Sequence[DeviceRequest], configs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    names = {name for request in chosen for name in (request.name, request.parent)}
    for config in configs:
        if not config.get("requests") or names & set(config["requests"]):
            yield {"source": "FromClaim", **config}


def _node_selector(grants: Sequence[Grant], node: str) -> dict[str, Any] | None:
    """Which nodes reach all the devices; None: every node."""
    if any(grant.device.local for grant in grants):
        return only_node(node)
    return together([grant.device.where for grant in grants if grant.device.where is not None])


def held_devices(result: Allocation | None) -> Iterator[DeviceId]:
    """The devices an allocation keeps from others: admin access keeps none."""
    for item in ((result or {}).get("devices") or {}).get("results") or ():
        if not item.get("adminAccess"):
            yield item.get("driver", ""), item.get("pool", ""), item.get("device", "")
