"""The leases of elected components: made and removed with the rest, never written over, adopted from others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykai.cli.component import Process
from pykai.cli.main import COMMANDS, CommandTable, main
from pykai.controllers.operator import controller
from pykai.controllers.operator.controller import OperatorSettings
from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import CONFIG, DEPLOYMENT, LEASE, NAMESPACE
from pykai.kube.lease import RENEW_SECONDS, Election
from pykai.kube.workqueue import Pace
from pykai.objects import names
from tests.unit.controllers.live import DiaryApi, eventually, running

from .cluster import ENVIRONMENT, PARTS, Bench, container_of, operating, wanted

HERE = ENVIRONMENT.namespace
HA = {"global": {"replicaCount": 2}}
BINDER = LEASE.ref(names.BINDER_LEASE, HERE)
OWN = LEASE.ref(names.OPERATOR_LEASE, HERE)


def leases(spec: Object, shards: dict[str, Object]) -> dict[str, Object]:
    return {name: item for (kind, name), item in wanted(spec, shards).items() if kind == "Lease"}


# ------------------------------------------------------------------------------------------------------- what is made
def started(container: Object, monkeypatch: pytest.MonkeyPatch) -> Process:
    """The process that a container's command and arguments make."""
    assert isinstance(main, CommandTable)
    processes: list[Process] = []
    _, subcommand = container["command"]
    command = main.get_command(main.make_context("kai", [], resilient_parsing=True), subcommand)
    assert command is not None
    module = f"pykai.cli.{COMMANDS[subcommand].module}"
    monkeypatch.setattr(f"{module}.run_component", lambda process, compose: processes.append(process))
    command.main(container["args"], standalone_mode=False)
    return processes[0]


SHARDS: dict[str, Object] = {
    "default": {"args": {"scheduler-conf": ""}},
    "pool": {"partitionLabelValue": "a", "args": {"scheduler-conf": ""}},
    "large": {"partitionLabelValue": "A", "args": {"scheduler-conf": ""}},
    "own": {"partitionLabelValue": "b", "args": {"scheduler-conf": "", "scheduler-name": "x", "leader-elect": "true"}},
}


@pytest.mark.parametrize("spec", [{}, HA, {"binder": {"replicas": 2}}])
def test_every_lease_that_a_component_asks_for_is_made(spec: Object, monkeypatch: pytest.MonkeyPatch) -> None:
    made = wanted(spec, SHARDS)
    processes = [started(container_of(item), monkeypatch) for (kind, _), item in made.items() if kind == "Deployment"]
    assert {process.namespace or HERE for process in processes if process.lease} == {HERE}
    assert sorted(process.lease for process in processes if process.lease) == sorted(leases(spec, SHARDS))


def test_a_lease_says_nothing_about_its_holder() -> None:
    made = leases(HA, {"default": {}})
    assert made.keys() == {
        names.BINDER_LEASE,
        names.NODE_SCALE_ADJUSTER_LEASE,
        names.POD_GROUPER_LEASE,
        names.POD_GROUP_CONTROLLER_LEASE,
        names.QUEUE_CONTROLLER_LEASE,
        "kai-scheduler",
    }
    for item in made.values():
        assert item.keys() == {"apiVersion", "kind", "metadata"}
    assert made["kai-scheduler"]["metadata"]["labels"][names.SHARD_LABEL] == "default"


# ------------------------------------------------------------------------------------------------ the operator at work
async def _lease(bench: Bench, name: str = names.BINDER_LEASE) -> Object | None:
    page = await bench.api.list(LEASE, Object)
    return next((item for item in page.items if item["metadata"]["name"] == name), None)


async def _gone(bench: Bench) -> bool:
    return await _lease(bench) is None


async def _hold(bench: Bench, holder: str) -> None:
    await bench.api.patch(BINDER, Patch.merge({"spec": {"holderIdentity": holder}}))


@pytest.mark.virtual_time
async def test_a_leader_keeps_its_lease_whatever_the_operator_writes() -> None:
    async with operating() as bench:
        config = await bench.configure(**HA)
        await bench.settled()
        election = Election(bench.api, BINDER, "binder-1_a")
        leading = asyncio.create_task(election.run(_lead))
        await eventually(lambda: _held_by(bench, "binder-1_a"))
        await asyncio.sleep(0.1)  # until the operator has seen that
        await bench.api.patch(BINDER, Patch.json([{"op": "remove", "path": "/metadata/ownerReferences"}]))

        async def owned() -> bool:
            held = await bench.api.get(BINDER, Object)
            assert held["spec"]["holderIdentity"] == "binder-1_a"
            owners = held["metadata"].get("ownerReferences") or []
            return [owner["uid"] for owner in owners] == [config["metadata"]["uid"]]

        await eventually(owned)
        await asyncio.sleep(2 * RENEW_SECONDS)
        assert election.leading
        assert await owned()
        assert (await bench.api.get(BINDER, Object))["spec"]["leaseTransitions"] == 0
        leading.cancel()


async def _lead() -> None:
    await asyncio.Event().wait()


async def _held_by(bench: Bench, holder: str) -> bool:
    found = await _lease(bench)
    return found is not None and (found.get("spec") or {}).get("holderIdentity") == holder


async def test_renewals_make_the_operator_write_nothing() -> None:
    async with operating() as bench:
        await bench.configure(**HA)
        await bench.settled()
        await asyncio.sleep(0.05)
        before = len(bench.api.writes)
        for number in range(3):
            await bench.api.patch(BINDER, Patch.merge({"spec": {"leaseTransitions": number}}))
        await asyncio.sleep(0.1)
        assert len(bench.api.writes) == before + 3


async def _report(bench: Bench, pods: int, updated: int) -> None:
    """What the controller of Deployments says of the binder's."""
    ref = DEPLOYMENT.ref("binder", HERE)
    generation = (await bench.api.get(ref, Object))["metadata"]["generation"]
    status = {"observedGeneration": generation, "replicas": pods, "updatedReplicas": updated}
    await bench.api.patch(ref.sub("status"), Patch.merge({"status": status}))


async def test_with_one_copy_the_lease_goes_once_the_others_have() -> None:
    async with operating() as bench:
        await bench.configure(**HA)
        await bench.settled()
        await _report(bench, 2, 2)
        await bench.configure()
        await bench.settled()
        await _report(bench, 3, 1)
        await asyncio.sleep(0.1)
        assert not await _gone(bench)
        await _report(bench, 1, 1)
        await eventually(lambda: _gone(bench))


async def test_the_lease_of_a_component_that_is_off_goes() -> None:
    async with operating() as bench:
        await bench.configure(**HA)
        await bench.settled()
        await bench.configure(**HA, binder={"service": {"enabled": False}})
        await eventually(lambda: _gone(bench))
        assert names.POD_GROUPER_LEASE in await bench.names(LEASE)


async def test_leases_go_with_the_config_held_or_not() -> None:
    async with operating() as bench:
        await bench.configure(**HA)
        await bench.settled()
        await _hold(bench, "binder-1_a")
        await bench.api.delete(CONFIG.ref("kai-config"))
        await eventually(lambda: _gone(bench))


async def test_a_lease_that_replicas_made_becomes_ours() -> None:
    async with operating() as bench:
        spec = {"holderIdentity": "binder-1_a", "leaseTransitions": 3}
        await bench.api.create(LEASE, {"metadata": {"name": BINDER.name, "namespace": HERE}, "spec": spec})
        config = await bench.configure(**HA)
        await bench.settled()
        found = await bench.api.get(BINDER, Object)
        assert found["spec"] == spec
        assert found["metadata"]["ownerReferences"][0]["uid"] == config["metadata"]["uid"]
        assert (await bench.conditions())["Deployed"]["status"] == "True"


async def test_a_lease_of_somebody_else_is_reported_and_left_alone() -> None:
    async with operating(pace=Pace(1, 0.01, 0.02)) as bench:
        owner = await bench.api.get(NAMESPACE.ref(HERE), Object)
        theirs = {"apiVersion": "v1", "kind": "Namespace", "name": HERE, "uid": owner["metadata"]["uid"]}
        metadata = {"name": BINDER.name, "namespace": HERE, "ownerReferences": [theirs]}
        before = await bench.api.create(LEASE, {"metadata": metadata})
        await bench.configure(**HA)
        await bench.settled()
        assert f"Lease {BINDER.name}: exists already" in (await bench.conditions())["Deployed"]["message"]
        assert await bench.api.get(BINDER, Object) == before


# ------------------------------------------------------------------------------------------------- the operator's own
async def _own(lease: bool, deployed: bool) -> tuple[DiaryApi, Object]:
    """A server with the operator's lease, its Deployment or both; and the latter."""
    api, made = DiaryApi(), {}
    await api.create(NAMESPACE, {"metadata": {"name": HERE}})
    if lease:
        metadata = {"name": OWN.name, "namespace": HERE}
        await api.create(LEASE, {"metadata": metadata, "spec": {"holderIdentity": "kai-operator-1_a"}})
    if deployed:
        template: dict[str, Any] = {"metadata": {"labels": {"app": "o"}}}
        template["spec"] = {"containers": [{"name": "operator", "image": "i"}]}
        spec = {"selector": {"matchLabels": {"app": "o"}}, "template": template}
        made = await api.create(DEPLOYMENT, {"metadata": {"name": "kai-operator", "namespace": HERE}, "spec": spec})
    return api, made


async def test_the_operators_own_lease_goes_with_its_deployment() -> None:
    api, deployment = await _own(lease=True, deployed=True)
    async with running(api, controller.run, OperatorSettings(PARTS, ENVIRONMENT)):

        async def claimed() -> bool:
            found = await api.get(OWN, Object)
            assert found["spec"] == {"holderIdentity": "kai-operator-1_a"}
            owners = [owner["uid"] for owner in found["metadata"].get("ownerReferences") or ()]
            return owners == [deployment["metadata"]["uid"]]

        await eventually(claimed)
    writes = len(api.writes)
    async with running(api, controller.run, OperatorSettings(PARTS, ENVIRONMENT)):
        await asyncio.sleep(0.1)
    assert len(api.writes) == writes, "the next leader finds it claimed"
    await api.delete(DEPLOYMENT.ref("kai-operator", HERE))

    async def gone() -> bool:
        return not (await api.list(LEASE, Object)).items

    await eventually(gone)


@pytest.mark.parametrize(("lease", "deployed"), [(False, True), (True, False)])
async def test_no_own_lease_or_no_deployment(lease: bool, deployed: bool) -> None:
    api, _ = await _own(lease, deployed)
    writes = len(api.writes)
    async with running(api, controller.run, OperatorSettings(PARTS, ENVIRONMENT)):
        await asyncio.sleep(0.1)
    assert len(api.writes) == writes
