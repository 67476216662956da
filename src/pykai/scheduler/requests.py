"""Creating and deleting BindRequests so that it comes out right whatever happened before or happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from pykai.cache.pods import request_failed
from pykai.kube.api import Api, Deletion, Object
from pykai.kube.backoff import Backoff
from pykai.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Timeout, TooManyRequests
from pykai.kube.resources import BIND_REQUEST
from pykai.objects.kinds import BindRequest, ObjectMeta

TRIES = 4
BACKOFF = Backoff(0.25, 2.0)
Sleep = Callable[[float], Awaitable[None]]
T = TypeVar("T")


async def create_request(
    api: Api, body: Object, wanted: Callable[[], bool], sleep: Sleep = asyncio.sleep
) -> BindRequest | None:
    """Create the request, or find that it is there; what an earlier pod or a failed attempt left behind goes first.

    It is not sent, nor sent again, once it is not `wanted`: the answer that got lost was a yes, and by now the request
    may have failed and its place be another's. None where there is none then. Raises the server's refusal; after one
    that `is_uncertain` the request may exist all the same.
    """
    in_doubt = False
    for attempt in range(1, TRIES + 1):
        if not wanted():
            return await _made_before(api, body) if attempt > 1 else None
        try:
            if (request := await _create_or_find(api, body, wanted)) is not None:
                return request
        except ApiError as error:
            in_doubt = in_doubt or is_uncertain(error)
            if not in_doubt:
                raise
            if attempt == TRIES:
                raise Timeout(error.message) from error  # it says nothing about the attempt that had no answer
            await sleep(_pause(attempt, error))
    raise Conflict(f"bind request {body['metadata']['name']}: an old one does not go away")


async def _create_or_find(api: Api, body: Object, wanted: Callable[[], bool]) -> BindRequest | None:
    """The request, new or found; None where another one was in its way, which is deleted then."""
    try:
        return msgspec.convert(await api.create(BIND_REQUEST, body), BindRequest)
    except AlreadyExists:
        found = await _existing(api, body)
    if found is not None and _stands(found, body):
        return found
    if found is not None and wanted():
        await delete_request(api, found)
    return None


def is_uncertain(error: ApiError) -> bool:
    """Whether a write may have been carried out all the same, or may be when it is sent again.

    A server whose store does not answer in time says 500: it does not know either.
    """
    return isinstance(error, TooManyRequests) or error.status >= 500


async def until_certain(write: Callable[[], Awaitable[T]], sleep: Sleep = asyncio.sleep) -> T:
    """Carry out a write that may be carried out twice, again while it is not known whether it was."""
    for attempt in range(1, TRIES):
        try:
            return await write()
        except ApiError as error:
            if not is_uncertain(error):
                raise
            await sleep(_pause(attempt, error))
    return await write()


def _pause(attempt: int, error: ApiError) -> float:
    return max(BACKOFF.after(attempt), float(error.details.get("retryAfterSeconds") or 0))


async def _existing(api: Api, body: Object) -> BindRequest | None:
    """The request of this name, if there is one; Timeout where the server does not say."""
    metadata = body["metadata"]
    try:
        return await api.get(BIND_REQUEST.ref(metadata["name"], metadata["namespace"]), BindRequest)
    except NotFound:
        return None
    except ApiError as error:
        raise Timeout(error.message) from error


async def _made_before(api: Api, body: Object) -> BindRequest | None:
    """The request, if an attempt whose answer got lost has made it and it is in force."""
    try:
        found = await _existing(api, body)
    except ApiError:
        return None
    return found if found is not None and _stands(found, body) else None


def _stands(found: BindRequest, body: Object) -> bool:
    return is_in_force(found, msgspec.convert(body["metadata"], ObjectMeta))


def is_in_force(found: BindRequest, wish: ObjectMeta) -> bool:
    """Whether a request is for the pod of another one and was not given up."""
    uids = {owner.uid for owner in wish.owner_references or ()}
    return any(owner.uid in uids for owner in found.metadata.owner_references or ()) and not request_failed(found)


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
