"""Interns pods to classes: pods that no rule can tell apart share one row of the class table.

Two memos keep this cheap: templates by the bytes of the spec parts, and, per distinct set of annotation keys, which
of them matter. Both survive from one snapshot to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pykai.cache.requests import Amounts, GpuRequest, add, config_map_names, gpu_request, pod_amounts, qos_class
from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import GPU, ResourceSpace
from pykai.objects import names
from pykai.objects.kinds import Pod
from pykai.objects.pod_template import PodTemplate, decode_template, template_key

_CLASS_ANNOTATIONS = (
    names.GPU_FRACTION,
    names.GPU_MEMORY,
    names.GPU_FRACTION_DEVICES,
    names.SHARED_GPU_CONFIGMAP,
)
_NOTHING: dict[str, str] = {}


class _KeySets(dict[tuple[str, ...], tuple[str, ...]]):
    """Annotation keys of a pod -> those that can change its class."""

    def __missing__(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        relevant = tuple(k for k in keys if k in _CLASS_ANNOTATIONS or k.startswith(names.MIG_PREFIX))
        self[keys] = relevant
        return relevant


class Template:
    """A decoded template with what can be said of it without its pod."""

    def __init__(self, template: PodTemplate) -> None:
        self.decoded = template
        self.amounts = pod_amounts(template)
        self.config_maps = config_map_names(template)
        affinity = template.affinity
        self.pod_affinity = affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
        claims = any("persistentVolumeClaim" in v or "ephemeral" in v for v in template.volumes)
        self.namespaced = bool(self.pod_affinity or self.config_maps or claims or template.claims)
        self.named = any("ephemeral" in v for v in template.volumes)
        self.overhead: Amounts = add({}, template.overhead)
        self.asks_nothing = not claims and not any(v for name, v in self.amounts.items() if name != "pods")


class TemplateMemo:
    """Templates seen so far, by the bytes that define them."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[bytes, ...], Template] = {}
        self.key_sets = _KeySets()

    def template(self, pod: Pod) -> Template:
        key = template_key(pod.spec)
        found = self.by_key.get(key)
        if found is None:
            found = self.by_key[key] = Template(decode_template(pod.spec))
        return found


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
        self.drafts: list[_Draft] = []

    def row(self, pod: Pod, template: Template, context: ClassContext) -> int:
        """The class row of a pod."""
        annotations = pod.metadata.annotations or _NOTHING
        relevant = self.memo.key_sets[tuple(annotations)]
        key: object = id(template)
        if relevant or template.namespaced or context.labels_matter or context.qos_matters:
            key = self._full_key(pod, template, relevant, context)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = self._draft(pod, template, annotations, context)
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
            configmap_prefix=(pod.metadata.annotations or _NOTHING).get(names.SHARED_GPU_CONFIGMAP, ""),
            best_effort=template.asks_nothing and not shared and not dra_gpus,
            qos=pod.status.qos_class or qos_class(template.decoded),
            dims=np.flatnonzero(fitted),
            overhead={self.space.rows[name]: value for name, value in template.overhead.items()},
        )
