"""The operator at work: makes what `desired` says true, removes what it no longer says, and tells how far it got.

It changes only what an operator made: an object of a wanted name that somebody else made is reported, not touched; but
leases that replicas made for themselves become its own. What is written is applied on the server, so that fields others
set stay theirs, and only where something differs. A shard with a mistake keeps running as it did until the mistake is
mended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from pykai.config.fields import FieldError
from pykai.controllers.loop import Meters, Pace, ReconcileLoop, RetryLater, unmetered
from pykai.controllers.operator import conditions, own_lease, shard_objects
from pykai.controllers.operator.certificates import Certificates
from pykai.controllers.operator.conditions import Moment, Presence, Standing
from pykai.controllers.operator.desired import Wanted, desired
from pykai.controllers.operator.installation import Facts, Installation, Site
from pykai.controllers.operator.observation import Observation
from pykai.controllers.operator.probe import DatabaseProbe, Ping
from pykai.controllers.operator.programs import Programs, accepted
from pykai.controllers.operator.settings import read_config
from pykai.controllers.operator.webhooks import WebhookParts
from pykai.controllers.operator.writer import Writer
from pykai.kube.api import Api, Patch, Resource
from pykai.kube.errors import NotFound
from pykai.kube.resources import CONFIG, SHARD
from pykai.kube.watches import Watches
from pykai.objects import names

Object = dict[str, Any]
log = structlog.get_logger("operator")
_ALL: Final = "all"
_OWN_LEASE: Final = "own lease"
_OTHER_CONFIGS: Final = "other configs"
_ONLY_ONE: Final = f"metadata.name: only the Config named {names.CONFIG_NAME} counts, this one has no effect"
_LOOK_AGAIN_SECONDS = 3600.0
"""How often certificates and the like are looked at though nothing happened."""


async def _unreachable(address: str, seconds: float) -> str:
    return "this operator was started without a way to ask"


@dataclass(frozen=True)
class OperatorSettings:
    """Where the operator is, what the webhook package contributes, how to reach a Prometheus and to ask programs.

    `gather_seconds`: for how long news are gathered before they are acted on. `wall`: seconds since 1970.
    """

    parts: WebhookParts
    site: Site = Site()
    ping: Ping = _unreachable
    programs: Programs = Programs()
    gather_seconds: float = 0.3
    wall: Callable[[], float] = time.time
    pace: Pace = field(default_factory=lambda: Pace(workers=1, first_seconds=1.0))
    meters: Meters = unmetered


class Operator:
    """The controller on one API server; `run` works until it is cancelled."""

    def __init__(self, api: Api, watches: Watches, settings: OperatorSettings) -> None:
        self._api = api
        self._settings = settings
        self._seen = Observation(watches, settings.site.namespace)
        self._writer = Writer(api, self._seen, settings.parts, settings.site.namespace)
        self._certificates = Certificates(self._writer, settings.parts)
        self._probe = DatabaseProbe(settings.ping, self._changed)
        self._asked: Mapping[tuple[str, str], Any] = {}
        self._loop: ReconcileLoop[str] = ReconcileLoop("operator", settings.pace, settings.meters("operator"))

    async def run(self, ready: asyncio.Event) -> None:
        """Keep the installation true until cancelled."""
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
        asked = self._seen.asked()
        if asked != self._asked:  # what failed may have been mended
            self._asked = asked
            self._loop.forget(_ALL)
        self._loop.add_after(_ALL, self._settings.gather_seconds)
        if self._seen.other_configs():
            self._loop.add_after(_OTHER_CONFIGS, self._settings.gather_seconds)

    async def _reconcile(self, key: str) -> float | None:
        if key == _OWN_LEASE:
            await own_lease.claim(self._api, self._settings.site.namespace)
            return None
        if key == _OTHER_CONFIGS:
            await self._turn_away()
            return None
        found = self._seen.config()
        if found is None:
            self._probe.aim(None)
            await self._writer.remove_all()
            return None
        if found["metadata"].get("deletionTimestamp"):
            return None
        config = dict(found)
        shards = self._seen.shards()
        try:
            wanted = await self._wanted(config, shards)
        except FieldError as error:
            await self._tell(CONFIG, config, Standing([str(error)], [str(error)]))
            return None
        await self._announce(config)
        return await self._make(config, shards, wanted)

    async def _wanted(self, config: Object, shards: Mapping[str, Object]) -> Wanted:
        installation = await self._installation(config)
        specs = {name: shard.get("spec") or {} for name, shard in shards.items()}
        return accepted(desired(installation, specs, self._settings.parts, _owner(config)), self._settings.programs)

    async def _installation(self, config: Object) -> Installation:
        read = read_config(config.get("spec") or {})
        if read.namespace != self._settings.site.namespace:
            here = self._settings.site.namespace
            raise FieldError("spec.namespace", f"is {read.namespace!r}, but this operator works in {here!r}")
        certificates, provided = await self._certificates.of(read)
        self._probe.aim(read.prometheus)
        facts = Facts(
            fake_gpu_nodes=self._seen.fake_gpu_nodes(),
            cdi=self._seen.cdi(),
            installed=self._seen.installed(),
            certificates=certificates,
            provided=provided,
            leaders=self._seen.leaders(),
            database=self._seen.database(),
            now=self._settings.wall(),
        )
        return Installation(read, self._settings.site, facts)

    async def _make(self, config: Object, shards: Mapping[str, Object], wanted: Wanted) -> float:
        failures = await self._writer.write(wanted)
        presence = Presence(self._writer.present(), failures)
        await self._tell(CONFIG, config, self._standing(wanted, presence))
        for name, shard in shards.items():
            await self._tell(SHARD, dict(shard), _shard_standing(name, wanted, presence))
        if failures:
            raise RetryLater("; ".join(failures.values()))
        return _LOOK_AGAIN_SECONDS

    def _standing(self, wanted: Wanted, presence: Presence) -> Standing:
        return Standing(
            conditions.not_deployed(wanted.operands, presence),
            conditions.not_available(wanted.operands, presence),
            wanted.missing,
            self._probe.outcome,
        )

    async def _turn_away(self) -> None:
        """Tell Configs of other names that they have no effect."""
        for config in self._seen.other_configs():
            await self._write_conditions(CONFIG, dict(config), conditions.ignored(_ONLY_ONE))

    async def _announce(self, config: Object) -> None:
        """Say once per generation that work on it began."""
        rows = (config.get("status") or {}).get("conditions") or ()
        known = {row["type"]: row.get("observedGeneration") for row in rows}
        if known.get(conditions.RECONCILING) != config["metadata"].get("generation"):
            await self._write_conditions(CONFIG, config, conditions.underway())

    async def _tell(self, resource: Resource, item: Object, standing: Standing) -> None:
        await self._write_conditions(resource, item, conditions.told(standing))

    async def _write_conditions(self, resource: Resource, item: Object, rows: list[tuple[str, bool, str, str]]) -> None:
        moment = Moment(item["metadata"].get("generation", 0), self._settings.wall())
        present = (item.get("status") or {}).get("conditions") or []
        written = conditions.merged(present, rows, moment)
        if written is None:
            return
        name = item["metadata"]["name"]
        try:
            await self._api.patch(resource.ref(name).sub("status"), Patch.merge({"status": {"conditions": written}}))
        except NotFound:
            return
        item["status"] = {**(item.get("status") or {}), "conditions": written}
        told = {row["type"]: row["status"] for row in written}
        log.info("status written", kind=resource.kind, name=name, **told)


def _owner(config: Object) -> Object:
    metadata = config["metadata"]
    reference = {"apiVersion": CONFIG.api_version, "kind": CONFIG.kind, "controller": True}
    return {**reference, "name": metadata["name"], "uid": metadata["uid"]}


def _shard_standing(name: str, wanted: Wanted, presence: Presence) -> Standing:
    if name in wanted.refused:
        return Standing([wanted.refused[name]], [wanted.refused[name]])
    own = {shard_objects.TITLE: wanted.shards[name]}
    return Standing(
        conditions.not_deployed(own, presence),
        conditions.not_available(own, presence),
        remarks=wanted.remarks.get(name, ()),
    )


async def run(api: Api, watches: Watches, settings: OperatorSettings, ready: asyncio.Event) -> None:
    """Operate the installation until cancelled."""
    await Operator(api, watches, settings).run(ready)
