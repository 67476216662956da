"""Every kind of workload on a real API server: the rows of `workloads.yaml`, each with the PodGroup it must get.

The grouper starts first, on a cluster that has none of the kinds; their definitions are installed afterwards: trimmed
ones for the projects in `crds`, open ones for the rest. The test plays the operators. References to owners carry no
controller flag here, or Kubernetes' own controllers would claim, and delete, pods they did not make.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from pykai.cli.install import install
from pykai.controllers.podgrouper import grouper as pod_grouper
from pykai.controllers.podgrouper.reader import plural_of
from pykai.controllers.podgrouper.rules.workload_kinds import ANY_VERSION, TABLE
from pykai.kube.api import Object, Patch, Resource
from pykai.kube.api_resources import BUILT_IN, CONFIG_MAP, NAMESPACE, POD, POD_GROUP, SERVICE_ACCOUNT
from pykai.kube.client import HttpApi
from pykai.kube.operations import define
from pykai.local.cluster_session import connect
from pykai.local.control_plane import ControlPlane
from pykai.objects import names
from tests.permissive_crd import permissive_crd
from tests.unit.controllers.live import eventually, running

from .test_pod_grouper import SETTINGS, group_names, pod_template
from .workload_operators import IDLE, owned_loosely, trimmed_definitions

ROWS: list[Object] = yaml.safe_load((Path(__file__).parent / "workloads.yaml").read_text())
SPACE = "workloads"
DEFAULTS = {
    "typeName": "XGBoostJob",
    "group": "kubeflow.org",
    "priorityName": "build",
    "preemptibility": "Non-Preemptible",
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


def resource_of(kind: str) -> Resource:
    """The address of a kind in the table, such as `ray.io/v1 RayJob`."""
    api_version, name = kind.split()
    group, _, version = api_version.rpartition("/")
    built_in = {(known.group, known.kind): known for known in BUILT_IN}
    return built_in.get((group, name)) or Resource(group, version, plural_of(name), name)


def kinds_of(rows: Iterable[Object]) -> list[Resource]:
    return [resource_of(item["kind"]) for row in rows for item in row["objects"] if "kind" in item]


def definitions() -> list[Object]:
    """Trimmed definitions where there are some, open ones for every other kind of the table."""
    trimmed = trimmed_definitions()
    known = {item["metadata"]["name"] for item in trimmed}
    rest = sorted(set(kinds_of(ROWS)) - set(BUILT_IN), key=lambda kind: (kind.qualified, kind.version))
    opened: dict[str, Object] = {}
    for kind in rest:
        if kind.qualified not in known:
            definition = opened.setdefault(kind.qualified, permissive_crd(kind))
            versions = definition["spec"]["versions"]
            if kind.version not in [version["name"] for version in versions]:
                versions.append({**versions[0], "name": kind.version, "storage": False})
    return [*trimmed, *opened.values()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(local_cluster: ControlPlane) -> AsyncIterator[HttpApi]:
    """A cluster on which the grouper was running before the kinds of the table were installed."""
    grouping = replace(SETTINGS.grouping, kind_defaults=(SPACE, "defaults"))
    async with connect(local_cluster.files.kubeconfig) as server:
        await install(server)
        await server.create(NAMESPACE, {"metadata": {"name": SPACE}})
        types = {"metadata": {"name": "defaults"}, "data": {"types": json.dumps([DEFAULTS])}}
        await server.create(CONFIG_MAP, types, SPACE)
        async with running(server, pod_grouper.run, replace(SETTINGS, grouping=grouping)):
            await define(server, definitions())
            await eventually(lambda: server.get(SERVICE_ACCOUNT.ref("default", SPACE), Object))
            yield server
        await server.delete(NAMESPACE.ref(SPACE))


@dataclass
class Made:
    """What was created for a row, by `Kind name`; `last` is the workload that the next object belongs to."""

    objects: dict[str, Object]
    last: Object | None = None

    async def add(self, api: HttpApi, row: Object, item: Object) -> None:
        """Create one object of the row, owned by whoever must own it."""
        kind = POD if "pod" in item else resource_of(item["kind"])
        owner = self.objects[item["under"]] if "under" in item else self.last
        metadata: Object = {key: item[key] for key in ("labels", "annotations") if key in item}
        metadata["name"] = item.get("pod") or item.get("name") or row["name"]
        if owner is not None:
            metadata["ownerReferences"] = owned_loosely(owner)
        spec = pod_template()["spec"] if kind is POD else item.get("spec") or IDLE.get(kind.kind, {})
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
        made = self.objects[f"{kind.kind} {metadata['name']}"] = await api.create(kind, body, SPACE)
        if "status" in item:
            ref = kind.ref(metadata["name"], SPACE).sub("status")
            await api.patch(ref, Patch.merge({"status": item["status"]}))
        if kind is not POD:
            self.last = made

    @property
    def pods(self) -> list[str]:
        return [key.split()[1] for key in self.objects if key.startswith("Pod ")]


def part_of(sub_group: Object) -> str:
    """A sub-group as the table writes it."""
    least = f"({sub_group['minSubGroup']})" if "minSubGroup" in sub_group else str(sub_group.get("minMember", 0))
    parent = f"in {sub_group['parent']} " if "parent" in sub_group else ""
    level = level_of(sub_group)
    return f"{sub_group['name']} {parent}{least}{f' at {level}' if level else ''}"


def level_of(holder: Object) -> str:
    wish = holder.get("topologyConstraint") or {}
    fields = ("topology", "requiredTopologyLevel", "preferredTopologyLevel")
    return "/".join(wish.get(field, "") for field in fields) if wish else ""


FIELDS = {
    "queue": "queue",
    "priority": "priorityClassName",
    "preemptibility": "preemptibility",
    "delay": "preemptionDelay",
    "grace": "stalenessGracePeriod",
    "min": "minMember",
    "jobs": "minSubGroup",
}
"""Columns of the table that are fields of a PodGroup."""


def summary(group: Object, wanted: Object) -> Object:
    """A PodGroup as the table writes it; of its labels only those the row asks for."""
    spec, (owner,) = group["spec"], group["metadata"]["ownerReferences"]
    found = {column: spec[field] for column, field in FIELDS.items() if field in spec}
    labels = {key: (group["metadata"].get("labels") or {}).get(key) for key in wanted.get("labels", {})}
    more = {"at": level_of(spec), "parts": [part_of(each) for each in spec.get("subGroups", ())], "labels": labels}
    return {"of": owner["kind"], **found, **{key: value for key, value in more.items() if value}}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["name"]))
async def test_a_workload_gets_its_group(row: Object, api: HttpApi) -> None:
    made, wanted = Made({}), {key: value for key, value in row["group"].items() if key != "name"}
    for item in yaml.safe_load(json.dumps(row["objects"]).replace("NAMESPACE", SPACE)):
        await made.add(api, row, item)

    async def grouped() -> list[Object] | None:
        pods = [await api.get(POD.ref(name, SPACE), Object) for name in made.pods]
        return pods if all(group_names(pods)) else None

    pods = await eventually(grouped)
    names_found = sorted(set(group_names(pods)))
    groups = [await api.get(POD_GROUP.ref(name, SPACE), Object) for name in names_found]
    assert [summary(group, wanted) for group in groups] == [wanted] * row.get("groups", 1)
    assert Counter(_part(pod) for pod in pods if _part(pod)) == row.get("members", {})
    pattern = row["group"].get("name", "pg-{name}-{uid}")
    for number, group in enumerate(groups):
        (owner,) = group["metadata"]["ownerReferences"]
        assert owner["uid"] == made.objects[f"{owner['kind']} {owner['name']}"]["metadata"]["uid"]
        assert group["metadata"]["name"] == pattern.format(name=owner["name"], uid=owner["uid"], number=number)
        assert group["metadata"]["generation"] == 1, "the group was written once"


def _part(pod: Object) -> Any:
    return (pod["metadata"].get("labels") or {}).get(names.SUBGROUP_LABEL)


async def test_the_table_has_every_kind_we_know() -> None:
    tops = [next(iter(kinds_of([row])), POD) for row in ROWS]
    shown = {(top.group, version, top.kind) for top in tops for version in (top.version, ANY_VERSION)}
    assert TABLE.keys() - shown == set()
