"""What an earlier leader wrote last: it counts, even if no watch has shown it yet.

A leader that gave up its lease a moment ago may have created bind requests and bound pods that the watches of its
successor do not show. The server is asked for both, once, before the first cycle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import structlog
from msgspec import Struct

from pykai.cache.assumed import Assumptions
from pykai.cache.cluster import ClusterCache
from pykai.kube.api import Api, Page, Selection
from pykai.kube.backoff import Backoff
from pykai.kube.errors import ApiError
from pykai.kube.resources import BIND_REQUEST, POD
from pykai.objects.kinds import BindRequest, BindRequestSpec, ObjectMeta, OwnerReference, Pod
from pykai.scheduler.hands import Hands

T = TypeVar("T")

log = structlog.get_logger(component="scheduler")


class _Spec(Struct, rename="camel", frozen=True):
    node_name: str = ""


class _BoundPod(Struct, frozen=True):
    metadata: ObjectMeta
    spec: _Spec


class Takeover:
    """What the server has at this moment, beside what the watches show."""

    def __init__(self, api: Api, cache: ClusterCache, backoff: Backoff) -> None:
        self._api = api
        self._cache = cache
        self._backoff = backoff

    async def take(self, assumptions: Assumptions, hands: Hands) -> None:
        """Assume all of it; pods that were bound without a request only where that is done at all."""
        known = self._cache.of(BindRequest)
        before = dict(known)
        listed = await self._listed(partial(self._api.list, BIND_REQUEST, BindRequest))
        bound = [] if hands.direct is None else [*await self._bound()]
        until = hands.until()
        for request in (*listed, *bound):
            meta = request.metadata
            key = (meta.namespace, meta.name)
            shown, owner = before.get(key), next((o.uid for o in meta.owner_references or () if o.kind == "Pod"), "")
            is_news = shown is None or shown.metadata.uid != meta.uid
            if owner and is_news and known.get(key) is shown:
                assumptions.bind(request, owner)
                assumptions.trust_bind(request, until)

    async def _bound(self) -> Iterator[BindRequest]:
        """Orders that stand for pods on a node of which the watch does not know."""
        ours = f"spec.schedulerName={self._cache.params.scheduler_name}"
        where = Selection(fields=f"{ours},spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
        listed, known = await self._listed(partial(self._api.list, POD, _BoundPod, where)), self._cache.of(Pod)
        return (_order(pod) for pod in listed if not _is_known(known.get(_key(pod)), pod))

    async def _listed(self, ask: Callable[[], Awaitable[Page[T]]]) -> Sequence[T]:
        """What the server has now, however often it has to be asked."""
        failures = 0
        while True:
            try:
                return (await ask()).items
            except ApiError as error:
                log.warning("what an earlier leader wrote is not known yet", error=error.message)
            failures += 1
            await asyncio.sleep(self._backoff.after(failures))


def _key(pod: _BoundPod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name


def _is_known(shown: Pod | None, pod: _BoundPod) -> bool:
    """Whether the watch shows that the pod is on a node."""
    return shown is not None and shown.metadata.uid == pod.metadata.uid and bool(shown.spec.node_name)


def _order(pod: _BoundPod) -> BindRequest:
    meta = pod.metadata
    owner = OwnerReference(name=meta.name, kind="Pod", uid=meta.uid)
    return BindRequest(
        metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, owner_references=[owner]),
        spec=BindRequestSpec(pod_name=meta.name, selected_node=pod.spec.node_name),
    )
