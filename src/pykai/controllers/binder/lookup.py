"""What a bind request is about: its pod, its node, the devices it shares. BindError says which of them is missing."""

from __future__ import annotations

from pykai.controllers.binder.attempt import BindError, InvalidRequestError, Waiting
from pykai.controllers.binder.groups import Key, is_meant_for, is_over, request_groups, requested_pod
from pykai.controllers.binder.reservations import Reservations
from pykai.controllers.binder.sharing import is_going
from pykai.kube.api import Api
from pykai.kube.errors import NotFound
from pykai.kube.resources import POD
from pykai.kube.watch import SharedWatch
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Node, Pod

RESERVATION = "reservation"


class Lookup:
    """From the watches where they will do; a device may take `allocation_seconds` to become known."""

    def __init__(
        self,
        api: Api,
        pods: SharedWatch[Pod],
        nodes: SharedWatch[Node],
        reservations: Reservations,
        allocation_seconds: float,
    ) -> None:
        self._api = api
        self._pods = pods
        self._nodes = nodes
        self._reservations = reservations
        self._allocation_seconds = allocation_seconds

    def pod_seen(self, key: Key) -> Pod | None:
        """The pod as its watch shows it."""
        return self._pods.get(key[1], key[0])

    def gpus(self, request: BindRequest) -> list[str]:
        """The ids of the devices that the request's groups stand for now, for people to read."""
        return [self._reservations.held(key) for key in request_groups(request)]

    async def pod_now(self, key: Key) -> Pod | None:
        """The pod as the API server knows it at this moment; None if there is none of this name."""
        try:
            return await self._api.get(POD.ref(key[1], key[0]), Pod)
        except NotFound:
            return None

    async def pod(self, request: BindRequest, *, fresh: bool) -> Pod:
        """The request's pod, if it can be bound or is bound already; `fresh`: as the API server knows it now."""
        namespace, name = requested_pod(request)
        if not name:
            raise InvalidRequestError("spec.podName is empty: invalid binding request")
        pod = None if fresh else self._pods.get(name, namespace)
        try:
            pod = await self._api.get(POD.ref(name, namespace), Pod) if pod is None else pod
        except NotFound as error:
            raise BindError(error.message) from None
        if not is_meant_for(request, pod):
            raise BindError(f'pods "{name}" not found: the pod of that name is not the one of the request')
        if not pod.spec.node_name and (is_over(pod) or is_going(pod)):
            raise BindError(f'pod "{name}" is {"being deleted" if is_going(pod) else pod.status.phase}')
        return pod

    def node(self, request: BindRequest) -> Node:
        """The selected node."""
        node = self._nodes.get(request.spec.selected_node)
        if node is None:
            raise BindError(f'nodes "{request.spec.selected_node}" not found')
        return node

    def devices(self, request: BindRequest) -> tuple[str, ...] | Waiting:
        """The ids of the devices the pod shares, in the order of its groups; empty for a pod that shares none."""
        if request.spec.received_resource_type != names.RECEIVED_FRACTION:
            return ()
        self.node(request)
        devices = []
        title = "/".join(requested_pod(request))
        for key in request_groups(request):
            failure = f"failed to reserve GPUs for pod {title} in gpu group {key.group}"
            try:
                device = self._reservations.device(key)
            except BindError as error:
                raise BindError(f"{failure}: {error}") from None
            if not device:
                overdue = f"{failure}: {self._reservations.overdue(key)}"
                return Waiting(RESERVATION, self._allocation_seconds, overdue)
            devices.append(device)
        if not devices:
            raise InvalidRequestError("no SelectedGPUGroups for fractional pod: invalid binding request")
        return tuple(devices)
