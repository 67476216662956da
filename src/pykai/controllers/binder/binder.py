"""The binder: one reconcile loop keyed by pod (bind requests), one keyed by shared device (reservations).

Both read from the informers and are triggered by the device index; neither polls. A third loop writes the status of
successful binds. Loops start after the informers have synced, so the first pass covers all existing objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from pykai.controllers.binder.bind_reconciler import BindRequestReconciler, BindRules, RequestContext, RequestLookup
from pykai.controllers.binder.binding import BindAttempt, BindError, BindStatusUpdater, bind_pod, is_retryable
from pykai.controllers.binder.device_index import DeviceIndex, GroupKey, Scope, WakeUps, is_meant_for, labelled_groups
from pykai.controllers.binder.plugins import DEFAULTS, Plugin, StepContext, build_steps
from pykai.controllers.binder.reservations import ReservationClients, Reservations, ReservationTemplate
from pykai.controllers.binder.volume_binding import pod_claims
from pykai.kube.api import Api
from pykai.kube.api_resources import BIND_REQUEST, NODE, POD
from pykai.kube.errors import ApiError, Conflict
from pykai.kube.events import EventRecorder
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import Key
from pykai.kube.workqueue import UNMETERED, Meter, Pace, ReconcileLoop
from pykai.objects import names
from pykai.objects.kinds import ABSENT, BindRequest, Node, Pod

COMPONENT = "binder"
_START: Key = ("", "")
"""The key of the first reconcile, which finds what an earlier process left behind."""

log = structlog.get_logger(COMPONENT)


@dataclass(frozen=True, slots=True)
class BinderSettings:
    """The settings of the binder; defaults are those of its command."""

    rules: BindRules = field(default_factory=BindRules)
    reservations: ReservationTemplate = field(default_factory=ReservationTemplate)
    scaling_namespace: str = names.SCALING_NAMESPACE
    plugins: Mapping[str, Plugin] = field(default_factory=lambda: DEFAULTS)
    pace: Pace = field(default_factory=lambda: Pace(workers=10, first_seconds=1.0, longest_seconds=60.0))


class Binder:
    """Create it before the informers run, so that they start with those of the other components.

    `meters` measure the loops `bindrequest` and `reservation`. `direct` serves a scheduler in the same process.
    """

    def __init__(
        self,
        api: Api,
        watches: InformerFactory,
        settings: BinderSettings | None = None,
        meters: Mapping[str, Meter] | None = None,
    ) -> None:
        settings, meters = settings or BinderSettings(), meters or {}
        self._watches = watches
        self._pace = settings.pace
        pods, nodes = watches.of(POD, Pod), watches.of(NODE, Node)
        self._bind_requests = watches.of(BIND_REQUEST, BindRequest)
        self._pods_loop = ReconcileLoop[Key]("bindrequest", settings.pace, meters.get("bindrequest", UNMETERED))
        self._groups_loop = ReconcileLoop[GroupKey]("reservation", settings.pace, meters.get("reservation", UNMETERED))
        self._status_loop = ReconcileLoop[Key]("bind-status", settings.pace)
        self._recorder = EventRecorder(api, COMPONENT)
        scope = Scope(settings.rules.scheduler_name, settings.reservations.namespace, settings.scaling_namespace)
        self._index = DeviceIndex(pods, self._bind_requests, scope)
        clients = ReservationClients(api, self._recorder, nodes)
        self._reservations = Reservations(clients, self._index, settings.reservations, self._pods_loop.add)
        self._steps = build_steps(settings.plugins, StepContext(api, watches, self._pods_loop.add))
        lookup = RequestLookup(api, pods, nodes, self._reservations)
        context = RequestContext(api, self._index, lookup, self._pods_loop.failures)
        self._status = BindStatusUpdater(api, self._recorder, self._status_loop.add)
        self._requests = BindRequestReconciler(context, self._steps, self._status, settings.rules)
        self.direct = DirectBinder(api, watches, self._status)

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Bind pods until cancelled; the informers must run beside it. Sets `ready` once they have synced."""
        await self._watches.synced()
        if ready is not None:
            ready.set()
        self._pods_loop.add(_START)
        self._index.start(WakeUps(self._pods_loop.add, self._groups_loop.add))
        log.info("binder started", bind_requests=len(self._bind_requests), plugins=[step.name for step in self._steps])
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            group.create_task(self._groups_loop.run(self._reservations.reconcile))
            group.create_task(self._pods_loop.run(self._reconcile_pod))
            group.create_task(self._status_loop.run(self._status.write_success))

    async def _reconcile_pod(self, key: Key) -> float | None:
        if key != _START:
            return await self._requests.reconcile(key)
        for pod in sorted(await self._requests.find_orphans()):
            self._pods_loop.add(pod)
        return None


class DirectBinder:
    """Binds without a BindRequest, for a scheduler in the same process: pods that need nothing but the bind itself.

    A BindRequest carries a decision from one process to another and survives a crash between the steps of a binding. A
    pod without shares, claims or volumes has no steps: the API server carries out its bind whole or not at all. Every
    other pod, and every pod whose bind fails here, takes a request, so failures look the same (docs/adr/0009).
    """

    def __init__(self, api: Api, watches: InformerFactory, status: BindStatusUpdater) -> None:
        self._api = api
        self._nodes = watches.of(NODE, Node)
        self._pods = watches.of(POD, Pod)
        self._status = status

    async def bind(self, order: BindRequest) -> str:
        """Bind the pod of `order` and return its node, which may differ; "" if the bind needs a BindRequest.

        Raise the server's error if it is unknown whether the pod is bound.
        """
        pod = self._pods.get(order.spec.pod_name, order.metadata.namespace)
        node = self._nodes.get(order.spec.selected_node)
        if pod is None or node is None or not is_meant_for(order, pod):
            return ""
        if not needs_only_bind(order, pod) or self._status.shows_unbound(pod):
            return ""
        try:
            bound = await bind_pod(self._api, BindAttempt(order, pod, node))
        except (BindError, Conflict):
            return ""
        except ApiError as error:
            if is_retryable(error):
                raise
            return ""
        self._status.bound(pod, bound)
        log.debug("pod bound", pod=pod.metadata.title, node=bound)  # the scheduler logs that it is scheduled
        return bound


def needs_only_bind(order: BindRequest, pod: Pod) -> bool:
    """Whether a bind needs no preparation, and no undo of an earlier attempt."""
    spec = order.spec
    prepared = (
        spec.gpu_groups,
        spec.resource_claim_allocations,
        spec.extended_resource_claim_allocation,
        spec.predicted_numa_zones,
    )
    if spec.received_resource_type == names.RECEIVED_FRACTION or any(prepared):
        return False
    if pod.spec.resource_claims is not ABSENT or labelled_groups(pod.metadata.labels):
        return False
    return next(pod_claims(pod), None) is None
