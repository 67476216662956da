"""The operator: reconciles the objects that `desired` describes and reports progress in status conditions.

It changes only what an operator created: an object of a wanted name that another client created is reported; but leases
that replicas created for themselves are adopted. Writes use server-side apply, so that fields of others stay theirs. A
shard with an invalid field keeps running as before until the field is corrected. Serving certificates of the webhooks
are issued and renewed here, unless an administrator supplies the Secret.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from pykai.config.fields import FieldError
from pykai.controllers.operator import conditions
from pykai.controllers.operator.components import COMPONENTS, WebhookParts
from pykai.controllers.operator.conditions import Findings, ObservedAt, Presence
from pykai.controllers.operator.desired import Validators, Wanted, desired, validated
from pykai.controllers.operator.installation import Facts, Installation, OperatorEnvironment, SecretData, read_config
from pykai.controllers.operator.object_writer import ObjectWriter
from pykai.controllers.operator.observation import Observation, Ping, PrometheusProbe, ours
from pykai.controllers.operator.shards import SCHEDULER_TITLE
from pykai.kube.api import Api, Object, Patch, Ref, Resource
from pykai.kube.api_resources import CONFIG, DEPLOYMENT, LEASE, POD, POD_GROUP, QUEUE, SECRET, SHARD
from pykai.kube.clock import wall
from pykai.kube.codec import version_number
from pykai.kube.errors import ApiError, NotFound
from pykai.kube.informer import InformerFactory
from pykai.kube.workqueue import Meters, Pace, ReconcileLoop, RetryLater, unmetered
from pykai.objects import names
from pykai.objects.config_kinds import Config


class Certificates:
    """The serving certificates of all webhook servers, as the data of their Secrets."""

    def __init__(self, writer: ObjectWriter, parts: WebhookParts) -> None:
        self._writer = writer
        self._parts = parts
        self._issued: dict[str, SecretData] = {}

    async def of(self, config: Config) -> tuple[dict[str, SecretData], frozenset[str]]:
        """Return the data of the Secret of each Service, and the Services whose Secret the operator does not own."""
        found: dict[str, SecretData] = {}
        provided = set()
        for row in COMPONENTS:
            if not row.webhook(config):
                continue
            live = await self._writer.look_up(SECRET, row.secret)
            if live is not None and not ours(live):
                found[row.name] = live.get("data") or {}
                provided.add(row.name)
                continue
            present, service = self._issued.get(row.name), row.service(config)
            if (
                live is not None
                and (live["metadata"].get("labels") or {}).get(names.MANAGED_BY_LABEL) == names.OPERATOR
            ):
                present = live.get("data") or present
            self._issued[row.name] = await asyncio.to_thread(self._parts.issue, service, config.namespace, present)
            found[row.name] = self._issued[row.name]
        return found, frozenset(provided)


async def adopt_own_lease(api: Api, namespace: str) -> None:
    """Make the operator's Deployment the owner of its lease; do nothing without leader election.

    Outside a cluster there is no Deployment, and the lease stays as leader election created it.
    """
    ref = LEASE.ref(names.OPERATOR_LEASE, namespace)
    lease = await _get(api, ref)
    deployment = await _get(api, DEPLOYMENT.ref(names.OPERATOR, namespace))
    if lease is None or deployment is None:
        return
    uid = deployment["metadata"]["uid"]
    if uid in (each["uid"] for each in lease["metadata"].get("ownerReferences") or ()):
        return
    owner = {"apiVersion": DEPLOYMENT.api_version, "kind": DEPLOYMENT.kind, "name": names.OPERATOR, "uid": uid}
    await api.patch(ref, Patch.apply({"metadata": {"name": ref.name, "ownerReferences": [owner]}}, names.OPERATOR))


async def _get(api: Api, ref: Ref) -> Object | None:
    try:
        return await api.get(ref, Object)
    except NotFound:
        return None


log = structlog.get_logger("operator")
_ALL: Final = "all"
_OWN_LEASE: Final = "own lease"
_OTHER_CONFIGS: Final = "other configs"
_ONLY_ONE: Final = f"metadata.name: only the Config named {names.CONFIG_NAME} counts, this one has no effect"
SPEC_CHANGE_SECONDS = 0.02
"""The delay after a change of Config or a shard, shorter than that after other events."""
_RESYNC_SECONDS = 3600.0
"""The resync interval, for certificates that expire."""
_UNREACHABLE_SECONDS = 1.0
_CHECK: Final = "kai-webhook-check"
_UNCONFIRMED: Final = 1 << 63
"""The version after a write whose outcome is unknown: no watch has reached it."""
_NOT_CALLED: Final = "failed calling webhook"
"""The API server's message for a webhook that it could not call; a denial, in contrast, proves that it answered."""


async def _unreachable(address: str, seconds: float) -> str:
    return "this operator was started without a way to ask"


@dataclass(frozen=True)
class OperatorSettings:
    """The operator's environment, the functions of the webhook package, and how to probe Prometheus and components.

    `gather_seconds`: how long events are collected before a reconcile.
    """

    parts: WebhookParts
    environment: OperatorEnvironment = OperatorEnvironment()
    ping: Ping = _unreachable
    validators: Validators = Validators()
    gather_seconds: float = 0.3
    pace: Pace = Pace(workers=1, first_seconds=1.0)
    meters: Meters = unmetered


class OperatorController:
    """The controller; `run` works until cancelled."""

    def __init__(self, api: Api, watches: InformerFactory, settings: OperatorSettings) -> None:
        self._api = api
        self._settings = settings
        self._seen = Observation(watches, settings.environment.namespace)
        self._writer = ObjectWriter(api, self._seen, settings.parts, settings.environment.namespace)
        self._certificates = Certificates(self._writer, settings.parts)
        self._probe = PrometheusProbe(settings.ping, self._changed)
        self._spec_generations: Mapping[tuple[str, str], Any] = {}
        self._status_versions: dict[str, int] = {}
        """The resourceVersion that each Config and shard, by uid, has at least since our last write of its status."""
        self._loop: ReconcileLoop[str] = ReconcileLoop("operator", settings.pace, settings.meters("operator"))

    async def run(self, ready: asyncio.Event) -> None:
        """Reconcile the installation until cancelled."""
        await self._seen.synced()
        leave = self._seen.subscribe(self._changed)
        self._loop.add(_OWN_LEASE)
        self._changed()
        ready.set()
        probing = asyncio.create_task(self._probe.run())
        try:
            await self._loop.run(self._reconcile)
        finally:
            probing.cancel()
            leave()

    def _changed(self) -> None:
        generations = self._seen.spec_generations()
        if generations != self._spec_generations:  # the user may have fixed what failed
            self._spec_generations = generations
            self._loop.forget(_ALL)
            self._loop.add_after(_ALL, SPEC_CHANGE_SECONDS)
        self._loop.add_after(_ALL, self._settings.gather_seconds)
        if self._seen.other_configs():
            self._loop.add_after(_OTHER_CONFIGS, self._settings.gather_seconds)

    async def _reconcile(self, key: str) -> float | None:
        if key == _OWN_LEASE:
            await adopt_own_lease(self._api, self._settings.environment.namespace)
            return None
        if key == _OTHER_CONFIGS:
            for other in self._seen.other_configs():
                current = await self._with_live_status(CONFIG, other)
                await self._write_conditions(CONFIG, current, conditions.ignored(_ONLY_ONE))
            return None
        found = self._seen.config()
        if found is None:
            self._probe.set_target(None)
            await self._writer.remove_all()
            return None
        if found["metadata"].get("deletionTimestamp"):
            return None
        config = await self._with_live_status(CONFIG, found)
        shards = self._seen.shards()
        try:
            installation = await self._installation(config)
            specs = {name: shard.get("spec") or {} for name, shard in shards.items()}
            made = desired(installation, specs, self._settings.parts, _owner(config))
            wanted = validated(made, self._settings.validators)
        except FieldError as error:
            await self._report(CONFIG, config, Findings([str(error)], [str(error)]))
            return None
        await self._report_reconciling(config)
        return await self._reconcile_objects(config, shards, wanted)

    async def _installation(self, config: Object) -> Installation:
        read = read_config(config.get("spec") or {})
        if read.namespace != self._settings.environment.namespace:
            here = self._settings.environment.namespace
            raise FieldError("spec.namespace", f"is {read.namespace!r}, but this operator works in {here!r}")
        certificates, provided = await self._certificates.of(read)
        self._probe.set_target(read.prometheus)
        facts = Facts(
            fake_gpu_nodes=self._seen.fake_gpu_nodes(),
            cdi=self._seen.cdi(),
            nri=self._seen.nri(),
            fractions=self._seen.fractions_not_ready(),
            installed=self._seen.installed(),
            certificates=certificates,
            provided=provided,
            leaders=self._seen.leaders(),
            database=self._seen.database(),
            now=wall(),
        )
        return Installation(read, self._settings.environment, facts)

    async def _reconcile_objects(self, config: Object, shards: Mapping[str, Object], wanted: Wanted) -> float:
        failures = await self._writer.write(wanted)
        presence = Presence(self._writer.present(), failures)
        findings = Findings(
            conditions.not_deployed(wanted.operands, presence),
            conditions.not_available(wanted.operands, presence),
            wanted.missing,
            self._probe.outcome,
        )
        becomes_ready = not findings.not_available and not conditions.is_true(config, conditions.READY)
        unreachable = await self._unreachable(config) if becomes_ready else []
        await self._report(CONFIG, config, replace(findings, not_available=[*findings.not_available, *unreachable]))
        for name, shard in shards.items():
            if name in wanted.refused:
                of_shard = Findings([wanted.refused[name]], [wanted.refused[name]])
            else:
                own, remarks = {SCHEDULER_TITLE: wanted.shards[name]}, wanted.remarks.get(name, ())
                lines = conditions.not_deployed(own, presence), conditions.not_available(own, presence)
                of_shard = Findings(*lines, remarks=remarks)
            await self._report(SHARD, await self._with_live_status(SHARD, shard), of_shard)
        if failures:
            raise RetryLater("; ".join(failures.values()))
        return _UNREACHABLE_SECONDS if unreachable else _RESYNC_SECONDS

    async def _unreachable(self, config: Object) -> list[str]:
        """Return lines about webhooks that the API server cannot call, found by dry runs of objects they validate.

        The webhooks exclude the system's own namespace, so the pod is in the namespace of reservation pods.
        """
        read = read_config(config.get("spec") or {})
        namespace = read.binder.resource_reservation.namespace
        pod = {"schedulerName": read.shared.scheduler_name, "containers": [{"name": "main", "image": "none"}]}
        labels = {"labels": {read.shared.queue_label_key: _CHECK}}
        validated: list[tuple[Ref, Object]] = [
            (QUEUE.ref(_CHECK), {"spec": {}}),
            (POD_GROUP.ref(_CHECK, namespace), {"spec": {"queue": _CHECK, "minMember": 1}}),
            (POD.ref(_CHECK, namespace), {"metadata": labels, "spec": pod}),
        ]
        lines = []
        for ref, body in validated:
            try:
                await self._api.patch(ref, replace(Patch.apply(body, names.OPERATOR), dry_run=True))
            except ApiError as error:
                if _NOT_CALLED in error.message:
                    lines.append(f"{ref.resource.plural}: {error.message}")
        return lines

    async def _report_reconciling(self, config: Object) -> None:
        """Set the condition Reconciling once per generation."""
        rows = (config.get("status") or {}).get("conditions") or ()
        known = {row["type"]: row.get("observedGeneration") for row in rows}
        if known.get(conditions.RECONCILING) != config["metadata"].get("generation"):
            await self._write_conditions(CONFIG, config, conditions.in_progress())

    async def _report(self, resource: Resource, item: Object, findings: Findings) -> None:
        await self._write_conditions(resource, item, conditions.of_findings(findings))

    async def _with_live_status(self, resource: Resource, watched: Object) -> Object:
        """Return a copy of a watched object with its current status: from the API server until the watch shows ours.

        Compared with an older status, a condition that returns to it would not be written.
        """
        metadata = watched["metadata"]
        if version_number(metadata["resourceVersion"]) >= self._status_versions.get(metadata["uid"], 0):
            self._status_versions.pop(metadata["uid"], None)
            return dict(watched)
        live = await _get(self._api, resource.ref(metadata["name"]))
        if live is None:
            return dict(watched)
        self._status_versions[metadata["uid"]] = version_number(live["metadata"]["resourceVersion"])
        return {**watched, "status": live.get("status")}

    async def _write_conditions(self, resource: Resource, item: Object, rows: list[tuple[str, bool, str, str]]) -> None:
        moment = ObservedAt(item["metadata"].get("generation", 0), wall())
        present = (item.get("status") or {}).get("conditions") or []
        written = conditions.merged(present, rows, moment)
        if written is None:
            return
        name, uid = item["metadata"]["name"], item["metadata"]["uid"]
        patch = Patch.merge({"status": {"conditions": written}})
        self._status_versions[uid] = _UNCONFIRMED
        try:
            updated = await self._api.patch(resource.ref(name).sub("status"), patch)
        except NotFound:
            del self._status_versions[uid]
            return
        self._status_versions[uid] = version_number(updated["metadata"]["resourceVersion"])
        item["status"] = {**(item.get("status") or {}), "conditions": written}
        statuses = {row["type"]: row["status"] for row in written}
        log.info("status written", kind=resource.kind, name=name, **statuses)


def _owner(config: Object) -> Object:
    metadata = config["metadata"]
    reference = {"apiVersion": CONFIG.api_version, "kind": CONFIG.kind, "controller": True}
    return {**reference, "name": metadata["name"], "uid": metadata["uid"]}


async def run(api: Api, watches: InformerFactory, settings: OperatorSettings, ready: asyncio.Event) -> None:
    """Operate the installation until cancelled."""
    await OperatorController(api, watches, settings).run(ready)
