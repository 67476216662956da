"""Bugs, one of each class, that the campaign must find: each is a patch of the product while it runs.

`python -m tests.faults.planted` tells after how many seeds each is found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from pykai.cache.assumed import Assumptions
from pykai.cli.fault_campaign import product_of
from pykai.controllers.binder.bind_reconciler import BindRequestReconciler
from pykai.controllers.binder.reservations import Reservations
from pykai.controllers.operator.observation import Observation
from pykai.controllers.queue_status import QueueController
from pykai.kube.api import EventType
from pykai.kube.informer import SharedInformer
from pykai.kube.informer_store import WatchChange
from pykai.simulate.faults.run import Outcome, play

MOST_SEEDS = 500
Bug = Callable[[], AbstractContextManager[Any]]


def double_bind() -> AbstractContextManager[Any]:
    """The scheduler forgets what it decided until the watch shows it: a place is given away twice."""
    return mock.patch.object(Assumptions, "bind", return_value=None)


def lost_unreserve() -> AbstractContextManager[Any]:
    """What a failed bind prepared is not undone."""

    async def nothing(*_: object) -> None:
        return

    return mock.patch.object(BindRequestReconciler, "_undo", nothing)


def stale_status() -> AbstractContextManager[Any]:
    """The queue controller does not hear of groups that are deleted."""
    original = QueueController._group_changed

    def changed(self: QueueController, change: WatchChange[Any]) -> None:
        if change.type is not EventType.DELETED:
            original(self, change)

    return mock.patch.object(QueueController, "_group_changed", changed)


def leaked_reservation() -> AbstractContextManager[Any]:
    """A reservation pod stays when the last pod has left its device."""

    async def nothing(*_: object) -> None:
        return

    return mock.patch.object(Reservations, "_release", nothing)


def forgotten_relist() -> AbstractContextManager[Any]:
    """After a compaction an informer watches on from the present, without a look at what it missed."""
    original = SharedInformer._notify
    listed = SharedInformer._list

    async def from_now(self: SharedInformer[Any]) -> None:
        first = not getattr(self, "planted", False)
        self.planted = True  # type: ignore[attr-defined]
        with mock.patch.object(SharedInformer, "_notify", original if first else lambda *_: None):
            await listed(self)

    return mock.patch.object(SharedInformer, "_list", from_now)


def unwatched_deployment() -> AbstractContextManager[Any]:
    """The operator does not hear of changes of what it deployed."""
    return mock.patch.object(Observation, "subscribe", return_value=lambda: None)


BUGS: dict[str, Bug] = {
    bug.__name__: bug
    for bug in (
        double_bind,
        lost_unreserve,
        stale_status,
        leaked_reservation,
        forgotten_relist,
        unwatched_deployment,
    )
}


def found_by(bug: Bug, first: int, most: int) -> Outcome | None:
    """The history of the first seed in which a bug is found; None if none of so many seeds finds it."""
    with bug():
        for seed in range(first, first + most):
            outcome = play(seed, product_of)
            if outcome.violations:
                return outcome
    return None


def main() -> int:
    missed = 0
    for name, bug in BUGS.items():
        outcome = found_by(bug, 1, MOST_SEEDS)
        missed += outcome is None
        seen = f"seed {outcome.seed}: {outcome.violations[0]}" if outcome else "not found"
        sys.stdout.write(f"{name}: {seen}\n")
        sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
