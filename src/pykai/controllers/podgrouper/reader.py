"""The cluster as grouping rules see it: from the shared watches, and from a short memory of single reads.

Rules never wait. Where memory has no answer, `ClusterLookup` raises `UnknownError`; the grouper fetches the answer
(`Answers.learn`) and asks the rule again from the start. Many pods of one workload ask the same at the same moment: it
is read once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from pykai.controllers.podgrouper.grouping import has_labels
from pykai.controllers.podgrouper.rules.karta import KARTA_API
from pykai.controllers.podgrouper.rules.workload import POD_GROUP_API, ForbiddenError
from pykai.controllers.ttl_cache import TTLCache
from pykai.controllers.unstructured import Object, to_unstructured, unstructured_pod
from pykai.kube import resources
from pykai.kube.api import Api, Paging, Resource
from pykai.kube.clock import steady
from pykai.kube.errors import Forbidden, NotFound
from pykai.kube.replica import Key
from pykai.kube.watch import SharedWatch
from pykai.objects import kinds

MAPPING_SECONDS = 600.0
NO_MAPPING_SECONDS = 60.0
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


class RestMapper:
    """The addresses of kinds; what was looked up is remembered for a while."""

    def __init__(self, api: Api, clock: Callable[[], float] = steady) -> None:
        self._api = api
        self._known: TTLCache[tuple[str, str], tuple[Resource | None]] = TTLCache(MAPPING_SECONDS, clock)

    async def find(self, api_version: str, kind: str) -> Resource | None:
        """The address of a kind; None where it is not installed."""
        key = (api_version, kind)
        if key in _TABLE:
            return _TABLE[key]
        known = self._known.get(key)
        if known is None:
            known = (await self._look(api_version, kind),)
            self._known.put(key, known, None if known[0] else NO_MAPPING_SECONDS)
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


OBJECT_SECONDS = 2.0  # A queue read too late stays: an existing group keeps its own.
MISSING_SECONDS = 1.0
FORBIDDEN_SECONDS = 60.0
KARTA: Final = Resource("run.ai", "v1alpha1", "kartas", "Karta", False)


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """Which object a rule asks for."""

    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CachedRead:
    """The object, None where it does not exist; `forbidden` where we may not know. `began`: when it was asked for."""

    object: Object | None = None
    forbidden: bool = False
    began: float = 0.0


class NotCachedError(Exception):
    """The answer to `question` is not in memory."""

    def __init__(self, question: ObjectKey) -> None:
        super().__init__(f"{question.kind} {question.namespace}/{question.name} has not been read")
        self.question = question


class ObjectCache:
    """Objects that were read one by one, for a few seconds each."""

    def __init__(self, api: Api, clock: Callable[[], float] = steady) -> None:
        self._api = api
        self.clock = clock
        self._directory = RestMapper(api, clock)
        self._memory: TTLCache[ObjectKey, CachedRead] = TTLCache(OBJECT_SECONDS, clock)
        self._reading: dict[ObjectKey, asyncio.Task[None]] = {}

    def get(self, question: ObjectKey) -> CachedRead | None:
        """The answer, None where it is not in memory."""
        return self._memory.get(question)

    def forget(self, questions: Iterable[ObjectKey]) -> None:
        """Read these again when they are asked for the next time."""
        for question in questions:
            self._memory.drop(question)

    def older(self, questions: Iterable[ObjectKey], than: float) -> set[ObjectKey]:
        """Those whose answer was asked for before a moment of `clock`; what an admin sets keeps its own pace."""
        answers = {question: self._memory.get(question) for question in questions if question.kind != "ConfigMap"}
        return {question for question, answer in answers.items() if answer is None or answer.began < than}

    async def learn(self, question: ObjectKey) -> None:
        """Read the answer from the API server; who asks the same meanwhile waits for the same read."""
        reading = self._reading.get(question)
        if reading is None:
            reading = self._reading[question] = asyncio.create_task(self._read(question))
            reading.add_done_callback(lambda _: self._reading.pop(question, None))
        await asyncio.shield(reading)

    async def _read(self, question: ObjectKey) -> None:
        began = self.clock()
        try:
            found = await self._fetch(question)
            self._memory.put(question, CachedRead(found, began=began), None if found else MISSING_SECONDS)
        except Forbidden:
            self._memory.put(question, CachedRead(forbidden=True, began=began), FORBIDDEN_SECONDS)

    async def _fetch(self, question: ObjectKey) -> Object | None:
        resource = await self._directory.find(question.api_version, question.kind)
        if resource is None:
            return None
        try:
            return await self._api.get(
                resource.ref(question.name, question.namespace if resource.namespaced else ""), Object
            )
        except NotFound:
            return None


@dataclass(frozen=True, slots=True)
class Informers:
    """The shared watches that answer at once; `group` gives a PodGroup, our newest writes included."""

    pods: SharedWatch[kinds.Pod]
    priority_classes: SharedWatch[kinds.PriorityClass]
    kartas: SharedWatch[Object] | None
    group: Callable[[Key], Object | None]


class ClusterLookup:
    """A `grouping.Lookup` for one attempt to group one pod; `asked` is what the attempt took from `answers`."""

    def __init__(self, watched: Informers, answers: ObjectCache) -> None:
        self._watched = watched
        self._answers = answers
        self.asked: set[ObjectKey] = set()

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        """See `Lookup.get`."""
        if (api_version, kind) == (POD_GROUP_API, "PodGroup"):
            return self._watched.group((namespace, name))
        if (api_version, kind) == ("scheduling.k8s.io/v1", "PriorityClass"):
            found = self._watched.priority_classes.get(name)
            return None if found is None else to_unstructured(found, apiVersion=api_version, kind=kind)
        return self._read(ObjectKey(api_version, kind, namespace, name))

    def _read(self, question: ObjectKey) -> Object | None:
        self.asked.add(question)
        answer = self._answers.get(question)
        if answer is None:
            raise NotCachedError(question)
        if answer.forbidden:
            raise ForbiddenError(f"{question.kind} {question.namespace}/{question.name} may not be read")
        return answer.object

    def list(self, api_version: str, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Object]:
        """See `Lookup.list`; of the kinds that rules list, which are all watched."""
        if (api_version, kind) == ("v1", "Pod"):
            return [unstructured_pod(pod) for pod in self._pods(namespace, labels)]
        if (api_version, kind) == (KARTA_API, "Karta"):
            held = self._watched.kartas.items() if self._watched.kartas else ()
            return [karta for _, karta in held if has_labels(karta["metadata"].get("labels"), labels)]
        raise ValueError(f"{api_version} {kind} is not watched and cannot be listed")

    def _pods(self, namespace: str, labels: Mapping[str, str]) -> Iterable[kinds.Pod]:
        for (home, _), pod in self._watched.pods.items():
            if home == namespace and has_labels(pod.metadata.labels, labels):
                yield pod
