"""The operator on an API server: what it writes, what it leaves alone, what it says, and how little it writes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from pykai.config.fields import FieldError
from pykai.controllers.operator.desired import Validators
from pykai.controllers.operator.observation import CLUSTER_POLICY, MONITOR, PROMETHEUS
from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import (
    CONFIG,
    CONFIG_MAP,
    CRD,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    LEASE,
    MUTATING_WEBHOOK,
    NODE,
    POD,
    POD_GROUP,
    QUEUE,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    SHARD,
    VALIDATING_WEBHOOK,
)
from pykai.kube.errors import ApiError, Forbidden, NotFound, TooManyRequests
from pykai.kube.workqueue import Pace
from tests.permissive_crd import permissive_crd
from tests.unit.controllers.live import eventually

from .cluster import Bench, flags_of, operating

HERE = "kai-scheduler"


async def flags(bench: Bench, name: str) -> dict[str, str]:
    return flags_of(await bench.api.get(DEPLOYMENT.ref(name, HERE), Object))


async def test_config_and_shard_become_deployments() -> None:
    async with operating() as bench:
        await bench.configure()
        await bench.shard("default")
        await eventually(lambda: _has(bench, "kai-scheduler-default"))
        await bench.settled()
        assert (await bench.conditions())["Deployed"]["message"] == "Resources deployed"
        assert "kai-scheduler-default" in await bench.names(CONFIG_MAP)
        shard = await eventually(lambda: bench.conditions(SHARD, "default"))
        assert shard["Deployed"]["status"] == "True"
        assert shard["Available"]["message"] == "Scheduler: Deployment [kai-scheduler-default] is not available"


async def _has(bench: Bench, name: str) -> bool:
    return name in await bench.names(DEPLOYMENT)


async def test_nothing_is_written_when_nothing_changes() -> None:
    async with operating() as bench:
        await bench.configure()
        await bench.settled()
        await asyncio.sleep(0.05)
        before = len(bench.api.writes)
        found = await bench.api.get(DEPLOYMENT.ref("binder", HERE), Object)
        status = {"conditions": [], "observedGeneration": found["metadata"]["generation"], "replicas": 1}
        await bench.api.patch(DEPLOYMENT.ref("binder", HERE).sub("status"), Patch.merge({"status": status}))
        await asyncio.sleep(0.1)
        assert len(bench.api.writes) == before + 1


async def test_a_change_rolls_out() -> None:
    async with operating() as bench:
        await bench.configure()
        await bench.settled()
        assert "gpu-sharing-enabled" not in await flags(bench, "admission")
        await bench.configure(admission={"gpuSharing": True})
        await bench.settled()
        assert (await flags(bench, "admission"))["gpu-sharing-enabled"] == "true"
        await bench.configure()
        await bench.settled()
        assert "gpu-sharing-enabled" not in await flags(bench, "admission")


async def test_what_somebody_asks_for_does_not_wait_for_events_to_be_collected() -> None:
    async with operating(gather_seconds=3600.0) as bench:
        await bench.configure()
        await bench.settled()
        await bench.configure(admission={"gpuSharing": True})
        await bench.settled()
        assert (await flags(bench, "admission"))["gpu-sharing-enabled"] == "true"


async def test_what_is_no_longer_wanted_goes() -> None:
    async with operating() as bench:
        await bench.configure()
        await bench.shard("default")
        await eventually(lambda: _has(bench, "kai-scheduler-default"))
        await bench.configure(admission={"service": {"enabled": False}})
        await bench.settled()
        assert "admission" not in await bench.names(DEPLOYMENT)
        assert await bench.names(MUTATING_WEBHOOK) == set()
        await bench.api.delete(SHARD.ref("default"))

        async def gone() -> bool:
            return not await _has(bench, "kai-scheduler-default") and not await bench.names(CONFIG_MAP)

        await eventually(gone)


async def test_without_config_everything_of_ours_goes_and_nothing_else() -> None:
    async with operating() as bench:
        other = {"metadata": {"name": "theirs", "namespace": HERE}}
        await bench.api.create(SERVICE_ACCOUNT, other)
        await bench.configure()
        await bench.settled()
        await bench.api.delete(CONFIG.ref("kai-config"))

        async def gone() -> bool:
            kinds = (DEPLOYMENT, SERVICE, SECRET, SERVICE_ACCOUNT, VALIDATING_WEBHOOK, MUTATING_WEBHOOK)
            return not any([await bench.names(kind) for kind in kinds])

        await eventually(gone)
        assert await bench.api.get(SERVICE_ACCOUNT.ref("theirs", HERE), Object)


async def test_drift_is_mended_and_foreign_fields_stay() -> None:
    async with operating() as bench:
        await bench.configure()
        await bench.settled()
        ref = DEPLOYMENT.ref("binder", HERE)
        scaled = {"spec": {"replicas": 5}, "metadata": {"annotations": {"mine": "stays"}}}
        await bench.api.patch(ref, Patch.merge(scaled))

        async def mended() -> bool:
            found = await bench.api.get(ref, Object)
            assert found["metadata"]["annotations"]["mine"] == "stays"
            return bool(found["spec"]["replicas"] == 1)

        await eventually(mended)
        await bench.api.delete(SERVICE.ref("binder", HERE))
        await eventually(lambda: _there(bench, SERVICE, "binder"))


async def _there(bench: Bench, resource: Any, name: str) -> bool:
    return name in await bench.names(resource)


async def test_an_object_of_somebody_else_is_reported_and_left_alone() -> None:
    async with operating(pace=Pace(1, 0.01, 0.02)) as bench:
        theirs = {"metadata": {"name": "binder", "namespace": HERE}, "spec": {"ports": [{"port": 1}]}}
        await bench.api.create(SERVICE, theirs)
        await bench.configure()
        await bench.settled()
        message = (await bench.conditions())["Deployed"]["message"]
        assert message == ("Binder: not deployed: Service binder: exists already and was not made by this operator")
        found = await bench.api.get(SERVICE.ref("binder", HERE), Object)
        assert found["spec"]["ports"][0]["port"] == 1
        await bench.api.delete(SERVICE.ref("binder", HERE))

        async def deployed() -> bool:
            return bool((await bench.conditions())["Deployed"]["status"] == "True")

        await eventually(deployed)


async def test_a_deployment_of_kai_with_other_pods_is_made_anew() -> None:
    async with operating() as bench:
        config = await bench.configure(scheduler={"service": {"enabled": False}})
        owner = {"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "name": "default", "controller": True}
        labels = {"app": "kai-scheduler-default"}
        old = {
            "metadata": {
                "name": "kai-scheduler-default",
                "namespace": HERE,
                "ownerReferences": [{**owner, "uid": config["metadata"]["uid"]}],
            },
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "image": "y"}]}},
            },
        }
        before = await bench.api.create(DEPLOYMENT, old)
        await bench.configure()
        await bench.shard("default")
        await eventually(lambda: _has(bench, "kai-scheduler-default"))
        now = await bench.api.get(DEPLOYMENT.ref("kai-scheduler-default", HERE), Object)
        assert now["metadata"]["uid"] != before["metadata"]["uid"]
        assert now["spec"]["selector"]["matchLabels"]["app"] == "kai-scheduler"
        assert [each["name"] for each in now["spec"]["template"]["spec"]["containers"]] == ["kai-scheduler-default"]


def _picky(component: str, arguments: Sequence[str]) -> None:
    for word in ("nope", "five"):
        if any(word in argument for argument in arguments):
            raise FieldError(component, f"I do not know {word}")


def _needs_topology(document: Object) -> list[str]:
    plugins = document["tiers"][0]["plugins"]
    if "topology" not in str(plugins):
        raise FieldError("tiers", "without topology I am lost")
    for at, plugin in enumerate(plugins):
        if plugin["name"] == "nope":
            raise FieldError(f"tiers[0].plugins[{at}]", "I do not know nope")
    named = [(at, name) for at, plugin in enumerate(plugins) for name in plugin.get("arguments", {})]
    return [f"tiers[0].plugins[{at}].arguments.{name}: what for?" for at, name in named if name == "colour"]


PICKY = Validators(_picky, _needs_topology)
MISTAKES = [
    ({"args": {"v": "five"}}, "spec: scheduler: I do not know five"),
    ({"plugins": {"nope": {"enabled": True}}}, "spec.plugins.nope: I do not know nope"),
    ({"plugins": {"topology": {"enabled": False}}}, "spec.tiers: without topology I am lost"),
]


@pytest.mark.parametrize(("spec", "message"), MISTAKES)
async def test_a_mistake_in_a_shard_keeps_it_running(spec: Object, message: str) -> None:
    async with operating(validators=PICKY) as bench:
        await bench.configure()
        await bench.shard("default")
        await eventually(lambda: _has(bench, "kai-scheduler-default"))
        before = await flags(bench, "kai-scheduler-default")
        await bench.shard("default", **spec)

        async def told() -> bool:
            rows = await bench.conditions(SHARD, "default")
            return rows.get("Deployed", {}).get("message") == message

        await eventually(told)
        assert await flags(bench, "kai-scheduler-default") == before


async def test_what_a_shard_asks_for_in_vain_is_told_and_harms_nothing() -> None:
    async with operating(validators=PICKY) as bench:
        await bench.configure()
        await bench.shard("default", plugins={"elastic": {"arguments": {"colour": "red"}}})
        await eventually(lambda: _has(bench, "kai-scheduler-default"))
        rows = await eventually(lambda: bench.conditions(SHARD, "default"))
        assert rows["Deployed"]["status"] == "True"
        said, note = rows["Reconciling"]["message"].splitlines()
        assert said == "Reconciliation completed successfully"
        assert note == "note: spec.plugins.elastic.arguments.colour: what for?"


async def test_a_second_config_is_told_that_it_does_not_count() -> None:
    async with operating() as bench:
        await bench.configure()
        await bench.settled()
        item = {"apiVersion": CONFIG.api_version, "kind": "Config", "metadata": {"name": "kai-config-2"}, "spec": {}}
        await bench.api.create(CONFIG, item)
        rows = await eventually(lambda: bench.conditions(CONFIG, "kai-config-2"))
        assert {row["status"] for row in rows.values()} == {"False"}
        assert {row["reason"] for row in rows.values()} == {"ignored"}
        assert "only the Config named kai-config counts" in rows["Ready"]["message"]
        writes = len(bench.api.writes)
        await asyncio.sleep(0.1)
        assert len(bench.api.writes) == writes
        assert (await bench.conditions())["Deployed"]["status"] == "True"


async def test_a_shard_whose_new_objects_cannot_be_written_keeps_its_old_ones() -> None:
    async with operating(pace=Pace(1, 0.2, 0.2)) as bench:
        await bench.configure()
        await bench.shard("default")
        await eventually(lambda: _has(bench, "kai-scheduler-default"))
        bench.api.refusals["patch", "Deployment"] = [Forbidden("no")] * 9_999
        await bench.configure(**{"global": {"schedulerName": "other"}})

        async def told() -> bool:
            rows = await bench.conditions(SHARD, "default")
            return "Deployed" in rows and "Deployment other-default: no" in rows["Deployed"]["message"]

        await eventually(told)
        assert await _has(bench, "kai-scheduler-default")
        bench.api.refusals.clear()

        async def replaced() -> bool:
            return await _has(bench, "other-default") and not await _has(bench, "kai-scheduler-default")

        await eventually(replaced)


async def test_what_is_mended_does_not_wait_for_what_failed() -> None:
    async with operating(pace=Pace(1, 600.0, 600.0)) as bench:
        bench.api.refusals["patch", "Deployment"] = [Forbidden("no")] * 6
        await bench.configure()
        await bench.settled()
        assert await bench.names(DEPLOYMENT) == set()
        await bench.configure(admission={"gpuSharing": True})
        await eventually(lambda: _has(bench, "admission"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"namespace": "elsewhere"}, "spec.namespace: is 'elsewhere', but this operator works in 'kai-scheduler'"),
        (
            {"global": {"schedulerName": "No Name"}},
            "spec.global.schedulerName: 'No Name' cannot be part of names",
        ),
        ({"binder": {"plugins": {"nope": {"enabled": True}}}}, "Binder: binder: I do not know nope"),
    ],
)
async def test_a_config_that_cannot_be_used(spec: Object, message: str) -> None:
    async with operating(validators=PICKY) as bench:
        await bench.configure(**spec)
        await bench.settled()
        rows = await bench.conditions()
        assert (rows["Deployed"]["status"], rows["Deployed"]["message"]) == ("False", message)
        assert await bench.names(DEPLOYMENT) == set()


async def test_refused_writes_are_told_and_tried_again() -> None:
    async with operating(pace=Pace(1, 0.01, 0.02)) as bench:
        bench.api.refusals["patch", "Deployment"] = [Forbidden("no"), TooManyRequests("later")]
        await bench.configure()

        async def deployed() -> bool:
            return (await bench.conditions()).get("Deployed", {}).get("status") == "True"

        await eventually(deployed)
        assert await bench.names(DEPLOYMENT) > {"binder", "admission"}


async def _run_deployments(bench: Bench) -> None:
    for name in await bench.names(DEPLOYMENT):
        ref = DEPLOYMENT.ref(name, HERE)
        found = await bench.api.get(ref, Object)
        status = {
            "observedGeneration": found["metadata"]["generation"],
            "updatedReplicas": 1,
            "conditions": [{"type": "Available", "status": "True"}],
        }
        await bench.api.patch(ref.sub("status"), Patch.merge({"status": status}))


async def _is_ready(bench: Bench) -> bool:
    return bool((await bench.conditions())["Ready"]["message"] == "System is ready")


async def test_available_follows_the_deployments() -> None:
    async with operating() as bench:
        await bench.configure()
        await bench.settled()
        await _run_deployments(bench)
        await eventually(partial(_is_ready, bench))
        checked = [write for write in bench.api.writes if write[2] == "kai-webhook-check"]
        assert [kind for _, kind, _ in checked] == ["Queue", "PodGroup", "Pod"]
        for resource in (QUEUE, POD_GROUP, POD):
            assert not (await bench.api.list(resource, Object)).items


async def _set_available(bench: Bench, name: str, available: bool) -> None:
    ref, status = DEPLOYMENT.ref(name, HERE), "True" if available else "False"
    conditions = [{"type": "Available", "status": status}]
    await bench.api.patch(ref.sub("status"), Patch.merge({"status": {"conditions": conditions}}))


async def _shard_is(bench: Bench, status: str) -> bool:
    return bool((await bench.conditions(SHARD, "default")).get("Available", {}).get("status") == status)


@pytest.mark.parametrize("lost", [False, True])
async def test_a_condition_returns_to_an_older_state_before_the_watch_shows_the_newer(lost: bool) -> None:
    async with operating(pace=Pace(workers=1, first_seconds=0.02)) as bench:
        await bench.configure()
        await bench.shard("default")
        await bench.settled()
        await _run_deployments(bench)
        await eventually(partial(_shard_is, bench, "True"))
        await asyncio.sleep(0.05)
        bench.api.stalled[SHARD.kind] = asyncio.Event()
        if lost:
            bench.api.lost_answers.add(("patch", "SchedulingShard/status"))
        await _set_available(bench, "kai-scheduler-default", available=False)
        await eventually(partial(_shard_is, bench, "False"))
        await _set_available(bench, "kai-scheduler-default", available=True)
        await eventually(partial(_shard_is, bench, "True"))


async def test_a_status_that_an_earlier_process_wrote_late_is_corrected() -> None:
    async with operating() as bench:
        await bench.configure()
        await bench.shard("default")
        await bench.settled()
        await _run_deployments(bench)
        await eventually(partial(_is_ready, bench))
        for ref in (CONFIG.ref("kai-config"), SHARD.ref("default")):
            found = await bench.api.get(ref, Object)
            late = [{**row, "status": "False", "message": "late"} for row in found["status"]["conditions"]]
            await bench.api.patch(ref.sub("status"), Patch.merge({"status": {"conditions": late}}))
        await eventually(partial(_is_ready, bench))
        await eventually(partial(_shard_is, bench, "True"))


async def test_the_system_is_ready_when_the_api_server_reaches_its_webhooks() -> None:
    async with operating() as bench:
        refused = ApiError('failed calling webhook "queue-validation.kai.scheduler": connection refused')
        bench.api.refusals["patch", "Queue"] = [refused]
        bench.api.refusals["patch", "PodGroup"] = [Forbidden("a webhook that refuses has answered")]
        await bench.configure()
        await bench.settled()
        await _run_deployments(bench)

        async def told() -> bool:
            return "connection refused" in (await bench.conditions())["Available"]["message"]

        await eventually(told)
        assert not await _is_ready(bench)
        await eventually(partial(_is_ready, bench))


# ------------------------------------------------------------------------------------------------ facts of the cluster
async def test_fake_nodes_and_cdi_reach_the_binder() -> None:
    async with operating(permissive_crd(CLUSTER_POLICY)) as bench:
        await bench.configure()
        await bench.settled()
        await bench.api.create(NODE, {"metadata": {"name": "n", "labels": {"run.ai/fake.gpu": "true"}}})
        policy = {"metadata": {"name": "p"}, "spec": {"cdi": {"enabled": True, "default": True}}}
        await bench.api.create(CLUSTER_POLICY, policy)

        async def told() -> bool:
            given = await flags(bench, "binder")
            return given.get("fake-gpu-nodes") == "true" and '"cdiEnabled":"true"' in given["plugins"]

        await eventually(told)


async def test_a_kind_that_comes_later_is_used() -> None:
    async with operating() as bench:
        await bench.configure(prometheus={"enabled": True})
        await bench.settled()
        assert (await bench.conditions())["DependenciesFulfilled"]["status"] == "False"
        for kind in (PROMETHEUS, MONITOR):
            await bench.api.create(CRD, permissive_crd(kind))
        await eventually(lambda: _fulfilled(bench))
        assert await bench.names(PROMETHEUS) == {"prometheus"}
        assert await bench.names(MONITOR) == {"queue-controller", "kube-state-metrics"}


async def _fulfilled(bench: Bench) -> bool:
    return bool((await bench.conditions())["DependenciesFulfilled"]["status"] == "True")


async def test_the_leader_is_the_endpoint() -> None:
    async with operating() as bench:
        await bench.configure(**{"global": {"replicaCount": 2}})
        await bench.shard("default")
        await eventually(lambda: _there(bench, ENDPOINT_SLICE, "kai-scheduler-default-leader"))
        for number in (1, 2):
            name = f"kai-scheduler-default-{number}"
            pod = {"metadata": {"name": name, "namespace": HERE, "labels": {"app": "kai-scheduler"}}}
            await bench.api.create(POD, {**pod, "spec": {"containers": [{"name": "c", "image": "i"}]}})
            status = Patch.merge({"status": {"podIP": f"10.0.0.{number}"}})
            await bench.api.patch(POD.ref(name, HERE).sub("status"), status)
        for number, identity in ((1, "abc"), (2, "def")):
            taken = {"spec": {"holderIdentity": f"kai-scheduler-default-{number}_{identity}"}}
            await bench.api.patch(LEASE.ref("kai-scheduler", HERE), Patch.merge(taken))
            await eventually(partial(_endpoint, bench, f"10.0.0.{number}"))


async def _endpoint(bench: Bench, address: str) -> bool:
    try:
        found = await bench.api.get(ENDPOINT_SLICE.ref("kai-scheduler-default-leader", HERE), Object)
    except NotFound:
        return False
    return [each["addresses"] for each in found.get("endpoints") or []] == [[address]]


async def test_a_certificate_of_an_administrator_is_not_touched() -> None:
    async with operating() as bench:
        secret = {
            "metadata": {"name": "kai-admission-webhook-tls-secret", "namespace": HERE},
            "data": {"tls.crt": "eA=="},
        }
        await bench.api.create(SECRET, secret)
        await bench.configure()
        await bench.settled()
        found = await bench.api.get(SECRET.ref("kai-admission-webhook-tls-secret", HERE), Object)
        assert found["data"] == {"tls.crt": "eA=="}
        assert "mutating-kai-admission" in await bench.names(MUTATING_WEBHOOK)
        assert (await bench.conditions())["Deployed"]["status"] == "True"
