"""Before an upgrade: definitions are applied, topologies of Kueue are copied once."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from pykai.cli.install import KUEUE_TOPOLOGY, MIGRATED_FROM, copy_topologies
from pykai.kube.api import Object, Patch, Ref
from pykai.kube.api_resources import CRD, QUEUE, TOPOLOGY
from pykai.kube.errors import Timeout
from pykai.kube.memory import MemoryApi
from pykai.kube.operations import define
from pykai.objects.crds import manifests
from tests.permissive_crd import permissive_crd


class SlowApi(MemoryApi):
    """A server that never gets round to serving definitions."""

    async def get(self, ref: Ref, into: type[Any]) -> Any:
        found = await super().get(ref, into)
        return {**found, "status": {}} if ref.resource is CRD else found


async def test_definitions_gain_what_is_new_and_objects_keep_what_they_have() -> None:
    old = copy.deepcopy(manifests())
    del old[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["displayName"]
    api = MemoryApi(time.time, old)
    await api.create(QUEUE, {"metadata": {"name": "q"}, "spec": {"parentQueue": "p"}})
    await define(api, manifests(), 1)
    changed = await api.patch(QUEUE.ref("q"), Patch.merge({"spec": {"displayName": "new"}}))
    assert (changed["spec"]["parentQueue"], changed["spec"]["displayName"]) == ("p", "new")


async def test_a_definition_that_is_not_in_force_is_an_error() -> None:
    api = SlowApi(time.time)
    with pytest.raises(Timeout, match=r"queues\.scheduling\.run\.ai is not in force after 0\.01 s"):
        await define(api, manifests(), 0.01)


async def test_topologies_of_kueue_are_copied_once() -> None:
    api = MemoryApi(time.time, [*manifests(), permissive_crd(KUEUE_TOPOLOGY)])
    levels = [{"nodeLabel": "zone"}, {"nodeLabel": "rack"}]
    for name in ("ours", "theirs"):
        await api.create(KUEUE_TOPOLOGY, {"metadata": {"name": name}, "spec": {"levels": levels}})
    await api.create(TOPOLOGY, {"metadata": {"name": "ours"}, "spec": {"levels": levels[:1]}})
    assert await copy_topologies(api) == ["theirs"]
    copy = await api.get(TOPOLOGY.ref("theirs"), Object)
    assert copy["spec"]["levels"] == levels
    assert copy["metadata"]["annotations"] == {MIGRATED_FROM: "kueue.x-k8s.io"}
    kept = await api.get(TOPOLOGY.ref("ours"), Object)
    assert kept["spec"]["levels"] == levels[:1]
    assert await copy_topologies(api) == []


async def test_without_kueue_there_is_nothing_to_copy() -> None:
    assert await copy_topologies(MemoryApi(time.time, manifests())) == []
