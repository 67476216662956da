"""Slices, classes, claims and pods with claims, as short as tests want them."""

from __future__ import annotations

from typing import Any

from pykai.engine.cycle import Cycle
from pykai.objects import kinds
from pykai.plugins.dra import Session
from tests.builders import as_kind
from tests.unit.plugins.small_clusters import Fields, pod

DRIVER = "gpu.example.com"
CLASS = "gpu-class"


def device(name: str, fields: Fields | None = None, **attributes: Any) -> Fields:
    """A device with attributes of the driver's own domain; `fields` are other fields of it."""
    types = {bool: "bool", int: "int", str: "string"}
    typed = {key: {types[type(value)]: value} for key, value in attributes.items()}
    return {"name": name, "attributes": typed, **(fields or {})}


def devices_slice(
    where: Fields, devices: list[Fields], pool: str = "", generation: int = 1, count: int = 1, **spec: Any
) -> kinds.ResourceSlice:
    """A slice; `where` says which nodes reach it, `count` how many slices the pool has."""
    pool = pool or where.get("nodeName", "pool")
    names = ",".join(item["name"] for item in devices)
    fields = {
        "driver": DRIVER,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        "devices": devices,
        **where,
        **spec,
    }
    return as_kind(kinds.ResourceSlice, {"metadata": {"name": f"{pool}-{generation}-{names}"}, "spec": fields})


def gpus(node: str, count: int) -> kinds.ResourceSlice:
    return devices_slice({"nodeName": node}, [device(str(i)) for i in range(count)])


def device_class(name: str = CLASS, *expressions: str, **spec: Any) -> kinds.DeviceClass:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return as_kind(kinds.DeviceClass, {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}})


def request(name: str = "gpu", count: int = 1, **fields: Any) -> Fields:
    return {"name": name, "exactly": {"deviceClassName": CLASS, "count": count, **fields}}


def claim(name: str, *requests: Fields, status: Fields | None = None, **devices: Any) -> kinds.ResourceClaim:
    """A claim of queue q; without requests it asks for one device."""
    fields = {
        "metadata": {"name": name, "namespace": "ns", "labels": {"kai.scheduler/queue": "q"}},
        "spec": {"devices": {"requests": list(requests) or [request()], **devices}},
    }
    return as_kind(kinds.ResourceClaim, fields | ({"status": status} if status else {}))


def allocated(node: str, *devices: str, holders: tuple[str, ...] = ()) -> Fields:
    """A claim's status: devices of a node's pool, held by pods."""
    results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": name} for name in devices]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "allocation": {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": name} for name in holders],
    }


def claiming(name: str, *claims: str, spec: Fields | None = None, **meta: Any) -> list[Any]:
    """A pod that names claims."""
    named = [{"name": f"c{at}", "resourceClaimName": claim} for at, claim in enumerate(claims)]
    return pod(name, {"resourceClaims": named, **(spec or {})}, **meta)


def devices_of(allocation: Any) -> list[str]:
    """The devices of an allocation, as pool/device."""
    return [f"{result['pool']}/{result['device']}" for result in allocation["devices"]["results"]]


def session(of: Cycle) -> Session:
    """The session of a cycle."""
    found = of.resources.get(Session)
    assert found is not None
    return found
