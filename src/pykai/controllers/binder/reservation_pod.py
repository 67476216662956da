"""The pod that holds a shared device on its node, so that the kubelet gives that device to nobody else.

Its name is a function of node and group: whoever creates it, however often, there is one. Pure functions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import json

from pykai.controllers.binder.groups import GroupKey
from pykai.objects import names
from pykai.objects.kinds import ABSENT, Pod

Object = dict[str, Any]
CONTAINER = "resource-reservation"
FAKE_IMAGE, FAKE_ARGUMENTS = "ubuntu", ("sleep", "infinity")
_ENVIRONMENT = (("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace"))


@dataclass(frozen=True, slots=True)
class ReservationTemplate:
    """What all reservation pods share; an empty `runtime_class` is none, `resources` may not move the one GPU.

    With `fake_gpus` the pod only sleeps: what plays the GPUs writes the device into its annotation.
    """

    namespace: str = names.RESERVATION_NAMESPACE
    service_account: str = names.RESERVATION_NAMESPACE
    app: str = names.RESERVATION_APP
    image: str = "registry/local/kai-scheduler/resource-reservation"
    runtime_class: str = "nvidia"
    resources: Mapping[str, Any] = field(default_factory=dict)
    pod_security: Mapping[str, Any] = field(default_factory=dict)
    container_security: Mapping[str, Any] = field(default_factory=dict)
    fake_gpus: bool = False


def name_for(key: GroupKey) -> str:
    """The name of the one pod that may hold a device for the group on its node."""
    return f"gpu-reservation-{hashlib.sha256(f'{key.node}/{key.group}'.encode()).hexdigest()[:16]}"


def device_of(reservation: Pod) -> str:
    """The id of the device that a reservation pod holds; empty while it is not known."""
    return (reservation.metadata.annotations or {}).get(names.RESERVED_GPU_INDEX, "")


def manifest(key: GroupKey, user: Pod, template: ReservationTemplate) -> Object:
    """The reservation pod to create; it goes wherever the pod goes that shares the device."""
    spec: Object = {
        "nodeName": key.node,
        "serviceAccountName": template.service_account,
        "containers": [_container(template)],
    }
    optional = {
        "tolerations": _tolerations(user),
        "runtimeClassName": template.runtime_class,
        "securityContext": dict(template.pod_security),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_for(key),
            "namespace": template.namespace,
            "labels": {names.APP_LABEL: template.app, names.GPU_GROUP_LABEL: key.group},
            "annotations": {names.KARPENTER_DO_NOT_DISRUPT: "true"},
        },
        "spec": spec | {field: value for field, value in optional.items() if value},
    }


def _container(template: ReservationTemplate) -> Object:
    container: Object = {
        "name": CONTAINER,
        "image": FAKE_IMAGE if template.fake_gpus else template.image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {kind: _amounts(template, kind) for kind in ("requests", "limits")},
        "env": [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _ENVIRONMENT],
    }
    if template.fake_gpus:
        container["args"] = list(FAKE_ARGUMENTS)
    if template.container_security:
        container["securityContext"] = dict(template.container_security)
    return container


def _amounts(template: ReservationTemplate, kind: str) -> Object:
    return {**(template.resources.get(kind) or {}), names.NVIDIA_GPU: "1"}


def _tolerations(user: Pod) -> list[Object]:
    raw = user.spec.tolerations
    return [] if raw is ABSENT else json.decode(raw, type=list[Object] | None) or []
