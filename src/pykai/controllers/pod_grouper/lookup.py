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

from pykai.controllers.grouping import ForbiddenError
from pykai.controllers.grouping.karta import KARTA_API
from pykai.controllers.grouping.owners import has_labels
from pykai.controllers.grouping.workload import POD_GROUP_API
from pykai.controllers.pod_grouper.kinds import KindDirectory
from pykai.controllers.ttl_cache import TTLCache
from pykai.controllers.unstructured import Object, to_unstructured, unstructured_pod
from pykai.kube.api import Api, Resource
from pykai.kube.clock import steady
from pykai.kube.errors import Forbidden, NotFound
from pykai.kube.replica import Key
from pykai.kube.watch import SharedWatch
from pykai.objects import kinds

OBJECT_SECONDS = 2.0  # A queue read too late stays: an existing group keeps its own.
ABSENT_SECONDS = 1.0
FORBIDDEN_SECONDS = 60.0
KARTA: Final = Resource("run.ai", "v1alpha1", "kartas", "Karta", False)


@dataclass(frozen=True, slots=True)
class Question:
    """Which object a rule asks for."""

    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The object, None where it does not exist; `forbidden` where we may not know. `began`: when it was asked for."""

    object: Object | None = None
    forbidden: bool = False
    began: float = 0.0


class UnknownError(Exception):
    """The answer to `question` is not in memory."""

    def __init__(self, question: Question) -> None:
        super().__init__(f"{question.kind} {question.namespace}/{question.name} has not been read")
        self.question = question


class Answers:
    """Objects that were read one by one, for a few seconds each."""

    def __init__(self, api: Api, clock: Callable[[], float] = steady) -> None:
        self._api = api
        self.clock = clock
        self._directory = KindDirectory(api, clock)
        self._memory: TTLCache[Question, Answer] = TTLCache(OBJECT_SECONDS, clock)
        self._reading: dict[Question, asyncio.Task[None]] = {}

    def get(self, question: Question) -> Answer | None:
        """The answer, None where it is not in memory."""
        return self._memory.get(question)

    def forget(self, questions: Iterable[Question]) -> None:
        """Read these again when they are asked for the next time."""
        for question in questions:
            self._memory.drop(question)

    def older(self, questions: Iterable[Question], than: float) -> set[Question]:
        """Those whose answer was asked for before a moment of `clock`; what an admin sets keeps its own pace."""
        answers = {question: self._memory.get(question) for question in questions if question.kind != "ConfigMap"}
        return {question for question, answer in answers.items() if answer is None or answer.began < than}

    async def learn(self, question: Question) -> None:
        """Read the answer from the API server; who asks the same meanwhile waits for the same read."""
        reading = self._reading.get(question)
        if reading is None:
            reading = self._reading[question] = asyncio.create_task(self._read(question))
            reading.add_done_callback(lambda _: self._reading.pop(question, None))
        await asyncio.shield(reading)

    async def _read(self, question: Question) -> None:
        began = self.clock()
        try:
            found = await self._fetch(question)
            self._memory.put(question, Answer(found, began=began), None if found else ABSENT_SECONDS)
        except Forbidden:
            self._memory.put(question, Answer(forbidden=True, began=began), FORBIDDEN_SECONDS)

    async def _fetch(self, question: Question) -> Object | None:
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
class Watched:
    """The shared watches that answer at once; `group` gives a PodGroup, our newest writes included."""

    pods: SharedWatch[kinds.Pod]
    priority_classes: SharedWatch[kinds.PriorityClass]
    kartas: SharedWatch[Object] | None
    group: Callable[[Key], Object | None]


class ClusterLookup:
    """A `grouping.Lookup` for one attempt to group one pod; `asked` is what the attempt took from `answers`."""

    def __init__(self, watched: Watched, answers: Answers) -> None:
        self._watched = watched
        self._answers = answers
        self.asked: set[Question] = set()

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        """See `Lookup.get`."""
        if (api_version, kind) == (POD_GROUP_API, "PodGroup"):
            return self._watched.group((namespace, name))
        if (api_version, kind) == ("scheduling.k8s.io/v1", "PriorityClass"):
            found = self._watched.priority_classes.get(name)
            return None if found is None else to_unstructured(found, apiVersion=api_version, kind=kind)
        return self._read(Question(api_version, kind, namespace, name))

    def _read(self, question: Question) -> Object | None:
        self.asked.add(question)
        answer = self._answers.get(question)
        if answer is None:
            raise UnknownError(question)
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
