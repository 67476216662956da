"""How the API server addresses a kind that an owner reference names: built-in kinds by table, others by definition.

A reference says `kubeflow.org/v1 PyTorchJob`; the server wants a plural and whether the kind has namespaces. The
definition of a custom kind says both. Its name is guessed first, which is right for nearly all, so that one small read
is enough; only where the guess is wrong are all definitions read. That a kind is missing is remembered for a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from pykai.controllers.ttl_cache import TTLCache
from pykai.kube import resources
from pykai.kube.api import Api, Paging, Resource
from pykai.kube.clock import steady
from pykai.kube.errors import Forbidden, NotFound

FOUND_SECONDS = 600.0
ABSENT_SECONDS = 60.0
_PAGE = Paging(limit=100)
_TABLE: Final = {
    (known.api_version, known.kind): known
    for known in (*resources.BUILT_IN, *resources.PRODUCT, resources.NODE_TOPOLOGY)
}


class _Names(Struct, frozen=True):
    plural: str = ""
    kind: str = ""


class _Version(Struct, frozen=True):
    name: str = ""
    served: bool = False


class _Spec(Struct, frozen=True):
    group: str = ""
    names: _Names = _Names()
    scope: str = "Namespaced"
    versions: list[_Version] = []


class _Definition(Struct, frozen=True):
    spec: _Spec = _Spec()

    def resource(self, version: str, kind: str) -> Resource | None:
        """The address of the kind in this version; None if the definition is about another."""
        spec = self.spec
        served = {each.name for each in spec.versions if each.served}
        if spec.names.kind != kind or version not in served:
            return None
        return Resource(spec.group, version, spec.names.plural, kind, spec.scope == "Namespaced")


class KindDirectory:
    """The addresses of kinds; what was looked up is remembered for a while."""

    def __init__(self, api: Api, clock: Callable[[], float] = steady) -> None:
        self._api = api
        self._known: TTLCache[tuple[str, str], tuple[Resource | None]] = TTLCache(FOUND_SECONDS, clock)

    async def find(self, api_version: str, kind: str) -> Resource | None:
        """The address of a kind; None where it is not installed."""
        key = (api_version, kind)
        if key in _TABLE:
            return _TABLE[key]
        known = self._known.get(key)
        if known is None:
            known = (await self._look(api_version, kind),)
            self._known.put(key, known, None if known[0] else ABSENT_SECONDS)
        return known[0]

    async def _look(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        guess = Resource(group, version, plural_of(kind), kind)
        try:
            definition = await self._api.get(resources.CRD.ref(guess.qualified), _Definition)
            return definition.resource(version, kind)
        except Forbidden:
            return guess
        except NotFound:
            return await self._search(group, version, kind)

    async def _search(self, group: str, version: str, kind: str) -> Resource | None:
        paging = _PAGE
        while True:
            page = await self._api.list(resources.CRD, _Definition, paging=paging)
            found = _first(each.resource(version, kind) for each in page.items if each.spec.group == group)
            if found or not page.token:
                return found
            paging = Paging(_PAGE.limit, page.token)


def _first(found: Iterable[Resource | None]) -> Resource | None:
    return next((each for each in found if each), None)


def plural_of(kind: str) -> str:
    """The plural that most definitions choose."""
    word = kind.lower()
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"
