"""The scaling pod: an ordinary pod that asks for whole GPUs in place of a pod that waits for parts of them.

It asks for what its origin asks for and goes where its origin may go, so that the autoscaler adds a node on which the
origin will fit. It names its origin in labels, as users and the binder read them, and, because a label is shorter than
a pod's name may be, in annotations of the same keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pykai.objects import names, units
from pykai.objects.units import sum_resources

Object = Mapping[str, Any]

# To be written at once: the autoscaler acts on pods that the scheduler has given up on.
UNSCHEDULABLE_STATUS: Final = {
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
}
_COPIED = ("affinity", "tolerations", "nodeSelector")
_SUMMED = ("cpu", "memory")
_NAME_LENGTH = 253
_LABEL_LENGTH = 63


@dataclass(frozen=True)
class ScalingPodTemplate:
    """What all scaling pods have in common."""

    image: str
    namespace: str = names.SCALING_NAMESPACE
    app: str = names.SCALING_APP
    service_account: str = names.SCALING_APP


def name_for(namespace: str, name: str) -> str:
    """The name of the scaling pod that stands for this pod."""
    return _cut(f"{namespace}-{name}", _NAME_LENGTH)


def origin(scaling_pod: Object) -> tuple[str, str]:
    """(namespace, name) of the pod that a scaling pod stands for."""
    metadata = scaling_pod["metadata"]
    named = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return named.get(names.SCALED_POD_NAMESPACE, ""), named.get(names.SCALED_POD_NAME, "")


def devices_of(scaling_pod: Object) -> int:
    """The number of GPUs that a scaling pod asks for."""
    containers = scaling_pod["spec"].get("containers") or ()
    requests = [container.get("resources", {}).get("requests") or {} for container in containers]
    return int(sum(units.parse_quantity(each.get(names.NVIDIA_GPU, 0)) for each in requests))


def manifest(pod: Object, devices: int, template: ScalingPodTemplate) -> dict[str, Any]:
    """The scaling pod to create for a waiting pod that wants parts of this many GPUs."""
    namespace, name = pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
    stands_for = {names.SCALED_POD_NAMESPACE: namespace, names.SCALED_POD_NAME: name}
    copied = {field: pod["spec"][field] for field in _COPIED if pod["spec"].get(field)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_for(namespace, name),
            "namespace": template.namespace,
            "labels": {
                names.APP_LABEL: template.app,
                **{key: _cut(text, _LABEL_LENGTH) for key, text in stands_for.items()},
            },
            "annotations": stands_for,
        },
        "spec": {
            "containers": [_container(pod, devices, template.image)],
            "restartPolicy": "OnFailure",
            "serviceAccountName": template.service_account,
            **copied,
        },
    }


def _container(pod: Object, devices: int, image: str) -> dict[str, Any]:
    requests = [container.get("resources", {}).get("requests") or {} for container in pod["spec"]["containers"]]
    plain = sum_resources({name: each[name] for name in _SUMMED if name in each} for each in requests)
    gpus = {names.NVIDIA_GPU: str(devices)}
    return {
        "name": "scaling-pod",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {**plain, **gpus}, "limits": gpus},
    }


def _cut(text: str, length: int) -> str:
    return text[:length].rstrip("-._")
