"""Resizes of running pods: what they are charged meanwhile, and which ones their queues refuse, with the texts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import json

from pykai.admission.resize import QuotaFacts, ResizeSettings, validate_resize
from pykai.objects.kinds import ABSENT, Pod, decode
from pykai.objects.pod_resize import ActualResources, ContainerStatus, effective_requests, pod_requests

Object = dict[str, Any]


def container(cpu: str, memory: str = "1Gi", name: str = "main", **more: Any) -> Object:
    return {"name": name, "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


def status(cpu: str, memory: str = "1Gi", name: str = "main", actual: str = "") -> Object:
    resources = {"resources": {"requests": {"cpu": actual, "memory": memory}}} if actual else {}
    return {"name": name, "allocatedResources": {"cpu": cpu, "memory": memory}, **resources}


def pod(*containers: Object, reason: str = "", statuses: list[Object] | None = None, **spec: Any) -> Object:
    rows = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    made: Object = {"phase": "Running", "conditions": rows}
    if statuses is not None:
        made["containerStatuses"] = statuses
    meta = {"name": "p", "namespace": "ns"}
    return {
        "metadata": meta,
        "spec": {"schedulerName": "kai-scheduler", "containers": [*containers], **spec},
        "status": made,
    }


@pytest.mark.parametrize(
    ("allocated", "actual", "infeasible", "charged"),
    [
        (None, None, False, "2"),
        ("1", "1", False, "2"),  # an upsize counts at once
        ("3", "3", False, "3"),  # a downsize counts when it is enacted
        ("2", "3", False, "3"),
        ("3", None, False, "3"),
        ("1", "1", True, "1"),
        ("1", "1500m", True, "1500m"),
        (None, None, True, "2"),
    ],
)
def test_what_a_container_is_charged(allocated: str | None, actual: str | None, infeasible: bool, charged: str) -> None:
    reported = ContainerStatus(
        allocated_resources={"cpu": allocated} if allocated else None,
        resources=ActualResources(requests={"cpu": actual}) if actual else None,
    )
    assert effective_requests({"cpu": "2", "x": "1"}, reported, infeasible) == {"cpu": charged, "x": "1"}
    assert effective_requests({"cpu": "2"}, None, infeasible) == {"cpu": "2"}


@pytest.mark.parametrize(
    ("item", "cpu"),
    [
        (pod(container("2")), "2"),
        (pod(container("2"), container("1", name="side")), "3"),
        (pod(container("2"), initContainers=[container("3", name="load")]), "3"),
        (pod(container("2"), initContainers=[container("1", name="s", restartPolicy="Always")]), "3"),
        (
            pod(
                container("1"),
                initContainers=[container("1", name="s", restartPolicy="Always"), container("4", name="l")],
            ),
            "5",
        ),
        (pod(container("2"), overhead={"cpu": "250m"}), "2250m"),
        (pod(container("2"), statuses=[status("3")]), "3"),
        (pod(container("2"), statuses=[status("1", actual="1")]), "2"),
        (pod(container("2"), statuses=[status("1", actual="1")], reason="Deferred"), "2"),
        (pod(container("2"), statuses=[status("1", actual="1")], reason="Infeasible"), "1"),
    ],
)
def test_what_a_pod_is_charged(item: Object, cpu: str) -> None:
    assert pod_requests(item, actual=True)["cpu"] == cpu


@pytest.mark.parametrize(
    ("item", "generations", "kept"),
    [
        (pod(container("2"), statuses=[status("2")]), (0, 0), False),
        (pod(container("2"), statuses=[status("2")]), (3, 3), False),
        (pod(container("2"), statuses=[status("2")]), (3, 2), True),
        (pod(container("2"), statuses=[status("2")]), (3, 0), False),  # the kubelet does not say what it has seen
        (pod(container("2"), statuses=[status("2")], reason="Deferred"), (3, 3), True),
        (pod(container("2")), (3, 2), False),
    ],
)
def test_statuses_are_kept_only_while_a_pod_may_be_resized(
    item: Object, generations: tuple[int, int], kept: bool
) -> None:
    item = json.decode(json.encode(item))
    item["metadata"]["generation"], item["status"]["observedGeneration"] = generations
    found: Pod = decode(json.encode(item), Pod)
    assert (found.status.container_statuses is not ABSENT) is kept


def queue(
    name: str, cpu: tuple[float, float] = (-1, -1), memory: tuple[float, float] = (-1, -1), **more: Any
) -> Object:
    bounds = {
        "cpu": dict(zip(("quota", "limit"), cpu, strict=True)),
        "memory": dict(zip(("quota", "limit"), memory, strict=True)),
    }
    held = {"allocated": {"cpu": "3", "memory": "2G"}, "allocatedNonPreemptible": {"cpu": "1", "memory": "1G"}}
    return {"metadata": {"name": name}, "spec": {"resources": bounds, **more}, "status": held}


def verdict(new: Object, old: Object, *queues: Object, fixed: bool = False, strict: bool = False) -> str:
    facts = QuotaFacts("pg", fixed, queues)
    return validate_resize(new, old, facts, ResizeSettings(strict=strict)).message


ONE, TWO = pod(container("1"), statuses=[status("1")]), pod(container("2"))
MORE_MEMORY = pod(container("1", "2Gi"))
REJECTED = "resize rejected: pod ns/p (PodGroup pg) "


@pytest.mark.parametrize(
    ("new", "queues", "given", "text"),
    [
        (TWO, [], {}, ""),
        (TWO, [queue("q")], {}, ""),
        (TWO, [queue("q", (0, 4000))], {}, ""),
        (
            TWO,
            [queue("q", (0, 3500))],
            {},
            "CPU upsize would push queue q Allocated (3000m + 1000m) over limit (3500m)",
        ),
        (
            TWO,
            [queue("q"), queue("top", (0, 0))],
            {},
            "CPU upsize would push queue top Allocated (3000m + 1000m) over limit (0m)",
        ),
        (
            TWO,
            [queue("q", (1500, -1))],
            {"fixed": True},
            "CPU upsize would push queue q AllocatedNonPreemptible (1000m + 1000m) over quota (1500m)",
        ),
        (TWO, [queue("q", (1500, -1))], {}, ""),
        (
            MORE_MEMORY,
            [queue("q", memory=(0, 3000))],
            {},
            "Memory upsize would push queue q Allocated (2000000000 + 1073741824 bytes) over limit (3000000000 bytes)",
        ),
        (
            MORE_MEMORY,
            [queue("q", memory=(2000, -1))],
            {"fixed": True},
            "Memory upsize would push queue q AllocatedNonPreemptible (1000000000 + 1073741824 bytes) over quota "
            "(2000000000 bytes)",
        ),
        (
            TWO,
            [queue("q", (-1, 9000))],
            {"strict": True},
            "CPU upsize not permitted on queue q with finite CPU limit (9000m)",
        ),
        (
            TWO,
            [queue("q", (9000, -1))],
            {"strict": True, "fixed": True},
            "non-preemptible CPU upsize not permitted on queue q with finite CPU quota (9000m)",
        ),
        (TWO, [queue("q", (9000, -1))], {"strict": True}, ""),
        (
            MORE_MEMORY,
            [queue("q", memory=(-1, 9000))],
            {"strict": True},
            "Memory upsize not permitted on queue q with finite Memory limit (9000000000 bytes)",
        ),
        (pod(container("500m")), [queue("q", (0, 0))], {"strict": True}, ""),  # a downsize
        (pod(container("1", "512Mi")), [queue("q", (0, 0), (0, 0))], {}, ""),
    ],
)
def test_queues_refuse_upsizes(new: Object, queues: list[Object], given: Object, text: str) -> None:
    assert verdict(new, ONE, *queues, **given) == (REJECTED + text if text else "")


def test_moving_resources_between_containers_and_what_is_charged_already_are_no_upsize() -> None:
    old = pod(container("1"), container("2", name="side"))
    new = pod(container("2"), container("1", name="side"))
    assert verdict(new, old, queue("q", (0, 0))) == ""
    pending = pod(container("1"), statuses=[status("2", actual="2")])  # a downsize that is not enacted yet
    assert verdict(TWO, pending, queue("q", (0, 0))) == ""
    assert verdict(pod(container("2500m")), pending, queue("q", (0, 3400))).endswith(
        "(3000m + 500m) over limit (3400m)"
    )


def test_pods_of_other_schedulers_and_what_is_no_pod_pass() -> None:
    other = pod(container("9"), schedulerName="default-scheduler")
    assert verdict(other, ONE, queue("q", (0, 0))) == ""
    for broken in (
        {},
        {"spec": {"schedulerName": "kai-scheduler", "containers": [3]}},
        {"spec": {"schedulerName": "kai-scheduler", "containers": [{"resources": {"requests": {"cpu": "x"}}}]}},
    ):
        assert validate_resize(broken, ONE, QuotaFacts("pg", False, [queue("q", (0, 0))]), ResizeSettings()).allowed
