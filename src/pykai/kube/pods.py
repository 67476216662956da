"""The two writes to a pod that are no plain writes: binding it to a node and evicting it."""

from __future__ import annotations

from collections.abc import Mapping

from pykai.kube.api import AS_SERVER_LIKES, Api, Deletion, Object, Ref


async def bind(api: Api, pod: Ref, node: str, uid: str = "", annotations: Mapping[str, str] | None = None) -> None:
    """Assign the pod to the node; with `uid` only that very pod; Conflict if it is bound, going away or gated."""
    wish = {"uid": uid, "annotations": dict(annotations or {})}
    body: Object = {
        "metadata": {key: value for key, value in wish.items() if value},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await api.post(pod.sub("binding"), body)


async def evict(api: Api, pod: Ref, how: Deletion = AS_SERVER_LIKES) -> None:
    """Delete the pod if its disruption budget allows it, TooManyRequests if not."""
    await api.post(pod.sub("eviction"), {"deleteOptions": how.body()})
