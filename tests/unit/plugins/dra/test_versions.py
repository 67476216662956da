"""Claims and slices in the form of every version of the API are placed alike."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.objects import kinds
from pykai.plugins.dra import DynamicResources
from tests.builders import as_kind
from tests.unit.plugins.dra.dra_objects import CLASS, DRIVER, claiming, device_class, devices_of, session
from tests.unit.plugins.small_clusters import Fields, cycle, node, placed, row

FAST = f'device.attributes["{DRIVER}"].fast && device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("10Gi"))'
WISH = {"deviceClassName": CLASS, "count": 2, "selectors": [{"cel": {"expression": FAST}}]}
EITHER = [{"name": "none", "deviceClassName": CLASS, "count": 30}, {"name": "one", "deviceClassName": CLASS}]


def features(fast: bool, memory: Any) -> Fields:
    return {"attributes": {"fast": {"bool": fast}}, "capacity": {"memory": memory}}


def v1(name: str, **fields: Any) -> Fields:
    return {"name": name, **fields}


def v1beta1(name: str, **fields: Any) -> Fields:
    return {"name": name, "basic": fields}


FORMS = {
    "v1": (v1, {"name": "two", "exactly": WISH}),
    "v1beta2": (v1, {"name": "two", "exactly": WISH}),
    "v1beta1": (v1beta1, {"name": "two", **WISH}),
}


@pytest.mark.parametrize("version", FORMS)
def test_every_version_gives_the_same_plan(version: str) -> None:
    device, request = FORMS[version]
    devices = [device(f"g{at}", **features(at != 1, {"value": f"{16 * at + 16}Gi"})) for at in range(4)]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    about = {"apiVersion": f"resource.k8s.io/{version}", "metadata": {"name": "s"}}
    offered = as_kind(kinds.ResourceSlice, {**about, "spec": {
        "driver": DRIVER, "nodeName": "n", "pool": pool, "devices": devices}})  # fmt: skip
    metadata = {"name": "c", "namespace": "ns", "labels": {"kai.scheduler/queue": "q"}}
    asked = as_kind(kinds.ResourceClaim, {**about, "metadata": metadata, "spec": {
        "devices": {"requests": [request, {"name": "either", "firstAvailable": EITHER}]}}})  # fmt: skip
    of = cycle([device_class(), node("m"), node("n"), offered, asked, claiming("p", "c")], [DynamicResources()])
    assert placed(of) == {"p": "n"}
    ((_, given),) = session(of).allocations(row(of, "p"))
    assert [each["request"] for each in given["devices"]["results"]] == ["two", "two", "either/one"]
    assert devices_of(given) == ["n/g0", "n/g2", "n/g1"]
