"""In-place pod resize: the requests that are charged for a container while its resources change.

Per container and resource, before summing:

    no resize, pending, deferred or in progress    the largest of spec, status.allocatedResources and status.resources
    infeasible                                      the larger of the two of the status

So an upsize counts from the request on, and a downsize only once the kubelet has actuated it. `kinds.Pod` keeps
container statuses only while a resize may be in progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import Raw, json

from pykai.objects.schema import Kind
from pykai.objects.units import parse_quantity, sum_resources

Amount = str | int | float
A = TypeVar("A", bound=Amount)
ResourceList = Mapping[str, Amount]
PENDING: Final = "PodResizePending"
IN_PROGRESS: Final = "PodResizeInProgress"
INFEASIBLE: Final = "Infeasible"
_SIDECAR_RESTART_POLICY: Final = "Always"


class ActualResources(Kind, frozen=True):
    requests: dict[str, Amount] | None = None


class ContainerStatus(Kind, frozen=True):
    name: str = ""
    allocated_resources: dict[str, Amount] | None = None
    resources: ActualResources | None = None


def read_statuses(*lists: Raw) -> dict[str, ContainerStatus]:
    """Decode container statuses, by container name."""
    decoded = [json.decode(each, type=list[ContainerStatus] | None) or [] for each in lists if bytes(each)]
    return {status.name: status for statuses in decoded for status in statuses}


def effective_requests(spec: ResourceList | None, status: ContainerStatus | None, infeasible: bool) -> ResourceList:
    """Return the charged requests of a container; `spec`: its requests; `status`: None before it has started."""
    requests = spec or {}
    reported = [] if status is None else [status.allocated_resources or {}]
    if status is not None and status.resources is not None:
        reported.append(status.resources.requests or {})
    if not any(reported):
        return requests
    charged = _largest(reported if infeasible else [requests, *reported])
    return {**{name: text for name, text in requests.items() if name not in charged}, **charged}


# ------------------------------------------------------------------------------------------------ pods as JSON has them
def pod_requests(pod: Mapping[str, Any], *, actual: bool) -> dict[str, str]:
    """Return the charged requests of a pod: its overhead plus the larger of containers' sum and init containers' need.

    `actual`: consider a resize in the status; otherwise only the spec.
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    statuses = _statuses(status) if actual else {}
    infeasible = actual and is_infeasible(status)

    def charged(container: Mapping[str, Any]) -> ResourceList:
        # Requests default to limits, as in the API server.
        resources = container.get("resources") or {}
        requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        reported = statuses.get(container.get("name") or "")
        return effective_requests(requests, reported, infeasible) if reported else requests

    init = spec.get("initContainers") or ()
    sidecars: list[ResourceList] = []
    steps: list[dict[str, str]] = []
    for container in init:
        if container.get("restartPolicy") == _SIDECAR_RESTART_POLICY:
            sidecars.append(charged(container))
        else:
            steps.append(sum_resources([*sidecars, charged(container)]))
    running = sum_resources([*sidecars, *(charged(each) for each in spec.get("containers") or ())])
    overhead = spec.get("overhead")
    largest = _largest([running, *steps]) if steps else running
    return sum_resources([largest, overhead]) if overhead else largest


def is_infeasible(status: Mapping[str, Any]) -> bool:
    """Whether the kubelet reports the resize as infeasible, which holds for all of its changes."""
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    pending = [row for row in conditions if row.get("type") == PENDING and row.get("status", "True") == "True"]
    return any(row.get("reason") == INFEASIBLE for row in pending) or status.get("resize") == INFEASIBLE


def _statuses(status: Mapping[str, Any]) -> dict[str, ContainerStatus]:
    listed = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return {
        each.get("name") or "": ContainerStatus(
            allocated_resources=each.get("allocatedResources"),
            resources=ActualResources(requests=(each.get("resources") or {}).get("requests")),
        )
        for each in listed
    }


def _largest(lists: Iterable[Mapping[str, A]]) -> dict[str, A]:
    """Return the largest amount of each resource in the lists."""
    largest: dict[str, A] = {}
    for each in lists:
        for name, text in each.items():
            if name not in largest or parse_quantity(text) > parse_quantity(largest[name]):
                largest[name] = text
    return largest
