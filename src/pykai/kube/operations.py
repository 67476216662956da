"""Operations of more than one request or with a body of their own: binding a pod, listing pages, reviewing tokens and
access, installing CRDs.

CRDs are server-side applied, so existing custom resources keep their data and gain fields.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from pykai.kube.api import EVERYTHING, Api, Object, Paging, Patch, Ref, Resource, Selection
from pykai.kube.api_resources import CRD
from pykai.kube.errors import NotFound, Timeout

T = TypeVar("T")


async def bind(api: Api, pod: Ref, node: str, uid: str = "", annotations: Mapping[str, str] | None = None) -> None:
    """Bind the pod to the node; with `uid` only that pod. Conflict if it is bound, terminating or gated."""
    metadata = {"uid": uid, "annotations": dict(annotations or {})}
    body: Object = {
        "metadata": {key: value for key, value in metadata.items() if value},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await api.post(pod.sub("binding"), body)


async def pages(
    api: Api, resource: Resource, into: type[T], where: Selection = EVERYTHING, size: int = 500
) -> AsyncIterator[Sequence[T]]:
    """Yield the objects of a kind page by page, so that no response is large."""
    paging = Paging(size)
    while True:
        page = await api.list(resource, into, where, paging)
        yield page.items
        if not page.token:
            return
        paging = Paging(size, page.token)


_TOKEN_REVIEW = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False)
_ACCESS_REVIEW = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False)


@dataclass(frozen=True)
class User:
    """The user of a bearer token."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


async def review_token(api: Api, token: str) -> User | None:
    """Return the user of a token; None if the API server rejects the token."""
    review = await api.create(_TOKEN_REVIEW, {"spec": {"token": token}})
    status = review.get("status") or {}
    if not status.get("authenticated"):
        return None
    user = status.get("user") or {}
    extra = tuple(sorted((key, tuple(values)) for key, values in (user.get("extra") or {}).items()))
    return User(user.get("username", ""), user.get("uid", ""), tuple(user.get("groups") or ()), extra)


async def review_access(api: Api, user: User, **attributes: Object) -> bool:
    """Whether the API server allows a user what `resourceAttributes` or `nonResourceAttributes` describe."""
    extra = {key: list(values) for key, values in user.extra}
    spec = {"user": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra, **attributes}
    review = await api.create(_ACCESS_REVIEW, {"spec": spec})
    return bool((review.get("status") or {}).get("allowed"))


MANAGER: Final = "kai-definitions"
_POLL_SECONDS = 0.05

log = structlog.get_logger("definitions")


async def define(api: Api, definitions: Sequence[Object], seconds: float = 60.0) -> None:
    """Apply CustomResourceDefinitions and wait until each is Established, at most `seconds` for each."""
    refs = [CRD.ref(definition["metadata"]["name"]) for definition in definitions]
    for ref, definition in zip(refs, definitions, strict=True):
        await api.patch(ref, Patch.apply(definition, MANAGER))
    for ref in refs:
        try:
            async with asyncio.timeout(seconds):
                while not await _established(api, ref):
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise Timeout(f"definition {ref.name} is not in force after {seconds:g} s") from None
    log.info("definitions in force", kinds=", ".join(ref.name for ref in refs))


async def _established(api: Api, ref: Ref) -> bool:
    try:
        definition = await api.get(ref, Object)
    except NotFound:
        return False
    rows = (definition.get("status") or {}).get("conditions") or ()
    return any(row["type"] == "Established" and row["status"] == "True" for row in rows)
