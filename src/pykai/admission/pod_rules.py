"""Admission of pods: the ordered rules, each with the setting that enables it.

Only pods of our scheduler are checked: mutated on creation, validated on creation and update. An update is denied only
for a violation that it introduces, so that a pod admitted under other settings can still be labelled, bound and
deleted. A label or annotation that looks like a misspelt one of ours gives a warning, because it has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches

from msgspec import Struct, ValidationError, convert

from pykai.admission.pod_mutation import PodObject, annotations_of, difference, mutable_copy
from pykai.admission.shared_gpus import (
    Requester,
    annotate_containers,
    check_container_shares,
    check_device_access,
    check_gpu_request,
    connect_share,
    hide_devices,
    limit_memory,
)
from pykai.admission.verdict import AdmissionVerdict, DeniedError, judged
from pykai.kube.api import Fields, Object
from pykai.objects import names
from pykai.objects.gpu_request import shares_gpu
from pykai.objects.names import HAMI_CORE, NON_MEMORY_ENFORCED, NVFRACTIONS, SCHEDULER_NAME

Amount = str | int | float


class ObjectView(Struct, rename="camel", kw_only=True):
    """Base of all views: camelCase names, unknown fields are ignored."""


class OwnerView(ObjectView):
    name: str = ""


class PodMeta(ObjectView):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerView] | None = None


class EnvironmentVariable(ObjectView):
    name: str = ""
    value: str | None = None
    value_from: Object | None = None


class NamedEntry(ObjectView):
    name: str = ""


class ResourceRequirements(ObjectView):
    requests: dict[str, Amount] | None = None
    limits: dict[str, Amount] | None = None


class ContainerView(ObjectView):
    name: str = ""
    env: list[EnvironmentVariable] | None = None
    env_from: list[Object] | None = None
    resources: ResourceRequirements | None = None


class PodSpecView(ObjectView):
    scheduler_name: str | None = None
    runtime_class_name: str | None = None
    containers: list[ContainerView] | None = None
    init_containers: list[ContainerView] | None = None
    volumes: list[NamedEntry] | None = None


class PodView(ObjectView):
    metadata: PodMeta
    spec: PodSpecView


DEFAULT_RUNTIME_CLASS = "nvidia"


@dataclass(frozen=True)
class PodSettings:
    """The settings of pod admission, one per flag of the component."""

    scheduler_name: str = SCHEDULER_NAME
    gpu_sharing: bool = False
    nvfractions: bool = False
    """The mode NvFractions: shares are annotations of containers."""
    binder_account: str = ""
    """The user name of the binder, the only writer of a share's devices."""
    hami_core: bool = False
    block_visible_devices: bool = False
    fraction_runtime_class: str = DEFAULT_RUNTIME_CLASS

    def in_mode(self, mode: str) -> PodSettings:
        """Return the settings for this GPU sharing mode."""
        by_config_map, fractions = mode in (NON_MEMORY_ENFORCED, HAMI_CORE), mode == NVFRACTIONS
        return replace(self, gpu_sharing=by_config_map, nvfractions=fractions, hami_core=mode == HAMI_CORE)


@dataclass(frozen=True)
class PodCreation:
    """Inputs of a pod creation besides the pod: the request's namespace and a unique suffix of 7 characters."""

    namespace: str
    suffix: str


def fraction_runtime_class(given: str | None, deprecated: str | None) -> str:
    """Return the runtime class of pods that share a GPU, from its two flags (None: not given); "" sets none."""
    if given is not None:
        return given
    return DEFAULT_RUNTIME_CLASS if deprecated is None else deprecated


def set_runtime_class(mutated: PodObject, runtime_class: str) -> None:
    """Set the runtime class of a pod that shares a GPU, unless it names one."""
    if runtime_class and shares_gpu(annotations_of(mutated)) and not mutated["spec"].get("runtimeClassName"):
        mutated["spec"]["runtimeClassName"] = runtime_class


Switch = Callable[[PodSettings], bool]
Mutation = Callable[[PodObject, PodSettings, str], None]
Rule = Callable[[Fields, PodSettings, "PodChange"], None]

MUTATIONS: tuple[tuple[str, Switch, Mutation], ...] = (
    ("nvfractions", lambda s: s.nvfractions, lambda mutated, s, suffix: annotate_containers(mutated)),
    (
        "gpusharing",
        lambda s: s.gpu_sharing or not s.nvfractions,
        lambda mutated, s, suffix: connect_share(mutated, suffix),
    ),
    ("hamicore", lambda s: s.hami_core, lambda mutated, s, suffix: limit_memory(mutated)),
    ("deviceaccess", lambda s: s.block_visible_devices, lambda mutated, s, suffix: hide_devices(mutated)),
    (
        "runtimeenforcement",
        # Off where shares are denied, so that the denial is not about the class.
        lambda s: (s.gpu_sharing or s.nvfractions) and bool(s.fraction_runtime_class),
        lambda mutated, s, suffix: set_runtime_class(mutated, s.fraction_runtime_class),
    ),
)
RULES: tuple[tuple[str, Switch, Rule], ...] = (
    (
        "nvfractions",
        lambda s: s.nvfractions,
        lambda pod, s, change: check_container_shares(pod, Requester(change.user, s.binder_account, change.before)),
    ),
    ("gpusharing", lambda s: not s.nvfractions, lambda pod, s, change: check_gpu_request(pod, s.gpu_sharing)),
    ("deviceaccess", lambda s: s.block_visible_devices, lambda pod, s, change: check_device_access(pod)),
)


@dataclass(frozen=True)
class PodChange:
    """The change a pod is validated for: its user, and the annotations before it (None: a new pod)."""

    user: str = ""
    before: Mapping[str, str] | None = None


CREATION = PodChange()


@judged
def mutate_pod(pod: object, arrival: PodCreation, settings: PodSettings) -> AdmissionVerdict:
    """Admit a new pod with the changes it needs, as a JSON patch (empty when there are none)."""
    if not isinstance(pod, dict) or not _ours(pod, settings):
        return AdmissionVerdict()
    mutated = mutable_copy(pod)
    own, requested = mutated["metadata"].get("namespace"), arrival.namespace
    if own and requested and own != requested:
        raise DeniedError(
            f"error: the namespace from the provided object {own} does not match the namespace {requested}"
        )
    if requested:
        mutated["metadata"]["namespace"] = requested
    for _, applies, mutate in MUTATIONS:
        if applies(settings):
            mutate(mutated, settings, arrival.suffix)
    return AdmissionVerdict(patch=tuple(difference(pod, mutated)))


@judged
def validate_pod(pod: object, settings: PodSettings, change: PodChange = CREATION) -> AdmissionVerdict:
    """Admit a pod that complies with all enabled rules."""
    if not isinstance(pod, dict) or not _ours(pod, settings):
        return AdmissionVerdict()
    for _, applies, check in RULES:
        if applies(settings):
            check(pod, settings, change)
    return AdmissionVerdict(advice=tuple(name_advice(pod["metadata"])))


def validate_pod_update(pod: object, old: object, settings: PodSettings, user: str = "") -> AdmissionVerdict:
    """Admit an updated pod unless it violates a rule that its old state did not violate in the same way."""
    metadata = old.get("metadata") if isinstance(old, dict) else None
    held = (metadata.get("annotations") if isinstance(metadata, dict) else None) or {}
    change = PodChange(user, held if isinstance(held, dict) else {})
    verdict = validate_pod(pod, settings, change)
    return verdict if verdict.allowed or verdict != validate_pod(old, settings, change) else AdmissionVerdict()


def _ours(pod: Object, settings: PodSettings) -> bool:
    """Whether the pod is for our scheduler; if so, deny it unless it has the schema of a pod."""
    spec = pod.get("spec")
    if not isinstance(spec, dict) or spec.get("schedulerName") != settings.scheduler_name:
        return False
    try:
        convert(pod, PodView)
    except ValidationError as misfit:
        # msgspec's "problem - at `$.path`" becomes "pod.path: problem".
        problem, found, place = str(misfit).rpartition(" - at ")
        path = place.removeprefix("key in ").strip("`").removeprefix("$")
        raise DeniedError((f"pod{path}: {problem}" if found else f"pod: {misfit}").replace("`", "")) from None
    except (UnicodeError, RecursionError) as misfit:
        raise DeniedError(f"pod: {misfit}") from None
    return True


def name_advice(metadata: Fields) -> Iterator[str]:
    """Yield a warning for every label and annotation that is a misspelt one of ours, or at the wrong place.

    Only for pods that users create: warnings to controllers are not shown to users.
    """
    if metadata.get("ownerReferences"):
        return
    found = {"label": metadata.get("labels") or {}, "annotation": metadata.get("annotations") or {}}
    known = {"label": names.USER_LABELS, "annotation": names.USER_ANNOTATIONS}
    for place, other, article in (("label", "annotation", "an"), ("annotation", "label", "a")):
        for key in found[place]:
            # The webhook registration checks the same prefixes in CEL.
            if key in known[place] or key in names.WRITTEN_NAMES or not key.startswith(names.OWN_PREFIXES):
                continue
            if key.startswith(names.PORTION_LIMIT_PREFIX) and place == "annotation":
                continue
            if key in known[other]:
                yield f"{place} {key!r} has no effect: it is read as {article} {other}"
            elif close := get_close_matches(key, known[place], n=1, cutoff=0.8):
                yield f"{place} {key!r} has no effect: did you mean {close[0]!r}?"


def priority_advice(pod: object, settings: PodSettings, known: Collection[str]) -> Iterator[str]:
    """Yield a warning if the label for the group's PriorityClass names one that does not exist."""
    if not isinstance(pod, dict) or (pod.get("spec") or {}).get("schedulerName") != settings.scheduler_name:
        return
    metadata = pod.get("metadata") or {}
    wanted = (metadata.get("labels") or {}).get(names.PRIORITY_CLASS_LABEL)
    if wanted is None or wanted in known or metadata.get("ownerReferences"):
        return
    close = get_close_matches(str(wanted), known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "the group gets the default priority"
    yield f"label {names.PRIORITY_CLASS_LABEL!r}: there is no PriorityClass {wanted!r}: {hint}"
