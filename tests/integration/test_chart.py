"""The chart on a real API server: every object is accepted, and the operator works with the rights the chart gives it.

Nothing of it may stay: a webhook that nobody serves would refuse the pods of every later test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pykai.cli.component import Compose, Composition, Process, run_composition
from pykai.cli.install import KUEUE_TOPOLOGY, copy_topologies
from pykai.cli.main import COMMANDS, CommandTable, main
from pykai.cli.operator import WEBHOOKS
from pykai.controllers.operator import controller
from pykai.controllers.operator.controller import OperatorSettings
from pykai.controllers.operator.installation import OperatorEnvironment
from pykai.controllers.operator.observation import MONITOR
from pykai.kube.api import Api, Object, Patch, Ref, Selection
from pykai.kube.api_resources import (
    CONFIG,
    CRD,
    DEPLOYMENT,
    MUTATING_WEBHOOK,
    NAMESPACE,
    QUEUE,
    SHARD,
    VALIDATING_WEBHOOK,
)
from pykai.kube.auth import BearerToken, from_kubeconfig
from pykai.kube.client import HttpApi
from pykai.kube.errors import NotFound
from pykai.kube.informer import InformerFactory
from pykai.kube.operations import define
from pykai.local.control_plane import ControlPlane
from pykai.objects.crds import manifests
from pykai.observe.metrics import WorkMetrics
from tests.permissive_crd import permissive_crd
from tests.timeouts import TIMEOUT_SECONDS
from tests.unit.chart.rendering import CHART, VALUE_SETS, helm, objects, render
from tests.unit.controllers.live import running
from tests.unit.controllers.operator.cluster import container_of, wanted

from .conftest import Eventually, Kubectl

HERE = "kai-scheduler"
SPACES = (HERE, "kai-resource-reservation", "runai-reservation", "kai-scale-adjust")
OURS = Selection(labels="app.kubernetes.io/managed-by=kai-operator")
MISSION = ("get", "config", "-n", HERE, "kai-config", "-o", "jsonpath={.spec.admission.gpuSharing}")
COMPONENTS = {"admission", "binder", "kai-scheduler-default", "pod-grouper", "podgroup-controller", "queue-controller"}

Helm = Callable[..., Awaitable[str]]


@pytest.fixture
def helm_on(local_cluster: ControlPlane) -> Helm:
    """`await helm_on(*arguments)` on the local cluster."""

    async def run(*arguments: str) -> str:
        given = [*arguments, "-n", HERE, "--kubeconfig", str(local_cluster.files.kubeconfig)]
        return (await asyncio.to_thread(helm, *given)).stdout

    return run


async def ensure(api: HttpApi, *spaces: str) -> None:
    for space in spaces:
        await api.patch(NAMESPACE.ref(space), Patch.apply({"metadata": {"name": space}}, "tests"))


async def exists(api: HttpApi, ref: Ref) -> bool:
    try:
        await api.get(ref, Object)
    except NotFound:
        return False
    return True


# ------------------------------------------------------------------------------------------------------ every object
async def test_the_server_accepts_every_object_of_every_set(
    real_api: HttpApi, kubectl: Kubectl, tmp_path: Path
) -> None:
    await define(real_api, manifests())
    await real_api.patch(CRD.ref(MONITOR.qualified), Patch.apply(permissive_crd(MONITOR), "tests"))
    await ensure(real_api, *SPACES)
    texts = [render(tmp_path, values, "--include-crds") for values in VALUE_SETS.values()]
    different = dict.fromkeys(part.strip() for text in texts for part in text.split("\n---\n") if "kind:" in part)
    dry = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    answer = await kubectl(*dry, "-f", "-", stdin="\n---\n".join(different))
    assert answer.count("serverside-applied") == len(different) > 60
    await real_api.delete(CRD.ref(MONITOR.qualified))


# ---------------------------------------------------------------------------------------------------------- operator
@pytest.fixture
async def release(real_api: HttpApi, helm_on: Helm, eventually: Eventually) -> AsyncIterator[Helm]:
    """The chart, installed as users do, without the hook that would need a node; removed afterwards."""
    await ensure(real_api, HERE)
    await helm_on("upgrade", "-i", "kai-scheduler", str(CHART), "--create-namespace", "--no-hooks")
    yield helm_on
    await helm_on("uninstall", "kai-scheduler", "--ignore-not-found", "--no-hooks", "--wait")
    await eventually(lambda: nothing_left(real_api))
    for ref in (SHARD.ref("default"), QUEUE.ref("default-queue"), QUEUE.ref("default-parent-queue")):
        if await exists(real_api, ref):
            await real_api.delete(ref)


async def nothing_left(api: HttpApi) -> bool:
    for kind in (MUTATING_WEBHOOK, VALIDATING_WEBHOOK, DEPLOYMENT):
        if (await api.list(kind, Object, OURS)).items:
            return False
    return True


@asynccontextmanager
async def operating(plane: ControlPlane, token: str) -> AsyncIterator[None]:
    """An operator with the rights of its service account."""
    access = replace(from_kubeconfig(plane.files.kubeconfig), token=BearerToken(token))
    settings = OperatorSettings(WEBHOOKS, OperatorEnvironment(HERE, "registry.example.com/kai", "v1"))
    async with HttpApi(access) as api, running(api, controller.run, settings):
        yield


async def conditions(api: HttpApi) -> dict[str, Object]:
    found = await api.get(CONFIG.ref("kai-config"), Object)
    rows = (found.get("status") or {}).get("conditions") or ()
    current = found["metadata"]["generation"]
    return {row["type"]: row for row in rows if row["observedGeneration"] == current}


async def deployed(api: HttpApi) -> bool:
    rows = await conditions(api)
    done = rows.get("Reconciling", {}).get("status") == "False"
    if done:
        assert rows["Deployed"]["status"] == "True", rows["Deployed"]["message"]
    return done


async def versions(api: HttpApi) -> dict[str, int]:
    """The generation of every Deployment of the operator."""
    items = (await api.list(DEPLOYMENT, Object, OURS)).items
    return {item["metadata"]["name"]: item["metadata"]["generation"] for item in items}


async def test_an_installation_from_beginning_to_end(
    local_cluster: ControlPlane, real_api: HttpApi, release: Helm, kubectl: Kubectl, eventually: Eventually
) -> None:
    assert await kubectl(*MISSION) == "false"
    token = (await kubectl("create", "token", "kai-operator", "-n", HERE)).strip()
    async with operating(local_cluster, token):
        await eventually(lambda: deployed(real_api))
        assert set(await versions(real_api)) == COMPONENTS
        found = await real_api.get(DEPLOYMENT.ref("kai-scheduler-default", HERE), Object)
        assert found["spec"]["template"]["metadata"]["labels"]["app"] == "kai-scheduler"
        assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example.com/kai/pykai:v1"

        before = await versions(real_api)
        assert set(before.values()) == {1}, "the operator changes what it has just written"
        await release("upgrade", "kai-scheduler", str(CHART), "--no-hooks", "--set", "global.gpuSharing=true")
        assert await kubectl(*MISSION) == "true"
        await eventually(lambda: deployed(real_api))
        after = await versions(real_api)
        assert {name for name in after if after[name] != before[name]} == {"admission", "binder"}
        admission = await real_api.get(DEPLOYMENT.ref("admission", HERE), Object)
        assert "--gpu-sharing-enabled=true" in admission["spec"]["template"]["spec"]["containers"][0]["args"]

        for replicas in ("2", "1"):
            given = ("--set", f"operator.replicaCount={replicas}", "--set", "global.clusterAutoscaling=true")
            await release("upgrade", "kai-scheduler", str(CHART), "--no-hooks", *given)
            await eventually(lambda: deployed(real_api))
            binder = await real_api.get(DEPLOYMENT.ref("binder", HERE), Object)
            assert (binder["spec"]["replicas"], binder["spec"]["strategy"]["type"]) == (int(replicas), "Recreate")
        assert set(await versions(real_api)) == COMPONENTS | {"node-scale-adjuster"}
        uid = (await real_api.get(CONFIG.ref("kai-config"), Object))["metadata"]["uid"]
        for item in (await real_api.list(DEPLOYMENT, Object, OURS)).items:
            assert [owner["uid"] for owner in item["metadata"]["ownerReferences"]] == [uid]
        await kubectl("delete", "config", "kai-config")
        await eventually(lambda: nothing_left(real_api))

    await release("uninstall", "kai-scheduler", "--no-hooks")
    assert await exists(real_api, QUEUE.ref("default-queue"))
    assert await exists(real_api, SHARD.ref("default"))
    assert await exists(real_api, NAMESPACE.ref("kai-resource-reservation"))
    assert not await exists(real_api, CONFIG.ref("kai-config"))


# ---------------------------------------------------------------------------------------------------------- components
QUIET = {
    "queueController": {"webhooks": {"enableValidation": False}},
    "podGroupController": {"webhooks": {"enableValidation": False}},
    "admission": {"service": {"enabled": False}},
}
ANY_PORT = {"plugin-server-port": "0", "scheduler-conf": ""}


async def test_components_may_follow_all_they_ask_for(
    local_cluster: ControlPlane,
    real_api: HttpApi,
    release: Helm,
    kubectl: Kubectl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = ("--set", "global.clusterAutoscaling=true")
    await release("upgrade", "kai-scheduler", str(CHART), "--no-hooks", *given)
    made = wanted(QUIET, {"default": {"args": ANY_PORT}})
    workloads = [item for (kind, _), item in made.items() if kind == "Deployment"]
    assert len(workloads) == 6
    for item in workloads:
        account = item["spec"]["template"]["spec"]["serviceAccountName"]
        await kubectl("create", "serviceaccount", account, "-n", HERE)
        token = (await kubectl("create", "token", account, "-n", HERE)).strip()
        access = replace(from_kubeconfig(local_cluster.files.kubeconfig), token=BearerToken(token))
        process, compose = _as_started(container_of(item), monkeypatch)
        async with HttpApi(access) as api:
            await _follows(api, process, compose)
        await kubectl("delete", "serviceaccount", account, "-n", HERE)


def _as_started(container: Object, monkeypatch: pytest.MonkeyPatch) -> tuple[Process, Compose]:
    """What the container's command would run."""
    assert isinstance(main, CommandTable)
    started: list[tuple[Process, Compose]] = []
    _, subcommand = container["command"]
    command = main.get_command(main.make_context("kai", [], resilient_parsing=True), subcommand)
    assert command is not None
    module = f"pykai.cli.{COMMANDS[subcommand].module}"
    monkeypatch.setattr(f"{module}.run_component", lambda *parts: started.append(parts))
    command.main(container["args"], standalone_mode=False)
    (found,) = started
    return found


async def _follows(api: HttpApi, process: Process, compose: Compose) -> None:
    """Run the component until it has seen everything it follows."""
    seen: list[InformerFactory] = []

    def noted(api: Api, watches: InformerFactory, work: WorkMetrics) -> Composition:
        seen.append(watches)
        return compose(api, watches, work)

    silent = replace(process, metrics_address="0", health_address="0", lease="")
    task = asyncio.create_task(run_composition(api, silent, noted))
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not seen and not task.done():
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)  # until it has asked for everything
            while not task.done() and seen[0].problems():
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"{process.name}: {[watches.problems() for watches in seen]}")
    finally:
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError), f"{process.name} ended: {ended!r}"


async def test_the_hook_has_the_rights_it_needs(
    local_cluster: ControlPlane, real_api: HttpApi, kubectl: Kubectl, tmp_path: Path
) -> None:
    await ensure(real_api, HERE)
    hooks = [
        item for item in objects(render(tmp_path, {})) if "helm.sh/hook" in item["metadata"].get("annotations", {})
    ]
    text = yaml.safe_dump_all(item for item in hooks if item["kind"] != "Job")
    await kubectl("apply", "-f", "-", stdin=text)
    token = (await kubectl("create", "token", "crd-upgrader", "-n", HERE)).strip()
    access = replace(from_kubeconfig(local_cluster.files.kubeconfig), token=BearerToken(token))
    await real_api.patch(CRD.ref(KUEUE_TOPOLOGY.qualified), Patch.apply(permissive_crd(KUEUE_TOPOLOGY), "tests"))
    try:
        async with HttpApi(access) as api:
            await define(api, manifests())
            assert await copy_topologies(api) == []
    finally:
        await real_api.delete(CRD.ref(KUEUE_TOPOLOGY.qualified))
        await kubectl("delete", "-f", "-", stdin=text)


async def test_queues_that_exist_are_left_alone(real_api: HttpApi, release: Helm) -> None:
    change = {"spec": {"resources": {"gpu": {"quota": 7}}}}
    await real_api.patch(QUEUE.ref("default-queue"), Patch.merge(change))
    await release("upgrade", "kai-scheduler", str(CHART), "--no-hooks")
    await release("uninstall", "kai-scheduler", "--no-hooks")
    await release("install", "kai-scheduler", str(CHART), "--no-hooks")
    queue = await real_api.get(QUEUE.ref("default-queue"), Object)
    assert queue["spec"]["resources"]["gpu"]["quota"] == 7


def test_a_misspelt_value_is_refused_before_anything_happens(local_cluster: ControlPlane) -> None:
    given = ("-n", HERE, "--kubeconfig", str(local_cluster.files.kubeconfig), "--set", "global.gpuSharin=true")
    done = helm("upgrade", "-i", "kai-misspelt", str(CHART), *given, check=False)
    assert done.returncode != 0
    assert "gpuSharin" in done.stderr
