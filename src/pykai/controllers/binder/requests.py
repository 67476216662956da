"""Carry out bind requests: from the scheduler's decision to a pod on its node.

Work is keyed by pod. A run looks at the watched state, does what can be done now and ends; where it must wait (for a
device, for a volume) it gives up its worker and news bring it back. So a run may be repeated, interrupted or begun by
another process at any point: what is done already is left as it is.

    open request ─► devices reserved ─► pod labelled ─► steps ─► bound ─► Succeeded
                         └────────────────┴───────────────┴──────┴─► undone ─► Failed (again, while `backoffLimit` allows)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from pykai.controllers.binder.attempt import Attempt, BindError, InvalidRequestError, Step, Waiting, is_passing
from pykai.controllers.binder.binding import bind_pod, label_pod, unlabel_pod
from pykai.controllers.binder.book import Book
from pykai.controllers.binder.groups import (
    Key,
    is_meant_for,
    is_open,
    is_over,
    request_groups,
)
from pykai.controllers.binder.outcomes import Outcomes
from pykai.controllers.binder.reservations import Reservations
from pykai.kube.api import Api, Deletion
from pykai.kube.errors import ApiError, Conflict, NotFound
from pykai.kube.resources import BIND_REQUEST, POD
from pykai.kube.watch import SharedWatch
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Node, Pod

MOST_TRIES = 5
RESERVATION = "reservation"

log = structlog.get_logger("binder")


@dataclass(frozen=True, slots=True)
class Sources:
    """What requests are judged against."""

    api: Api
    book: Book
    pods: SharedWatch[Pod]
    nodes: SharedWatch[Node]


@dataclass(frozen=True, slots=True)
class Rules:
    """Whose pods they are, and how long a device may take to become known."""

    scheduler_name: str
    allocation_seconds: float


class Requests:
    """All bind requests. `tries` tells how often a pod's run failed in a row, `clock` gives steady seconds."""

    def __init__(
        self, sources: Sources, reservations: Reservations, steps: tuple[Step, ...], outcomes: Outcomes, rules: Rules
    ) -> None:
        self._api = sources.api
        self._book = sources.book
        self._pods = sources.pods
        self._nodes = sources.nodes
        self._reservations = reservations
        self._steps = steps
        self._outcomes = outcomes
        self._rules = rules
        self._since: dict[tuple[Key, str, str], float] = {}
        self._closed: dict[Key, set[str]] = {}
        self._not_before: dict[str, float] = {}
