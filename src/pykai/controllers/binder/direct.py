"""Binds without a BindRequest, for a scheduler in the same process: pods that need nothing but the bind itself.

A BindRequest carries a decision from one process to another and keeps what the steps of a binding need to go on after a
crash. A pod without shares, claims or volumes has no steps: its bind is one write that the API server carries out whole
or not at all, and the pod itself shows afterwards whether it was. Every other pod, and every pod whose bind fails here,
takes a request, so failures look as they always do (docs/adr/0009).
"""

from __future__ import annotations

import structlog

from pykai.controllers.binder.attempt import Attempt, BindError, is_passing
from pykai.controllers.binder.binding import bind_pod
from pykai.controllers.binder.groups import is_meant_for, key_of, labelled_groups
from pykai.controllers.binder.outcomes import Outcomes
from pykai.controllers.binder.volume_match import pod_claims
from pykai.kube.api import Api
from pykai.kube.errors import ApiError, Conflict
from pykai.kube.resources import NODE, POD
from pykai.kube.watches import Watches
from pykai.objects import names
from pykai.objects.kinds import ABSENT, BindRequest, Node, Pod

log = structlog.get_logger("binder")


class DirectBinder:
    """Binds pods as requests would ask for it, where `is_plain` says that no preparation is needed."""

    def __init__(self, api: Api, watches: Watches, outcomes: Outcomes) -> None:
        self._api = api
        self._nodes = watches.of(NODE, Node)
        self._pods = watches.of(POD, Pod)
        self._outcomes = outcomes

    async def bind(self, order: BindRequest) -> str:
        """Bind the order's pod and return its node, which may be another one; empty: not bound, it takes a request.

        Raises the error of a server that did not say whether the pod is bound.
        """
        pod, node = (
            self._pods.get(order.spec.pod_name, order.metadata.namespace),
            self._nodes.get(order.spec.selected_node),
        )
        if pod is None or node is None or not is_meant_for(order, pod):
            return ""
        if not is_plain(order, pod) or self._outcomes.denies(pod):
            return ""
        try:
            bound = await bind_pod(self._api, Attempt(order, pod, node))
        except (BindError, Conflict):
            return ""
        except ApiError as error:
            if is_passing(error):
                raise
            return ""
        self._outcomes.bound(pod, bound)
        log.debug("pod bound", pod="/".join(key_of(pod)), node=bound)  # the scheduler tells that it is scheduled
        return bound


def is_plain(order: BindRequest, pod: Pod) -> bool:
    """Whether nothing must be prepared before the pod is bound, nor taken away that an earlier attempt left."""
    spec = order.spec
    given = (
        spec.selected_gpu_groups,
        spec.resource_claim_allocations,
        spec.extended_resource_claim_allocation,
        spec.predicted_numa_zones,
    )
    if spec.received_resource_type == names.RECEIVED_FRACTION or any(given):
        return False
    if pod.spec.resource_claims is not ABSENT or labelled_groups(pod.metadata.labels):
        return False
    return next(pod_claims(pod), None) is None
