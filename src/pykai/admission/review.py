"""AdmissionReview v1: from the bytes the API server sends to the bytes it gets back, without I/O.

An object on its way out is never held back: updates of an object that is being deleted (finalizers) are admitted
whatever the object looks like.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import DecodeError, Struct, ValidationError, json

from pykai.admission.podgroups import validate_pod_group
from pykai.admission.pods import Arrival, PodSettings, mutate_pod, priority_advice, validate_pod, validate_pod_update
from pykai.admission.queues import QueueRules, validate_queue, validate_queue_deletion
from pykai.admission.topologies import validate_topology
from pykai.admission.verdict import Verdict

MUTATE_POD = "/mutate--v1-pod"
VALIDATE_POD = "/validate--v1-pod"
VALIDATE_TOPOLOGY = "/validate-kai-scheduler-v1alpha1-topology"
VALIDATE_QUEUE = "/validate-scheduling-run-ai-v2-queue"
VALIDATE_POD_GROUP = "/validate-scheduling-run-ai-v2alpha2-podgroup"

_SUFFIX_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


class MalformedReviewError(ValueError):
    """The body is not an AdmissionReview: nothing an API server sends."""


class Request(Struct, rename="camel", kw_only=True, frozen=True):
    """The part of an admission request that is read; objects stay plain."""

    uid: str
    operation: str
    namespace: str = ""
    object: Any = None
    old_object: Any = None


class Review(Struct, rename="camel", kw_only=True, frozen=True):
    request: Request


@dataclass(frozen=True)
class Admission:
    """What the rules need beside the object: switches, and what the API server holds at this moment.

    `priority_classes` None: it is not known which there are.
    """

    pods: PodSettings = PodSettings()
    queues: Callable[[], Mapping[str, Any]] = field(default=dict)
    compare_quotas: bool = False
    priority_classes: Callable[[], Collection[str]] | None = None


def _mutate_pod(request: Request, admission: Admission) -> Verdict:
    if request.operation != "CREATE":
        return Verdict()
    return mutate_pod(request.object, Arrival(request.namespace, suffix_of(request.uid)), admission.pods)


def _validate_pod(request: Request, admission: Admission) -> Verdict:
    if request.operation == "UPDATE":
        return validate_pod_update(request.object, request.old_object, admission.pods)
    if request.operation != "CREATE":
        return Verdict()
    verdict = validate_pod(request.object, admission.pods)
    if not verdict.allowed or admission.priority_classes is None:
        return verdict
    advice = (*verdict.advice, *priority_advice(request.object, admission.pods, admission.priority_classes()))
    return replace(verdict, advice=advice)


def _validate_topology(request: Request, admission: Admission) -> Verdict:
    return Verdict() if request.operation == "DELETE" else validate_topology(request.object)


def _validate_pod_group(request: Request, admission: Admission) -> Verdict:
    if request.operation == "DELETE":
        return Verdict()
    return validate_pod_group(request.object, creating=request.operation == "CREATE")


def _validate_queue(request: Request, admission: Admission) -> Verdict:
    if request.operation == "DELETE":
        return validate_queue_deletion(request.old_object, admission.queues())
    old = request.old_object if request.operation == "UPDATE" else None
    return validate_queue(request.object, old, QueueRules(admission.queues(), admission.compare_quotas))


Handler = Callable[[Request, Admission], Verdict]
HANDLERS: dict[str, Handler] = {
    MUTATE_POD: _mutate_pod,
    VALIDATE_POD: _validate_pod,
    VALIDATE_TOPOLOGY: _validate_topology,
    VALIDATE_QUEUE: _validate_queue,
    VALIDATE_POD_GROUP: _validate_pod_group,
}


def request_in(body: bytes) -> Request:
    """The request of an AdmissionReview; raises MalformedReviewError, naming what is missing."""
    try:
        return json.decode(body, type=Review).request
    except (DecodeError, ValidationError, UnicodeDecodeError, RecursionError) as problem:
        raise MalformedReviewError(f"not an AdmissionReview: {problem}") from None


def judge(path: str, request: Request, admission: Admission) -> Verdict:
    """The verdict of the rules behind a path of `HANDLERS`."""
    if request.operation == "UPDATE" and _is_leaving(request.object):
        return Verdict()
    return HANDLERS[path](request, admission)


def response_of(request: Request, verdict: Verdict) -> bytes:
    """The AdmissionReview that answers the request."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": verdict.message}
    if verdict.warnings or verdict.advice:
        response["warnings"] = [*verdict.warnings, *verdict.advice]
    if verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.encode(verdict.patch)).decode()
    return json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def suffix_of(uid: str) -> str:
    """Seven lower-case letters and digits for a request: the same for a repeated request, different for others."""
    digest = int.from_bytes(hashlib.sha256(uid.encode()).digest(), "big")
    return "".join(_SUFFIX_ALPHABET[digest // 36**place % 36] for place in range(7))


def _is_leaving(item: object) -> bool:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    return isinstance(metadata, dict) and bool(metadata.get("deletionTimestamp"))
