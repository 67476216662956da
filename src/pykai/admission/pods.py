"""Admission of pods: the chain of rules, in order, each with the switch that turns it on.

Only pods of our scheduler are looked at. Mutation happens on creation; validation on creation and update. An update is
refused only for what it breaks itself: a pod that was admitted under other settings can still be labelled, bound and
deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pykai.admission import shapes
from pykai.admission.device_access import check_device_access, hide_devices
from pykai.admission.gpu_sharing import check_gpu_request, connect_share, limit_memory
from pykai.admission.json_patch import difference
from pykai.admission.pod_draft import PodObject, annotations_of, draft_of
from pykai.admission.verdict import RefusedError, Verdict, judged
from pykai.objects.gpu_request import shares_gpu
from pykai.objects.names import SCHEDULER_NAME

DEFAULT_RUNTIME_CLASS = "nvidia"


@dataclass(frozen=True)
class PodSettings:
    """The switches of pod admission, one per flag of the component."""

    scheduler_name: str = SCHEDULER_NAME
    gpu_sharing: bool = False
    hami_core: bool = False
    block_visible_devices: bool = False
    fraction_runtime_class: str = DEFAULT_RUNTIME_CLASS


@dataclass(frozen=True)
class Arrival:
    """A pod being created, beside the pod itself: the request's namespace, and 7 characters no other pod gets."""

    namespace: str
    suffix: str


def fraction_runtime_class(given: str | None, deprecated: str | None) -> str:
    """The runtime class of pods that share a GPU, from its two flags (None: not given); empty means none is set."""
    if given is not None:
        return given
    return DEFAULT_RUNTIME_CLASS if deprecated is None else deprecated


def set_runtime_class(draft: PodObject, runtime_class: str) -> None:
    """Run pods that share a GPU under the runtime class, unless they name one themselves."""
    if runtime_class and shares_gpu(annotations_of(draft)) and not draft["spec"].get("runtimeClassName"):
        draft["spec"]["runtimeClassName"] = runtime_class


Switch = Callable[[PodSettings], bool]
Mutation = Callable[[PodObject, PodSettings, str], None]
Rule = Callable[[Mapping[str, Any], PodSettings], None]

MUTATIONS: tuple[tuple[str, Switch, Mutation], ...] = (
    ("gpusharing", lambda s: True, lambda draft, s, suffix: connect_share(draft, suffix)),
    ("hamicore", lambda s: s.hami_core, lambda draft, s, suffix: limit_memory(draft)),
    ("deviceaccess", lambda s: s.block_visible_devices, lambda draft, s, suffix: hide_devices(draft)),
    (
        "runtimeenforcement",
        lambda s: s.gpu_sharing and bool(s.fraction_runtime_class),  # off: the refusal must not be about the class
        lambda draft, s, suffix: set_runtime_class(draft, s.fraction_runtime_class),
    ),
)
RULES: tuple[tuple[str, Switch, Rule], ...] = (
    ("gpusharing", lambda s: True, lambda pod, s: check_gpu_request(pod, s.gpu_sharing)),
    ("deviceaccess", lambda s: s.block_visible_devices, lambda pod, s: check_device_access(pod)),
)


@judged
def mutate_pod(pod: object, arrival: Arrival, settings: PodSettings) -> Verdict:
    """Admit a new pod with the changes it needs, as a JSON patch (empty when there are none)."""
    if not isinstance(pod, dict) or not _ours(pod, settings):
        return Verdict()
    draft = draft_of(pod)
    _set_namespace(draft, arrival.namespace)
    for _, applies, mutate in MUTATIONS:
        if applies(settings):
            mutate(draft, settings, arrival.suffix)
    return Verdict(patch=tuple(difference(pod, draft)))


@judged
def validate_pod(pod: object, settings: PodSettings) -> Verdict:
    """Admit a pod that keeps every rule that is switched on."""
    if isinstance(pod, dict) and _ours(pod, settings):
        for _, applies, check in RULES:
            if applies(settings):
                check(pod, settings)
    return Verdict()


def validate_pod_update(pod: object, old: object, settings: PodSettings) -> Verdict:
    """Admit a changed pod unless it breaks a rule that its old state did not break in the same way."""
    verdict = validate_pod(pod, settings)
    return verdict if verdict.allowed or verdict != validate_pod(old, settings) else Verdict()


def _ours(pod: dict[str, Any], settings: PodSettings) -> bool:
    """Whether the pod is for our scheduler; if it is, it must have the shape of a pod."""
    spec = pod.get("spec")
    if not isinstance(spec, dict) or spec.get("schedulerName") != settings.scheduler_name:
        return False
    shapes.view(shapes.Pod, "pod", pod)
    return True


def _set_namespace(draft: PodObject, requested: str) -> None:
    own = draft["metadata"].get("namespace")
    if own and requested and own != requested:
        raise RefusedError(
            f"error: the namespace from the provided object {own} does not match the namespace {requested}"
        )
    if requested and not own:
        draft["metadata"]["namespace"] = requested
