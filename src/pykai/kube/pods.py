"""The one write to a pod that is no plain write: binding it to a node."""

from __future__ import annotations

from collections.abc import Mapping

from pykai.kube.api import Api, Object, Ref


async def bind(api: Api, pod: Ref, node: str, uid: str = "", annotations: Mapping[str, str] | None = None) -> None:
    """Assign the pod to the node; with `uid` only that very pod; Conflict if it is bound, going away or gated."""
    wish = {"uid": uid, "annotations": dict(annotations or {})}
    body: Object = {
        "metadata": {key: value for key, value in wish.items() if value},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await api.post(pod.sub("binding"), body)
