"""Creating and deleting BindRequests so that it comes out right whatever happened before or happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from pykai.cache.pods import request_failed
from pykai.kube.api import Api, Deletion, Object
from pykai.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, TooManyRequests
from pykai.kube.resources import BIND_REQUEST
from pykai.objects.kinds import BindRequest

TRIES = 4
WAIT_SECONDS = 0.25
Sleep = Callable[[float], Awaitable[None]]


async def create_request(api: Api, body: Object, sleep: Sleep = asyncio.sleep) -> BindRequest:
    """Create the request, or find that it is there; what an earlier pod or a failed attempt left behind goes first.

    Raises the server's refusal; after one that `is_uncertain` the request may exist all the same.
    """
    for attempt in range(1, TRIES + 1):
        try:
            return msgspec.convert(await api.create(BIND_REQUEST, body), BindRequest)
        except AlreadyExists:
            found = await _existing(api, body)
            if found is not None:
                return found
        except ApiError as error:
            if attempt == TRIES or not is_uncertain(error):
                raise
            await sleep(max(WAIT_SECONDS * 2 ** (attempt - 1), float(error.details.get("retryAfterSeconds") or 0)))
    raise Conflict(f"bind request {body['metadata']['name']}: an old one does not go away")


def is_uncertain(error: ApiError) -> bool:
    """Whether a write may have been carried out all the same, or may be when it is sent again.

    A server whose store does not answer in time says 500: it does not know either.
    """
    return isinstance(error, TooManyRequests) or error.status >= 500


async def _existing(api: Api, body: Object) -> BindRequest | None:
    """The request that is in the way, if it is one for the same pod and in force; another one is deleted."""
    metadata = body["metadata"]
    try:
        found = await api.get(BIND_REQUEST.ref(metadata["name"], metadata["namespace"]), BindRequest)
    except NotFound:
        return None
    uid = metadata["ownerReferences"][0]["uid"]
    if any(owner.uid == uid for owner in found.metadata.owner_references or ()) and not request_failed(found):
        return found
    await delete_request(api, found)
    return None


async def delete_request(api: Api, request: BindRequest) -> None:
    """Delete this very request; that it is gone, or another one by now, is as good."""
    meta = request.metadata
    try:
        await api.delete(BIND_REQUEST.ref(meta.name, meta.namespace), Deletion(uid=meta.uid))
    except (NotFound, Conflict):
        return


def reason(error: ApiError) -> str:
    """The server's refusal in one line."""
    return " ".join(error.message.split())
