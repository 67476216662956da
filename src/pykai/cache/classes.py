"""Assigns pods to classes: pods that no rule distinguishes share one row of the class table.

The kind of a pod follows from the pod alone: its template, relevant annotations and, if relevant, its namespace or
name. Kinds keep their number across snapshots. A class is a kind, or a part of one if labels, QoS classes or claims
matter because of other objects of the cluster. Kinds that differ only in the names of equivalent claims are one class
(`cache/claims.py`). Templates are identified by the bytes of the spec parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import is_
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct

from pykai.cache.claims import NO_CLAIMS, ClaimMemo, DeviceClaims, device_claims, volume_reach
from pykai.cache.readings import Numbers, Readings, by_first, finer
from pykai.cache.requests import GpuRequest, gpu_request, resized
from pykai.cache.templates import Constraints, ContainerRequests, Template
from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import GPU, Column, ResourceSpace, Rows, frozen
from pykai.model.snapshot import ClusterObjects
from pykai.objects import names, nvfractions
from pykai.objects.kinds import Pod, PodSpec
from pykai.objects.pod_template import CONTAINER_PARTS, Parts, decode_containers, decode_template, template_key

_CLASS_ANNOTATIONS = (names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_DEVICES)
MOST_SPELLINGS = 20_000
"""Most templates cached by their bytes; then the cache is cleared, and kinds keep their numbers."""
_NOTHING: dict[str, str] = {}
_NO_LABELS: Mapping[str, str] = MappingProxyType({})
_NO_OVERHEAD: Mapping[int, float] = MappingProxyType({})
_VOLUMES, _CLAIMS = map(PodSpec.__struct_fields__.index, ("volumes", "resource_claims"))
"""The parts of a template that differ most between pods of one workload, beside amounts; neighbours among the parts."""


class _KeySets(dict[tuple[str, ...], tuple[str, ...]]):
    """Annotation keys of a pod -> those that can change its class."""

    def __missing__(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        relevant = self[keys] = tuple(
            k
            for k in keys
            if k in _CLASS_ANNOTATIONS or k.startswith(names.MIG_PREFIX) or nvfractions.is_class_annotation(k)
        )
        return relevant


class PodKind(Struct, frozen=True):
    """What pods of one kind have in common."""

    template: Template
    gpu: GpuRequest
    volume_claims: tuple[tuple[str, str], ...]
    """Namespaces and names of the claims that its volumes name."""
    unnamed: int
    """Equal for kinds that differ in these names alone."""


@dataclass(frozen=True, eq=False)
class ClassTable:
    """The classes of a snapshot, and what they follow from."""

    classes: tuple[PodClass, ...] = ()
    space: ResourceSpace = ResourceSpace()
    """With a row for everything that they request."""
    by_meaning: Mapping[object, PodClass] = field(default_factory=dict)
    facts: dict[Any, Any] = field(default_factory=dict)
    """What is derived from the classes (`PodTable.derived`)."""
    kinds: Rows | None = None
    """By class the kind of its first pod; None: more than kinds, first pods and `read` distinguishes classes."""
    examples: Sequence[Pod] = ()
    """The first pod of each class."""
    read: object = None
    """The resources of nodes, and the labels of pods, that classes were read with."""

    def holds(self, kinds: Rows, examples: Sequence[Pod], read: object) -> bool:
        """Whether these classes are the same."""
        if self.kinds is None or self.read != read or not np.array_equal(self.kinds, kinds):
            return False
        return all(map(is_, self.examples, examples))


class KindMemo:
    """Kinds of pod by number."""

    def __init__(self) -> None:
        self.kinds: list[PodKind] = []
        self._numbers: Numbers[object] = Numbers()
        self._unnamed: Numbers[object] = Numbers()
        self._by_bytes: dict[bytes, Template] = {}
        self._requests: dict[bytes, ContainerRequests] = {}
        """By the bytes of the parts that ask for amounts."""
        self._constraints: dict[bytes, Constraints] = {}
        """By the bytes of their parts."""
        self._by_meaning: dict[object, Template] = {}
        self.key_sets = _KeySets()
        self.claims = ClaimMemo()
        self._labels: Numbers[object] = Numbers()
        self._label_readings = Readings()
        self._label_keys: tuple[str, ...] = ()
        """What was read of labels."""
        self.last = ClassTable()
        """The classes of the last snapshot."""

    def __len__(self) -> int:
        return len(self.kinds) + len(self._labels)

    def template(self, parts: Parts, pod: Pod) -> Template:
        """The template of a pod by the parts of its spec."""
        key = template_key(parts)
        return self._by_bytes.get(key) or self._learn(key, parts, pod)

    def _learn(self, key: bytes, parts: Parts, pod: Pod) -> Template:
        if len(self._by_bytes) >= MOST_SPELLINGS:
            self._by_bytes.clear()
            self._requests.clear()
            self._constraints.clear()
        amounts = template_key(parts[:CONTAINER_PARTS])
        requests = self._requests.get(amounts)
        if requests is None:
            requests = self._requests[amounts] = ContainerRequests(decode_containers(pod.spec))
        rest = template_key((*parts[CONTAINER_PARTS:_VOLUMES], *parts[_CLAIMS + 1 :]))
        constraints = self._constraints.get(rest)
        if constraints is None:
            constraints = self._constraints[rest] = Constraints(decode_template(pod.spec, requests.decoded))
        template = self._by_bytes[key] = self._met(pod, requests, constraints)
        return template

    def resized(self, pod: Pod) -> Template:
        """Return the template of a pod that is being resized, with the requests that count for it."""
        requests = ContainerRequests(resized(decode_containers(pod.spec), pod))
        return self._met(pod, requests, Constraints(decode_template(pod.spec, requests.decoded)))

    def _met(self, pod: Pod, requests: ContainerRequests, constraints: Constraints) -> Template:
        """Return the template of these parts and the pod's volumes and claims; one with the same meaning if known."""
        made_later = (pod.metadata.annotations or _NOTHING).get(names.SHARED_GPU_CONFIGMAP, "")
        new = Template(pod.spec, requests, constraints, made_later)
        template = self._by_meaning.setdefault(new.meaning, new)
        if template is new and not template.namespaced:
            template.kind = self.number(pod, template, ())
        return template

    def number(self, pod: Pod, template: Template, relevant: Sequence[str]) -> int:
        """Return the kind of a pod by template, annotations with `relevant` keys and, if they matter, its names."""
        meta, annotations = pod.metadata, pod.metadata.annotations or _NOTHING
        namespace, name = meta.namespace if template.namespaced else "", meta.name if template.named else ""
        said = tuple([(key, annotations[key]) for key in relevant])
        number = self._numbers[template, said, namespace, name]
        if number == len(self.kinds):
            requests = template.requests
            gpu = gpu_request(requests.amounts, dict(said)) if said else requests.gpu
            claims = tuple([(namespace, claim) for claim in template.volume_claims])
            unnamed = self._unnamed[template.unnamed, said, namespace] if claims else -1
            self.kinds.append(PodKind(template, gpu, claims, unnamed))
        return number

    def labels(self, pods: Sequence[Pod], keys: tuple[str, ...]) -> Rows:
        """A number for the namespace of each pod and its labels with these keys."""
        if keys != self._label_keys:
            self._label_keys, self._label_readings = keys, Readings()
        return np.asarray(self._label_readings.block(pods, self._read_labels)[0])

    def _read_labels(self, pods: Sequence[Pod]) -> Rows:
        found = [(pod.metadata.namespace, *read_labels(pod, self._label_keys).items()) for pod in pods]
        return np.array([[self._labels[self._label_keys, each] for each in found]], dtype=np.int64)


def read_labels(pod: Pod, keys: Sequence[str]) -> dict[str, str]:
    """The labels of a pod with some keys."""
    labels = pod.metadata.labels or _NOTHING
    return {key: labels[key] for key in keys if key in labels}


def selector_keys(kinds: Iterable[PodKind]) -> tuple[str, ...] | None:
    """The labels that the templates of some kinds read; None where no kind reads any.

    Pods mostly carry labels of their own, such as the name of their job: only those that a term reads distinguish them.
    """
    read = [keys for kind in kinds if (keys := kind.template.label_keys) is not None]
    return tuple(sorted(frozenset().union(*read))) if read else None


@dataclass(frozen=True)
class ClassContext:
    """Facts about the whole cluster that decide how finely pods are distinguished."""

    space: ResourceSpace
    qos_matters: bool
    objects: ClusterObjects
    claims_draw_on_pools: bool = False
    """Whether claims for volumes count against pools of storage, each for itself."""


def class_table(pods: Sequence[Pod], kind: Rows, memo: KindMemo, context: ClassContext) -> tuple[ClassTable, Rows]:
    """The classes in order of appearance, and the class of each pod. Classes are those of the last snapshot as far as
    they were there."""
    present = np.flatnonzero(np.bincount(kind)).tolist()
    keys = selector_keys(memo.kinds[number] for number in present)
    stated = context.objects.resource_claims
    claims = device_claims(pods, stated, memo.claims) if stated else {}
    joined = kind if context.claims_draw_on_pools else _joined(kind, present, memo, context.objects)
    klass, first = by_first(_distinguished(pods, joined, (memo, keys, claims), context))
    kinds, examples = kind[first], [pods[row] for row in first.tolist()]
    read = context.space.names, keys
    if claims or not memo.last.holds(kinds, examples, read):
        stating = [claims.get(row, NO_CLAIMS) for row in first.tolist()]
        found = map(memo.kinds.__getitem__, kinds.tolist())
        drafts = [_Draft(*each, keys or ()) for each in zip(found, examples, stating, strict=True)]
        memo.last = _class_table(drafts, memo.last, context)
        if not claims:
            memo.last = replace(memo.last, kinds=kinds, examples=examples, read=read)
    return memo.last, klass


def _class_table(drafts: Sequence[_Draft], last: ClassTable, context: ClassContext) -> ClassTable:
    space = context.space.with_names(chain.from_iterable([draft.kind.template.requests.amounts for draft in drafts]))
    known = last.by_meaning if last.space.names == space.names else {}  # else vectors differ in size
    meanings = [draft.meaning for draft in drafts]
    new = [row for row, meaning in enumerate(meanings) if meaning not in known]
    made = dict(zip(new, _pod_classes(drafts, new, replace(context, space=space)), strict=True))
    classes = [made[row] if row in made else known[meaning].at(row) for row, meaning in enumerate(meanings)]
    return ClassTable(tuple(classes), space, dict(zip(meanings, classes, strict=True)))


def _joined(kind: Rows, present: Sequence[int], memo: KindMemo, objects: ClusterObjects) -> Rows:
    """Return the kind of each pod, with the first one in place of kinds that differ only in the names of claims whose
    volumes can be used from the same nodes."""
    claiming = [number for number in present if memo.kinds[number].volume_claims]
    if not claiming:
        return kind
    reach, stands_for, firsts = volume_reach(objects), np.arange(len(memo.kinds)), dict[object, int]()
    for number in claiming:
        known = memo.kinds[number]
        found = tuple([reach(claim) for claim in known.volume_claims])
        if None not in found:
            stands_for[number] = firsts.setdefault((known.unnamed, found), number)
    return stands_for[kind]


def _distinguished(
    pods: Sequence[Pod],
    kind: Rows,
    by: tuple[KindMemo, tuple[str, ...] | None, Mapping[int, DeviceClaims]],
    context: ClassContext,
) -> Rows:
    """Numbers for the kinds, or for finer distinctions where the cluster asks for them: by labels with some keys, None
    where neither labels nor namespaces matter, by QoS classes, and by claims for devices."""
    found, (memo, keys, claims) = kind, by
    if keys is not None:
        found = finer(found, memo.labels(pods, keys))
    if context.qos_matters:
        found = finer(found, np.unique([pod.status.qos_class for pod in pods], return_inverse=True)[1])
    if claims:
        numbers, asked = Numbers[DeviceClaims](), np.zeros(len(pods), dtype=np.int64)
        asked[list(claims)] = [1 + numbers[each] for each in claims.values()]
        found = finer(found, asked)
    return found


class _Draft(Struct, frozen=True):
    """A class before the size of its request vector is known, with its first pod as the example."""

    kind: PodKind
    pod: Pod
    claims: DeviceClaims
    label_keys: tuple[str, ...]

    @property
    def meaning(self) -> object:
        """The key by which the class is recognized in the next snapshot."""
        labels = tuple(read_labels(self.pod, self.label_keys).items()) if self.label_keys else ()
        return id(self.kind), self.pod.metadata.namespace, self.pod.status.qos_class, labels, self.claims


def _pod_classes(drafts: Sequence[_Draft], rows: Sequence[int], context: ClassContext) -> Iterator[PodClass]:
    """The classes of some rows: requests are rows of one table, equal lists of dimensions one array."""
    requests = [_request(drafts[row], context) for row in rows]
    table = frozen(np.array(requests, dtype=np.float64).reshape(len(rows), context.space.size))
    asked = table > 0
    asked[[drafts[row].kind.gpu.kind in (GpuKind.FRACTION, GpuKind.MEMORY) for row in rows], GPU] = False
    keys = asked.view(f"V{context.space.size}")[:, 0].tolist()
    dims = {
        key: frozen(np.flatnonzero(asked[at])) for key, at in dict(zip(keys, range(len(keys)), strict=True)).items()
    }
    for row, vector, key in zip(rows, table, keys, strict=True):
        yield _pod_class(row, drafts[row], (vector, dims[key]), context)


def _request(draft: _Draft, context: ClassContext) -> list[float]:
    request, rows = [0.0] * context.space.size, context.space.rows
    for name, value in draft.kind.template.requests.amounts.items():
        request[rows[name]] += value
    request[GPU] = draft.kind.gpu.gpus + draft.claims.gpus
    return request


def _pod_class(row: int, draft: _Draft, vectors: tuple[Column, Rows], context: ClassContext) -> PodClass:
    template, gpu, pod, rows = draft.kind.template, draft.kind.gpu, draft.pod, context.space.rows
    return PodClass(
        row=row,
        request=vectors[0],
        gpu_kind=gpu.kind,
        devices=gpu.devices,
        portion=gpu.portion,
        memory_mib=gpu.memory_mib,
        dra_gpus=draft.claims.gpus,
        claims=draft.claims.asked,
        legacy_mig=gpu.legacy_mig,
        template=template.decoded,
        namespace=pod.metadata.namespace,
        labels=read_labels(pod, draft.label_keys) if draft.label_keys else _NO_LABELS,
        config_maps=template.config_maps,
        qos=pod.status.qos_class or template.requests.qos,
        dims=vectors[1],
        overhead={rows[name]: value for name, value in template.requests.overhead.items()} or _NO_OVERHEAD,
        compute_mode=gpu.compute_mode,
    )
