"""Interns pods to classes: pods that no rule can tell apart share one row of the class table.

Two memos keep this cheap: templates by the bytes of the spec parts, and, per distinct set of annotation keys, which
of them matter. Both survive from one snapshot to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

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
from pykai.model.resources import GPU, ResourceSpace
from pykai.objects import names
from pykai.objects.kinds import Pod
from pykai.objects.pod_template import PodTemplate, decode_template, template_key

_CLASS_ANNOTATIONS = (names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_DEVICES)
MOST_TEMPLATES = 50_000
"""Distinct templates kept before the memo starts anew."""
_NOTHING: dict[str, str] = {}


class _KeySets(dict[tuple[str, ...], tuple[str, ...]]):
    """Annotation keys of a pod -> those that can change its class."""

    def __missing__(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        relevant = tuple(k for k in keys if k in _CLASS_ANNOTATIONS or k.startswith(names.MIG_PREFIX))
        self[keys] = relevant
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

    @property
    def meaning(self) -> object:
        """What tells templates apart. Names that admission makes up for each pod (its token volume, its config maps
        for a shared GPU) do not: pods of one workload share a template although their bytes differ."""
        decoded = self.decoded
        ports = [port for c in decoded.containers for port in c.ports or () if port.host_port]
        claims = [v for v in decoded.volumes if "persistentVolumeClaim" in v or "ephemeral" in v]
        return repr(
            (
                sorted(self.amounts.items()),
                sorted(self.overhead.items()),
                sorted(decoded.node_selector.items()),
                (decoded.affinity, decoded.tolerations, decoded.claims, decoded.gated, ports, claims),
                sorted(self.config_maps),
                qos_class(decoded),
                numa_shape(decoded),
            )
        )


class TemplateMemo:
    """Templates seen so far: by the bytes that define them, and by what they mean."""

    def __init__(self) -> None:
        self._by_bytes: dict[tuple[bytes, ...], Template] = {}
        self._by_meaning: dict[object, Template] = {}
        self.key_sets = _KeySets()

    def templates(self, pods: Sequence[Pod]) -> list[Template]:
        """The template of each pod."""
        known = self._by_bytes
        keys = [template_key(pod.spec) for pod in pods]
        return [known.get(key) or self._learn(key, pod) for key, pod in zip(keys, pods, strict=True)]

    def _learn(self, key: tuple[bytes, ...], pod: Pod) -> Template:
        if len(self._by_bytes) >= MOST_TEMPLATES:
            self._by_bytes.clear()
            self._by_meaning.clear()
        made_later = (pod.metadata.annotations or _NOTHING).get(names.SHARED_GPU_CONFIGMAP, "")
        template = Template(decode_template(pod.spec), made_later)
        template = self._by_bytes[key] = self._by_meaning.setdefault(template.meaning, template)
        return template


@dataclass(frozen=True)
class ClassContext:
    """Facts about the whole cluster that decide how finely pods are told apart."""

    labels_matter: bool
    qos_matters: bool
    dra_gpus: Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class _Draft:
    """A class before its vector can be sized: the first pod seen stands for all."""

    template: Template
    gpu: GpuRequest
    dra_gpus: float
    pod: Pod
    labels: dict[str, str]


class ClassTable:
    """The classes of one snapshot, in order of first appearance."""

    def __init__(self, space: ResourceSpace, memo: TemplateMemo) -> None:
        self.space = space
        self.memo = memo
        self.rows: dict[object, int] = {}
        self._plain: dict[Template, int] = {}
        self.drafts: list[_Draft] = []

    def reader(self, context: ClassContext) -> Callable[[Pod, Template, Mapping[str, str]], int]:
        """A function (pod, template, annotations) -> class row. Where a template says all there is to say, it is
        looked up by that alone."""
        key_sets, plain = self.memo.key_sets, self._plain
        distinct = context.labels_matter or context.qos_matters

        def row(pod: Pod, template: Template, annotations: Mapping[str, str]) -> int:
            if not distinct and not template.namespaced and not key_sets[tuple(annotations)]:
                known = plain.get(template)
                if known is not None:
                    return known
            return self._row(pod, template, context)

        return row

    def _row(self, pod: Pod, template: Template, context: ClassContext) -> int:
        annotations = pod.metadata.annotations or _NOTHING
        relevant = self.memo.key_sets[tuple(annotations)]
        special = bool(relevant or template.namespaced or context.labels_matter or context.qos_matters)
        key = self._full_key(pod, template, relevant, context) if special else template
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = self._draft(pod, template, annotations, context)
            if not special:
                self._plain[template] = row
        return row

    def _full_key(self, pod: Pod, template: Template, relevant: tuple[str, ...], context: ClassContext) -> object:
        meta = pod.metadata
        annotations = meta.annotations or _NOTHING
        labelled = template.pod_affinity or context.labels_matter
        return (
            id(template),
            tuple((k, annotations[k]) for k in relevant),
            meta.namespace if template.namespaced or labelled else "",
            tuple(sorted((meta.labels or _NOTHING).items())) if labelled else (),
            meta.name if template.named else "",
            pod.status.qos_class if context.qos_matters else "",
            context.dra_gpus.get((meta.namespace, meta.name), 0.0) if template.decoded.claims else 0.0,
        )

    def _draft(self, pod: Pod, template: Template, annotations: Mapping[str, str], context: ClassContext) -> int:
        for name in template.amounts:
            self.space.row(name)
        request = gpu_request(template.amounts, annotations)
        labels = pod.metadata.labels or _NOTHING if template.pod_affinity or context.labels_matter else _NOTHING
        gpus = context.dra_gpus.get((pod.metadata.namespace, pod.metadata.name), 0.0)
        self.drafts.append(_Draft(template, request, gpus, pod, labels))
        return len(self.drafts) - 1

    def finish(self) -> list[PodClass]:
        """The classes with their vectors, once every resource name is known."""
        return [self._finish(row, draft) for row, draft in enumerate(self.drafts)]

    def _finish(self, row: int, draft: _Draft) -> PodClass:
        template, gpu, dra_gpus, pod = draft.template, draft.gpu, draft.dra_gpus, draft.pod
        request = np.zeros(self.space.size)
        for name, value in template.amounts.items():
            request[self.space.rows[name]] += value
        shared = gpu.kind in (GpuKind.FRACTION, GpuKind.MEMORY)
        request[GPU] = gpu.gpus + dra_gpus
        fitted = request > 0
        if shared:
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
            labels=draft.labels,
            config_maps=template.config_maps,
            qos=pod.status.qos_class or qos_class(template.decoded),
            dims=np.flatnonzero(fitted),
            overhead={self.space.rows[name]: value for name, value in template.overhead.items()},
        )
