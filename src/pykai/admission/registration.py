"""The webhook configurations to register: which requests the API server sends to which address.

A pod webhook fails closed, so it must match only our pods: a match condition on the scheduler's name and selectors on
namespaces and labels keep an unready webhook from blocking other pods. System namespaces are excluded, so that the
webhook's own pods can restart.

Further match conditions exclude objects that no rule can deny or change: pods without a GPU share, PodGroups without
sub-groups, and updates of fields that no rule reads. A call costs more than most writes, and most writes are our own.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pykai.admission.certificates import still_trusting
from pykai.admission.review import (
    MUTATE_POD,
    VALIDATE_POD,
    VALIDATE_POD_GROUP,
    VALIDATE_QUEUE,
    VALIDATE_RESIZE,
    VALIDATE_TOPOLOGY,
)
from pykai.kube.api import Object
from pykai.objects import names
from pykai.objects.names import SCHEDULER_NAME, SYSTEM_NAMESPACE

Webhook = Object
Configuration = Object
Client = Callable[[str], Object]

MUTATING_NAME = "mutating-kai-admission"
VALIDATING_NAME = "validating-kai-admission"
QUEUE_PREFIX = "kai-queue-validation-"
POD_GROUP_PREFIX = "kai-podgroup-validation-"
_INHERITED = ("timeoutSeconds", "matchPolicy")

_SHARE_REQUESTS = (names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_DEVICES, names.MPS)
"""Annotations that request a share; a pod without any of them requests none."""
_READ = (
    *(*_SHARE_REQUESTS, names.GPU_FRACTION_CONTAINER, names.GPU_FRACTION_CONTAINER_TYPE, names.SHARED_GPU_CONFIGMAP),
    *(names.GPU_FRACTION_LIMIT, names.GPU_MEMORY_LIMIT),
)
"""All annotations of pods that rules read."""
_OF_CONTAINERS = (names.NVFRACTIONS_PREFIX, names.PORTION_LIMIT_PREFIX)
"""Prefixes of annotations of containers that rules read."""
_STRUCTURE = ("subGroups", "minSubGroup", "preemptionDelay", "stalenessGracePeriod")
"""Fields of a PodGroup that rules check; a group without them can only violate its schema."""


@dataclass(frozen=True)
class PodSelection:
    """Which pods the pod webhooks see; `queue_label_key` set: only those of namespaces that carry that label.

    `guards_devices`: also pods without a share, because the devices their containers see are checked.
    """

    scheduler_name: str = SCHEDULER_NAME
    system_namespace: str = SYSTEM_NAMESPACE
    queue_label_key: str | None = None
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    guards_devices: bool = False
    checks_resizes: bool = False
    """Whether resizes of pods are checked against the quotas of their queues."""


def service_client(namespace: str, service: str, ca_bundle: bytes, port: int | None = None) -> Client:
    """Webhooks reached through a Service of the cluster (port None: 443)."""
    reference: Object = {"namespace": namespace, "name": service}
    if port is not None:
        reference["port"] = port
    return lambda path: {"service": {**reference, "path": path}, "caBundle": _base64(ca_bundle)}


def url_client(base_url: str, ca_bundle: bytes) -> Client:
    """Webhooks reached outside a cluster, such as `https://127.0.0.1:9443`."""
    return lambda path: {"url": base_url.rstrip("/") + path, "caBundle": _base64(ca_bundle)}


def mutating_pods(client: Client, pods: PodSelection, name: str = MUTATING_NAME) -> Configuration:
    """Return the MutatingWebhookConfiguration of pods."""
    webhook = _pod_webhook(client(MUTATE_POD), pods, ["CREATE"])
    webhook["reinvocationPolicy"] = "IfNeeded"
    return _configuration("MutatingWebhookConfiguration", name, [webhook], {"app": "admission"})


def validating_pods(client: Client, pods: PodSelection, name: str = VALIDATING_NAME) -> Configuration:
    """Return the ValidatingWebhookConfiguration of pods and topologies; the webhook of resizes fails open."""
    webhooks = [
        _pod_webhook(client(VALIDATE_POD), pods, ["CREATE", "UPDATE"]),
        _webhook(
            f"topology.admission.{pods.system_namespace}.svc",
            client(VALIDATE_TOPOLOGY),
            _rule("kai.scheduler/v1alpha1/topologies", "Cluster", ["CREATE", "UPDATE"]),
        ),
    ]
    if pods.checks_resizes:
        rule = _rule("/v1/pods/resize", "Namespaced", ["UPDATE"])
        resize = _webhook(f"resize.admission.{pods.system_namespace}.svc", client(VALIDATE_RESIZE), rule)
        webhooks.append({**_selecting(resize, pods), "failurePolicy": "Ignore", "matchConditions": [_ours(pods)]})
    return _configuration("ValidatingWebhookConfiguration", name, webhooks, {"app": "admission"})


def _selecting(webhook: Webhook, pods: PodSelection) -> Webhook:
    """Return the webhook with the selectors for namespaces and labels."""
    labels = {"objectSelector": {"matchLabels": dict(pods.pod_labels)}} if pods.pod_labels else {}
    system = ["kube-system", pods.system_namespace]
    requirements: list[Object] = [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": system}]
    if pods.queue_label_key:
        requirements.append({"key": pods.queue_label_key, "operator": "Exists"})
    required = {"matchLabels": dict(pods.namespace_labels)} if pods.namespace_labels else {}
    return {**webhook, "namespaceSelector": {"matchExpressions": requirements, **required}, **labels}


def _ours(pods: PodSelection) -> dict[str, str]:
    expression = f"object.spec.schedulerName == {_cel_string(pods.scheduler_name)}"
    return {"name": "scheduler-name-match", "expression": expression}


def validating_queues(client: Client, prefix: str = QUEUE_PREFIX) -> Configuration:
    """Return the ValidatingWebhookConfiguration of queues; a webhook that does not answer never blocks a deletion."""
    queues, path = "scheduling.run.ai/v2/queues", client(VALIDATE_QUEUE)
    webhooks = [
        _webhook("queue-validation.kai.scheduler", path, _rule(queues, "Cluster", ["CREATE", "UPDATE"])),
        {
            **_webhook("queue-deletion.kai.scheduler", path, _rule(queues, "Cluster", ["DELETE"])),
            "failurePolicy": "Ignore",
        },
    ]
    return _configuration("ValidatingWebhookConfiguration", f"{prefix}v2", webhooks, {})


def validating_pod_groups(client: Client, prefix: str = POD_GROUP_PREFIX) -> Configuration:
    """Return the ValidatingWebhookConfiguration of pod groups."""
    webhook = _webhook(
        "podgroup-validation.kai.scheduler",
        client(VALIDATE_POD_GROUP),
        _rule("scheduling.run.ai/v2alpha2/podgroups", "Namespaced", ["CREATE", "UPDATE"]),
    )
    structured = " || ".join(f"has(object.spec.{name})" for name in _STRUCTURE)
    webhook["matchConditions"] = _match_conditions(
        f"has(object.spec) && ({structured})",
        f"{_NO_UPDATE} || !has(oldObject.spec) || object.spec != oldObject.spec",
    )
    return _configuration("ValidatingWebhookConfiguration", f"{prefix}v2alpha2", [webhook], {})


def merged(desired: Configuration, live: Configuration) -> Configuration:
    """Return the configuration to write over a live one: annotations and fields added by others are kept.

    Cloud providers add requirements to namespace selectors, and the API server fills in defaults; both are kept, but
    only while the number of webhooks is the same. So are authorities of ours that were trusted until now: a server may
    still present what they signed.
    """
    annotations = {
        **(live["metadata"].get("annotations") or {}),
        **(desired["metadata"].get("annotations") or {}),
    }
    metadata = {**desired["metadata"], **({"annotations": annotations} if annotations else {})}
    webhooks, present = desired["webhooks"], live.get("webhooks") or []
    if len(webhooks) == len(present):
        webhooks = [_merged_webhook(new, old) for new, old in zip(webhooks, present, strict=True)]
    return {**desired, "metadata": metadata, "webhooks": webhooks}


def _merged_webhook(desired: Webhook, live: Webhook) -> Webhook:
    merged = {**{key: live[key] for key in _INHERITED if key in live}, **desired}
    selector = desired.get("namespaceSelector") or {}
    own = selector.get("matchExpressions") or []
    keys = {expression["key"] for expression in own}
    added = (live.get("namespaceSelector") or {}).get("matchExpressions") or []
    foreign = [expression for expression in added if expression.get("key") not in keys]
    if foreign:
        merged["namespaceSelector"] = {**selector, "matchExpressions": [*own, *foreign]}
    client, former = desired["clientConfig"], live.get("clientConfig") or {}
    wanted, before = (base64.b64decode(each.get("caBundle") or "") for each in (client, former))
    bundle = still_trusting(wanted, before)
    return {**merged, "clientConfig": {**client, "caBundle": _base64(bundle)} if bundle != wanted else client}


def _pod_webhook(client: Object, pods: PodSelection, operations: list[str]) -> Webhook:
    webhook = _webhook(f"admission.{pods.system_namespace}.svc", client, _rule("/v1/pods", "Namespaced", operations))
    webhook, ours = _selecting(webhook, pods), _ours(pods)
    held = _ANNOTATIONS["object"]
    requests = f"{_cel_list(_SHARE_REQUESTS)}.exists(k, k in {held}) || {held}.exists(k, {_of_container()})"
    reason = f"{_annotated('object')} && ({requests})"
    if "UPDATE" in operations:
        reason = f"{reason} || ({_odd_names()})"
    reasons = () if pods.guards_devices else (reason,)
    webhook["matchConditions"] = [ours, *_match_conditions(*reasons, *_changed(operations))]
    return webhook


_NO_UPDATE = "request.operation != 'UPDATE'"
_ANNOTATIONS = {which: f"{which}.metadata.annotations" for which in ("object", "oldObject")}


def _match_conditions(*expressions: str) -> list[dict[str, str]]:
    """Return one match condition that all expressions hold, cheap ones first.

    It is one condition, because a server evaluates all of several, even after one is false.
    """
    joined = " && ".join(f"({expression})" for expression in expressions)
    return [{"name": "something-to-check", "expression": joined}] if expressions else []


def _changed(operations: list[str]) -> list[str]:
    """Return the condition that an update changes a field that a rule reads; empty if updates are not matched."""
    if "UPDATE" not in operations:
        return []
    other = f"{_annotation('object')} != {_annotation('oldObject')}"
    differs = f"{_cel_list(_READ)}.exists(k, {other})"
    of_containers = f"{_annotated('object')} && {_ANNOTATIONS['object']}.exists(k, {_of_container()} && {other})"
    return [f"{_NO_UPDATE} || {differs} || ({of_containers}) || object.spec != oldObject.spec"]


def _of_container() -> str:
    """Return the CEL expression for: annotation `k` is one of a container."""
    return "(" + " || ".join(f"k.startsWith({_cel_string(prefix)})" for prefix in _OF_CONTAINERS) + ")"


def _odd_names() -> str:
    """Return the condition that a user creates the pod and it has names to warn about; controllers ignore warnings."""
    known = {"labels": names.USER_LABELS, "annotations": names.USER_ANNOTATIONS}
    odd = [
        f"has(object.metadata.{where}) && object.metadata.{where}.exists(k, "
        f"{_cel_list(names.OWN_PREFIXES)}.exists(p, k.startsWith(p)) "
        f"&& !(k in {_cel_list((*ours, *sorted(names.WRITTEN_NAMES)))}))"
        for where, ours in known.items()
    ]
    label = f"object.metadata.labels[{_cel_string(names.PRIORITY_CLASS_LABEL)}]"
    odd.append(
        f"has(object.metadata.labels) && {_cel_string(names.PRIORITY_CLASS_LABEL)} in object.metadata.labels "
        f"&& !({label} in {_cel_list(tuple(names.PRIORITY_CLASSES))})"
    )
    either = " || ".join(f"({expression})" for expression in odd)
    return f"request.operation == 'CREATE' && !has(object.metadata.ownerReferences) && ({either})"


def _annotated(which: str) -> str:
    return f"has({_ANNOTATIONS[which]})"


def _annotation(which: str) -> str:
    """Return the CEL expression for the value of annotation `k`, empty if missing."""
    held = _ANNOTATIONS[which]
    return f"({_annotated(which)} && k in {held} ? {held}[k] : '')"


def _webhook(name: str, client: Object, rule: Object) -> Webhook:
    return {
        "name": name,
        "clientConfig": client,
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
    }


def _rule(resource: str, scope: str, operations: list[str]) -> Object:
    """`resource` is group/version/plural, or with /subresource; the group is empty for the core group."""
    group, version, plural = resource.split("/", 2)
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [plural],
        "scope": scope,
        "operations": operations,
    }


def _configuration(kind: str, name: str, webhooks: list[Webhook], labels: dict[str, str]) -> Configuration:
    metadata: Object = {"name": name, **({"labels": labels} if labels else {})}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "webhooks": webhooks,
    }


def _cel_string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _cel_list(texts: tuple[str, ...]) -> str:
    return f"[{', '.join(map(_cel_string, texts))}]"


def _base64(text: bytes) -> str:
    return base64.b64encode(text).decode()
