"""The pod status that a kubelet writes, as strategic merge patches that keep the conditions of other writers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from pykai.hollow.hollow_node import HOST, pod_ip
from pykai.hollow.kubelet_settings import seconds_span
from pykai.kube.api import Object

EXIT_CODE = "pykai.io/exit-code"

_STOPPED_BY_SIGNAL = 143
_LARGEST_CODE = 255


def conditions(rows: Mapping[str, tuple[bool, str]], now: str) -> list[Object]:
    """Return conditions as of `now`, from (status, reason) by type."""
    return [
        {"type": kind, "status": str(holds), "lastTransitionTime": now, **({"reason": reason} if reason else {})}
        for kind, (holds, reason) in rows.items()
    ]


def container_status(uid: str, spec: Object, state: Object, restarts: int) -> Object:
    """Return the status of a container in `state` after `restarts` restarts; it is ready if it runs."""
    running = "running" in state
    name, image = str(spec["name"]), str(spec.get("image", ""))
    digest = hashlib.sha256(f"{uid}/{name}/{restarts}".encode()).hexdigest()
    return {
        "name": name,
        "image": image,
        "imageID": f"hollow://{image}",
        "containerID": f"hollow://{digest}",
        "ready": running,
        "started": running,
        "restartCount": restarts,
        "state": state,
    }


def exited(code: int, started: str, now: str) -> Object:
    """Return the state of a container that has ended with `code`."""
    reason = "Completed" if code == 0 else "Error"
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now}}


def _init_statuses(pod: Object, now: str, *, over: bool) -> list[Object]:
    """Return the statuses of init containers: ordinary ones have completed, sidecars run as long as the pod."""
    uid = pod["metadata"]["uid"]
    running: Object = {"running": {"startedAt": now}}
    return [
        container_status(
            uid, spec, running if spec.get("restartPolicy") == "Always" and not over else exited(0, now, now), 0
        )
        for spec in pod["spec"].get("initContainers") or ()
    ]


def _container_statuses(pod: Object, state: Object, restarts: int) -> list[Object]:
    uid = pod["metadata"]["uid"]
    return [container_status(uid, spec, state, restarts) for spec in pod["spec"].get("containers") or ()]


def scheduled(pod: Object) -> dict[str, tuple[bool, str]]:
    """Return PodScheduled for a pod that was created with a node name: no scheduler has set it."""
    known = {condition["type"] for condition in (pod.get("status") or {}).get("conditions") or ()}
    return {} if "PodScheduled" in known else {"PodScheduled": (True, "")}


def pod_addresses(pod: Object) -> Object:
    """Return the addresses of the pod and its node."""
    address = pod_ip(pod["metadata"]["uid"])
    return {"hostIP": HOST, "hostIPs": [{"ip": HOST}], "podIP": address, "podIPs": [{"ip": address}]}


def running(pod: Object, now: str, restarts: int = 0) -> Object:
    """Return the status of a pod whose containers run since `now`, after `restarts` restarts."""
    ready = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    status: Object = {
        "phase": "Running",
        **pod_addresses(pod),
        "conditions": conditions(scheduled(pod) | dict.fromkeys(ready, (True, "")), now),
        "containerStatuses": _container_statuses(pod, {"running": {"startedAt": now}}, restarts),
        "initContainerStatuses": _init_statuses(pod, now, over=False),
    }
    if "startTime" not in (pod.get("status") or {}):
        status["startTime"] = now
    return {"status": status}


def ended(pod: Object, code: int, started: str, now: str) -> Object:
    """Return the status of a pod whose containers have ended with `code`: Succeeded (0) or Failed."""
    reason = "PodCompleted" if code == 0 else "PodFailed"
    rows = {"PodReadyToStartContainers": (False, ""), "Initialized": (True, reason if code == 0 else "")}
    rows |= {"Ready": (False, reason), "ContainersReady": (False, reason)}
    return {
        "status": {
            "phase": "Succeeded" if code == 0 else "Failed",
            "conditions": conditions(rows, now),
            "containerStatuses": _container_statuses(pod, exited(code, started, now), 0),
            "initContainerStatuses": _init_statuses(pod, started, over=True),
        }
    }


def stopped(pod: Object, started: str, now: str) -> Object:
    """Return the status of a deleted pod whose containers ended at SIGTERM."""
    return ended(pod, _STOPPED_BY_SIGNAL, started, now)


def waiting_to_restart(pod: Object, code: int, now: str, restarts: int) -> Object:
    """Return the status of a pod whose containers ended with `code` and will be restarted."""
    state: Object = {"waiting": {"reason": "CrashLoopBackOff" if code else "Completed"}}
    rows = {"Ready": (False, "ContainersNotReady"), "ContainersReady": (False, "ContainersNotReady")}
    statuses = _container_statuses(pod, state, restarts)
    return {"status": {"conditions": conditions(rows, now), "containerStatuses": statuses}}


def refused(reason: str, message: str) -> Object:
    """Return the status of a pod that the kubelet rejected."""
    return {"status": {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}"}}


def is_over(pod: Object) -> bool:
    """Whether the pod has finished (Succeeded or Failed)."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def annotated_seconds(pod: Object, key: str) -> float | None:
    """Return the seconds in an annotation, a range drawn by the pod's uid; None if absent; ValueError if invalid."""
    text = (pod["metadata"].get("annotations") or {}).get(key)
    if text is None:
        return None
    try:
        return seconds_span(text).draw(f"{pod['metadata'].get('uid', '')}/{key}")
    except ValueError as error:
        raise ValueError(f"annotation {key}: {error}") from error


def exit_code(pod: Object) -> int:
    """Return the exit code of the containers, 0 unless annotated; ValueError names the annotation."""
    text = (pod["metadata"].get("annotations") or {}).get(EXIT_CODE, "0")
    if not text.isdecimal() or int(text) > _LARGEST_CODE:
        raise ValueError(f"annotation {EXIT_CODE}: {text!r} is not a number from 0 to {_LARGEST_CODE}")
    return int(text)


def is_job_pod(pod: Object) -> bool:
    """Whether a Job controls the pod."""
    owners: Sequence[Object] = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("kind") == "Job" and owner.get("apiVersion") == "batch/v1" for owner in owners)
