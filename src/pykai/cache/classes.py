"""Interns pods to classes: pods that no rule distinguishes share one row of the class table.

A pod's kind is what it says itself: its template, the annotations that matter, and its namespace or name where those
do. Kinds are numbered once and for all; a class is a kind, or a part of one where something else in the cluster makes
labels, QoS classes or claims matter. Templates are known by the bytes of the spec parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from msgspec import json

from pykai.cache.readings import Numbers, Readings, by_first, finer
from pykai.cache.requests import (
    Amounts,
    GpuRequest,
    add,
    config_map_names,
    gpu_request,
    numa_shape,
    pod_amounts,
    qos_class,
)
from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import GPU, ResourceSpace, Rows
from pykai.objects import names
from pykai.objects.kinds import Pod
from pykai.objects.pod_template import Parts, PodTemplate, decode_template, template_key

_CLASS_ANNOTATIONS = (names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_DEVICES)
MOST_SPELLINGS = 20_000
"""Distinct bytes of templates kept before they are forgotten: a kind keeps its number."""
_NOTHING: dict[str, str] = {}


class _KeySets(dict[tuple[str, ...], tuple[str, ...]]):
    """Annotation keys of a pod -> those that can change its class."""

    def __missing__(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        relevant = self[keys] = tuple(k for k in keys if k in _CLASS_ANNOTATIONS or k.startswith(names.MIG_PREFIX))
        return relevant


class Template:
    """A decoded template with what can be said of it without its pod.

    `config_maps` must exist before the pod is bound; those whose names begin with `made_later` are made with it.
    """

    def __init__(self, template: PodTemplate, made_later: str) -> None:
        self.decoded = template
        self.amounts = pod_amounts(template)
        found = config_map_names(template)
        self.config_maps = frozenset(name for name in found if not (made_later and name.startswith(made_later)))
        affinity = template.affinity
        self.pod_affinity = affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
        claims = any("persistentVolumeClaim" in v or "ephemeral" in v for v in template.volumes)
        self.namespaced = bool(self.pod_affinity or self.config_maps or claims or template.claims)
        self.named = any("ephemeral" in v for v in template.volumes)
        self.overhead: Amounts = add({}, template.overhead)
        self.kind = -1
        """Number of the kind of pods that add nothing to it; -1 where each adds its namespace."""

    @property
    def meaning(self) -> object:
        """What distinguishes templates. Names that admission makes up for each pod (its token volume, its config maps
        for a shared GPU) do not: pods of one workload share a template although their bytes differ."""
        decoded = self.decoded
        ports = [port for c in decoded.containers for port in c.ports or () if port.host_port]
        claims = [v for v in decoded.volumes if "persistentVolumeClaim" in v or "ephemeral" in v]
        return json.encode(
            (
                self.amounts,
                self.overhead,
                decoded.node_selector,
                (decoded.affinity, decoded.tolerations, decoded.claims, decoded.gated, ports, claims),
                sorted(self.config_maps),
                self.qos,
                numa_shape(decoded),
            ),
            order="deterministic",
        )

    @cached_property
    def qos(self) -> str:
        """The QoS class of pods that do not state theirs."""
        return qos_class(self.decoded)


@dataclass(frozen=True)
class PodKind:
    """What pods of one kind have in common."""

    template: Template
    gpu: GpuRequest


class KindMemo:
    """Kinds of pod by number."""

    def __init__(self) -> None:
        self.kinds: list[PodKind] = []
        self._numbers: Numbers[object] = Numbers()
        self._by_bytes: dict[bytes, Template] = {}
        self._by_meaning: dict[object, Template] = {}
        self.key_sets = _KeySets()
        self._labels: Numbers[object] = Numbers()
        self._label_readings = Readings()
        self._label_keys: tuple[str, ...] = ()
        """What was read of labels."""
        self._classes: Mapping[object, PodClass] = {}
        self._space: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.kinds) + len(self._labels)

    def template(self, parts: Parts, pod: Pod) -> Template:
        """The template of a pod by the parts of its spec."""
        key = template_key(parts)
        return self._by_bytes.get(key) or self._learn(key, pod)

    def _learn(self, key: bytes, pod: Pod) -> Template:
        if len(self._by_bytes) >= MOST_SPELLINGS:
            self._by_bytes.clear()
        made_later = (pod.metadata.annotations or _NOTHING).get(names.SHARED_GPU_CONFIGMAP, "")
        new = Template(decode_template(pod.spec), made_later)
        template = self._by_bytes[key] = self._by_meaning.setdefault(new.meaning, new)
        if template is new and not template.namespaced:
            template.kind = self.number(pod, template, ())
        return template

    def number(self, pod: Pod, template: Template, relevant: Sequence[str]) -> int:
        """The kind of a pod that adds something to its template; `relevant`: keys of its annotations that matter."""
        meta, annotations = pod.metadata, pod.metadata.annotations or _NOTHING
        namespace, name = meta.namespace if template.namespaced else "", meta.name if template.named else ""
        said = tuple([(key, annotations[key]) for key in relevant])
        number = self._numbers[template, said, namespace, name]
        if number == len(self.kinds):
            self.kinds.append(PodKind(template, gpu_request(template.amounts, dict(said))))
        return number

    def classes_in(self, space: ResourceSpace) -> Mapping[object, PodClass]:
        """The classes of the last snapshot, if its space had the same rows; a class is sized by it."""
        if self._space != space.names:
            self._classes, self._space = {}, space.names
        return self._classes

    def keep_classes(self, classes: Mapping[object, PodClass]) -> None:
        """Remember the classes of a snapshot for the next one."""
        self._classes = classes

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
    """The label keys that the pod affinity terms of some kinds read; None where no kind has any term.

    Pods mostly carry labels of their own, such as the name of their job: only those that a term reads distinguish them.
    """
    affinities = [kind.template.decoded.affinity for kind in kinds if kind.template.pod_affinity]
    halves = [half for each in affinities for half in (each.pod_affinity, each.pod_anti_affinity) if half is not None]
    terms = [term for half in halves for term in (*half.required, *(w.pod_affinity_term for w in half.preferred))]
    selectors = [term.label_selector for term in terms if term.label_selector is not None]
    keys = {key for each in selectors for key in (*each.match_labels, *(e.key for e in each.match_expressions))}
    return tuple(sorted(keys)) if affinities else None


@dataclass(frozen=True)
class ClassContext:
    """Facts about the whole cluster that decide how finely pods are distinguished."""

    space: ResourceSpace
    qos_matters: bool
    dra_gpus: Mapping[tuple[str, str], float]


def class_table(
    pods: Sequence[Pod], kind: Rows, memo: KindMemo, context: ClassContext
) -> tuple[list[PodClass], Rows, ResourceSpace]:
    """The classes in order of appearance, the class of each pod, and the space with a row for all that they request."""
    present = [memo.kinds[number] for number in np.flatnonzero(np.bincount(kind)).tolist()]
    keys = selector_keys(present)
    klass, first = by_first(_distinguished(pods, kind, memo, keys, context))
    drafts = [_Draft(memo.kinds[kind[row]], pods[row], keys or ()) for row in first.tolist()]
    space = context.space.with_names(name for draft in drafts for name in draft.kind.template.amounts)
    context = replace(context, space=space)
    known, made = memo.classes_in(space), dict[object, PodClass]()
    for row, draft in enumerate(drafts):
        key = (row, draft.said, _dra_gpus(draft.pod, context))
        made[key] = known.get(key) or _pod_class(row, draft, context)
    memo.keep_classes(made)
    return list(made.values()), klass, space


def _distinguished(
    pods: Sequence[Pod], kind: Rows, memo: KindMemo, keys: tuple[str, ...] | None, context: ClassContext
) -> Rows:
    """Numbers for the kinds, or for finer distinctions where the cluster asks for them; `keys`: of labels, None where
    neither labels nor namespaces matter."""
    found = kind
    if keys is not None:
        found = finer(found, memo.labels(pods, keys))
    if context.qos_matters:
        found = finer(found, np.unique([pod.status.qos_class for pod in pods], return_inverse=True)[1])
    if context.dra_gpus:
        claiming = np.array([bool(known.template.decoded.claims) for known in memo.kinds])[kind]
        asked = np.zeros(len(pods))
        asked[claiming] = [_dra_gpus(pods[row], context) for row in np.flatnonzero(claiming).tolist()]
        found = finer(found, np.unique(asked, return_inverse=True)[1])
    return found


def _dra_gpus(pod: Pod, context: ClassContext) -> float:
    return context.dra_gpus.get((pod.metadata.namespace, pod.metadata.name), 0.0)


@dataclass(frozen=True)
class _Draft:
    """A class before its vector can be sized: the first pod seen stands for all."""

    kind: PodKind
    pod: Pod
    label_keys: tuple[str, ...]

    @property
    def said(self) -> object:
        """What distinguishes it from other classes of the same row, in another snapshot."""
        labels = tuple(read_labels(self.pod, self.label_keys).items()) if self.label_keys else ()
        return id(self.kind), self.pod.metadata.namespace, self.pod.status.qos_class, labels


def _pod_class(row: int, draft: _Draft, context: ClassContext) -> PodClass:
    template, gpu, pod, rows = draft.kind.template, draft.kind.gpu, draft.pod, context.space.rows
    request = np.zeros(context.space.size)
    for name, value in template.amounts.items():
        request[rows[name]] += value
    dra_gpus = _dra_gpus(pod, context)
    request[GPU] = gpu.gpus + dra_gpus
    fitted = request > 0
    if gpu.kind in (GpuKind.FRACTION, GpuKind.MEMORY):
        fitted[GPU] = False
    return PodClass(
        row=row,
        request=request,
        gpu_kind=gpu.kind,
        devices=gpu.devices,
        portion=gpu.portion,
        memory_mib=gpu.memory_mib,
        dra_gpus=dra_gpus,
        legacy_mig=gpu.legacy_mig,
        template=template.decoded,
        namespace=pod.metadata.namespace,
        labels=read_labels(pod, draft.label_keys) if draft.label_keys else _NOTHING,
        config_maps=template.config_maps,
        qos=pod.status.qos_class or template.qos,
        dims=np.flatnonzero(fitted),
        overhead={rows[name]: value for name, value in template.overhead.items()},
    )
