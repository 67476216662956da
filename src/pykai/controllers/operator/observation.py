"""What the operator observes: Config, shards, its own objects, facts of the cluster, whether an external Prometheus
answers; and the kinds it creates.

Its own objects are those with its label in its namespace, so the operator needs no rights on those of others. Kinds are
written in an order in which no step leaves a broken state behind: trust before certificates, configuration and leases
before the pods that read them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from pykai.controllers.operator.installation import MONITOR_KIND, PROMETHEUS_KIND, VPA_KIND, Leader
from pykai.kube.api import EventType, Object, Resource, Selection
from pykai.kube.api_resources import (
    CONFIG,
    CONFIG_MAP,
    CRD,
    DAEMON_SET,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    ENDPOINT_SLICE,
    LEASE,
    MUTATING_WEBHOOK,
    NODE,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    SHARD,
    VALIDATING_WEBHOOK,
)
from pykai.kube.backoff import Backoff
from pykai.kube.informer import InformerFactory, SharedInformer
from pykai.kube.informer_store import WatchChange
from pykai.objects import names
from pykai.objects.config_kinds import HealthProbe, PrometheusSpec

VPA: Final = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler")
PROMETHEUS: Final = Resource("monitoring.coreos.com", "v1", "prometheuses", "Prometheus")
MONITOR: Final = Resource("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor")
CLUSTER_POLICY: Final = Resource("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy", False)

FRACTIONING: Final = (
    Resource("gpu-fractioning.kai.scheduler", "v1alpha1", "gpufractioningconfigs", "GpuFractioningConfig", False),
    Resource("gpu-sharing.kai.scheduler", "v1alpha1", "gpusharingconfigs", "GpuSharingConfig", False),
)
"""The kinds that report readiness of mode NvFractions, the older one last; the object's name is `default`."""
_FRACTIONING_NAME = "default"

OPTIONAL: Final = (VPA, PROMETHEUS, MONITOR)
WEBHOOKS: Final = (MUTATING_WEBHOOK, VALIDATING_WEBHOOK)
WORKLOADS: Final = (DEPLOYMENT, DAEMON_SET)
MANAGED: Final = (
    SERVICE_ACCOUNT,
    CONFIG_MAP,
    SERVICE,
    *WEBHOOKS,
    SECRET,
    LEASE,
    *WORKLOADS,
    DISRUPTION_BUDGET,
    ENDPOINT_SLICE,
    *OPTIONAL,
)
BY_KIND: Final = {resource.kind: resource for resource in MANAGED}

assert {resource.qualified for resource in OPTIONAL} == {VPA_KIND, PROMETHEUS_KIND, MONITOR_KIND}


Key = tuple[str, str]
"""Kind and name of one of our objects."""

_OURS = f"{names.MANAGED_BY_LABEL}={names.OPERATOR}"
_CDI_BY_DEFAULT = (25, 10, 0)


_OWNERS = frozenset({"Config", "SchedulingShard"})
_GROUP = "kai.scheduler/"


def ours(live: Object) -> bool:
    """Whether an operator created this object, ours or KAI's: a Config or a shard is its controller.

    The label proves nothing: Kubernetes copies the labels of a Service to its endpoints.
    """
    owners = live["metadata"].get("ownerReferences") or ()
    return any(
        owner.get("controller") and owner["kind"] in _OWNERS and owner["apiVersion"].startswith(_GROUP)
        for owner in owners
    )


class Observation:
    """The watches of the operator; subscribers are called after relevant changes."""

    def __init__(self, watches: InformerFactory, namespace: str) -> None:
        here = Selection(namespace=namespace, labels=_OURS)
        anywhere = Selection(labels=_OURS)
        self._own: dict[Resource, SharedInformer[Object]] = {
            kind: watches.of(kind, Object, here if kind.namespaced else anywhere, optional=kind in OPTIONAL)
            for kind in MANAGED
        }
        self._configs = watches.of(CONFIG, Object)
        self._shards = watches.of(SHARD, Object)
        fake = Selection(labels=f"{names.FAKE_GPU_LABEL}=true", metadata_only=True)
        self._fake_nodes = watches.of(NODE, Object, fake)
        self._definitions = watches.of(CRD, Object, Selection(metadata_only=True))
        self._policies = watches.of(CLUSTER_POLICY, Object, optional=True)
        self._fractioning = [watches.of(kind, Object, optional=True) for kind in FRACTIONING]
        schedulers = Selection(namespace=namespace, labels=f"{names.APP_LABEL}={names.SCHEDULER_APP}")
        self._pods = watches.of(POD, Object, schedulers)
        self._namespace = namespace

    async def synced(self) -> None:
        """Return when all informers have synced."""
        for watch in self._all():
            await watch.synced()

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after relevant changes; return a function that unsubscribes."""

        def notify(change: WatchChange[Object]) -> None:
            if _is_relevant(change):
                changed()

        leave = [watch.subscribe(notify) for watch in self._all()]

        def end() -> None:
            for unsubscribe in leave:
                unsubscribe()

        return end

    def config(self) -> Object | None:
        """Return the Config that is reconciled; None if there is none."""
        return self._configs.get(names.CONFIG_NAME)

    def other_configs(self) -> list[Object]:
        """Return the Configs of other names, which have no effect."""
        return [item for key, item in self._configs.items() if key[1] != names.CONFIG_NAME]

    def shards(self) -> dict[str, Object]:
        """Return all shards by name, without deleted ones."""
        return {key[1]: shard for key, shard in self._shards.items() if not shard["metadata"].get("deletionTimestamp")}

    def spec_generations(self) -> dict[tuple[str, str], Any]:
        """Return the generations of Config and shards, by uid and name: they change if and only if a spec does."""
        found = [item["metadata"] for watch in (self._configs, self._shards) for _, item in watch.items()]
        return {(meta["uid"], meta["name"]): meta.get("generation") for meta in found}

    def own(self) -> Iterator[tuple[Resource, Object]]:
        """Yield all our objects."""
        for resource, watch in self._own.items():
            for _, item in list(watch.items()):
                if ours(item):
                    yield resource, item

    def find(self, resource: Resource, name: str) -> Object | None:
        """Return one of our objects, None if it does not exist."""
        return self._own[resource].get(name, self._namespace if resource.namespaced else "")

    def installed(self) -> frozenset[str]:
        """Return which optional kinds are installed."""
        return frozenset(kind.qualified for kind in OPTIONAL if self._definitions.get(kind.qualified) is not None)

    def database(self) -> Object | None:
        """Return the Prometheus object we created; None without one."""
        return next((item for _, item in self._own[PROMETHEUS].items()), None)

    def fake_gpu_nodes(self) -> bool:
        """Whether some nodes have simulated GPUs."""
        return len(self._fake_nodes) > 0

    def cdi(self) -> bool:
        """Whether the GPU operator injects devices through CDI."""
        return any(uses_cdi(policy) for _, policy in self._policies.items())

    def nri(self) -> bool:
        """Whether the GPU operator injects devices with its NRI plugin."""
        specs = [policy.get("spec") or {} for _, policy in self._policies.items()]
        return any((spec.get("cdi") or {}).get("nriPluginEnabled") is True for spec in specs)

    def fractions_not_ready(self) -> str:
        """Return why GPUs cannot be shared in mode NvFractions; empty if they can."""
        found = [each for watch in self._fractioning if (each := watch.get(_FRACTIONING_NAME)) is not None]
        reasons = [fractions_not_ready(each) for each in found]
        if not reasons:
            return f"{FRACTIONING[0].kind} {_FRACTIONING_NAME} not found"
        return "" if "" in reasons else reasons[0]

    def leaders(self) -> Mapping[str, Leader]:
        """Return the holder of each lease, if it is a reachable scheduler pod."""
        found: dict[str, Leader] = {}
        for (_, name), lease in self._own[LEASE].items():
            pod = self._pods.get(_holder(lease), self._namespace)
            if pod is None or pod["metadata"].get("deletionTimestamp"):
                continue
            if address := (pod.get("status") or {}).get("podIP"):
                found[name] = Leader(pod["metadata"]["name"], address, (pod.get("spec") or {}).get("nodeName") or "")
        return found

    def _all(self) -> list[SharedInformer[Object]]:
        specs, cluster = (self._configs, self._shards), (self._fake_nodes, self._policies, self._definitions)
        return [*self._own.values(), *specs, *cluster, self._pods, *self._fractioning]


def uses_cdi(policy: Object) -> bool:
    """Whether a ClusterPolicy uses CDI for all pods: since v25.10.0 `enabled` suffices, before also `default`."""
    cdi = (policy.get("spec") or {}).get("cdi") or {}
    if not cdi.get("enabled"):
        return False
    version = (policy["metadata"].get("labels") or {}).get("app.kubernetes.io/version", "")
    numbers = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    recent = numbers is not None and tuple(int(number or 0) for number in numbers.groups()) >= _CDI_BY_DEFAULT
    return recent or bool(cdi.get("default"))


def fractions_not_ready(item: Object) -> str:
    """Return why an object does not report readiness; empty if it does."""
    rows = (item.get("status") or {}).get("conditions")
    if not rows:
        return f"{item['kind']} {_FRACTIONING_NAME}: conditions not found"
    ready = next((row for row in rows if row.get("type") == "Ready"), None)
    if ready is None:
        return f"{item['kind']} {_FRACTIONING_NAME}: Ready condition not found"
    if ready.get("status") == "True":
        return ""
    shown = [f"{name}={ready.get(field) or ''}" for name, field in _READY_FIELDS.items()]
    return ", ".join(shown)


_READY_FIELDS = {"Ready": "status", "reason": "reason", "message": "message"}


def _holder(lease: Object) -> str:
    """Return the name of the pod that holds a lease."""
    return str((lease.get("spec") or {}).get("holderIdentity") or "").partition("_")[0]


def _election(lease: Object) -> tuple[str, Any]:
    """Return the relevant fields of a lease: its holder and its owners."""
    return _holder(lease), lease["metadata"].get("ownerReferences")


def _is_relevant(change: WatchChange[Object]) -> bool:
    """Whether a change is relevant: not a mere renewal of a lease, and not of metadata of a Config or shard alone.

    Changes of their status count: a write of an earlier process may arrive after ours.
    """
    if change.type is not EventType.MODIFIED or change.old is None:
        return True
    if change.object["kind"] == LEASE.kind:
        return _election(change.object) != _election(change.old)
    if change.object["kind"] in (CONFIG.kind, SHARD.kind):
        return _reconciled(change.object) != _reconciled(change.old)
    return True


def _reconciled(item: Object) -> tuple[Any, Any, Any]:
    return item.get("spec"), item.get("status"), item["metadata"].get("deletionTimestamp")


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
        self._target_changed = asyncio.Event()

    def set_target(self, prometheus: PrometheusSpec | None) -> None:
        """Probe this Prometheus from now on; None, or one without an external address, stops probing."""
        external = prometheus is not None and prometheus.enabled and prometheus.external_prometheus_url
        target = (
            (prometheus.external_prometheus_url, prometheus.external_prometheus_health_probe)
            if prometheus and external
            else None
        )
        if target != self._target:
            self._target, self.outcome = target, None
            self._target_changed.set()

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            target = self._target
            self._target_changed.clear()
            if target is not None:
                outcome = await self._probe(*target)
                if target == self._target and outcome != self.outcome:
                    self.outcome = outcome
                    self._changed()
            with suppress(TimeoutError):
                async with asyncio.timeout(target[1].interval if target else None):
                    await self._target_changed.wait()

    async def _probe(self, url: str, how: HealthProbe) -> str:
        """Return the error after all attempts; empty if one succeeded."""
        outcome = ""
        for attempt in range(1, max(how.max_retries, 1) + 1):
            outcome = await self._ping(f"{url.rstrip('/')}/api/v1/status/config", how.timeout)
            if not outcome or attempt == max(how.max_retries, 1):
                break
            await asyncio.sleep(BACKOFF.after(attempt))
        return outcome
