"""Which version of a kind to speak: the newest the server serves, for the few kinds that have several.

The server is asked once per API group, when somebody first needs a kind of it, and again after it has said that it
does not know the kind: it may have been upgraded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from msgspec import Struct

from pykai.kube.api import Object, Resource
from pykai.kube.codec import decode
from pykai.kube.errors import NotFound
from pykai.objects import dra_versions


class _Version(Struct):
    version: str


class _Group(Struct):
    versions: list[_Version] = []


class Versions:
    """What one server serves; `ask` gives the answer to a GET of a path."""

    def __init__(self, ask: Callable[[str], Awaitable[bytes]]) -> None:
        self._ask = ask
        self._served: dict[str, list[str]] = {}

    async def of(self, resource: Resource) -> Resource:
        """The kind at the version to use; NotFound if the server has none that we understand."""
        if not resource.older:
            return resource
        if resource.group not in self._served:
            group = decode(await self._ask(f"/apis/{resource.group}"), _Group)
            self._served[resource.group] = [each.version for each in group.versions]
        known = (resource.version, *resource.older)
        for version in known:
            if version in self._served[resource.group]:
                return replace(resource, version=version)
        raise NotFound(f"{resource.qualified}: the server serves none of {', '.join(known)}")

    @contextmanager
    def doubted(self, resource: Resource) -> Iterator[None]:
        """Ask again next time if what is done here finds that the server does not know the kind."""
        try:
            yield
        except NotFound:
            self._served.pop(resource.group, None)
            raise


def as_written(resource: Resource, body: Object) -> Object:
    """A new object in the form that the chosen version wants."""
    return dra_versions.written(body, resource.version) if resource.plural == "resourceclaims" else body
