"""Read access for grouping rules: informers, a short-lived cache of single reads, and results of jq programs.

Rules never block. On a cache miss `ClusterLookup` raises `NotCachedError` (or `NotEvaluatedError`); the grouper fetches
the entry and runs the rule again from the start. Concurrent reads of one object share one request.

`RestMapper` resolves a kind that an owner reference names: built-in kinds by table, others by their
CustomResourceDefinition. The name of the definition is guessed from the kind; if that fails, all definitions are
listed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from msgspec import Struct, json

from pykai.controllers.podgrouper.grouping import has_labels
from pykai.controllers.podgrouper.rules.jq_sandbox import SANDBOX, JqError, JqEvaluator
from pykai.controllers.podgrouper.rules.karta import KARTA_API
from pykai.controllers.podgrouper.rules.native import SCHEDULING_GROUP_API
from pykai.controllers.podgrouper.rules.workload import POD_GROUP_API, ForbiddenError, GroupSpec
from pykai.controllers.ttl_cache import TTLCache
from pykai.controllers.unstructured import to_unstructured, unstructured_pod
from pykai.kube import api_resources
from pykai.kube.api import Api, Object, Resource
from pykai.kube.clock import steady
from pykai.kube.errors import Forbidden, NotFound
from pykai.kube.informer import SharedInformer
from pykai.kube.informer_store import Key
from pykai.kube.operations import pages
from pykai.objects import kinds

MAPPING_SECONDS = 600.0
NO_MAPPING_SECONDS = 60.0
_PAGE = 100
_TABLE: Final = {
    (known.api_version, known.kind): known
    for known in (*api_resources.BUILT_IN, *api_resources.PRODUCT, api_resources.NODE_TOPOLOGY)
}


class _Names(Struct, frozen=True):
    plural: str = ""
    kind: str = ""


class _DefinitionVersion(Struct, frozen=True):
    name: str = ""
    served: bool = False


class _DefinitionSpec(Struct, frozen=True):
    group: str = ""
    names: _Names = _Names()
    scope: str = "Namespaced"
    versions: list[_DefinitionVersion] = []


class _Definition(Struct, frozen=True):
    spec: _DefinitionSpec = _DefinitionSpec()

    def resource(self, version: str, kind: str) -> Resource | None:
        """Return the address of the kind in this version; None if the definition is for another kind."""
        spec = self.spec
        served = {each.name for each in spec.versions if each.served}
        if spec.names.kind != kind or version not in served:
            return None
        return Resource(spec.group, version, spec.names.plural, kind, spec.scope == "Namespaced")


class RestMapper:
    """Resolves kinds to resources; results are cached for a while."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: TTLCache[tuple[str, str], tuple[Resource | None]] = TTLCache(MAPPING_SECONDS)

    async def find(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind; None if it is not installed."""
        key = (api_version, kind)
        if key in _TABLE:
            return _TABLE[key]
        known = self._known.get(key)
        if known is None:
            known = (await self._discover(api_version, kind),)
            self._known.put(key, known, None if known[0] else NO_MAPPING_SECONDS)
        return known[0]

    async def _discover(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        guess = Resource(group, version, plural_of(kind), kind)
        try:
            definition = await self._api.get(api_resources.CRD.ref(guess.qualified), _Definition)
            return definition.resource(version, kind)
        except Forbidden:
            return guess
        except NotFound:
            pass
        async for definitions in pages(self._api, api_resources.CRD, _Definition, size=_PAGE):
            found = (each.resource(version, kind) for each in definitions if each.spec.group == group)
            if resource := next(filter(None, found), None):
                return resource
        return None


def plural_of(kind: str) -> str:
    """Return the plural that most CRDs use for a kind."""
    word = kind.lower()
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"


OBJECT_SECONDS = 2.0  # short, because an existing group keeps the queue of a stale read
MISSING_SECONDS = 1.0
FORBIDDEN_SECONDS = 60.0
KARTA: Final = Resource("run.ai", "v1alpha1", "kartas", "Karta", False)


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """The key of an object that a rule reads."""

    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CachedRead:
    """The result of a read. `object` None: it does not exist; `forbidden`: RBAC denies the read; `began`: when it
    started."""

    object: Object | None = None
    forbidden: bool = False
    began: float = 0.0


class NotCachedError(Exception):
    """The object of `key` is not in the cache."""

    def __init__(self, key: ObjectKey) -> None:
        super().__init__(f"{key.kind} {key.namespace}/{key.name} has not been read")
        self.key = key


class ObjectCache:
    """Objects that were read individually; entries expire after some seconds."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._mapper = RestMapper(api)
        self._entries: TTLCache[ObjectKey, CachedRead] = TTLCache(OBJECT_SECONDS)
        self._reading: dict[ObjectKey, asyncio.Task[None]] = {}

    def get(self, key: ObjectKey) -> CachedRead | None:
        """Return the entry, None if there is none."""
        return self._entries.get(key)

    def forget(self, keys: Iterable[ObjectKey]) -> None:
        """Invalidate entries, so that the next use reads them again."""
        for key in keys:
            self._entries.drop(key)

    def older(self, keys: Iterable[ObjectKey], than: float) -> set[ObjectKey]:
        """Return the keys whose read started before `than` (monotonic time), without the administrator's ConfigMap."""
        entries = {key: self._entries.get(key) for key in keys if key.kind != "ConfigMap"}
        return {key for key, entry in entries.items() if entry is None or entry.began < than}

    async def fetch(self, key: ObjectKey) -> None:
        """Read an object from the API server; concurrent calls for one key share the read."""
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.create_task(self._read(key))
            reading.add_done_callback(partial(self._read_done, key))
        await asyncio.shield(reading)

    def _read_done(self, key: ObjectKey, reading: asyncio.Task[None]) -> None:
        del self._reading[key]
        if not reading.cancelled():
            reading.exception()  # mark the exception as retrieved: all waiters may have been cancelled

    async def _read(self, key: ObjectKey) -> None:
        began, found = steady(), None
        try:
            resource = await self._mapper.find(key.api_version, key.kind)
            if resource is not None:
                namespace = key.namespace if resource.namespaced else ""
                found = await self._api.get(resource.ref(key.name, namespace), Object)
        except Forbidden:
            self._entries.put(key, CachedRead(forbidden=True, began=began), FORBIDDEN_SECONDS)
            return
        except NotFound:
            pass
        self._entries.put(key, CachedRead(found, began=began), None if found else MISSING_SECONDS)


@dataclass(slots=True)
class Recheck:
    """One group: `spec` is the group of `pod`, `since` the time when the last of `pods` was grouped."""

    pod: Key
    spec: GroupSpec
    since: float
    keys: set[ObjectKey] = field(default_factory=set)
    pods: set[Key] = field(default_factory=set)


class Rechecks:
    """Groups whose pods were grouped with objects read before the pods existed.

    An owner is read once for pods created together. If the workload is scaled up while that cache entry lives, its new
    pods are grouped with a stale owner, and no later event corrects that. One pod of such a group is therefore grouped
    again with a fresh read; if the result differs, all pods of the group are reconciled.
    """

    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache
        self._groups: dict[Key, Recheck] = {}

    def add(self, pod: Key, spec: GroupSpec, read: Set[ObjectKey], began: float) -> bool:
        """Add a pod whose reconcile started at `began`; return whether its group needs a recheck."""
        older = self._cache.older(read, began)
        if not older:
            return False
        recheck = self._groups.setdefault(spec.key, Recheck(pod, spec, began))
        recheck.since = began
        recheck.keys |= older
        recheck.pods.add(pod)
        return True

    def take(self, group: Key) -> Recheck | None:
        """Remove and return the recheck of a group; invalidate the cache entries that are older than its last pod."""
        recheck = self._groups.pop(group, None)
        if recheck is not None:
            self._cache.forget(self._cache.older(recheck.keys, recheck.since))
        return recheck


@dataclass(frozen=True, slots=True)
class RuleInformers:
    """The informers that rules read; `group` returns a PodGroup including our last write."""

    pods: SharedInformer[kinds.Pod]
    priority_classes: SharedInformer[kinds.PriorityClass]
    kartas: SharedInformer[Object] | None
    scheduling_groups: Mapping[str, SharedInformer[Object]]
    """Informers of Kubernetes' PodGroup and CompositePodGroup, by kind."""
    group: Callable[[Key], Object | None]


class NotEvaluatedError(Exception):
    """The result of a jq program is not cached yet; `value` None: check only that it compiles."""

    def __init__(self, program: str, value: Object | None, key: tuple[str, bytes]) -> None:
        super().__init__(f"jq program {program!r} has not been evaluated")
        self.program = program
        self.value = value
        self.key = key


class EvaluatedJq:
    """A non-blocking `JqEvaluator` for one reconcile, with the results that `fetch` got from the sandbox."""

    def __init__(self, sandbox: JqEvaluator = SANDBOX) -> None:
        self._sandbox = sandbox
        self._results: dict[tuple[str, bytes], list[Any] | JqError] = {}

    def check(self, program: str) -> None:
        """See `JqEvaluator.check`."""
        self._result(program, None)

    def evaluate(self, program: str, value: Object) -> list[Any]:
        """See `JqEvaluator.evaluate`."""
        return self._result(program, value)

    async def fetch(self, missing: NotEvaluatedError) -> None:
        """Evaluate a program in the sandbox, in a thread, so that the event loop is not blocked."""
        try:
            self._results[missing.key] = await asyncio.to_thread(self._run, missing.program, missing.value)
        except JqError as error:
            self._results[missing.key] = error

    def _run(self, program: str, value: Object | None) -> list[Any]:
        if value is not None:
            return self._sandbox.evaluate(program, value)
        self._sandbox.check(program)
        return []

    def _result(self, program: str, value: Object | None) -> list[Any]:
        key = (program, b"" if value is None else json.encode(value))
        found = self._results.get(key)
        if found is None:
            raise NotEvaluatedError(program, value, key)
        if isinstance(found, JqError):
            raise JqError(str(found))
        return found


class ClusterLookup:
    """An `ObjectLookup` for one reconcile of one pod; `read` collects the keys of the objects that it used."""

    def __init__(self, informers: RuleInformers, cache: ObjectCache) -> None:
        self._informers = informers
        self._cache = cache
        self.jq = EvaluatedJq()
        self.read: set[ObjectKey] = set()

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        """See `ObjectLookup.get`."""
        if (api_version, kind) == (POD_GROUP_API, "PodGroup"):
            return self._informers.group((namespace, name))
        if (api_version, kind) == ("scheduling.k8s.io/v1", "PriorityClass"):
            found = self._informers.priority_classes.get(name)
            return None if found is None else to_unstructured(found, apiVersion=api_version, kind=kind)
        if api_version == SCHEDULING_GROUP_API:
            group = self._informers.scheduling_groups[kind].get(name, namespace)
            return None if group is None else {**group, "apiVersion": api_version, "kind": kind}
        key = ObjectKey(api_version, kind, namespace, name)
        self.read.add(key)
        entry = self._cache.get(key)
        if entry is None:
            raise NotCachedError(key)
        if entry.forbidden:
            raise ForbiddenError(f"{key.kind} {key.namespace}/{key.name} may not be read")
        return entry.object

    def list(self, api_version: str, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Object]:
        """See `ObjectLookup.list`; supports only the kinds that rules list, which all have informers."""
        if (api_version, kind) == ("v1", "Pod"):
            pods = (pod for (home, _), pod in self._informers.pods.items() if home == namespace)
            return [unstructured_pod(pod) for pod in pods if has_labels(pod.metadata.labels, labels)]
        if (api_version, kind) == (KARTA_API, "Karta"):
            held = self._informers.kartas.items() if self._informers.kartas else ()
            return [karta for _, karta in held if has_labels(karta["metadata"].get("labels"), labels)]
        if api_version == SCHEDULING_GROUP_API:
            groups = self._informers.scheduling_groups[kind].items()
            return [group for (home, _), group in groups if home == namespace]
        raise ValueError(f"{api_version} {kind} has no informer and cannot be listed")
