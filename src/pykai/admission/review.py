"""AdmissionReview v1 without I/O: from the request bytes to the response bytes; also in process for the in-memory API.

Updates of an object that is being deleted are always admitted, so that its finalizers can be removed.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import DecodeError, Struct, ValidationError, json

from pykai.admission.pod_rules import (
    PodChange,
    PodCreation,
    PodSettings,
    mutate_pod,
    priority_advice,
    validate_pod,
    validate_pod_update,
)
from pykai.admission.podgroup_rules import validate_pod_group
from pykai.admission.queue_rules import Enforcement, QueueRules, validate_queue, validate_queue_deletion
from pykai.admission.resize import QuotaFacts, ResizeSettings, needs_check, validate_resize
from pykai.admission.verdict import AdmissionVerdict, DeniedError, declared, judged
from pykai.kube import api_resources
from pykai.kube.api import Fields, Object, Resource
from pykai.kube.errors import Forbidden
from pykai.kube.memory import Admission
from pykai.kube.memory.patches import json_patch
from pykai.objects import crds
from pykai.objects.kinds import Topology


@judged
def validate_topology(topology: object) -> AdmissionVerdict:
    """Admit a topology whose aliases are unique and differ from every level's node label."""
    levels = declared(crds.TOPOLOGY, Topology, "topology", topology).spec.levels
    aliases = Counter(level.alias for level in levels if level.alias)
    labels = {level.node_label for level in levels}
    repeated = sorted(alias for alias, count in aliases.items() if count > 1)
    conflicting = sorted(alias for alias in aliases if alias in labels)
    problems = []
    if repeated:
        problems.append(f"aliases must be unique within the topology; duplicated: [{' '.join(repeated)}]")
    if conflicting:
        problems.append(f"an alias must not equal a nodeLabel; conflicting: [{' '.join(conflicting)}]")
    if problems:
        raise DeniedError("invalid topology aliases: " + "; ".join(problems))
    return AdmissionVerdict()


MUTATE_POD = "/mutate--v1-pod"
VALIDATE_POD = "/validate--v1-pod"
VALIDATE_RESIZE = "/validate--v1-pod-resize"
VALIDATE_TOPOLOGY = "/validate-kai-scheduler-v1alpha1-topology"
VALIDATE_QUEUE = "/validate-scheduling-run-ai-v2-queue"
VALIDATE_POD_GROUP = "/validate-scheduling-run-ai-v2alpha2-podgroup"

_SUFFIX_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


class MalformedReviewError(ValueError):
    """The body is not an AdmissionReview."""


class UserInfo(Struct, kw_only=True, frozen=True):
    """The user of the request."""

    username: str = ""


class AdmissionRequest(Struct, rename="camel", kw_only=True, frozen=True):
    """The fields of an admission request that are read; objects stay undecoded."""

    uid: str
    operation: str
    namespace: str = ""
    object: Any = None
    old_object: Any = None
    user_info: UserInfo = UserInfo()


class Review(Struct, rename="camel", kw_only=True, frozen=True):
    request: AdmissionRequest


@dataclass(frozen=True)
class AdmissionRules:
    """Inputs of the rules besides the object: settings, and the current state of the API server.

    `priority_classes` None: the existing ones are unknown.
    """

    pods: PodSettings = PodSettings()
    queues: Callable[[], Fields] = field(default=dict)
    compare_quotas: bool = False
    enforcement: Enforcement = "None"
    priority_classes: Callable[[], Collection[str]] | None = None
    resize: ResizeSettings = ResizeSettings()
    quota_facts: Callable[[Fields], Awaitable[QuotaFacts]] | None = None
    """Fetches the facts for the resize of a pod; None: every resize is admitted."""


def _mutate_pod(request: AdmissionRequest, admission: AdmissionRules) -> AdmissionVerdict:
    if request.operation != "CREATE":
        return AdmissionVerdict()
    return mutate_pod(request.object, PodCreation(request.namespace, suffix_of(request.uid)), admission.pods)


def _validate_pod(request: AdmissionRequest, admission: AdmissionRules) -> AdmissionVerdict:
    if request.operation == "UPDATE":
        user = request.user_info.username
        return validate_pod_update(request.object, request.old_object, admission.pods, user)
    if request.operation != "CREATE":
        return AdmissionVerdict()
    verdict = validate_pod(request.object, admission.pods, PodChange(request.user_info.username))
    if not verdict.allowed or admission.priority_classes is None:
        return verdict
    advice = (*verdict.advice, *priority_advice(request.object, admission.pods, admission.priority_classes()))
    return replace(verdict, advice=advice)


async def judge_resize(request: AdmissionRequest, admission: AdmissionRules) -> AdmissionVerdict:
    """Return the verdict on the resize of a pod, after fetching its queues."""
    pod = request.object
    if admission.quota_facts is None or _is_leaving(pod) or not needs_check(pod, admission.resize):
        return AdmissionVerdict()
    facts = await admission.quota_facts(pod)
    return validate_resize(pod, request.old_object, facts, admission.resize)


def _validate_topology(request: AdmissionRequest, admission: AdmissionRules) -> AdmissionVerdict:
    return AdmissionVerdict() if request.operation == "DELETE" else validate_topology(request.object)


def _validate_pod_group(request: AdmissionRequest, admission: AdmissionRules) -> AdmissionVerdict:
    if request.operation == "DELETE":
        return AdmissionVerdict()
    old = request.old_object if request.operation == "UPDATE" else None
    return validate_pod_group(request.object, request.operation == "CREATE", old)


def _validate_queue(request: AdmissionRequest, admission: AdmissionRules) -> AdmissionVerdict:
    if request.operation == "DELETE":
        return validate_queue_deletion(request.old_object, admission.queues())
    old = request.old_object if request.operation == "UPDATE" else None
    return validate_queue(
        request.object, old, QueueRules(admission.queues(), admission.compare_quotas, admission.enforcement)
    )


Handler = Callable[[AdmissionRequest, AdmissionRules], AdmissionVerdict]
HANDLERS: dict[str, Handler] = {
    MUTATE_POD: _mutate_pod,
    VALIDATE_POD: _validate_pod,
    VALIDATE_RESIZE: lambda request, admission: AdmissionVerdict(),  # its queues are fetched: `judge_resize`
    VALIDATE_TOPOLOGY: _validate_topology,
    VALIDATE_QUEUE: _validate_queue,
    VALIDATE_POD_GROUP: _validate_pod_group,
}


def request_in(body: bytes) -> AdmissionRequest:
    """Return the request of an AdmissionReview; MalformedReviewError names what is missing."""
    try:
        return json.decode(body, type=Review).request
    except (DecodeError, ValidationError, UnicodeDecodeError, RecursionError) as problem:
        raise MalformedReviewError(f"not an AdmissionReview: {problem}") from None


def judge(path: str, request: AdmissionRequest, admission: AdmissionRules) -> AdmissionVerdict:
    """Return the verdict of the handler of a path in `HANDLERS`."""
    if request.operation == "UPDATE" and _is_leaving(request.object):
        return AdmissionVerdict()
    return HANDLERS[path](request, admission)


def response_of(request: AdmissionRequest, verdict: AdmissionVerdict) -> bytes:
    """Return the AdmissionReview that answers the request."""
    response: Object = {"uid": request.uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": verdict.message}
    if verdict.warnings or verdict.advice:
        response["warnings"] = [*verdict.warnings, *verdict.advice]
    if verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.encode(verdict.patch)).decode()
    return json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def suffix_of(uid: str) -> str:
    """Return seven lower-case letters and digits derived from the request's uid: stable for a repeated request."""
    digest = int.from_bytes(hashlib.sha256(uid.encode()).digest(), "big")
    return "".join(_SUFFIX_ALPHABET[digest // 36**place % 36] for place in range(7))


def _is_leaving(item: object) -> bool:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    return isinstance(metadata, dict) and bool(metadata.get("deletionTimestamp"))


PATHS: dict[Resource, tuple[str, ...]] = {
    api_resources.POD: (MUTATE_POD, VALIDATE_POD),
    api_resources.QUEUE: (VALIDATE_QUEUE,),
    api_resources.POD_GROUP: (VALIDATE_POD_GROUP,),
    api_resources.TOPOLOGY: (VALIDATE_TOPOLOGY,),
}


def webhooks(rules: AdmissionRules, warn: Callable[[str], None]) -> Admission:
    """Return in-process admission by our rules; `warn` receives the warnings that kubectl would show."""

    def admit(resource: Resource, new: Object, old: Object | None) -> Object:
        for path in PATHS.get(resource, ()):
            meta = new["metadata"]
            request = AdmissionRequest(
                uid=meta["uid"],
                operation="CREATE" if old is None else "UPDATE",
                namespace=meta.get("namespace", ""),
                object=new,
                old_object=old,
            )
            verdict = judge(path, request, rules)
            for warning in (*verdict.warnings, *verdict.advice):
                warn(f"{new.get('kind', '')} {meta.get('name', '')}: {warning}".strip())
            if not verdict.allowed:
                raise Forbidden(f"admission webhook denied the request: {verdict.message}")
            if verdict.patch:
                new = json_patch(new, verdict.patch)
        return new

    return admit
