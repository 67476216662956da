"""One attempt to carry out a bind request: what it is about, and what the steps that prepare it have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pykai.controllers.binder.groups import Key, key_of
from pykai.kube.errors import (
    ApiError,
    Conflict,
    Gone,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from pykai.kube.errors import Timeout as NoAnswer
from pykai.objects.kinds import BindRequest, Node, Pod

_PASSING = (Conflict, Gone, NoAnswer, TooManyRequests, Unauthorized, Unavailable)


class BindError(Exception):
    """The pod cannot be bound as requested; the text is what the user reads."""


class InvalidRequestError(BindError):
    """The request itself makes no sense: it is deleted, so that the scheduler decides anew."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Something outside must happen first: news wake the pod up, and after `limit_seconds` it is the `failure`."""

    step: str
    limit_seconds: float
    failure: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """A pod on its way to a node. `devices` are the ids of the shared GPUs it gets, in the order of its groups."""

    request: BindRequest
    pod: Pod
    node: Node
    devices: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """(namespace, name) of the pod."""
        return key_of(self.pod)

    @property
    def title(self) -> str:
        """The pod as messages name it."""
        return "/".join(self.key)


class Step(Protocol):
    """Something that must be in place before a pod is bound. Steps run in order of priority, all of them must agree.

    Every step may run again after it was done, or after it was half done by a process that is no more.
    """

    @property
    def name(self) -> str:
        """The name in configuration and messages."""
        ...

    async def prepare(self, attempt: Attempt) -> Waiting | None:
        """Put it in place; Waiting if that takes something else first. Raises BindError, or ApiError to try again."""
        ...

    async def undo(self, pod: Pod, request: BindRequest | None) -> None:
        """Take away what `prepare` may have left for a pod that is on no node; None: its request is not known."""
        ...

    def forget(self, pod: Key) -> None:
        """The pod's binding is over, one way or the other: drop what was remembered about it."""
        ...


def is_passing(error: ApiError) -> bool:
    """Whether trying the same again may help."""
    return isinstance(error, _PASSING) or type(error) is ApiError
