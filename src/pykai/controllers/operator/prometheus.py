"""The database of past usage: our own Prometheus through its operator, or an external one with a health probe.

Our own is not deleted as soon as it is disabled, because it holds the past usage of all queues: it is annotated with a
timestamp and deleted when its data would have expired anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from pykai.controllers.operator import deployments
from pykai.controllers.operator.installation import MONITOR_KIND, PROMETHEUS_KIND, Installation
from pykai.kube.api import Object
from pykai.kube.backoff import Backoff
from pykai.objects import units
from pykai.objects.config_kinds import HealthProbe, PortSpec, PrometheusSpec
from pykai.objects.units import parse_timestamp, rfc3339

Ping = Callable[[str, float], Awaitable[str]]
"""(address, timeout in seconds) -> error, empty if it answered."""


BACKOFF = Backoff(initial=1.0, maximum=10.0)


class PrometheusProbe:
    """Probes an external Prometheus. `outcome`: the last error; empty: healthy, None: no target or not probed yet."""

    def __init__(self, ping: Ping, changed: Callable[[], None]) -> None:
        self.outcome: str | None = None
        self._ping = ping
        self._changed = changed
        self._target: tuple[str, HealthProbe] | None = None
        self._aimed = asyncio.Event()

    def aim(self, asked: PrometheusSpec | None) -> None:
        """Probe this Prometheus from now on; None, or one without an external address, stops probing."""
        external = asked is not None and asked.enabled and asked.external_prometheus_url
        target = (asked.external_prometheus_url, asked.external_prometheus_health_probe) if asked and external else None
        if target != self._target:
            self._target, self.outcome = target, None
            self._aimed.set()

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            target = self._target
            self._aimed.clear()
            if target is not None:
                outcome = await self._probe(*target)
                if target == self._target and outcome != self.outcome:
                    self.outcome = outcome
                    self._changed()
            with suppress(TimeoutError):
                async with asyncio.timeout(target[1].interval if target else None):
                    await self._aimed.wait()

    async def _probe(self, url: str, how: HealthProbe) -> str:
        """Return the error after all attempts; empty if one succeeded."""
        outcome = ""
        for attempt in range(1, max(how.max_retries, 1) + 1):
            outcome = await self._ping(f"{url.rstrip('/')}/api/v1/status/config", how.timeout)
            if not outcome or attempt == max(how.max_retries, 1):
                break
            await asyncio.sleep(BACKOFF.after(attempt))
        return outcome


PROMETHEUS_TITLE: Final = "KAI-prometheus"
SERVICE: Final = "usage-prometheus"
DEPRECATED: Final = "kai/deprecation-timestamp"
MISSING: Final = "prometheus operator"
_PORT = 9090
_USUAL_RETENTION = 30 * 86400.0


def missing_prometheus(installation: Installation) -> list[str]:
    """Return lines about missing kinds that the requested Prometheus needs."""
    asked = installation.config.prometheus
    kind = MONITOR_KIND if asked.external_prometheus_url else PROMETHEUS_KIND
    return (
        [f"{PROMETHEUS_TITLE} is missing {MISSING}"]
        if asked.enabled and kind not in installation.facts.installed
        else []
    )


def prometheus_objects(installation: Installation) -> list[Object]:
    """Return the objects of Prometheus, of installed kinds only."""
    asked = installation.config.prometheus
    installed = installation.facts.installed
    monitors = _monitors(installation) if asked.service_monitor.enabled and MONITOR_KIND in installed else []
    if not asked.enabled:
        return _parting(installation)
    if asked.external_prometheus_url:
        return monitors
    if PROMETHEUS_KIND not in installed:
        return []
    return [*_served(installation), _database(installation), *monitors]


def retention_seconds(live: Object) -> float:
    """Return the retention of a Prometheus in seconds; 30 days if it states none or an unreadable one."""
    try:
        return units.parse_long_duration(str((live.get("spec") or {}).get("retention") or ""))
    except units.DurationError:
        return _USUAL_RETENTION


def _parting(installation: Installation) -> list[Object]:
    """Return the objects of a disabled Prometheus: it and its access until its data has expired, then none."""
    live = installation.facts.database
    if live is None:
        return []
    marked = (live["metadata"].get("annotations") or {}).get(DEPRECATED, "")
    since = parse_timestamp(marked)
    if since is not None and installation.facts.now >= since + retention_seconds(live):
        return []
    mark = {DEPRECATED: rfc3339(installation.facts.now) if since is None else marked}
    database = _database(installation)
    database["metadata"]["annotations"] = mark
    return [*_served(installation), database]


def _served(installation: Installation) -> list[Object]:
    name = installation.config.prometheus.instance_name
    service = deployments.service(SERVICE, {"prometheus": name}, [PortSpec(_PORT, _PORT, "web")])
    return [deployments.account(name, installation), service]


def _database(installation: Installation) -> Object:
    asked = installation.config.prometheus
    mine = {"matchLabels": {asked.accounting_label_key: asked.accounting_label_value}}
    spec: Object = {
        "serviceAccountName": asked.instance_name,
        "podMetadata": {"labels": {"app": asked.instance_name}},
        "retention": asked.retention_period,
        "scrapeInterval": asked.sample_interval,
        "serviceMonitorSelector": mine,
        "serviceMonitorNamespaceSelector": {},
        "ruleSelector": mine,
        "ruleNamespaceSelector": {},
    }
    if asked.enable_persistent_storage:
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": asked.storage_class_name,
            "resources": {"requests": {"storage": str(asked.storage_size)}},
        }
        spec["storage"] = {"volumeClaimTemplate": {"spec": claim}}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": asked.instance_name},
        "spec": spec,
    }


def _monitors(installation: Installation) -> list[Object]:
    port = installation.config.queue_controller.controller_service.metrics.name
    here = {"matchNames": [installation.config.namespace]}
    nearby = {"matchNames": ["monitoring", "default"]}
    return [
        _monitor(installation, "queue-controller", {"app": "queue-controller"}, here, port),
        _monitor(installation, "kube-state-metrics", {"app.kubernetes.io/name": "kube-state-metrics"}, nearby, "http"),
    ]


def _monitor(installation: Installation, name: str, labels: dict[str, str], where: Object, port: str) -> Object:
    asked = installation.config.prometheus
    how = {
        "port": port,
        "interval": asked.service_monitor.interval,
        "scrapeTimeout": asked.service_monitor.scrape_timeout,
        "bearerTokenFile": asked.service_monitor.bearer_token_file,
    }
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": name, "labels": {asked.accounting_label_key: asked.accounting_label_value}},
        "spec": {"selector": {"matchLabels": labels}, "namespaceSelector": where, "endpoints": [how]},
    }
