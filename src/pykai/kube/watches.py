"""All watches of a process: one per kind, whoever asks, started together, judged together.

Kinds that may not be installed cost one small watch on the names of custom resource definitions: when a definition
appears, the watch of its kind is told to look again.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn, TypeVar

from msgspec import Raw

from pykai.kube import resources as known
from pykai.kube.api import EVERYTHING, Api, Resource, Selection
from pykai.kube.replica import Change
from pykai.kube.watch import Pace, SharedWatch

T = TypeVar("T")
_NAMES_ONLY = Selection(metadata_only=True)


class Watches:
    """The shared watches of one process on one API server."""

    def __init__(self, api: Api, pace: Pace | None = None) -> None:
        self._api = api
        self._pace = pace or Pace()
        self._watches: dict[tuple[Resource, Selection], SharedWatch[Any]] = {}
        self._definitions: SharedWatch[Raw] | None = None
        self._group: asyncio.TaskGroup | None = None

    def of(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, *, optional: bool = False
    ) -> SharedWatch[T]:
        """The watch of a kind; the first who asks decides the type, and it is optional only if all say so."""
        watch = self._watches.get((resource, where))
        if watch is None:
            watch = self._made(SharedWatch(self._api, resource, into, where, optional=optional))
            self._watches[resource, where] = watch
        elif watch.into is not into:
            raise ValueError(f"{resource.qualified} is already watched as {watch.into}, not as {into}")
        watch.optional = watch.optional and optional
        if optional and self._definitions is None:
            self._definitions = self._made(SharedWatch(self._api, known.CRD, Raw, _NAMES_ONLY, optional=True))
            self._definitions.subscribe(self._definition_changed)
        return watch

    async def run(self) -> NoReturn:
        """Follow all kinds, those asked for later included; raises the first error that ends a watch."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for watch in self._all():
                    group.create_task(watch.run())
                await asyncio.Event().wait()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self._group = None
        raise AssertionError("watches run until they are cancelled")

    async def synced(self) -> None:
        """Return when every kind asked for so far is complete in its local copy."""
        for watch in list(self._watches.values()):
            await watch.synced()

    @property
    def ready(self) -> bool:
        """Whether every watch is alive."""
        return all(watch.alive for watch in self._watches.values())

    def problems(self) -> list[str]:
        """Why the process is not ready, one line per kind."""
        lost = [watch for watch in self._watches.values() if not watch.alive]
        return [watch.problem or f"{watch.resource.qualified}: not listed yet" for watch in lost]

    def _all(self) -> list[SharedWatch[Any]]:
        return [*self._watches.values(), *([] if self._definitions is None else [self._definitions])]

    def _made(self, watch: SharedWatch[T]) -> SharedWatch[T]:
        watch.pace = self._pace
        if self._group is not None:
            self._group.create_task(watch.run())
        return watch

    def _definition_changed(self, change: Change[Raw]) -> None:
        for watch in self._watches.values():
            if watch.resource.qualified == change.key[1]:
                watch.poke()
