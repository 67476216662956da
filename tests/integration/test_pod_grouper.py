"""The pod grouper on a real control plane: workloads of users, pods as Kubernetes' own controllers make them.

Nobody schedules here: pods stay pending, which is when grouping matters. Kinds of other projects: `test_workloads`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from pykai.cli.install import install
from pykai.controllers.podgrouper import grouper as pod_grouper
from pykai.controllers.podgrouper.grouper import PodGrouperSettings
from pykai.kube.api import Object, Selection
from pykai.kube.api_resources import EVENT, POD, POD_GROUP
from pykai.kube.client import HttpApi
from pykai.objects import names
from tests.unit.controllers.live import running

from .conftest import Eventually, Kubectl

SETTINGS = PodGrouperSettings(pods=Selection(fields=f"spec.schedulerName={names.SCHEDULER_NAME}"))


@pytest.fixture
async def grouper(real_api: HttpApi) -> AsyncIterator[None]:
    """A running grouper on an installed cluster."""
    await install(real_api)
    async with running(real_api, pod_grouper.run, SETTINGS):
        yield


def pod_template(queue: str = "", **labels: str) -> Object:
    metadata = {"labels": {**({names.QUEUE_LABEL: queue} if queue else {}), **labels}}
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
    return {"metadata": metadata, "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container]}}


async def pods_in(api: HttpApi, namespace: str) -> list[Object]:
    return list((await api.list(POD, Object, Selection(namespace=namespace))).items)


async def groups_in(api: HttpApi, namespace: str) -> list[Object]:
    return list((await api.list(POD_GROUP, Object, Selection(namespace=namespace))).items)


def group_names(pods: list[Object]) -> list[str]:
    return [(pod["metadata"].get("annotations") or {}).get(names.POD_GROUP_ANNOTATION, "") for pod in pods]


async def all_grouped(api: HttpApi, namespace: str, count: int) -> list[Object] | None:
    """The pods of the namespace once there are `count` and each has a group."""
    pods = await pods_in(api, namespace)
    return pods if len(pods) == count and all(group_names(pods)) else None


async def applied(kubectl: Kubectl, namespace: str, *manifests: Object) -> None:
    await kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump_all(manifests))


def workload(api_version: str, kind: str, name: str, spec: Object, **metadata: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


@pytest.mark.usefixtures("grouper")
async def test_a_bare_pod(real_api: HttpApi, namespace: str, kubectl: Kubectl, eventually: Eventually) -> None:
    template = pod_template("test")
    pod = workload("v1", "Pod", "p", template["spec"], labels=template["metadata"]["labels"])
    await applied(kubectl, namespace, pod)
    await eventually(lambda: all_grouped(real_api, namespace, 1))
    (group,) = await groups_in(real_api, namespace)
    assert (group["spec"]["queue"], group["spec"]["priorityClassName"]) == ("test", "train")


@pytest.mark.usefixtures("grouper")
async def test_a_job_is_one_group_written_once(
    real_api: HttpApi, namespace: str, kubectl: Kubectl, eventually: Eventually
) -> None:
    template = pod_template("team")
    template["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": 12, "completions": 12, "template": template}
    await applied(
        kubectl,
        namespace,
        workload("batch/v1", "Job", "j", spec, annotations={names.BATCH_MIN_MEMBER: "12"}),
    )
    pods = await eventually(lambda: all_grouped(real_api, namespace, 12))
    (group,) = await groups_in(real_api, namespace)
    assert set(group_names(pods)) == {group["metadata"]["name"]}
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (12, "team")
    assert group["metadata"]["generation"] == 1, "the group was written once"
    (owner,) = group["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Job", "j"), "so the garbage collector takes the group with its Job"


@pytest.mark.usefixtures("grouper")
async def test_a_deployments_pods_stand_alone_and_a_stateful_sets_together(
    real_api: HttpApi, namespace: str, kubectl: Kubectl, eventually: Eventually
) -> None:
    deployment = {"replicas": 2, "selector": {"matchLabels": {"app": "d"}}, "template": pod_template(app="d")}
    stateful = {
        "replicas": 2,
        "serviceName": "s",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": "s"}},
        "template": pod_template(app="s"),
    }
    await applied(
        kubectl,
        namespace,
        workload("apps/v1", "Deployment", "d", deployment, labels={names.QUEUE_LABEL: "web"}),
        workload("apps/v1", "StatefulSet", "s", stateful),
    )
    pods = await eventually(lambda: all_grouped(real_api, namespace, 4))
    by_app = {
        app: set(group_names([pod for pod in pods if pod["metadata"]["labels"]["app"] == app])) for app in ("d", "s")
    }
    assert (len(by_app["d"]), len(by_app["s"])) == (1, 1)
    groups = {group["metadata"]["name"]: group["spec"] for group in await groups_in(real_api, namespace)}
    assert {(groups[name]["queue"], groups[name]["priorityClassName"]) for name in by_app["d"]} == {
        ("web", "inference")
    }
    assert groups[by_app["s"].pop()]["priorityClassName"] == "train"


@pytest.mark.usefixtures("grouper")
async def test_why_a_pod_is_not_grouped_stands_in_its_events(
    real_api: HttpApi, namespace: str, kubectl: Kubectl, eventually: Eventually
) -> None:
    template = pod_template()
    template["spec"]["restartPolicy"] = "Never"
    job = workload("batch/v1", "Job", "j", {"template": template}, annotations={names.BATCH_MIN_MEMBER: "lots"})
    await applied(kubectl, namespace, job)

    async def warned() -> str:
        found = await real_api.list(EVENT, Object, Selection(namespace=namespace))
        return next((item["message"] for item in found.items if item["reason"] == "PodGrouperWarning"), "")

    message = await eventually(warned)
    assert "annotation on Job: 'lots' is not a whole number" in message
    (pod,) = await pods_in(real_api, namespace)
    shown = await kubectl("describe", "pod", pod["metadata"]["name"], "-n", namespace)
    assert "PodGrouperWarning" in shown
    await kubectl("annotate", "job", "j", f"{names.BATCH_MIN_MEMBER}=1", "--overwrite", "-n", namespace)
    await eventually(lambda: all_grouped(real_api, namespace, 1))
