"""Small rules of the operator: does a live object agree, is it ours, what do conditions say, who uses CDI."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykai.controllers.operator.conditions import (
    Findings,
    ObservedAt,
    Presence,
    merged,
    not_available,
    not_deployed,
    of_findings,
)
from pykai.controllers.operator.installation import read_config
from pykai.controllers.operator.object_writer import agrees, fingerprinted, must_be_recreated
from pykai.controllers.operator.observation import PrometheusProbe, fractions_not_ready, ours, uses_cdi
from tests.timeouts import TIMEOUT_SECONDS

Object = dict[str, Any]


@pytest.mark.parametrize(
    ("live", "wanted", "same"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({}, {"a": {}}, True),
        ({}, {"a": ""}, True),
        ({}, {"a": False}, False),
        ({"l": [{"x": 1, "y": 2}]}, {"l": [{"x": 1}]}, True),
        ({"l": [1, 2]}, {"l": [1]}, False),
        ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "1000m"}}, True),
        ({"requests": {"cpu": "1", "memory": "1Gi"}}, {"requests": {"cpu": "1"}}, False),
    ],
)
def test_agreement(live: Object, wanted: Object, same: bool) -> None:
    assert agrees(live, wanted) is same


def test_a_field_that_is_no_longer_wanted_changes_the_fingerprint() -> None:
    before = fingerprinted({"metadata": {"name": "x"}, "spec": {"a": 1, "b": 2}})
    after = fingerprinted({"metadata": {"name": "x"}, "spec": {"a": 1}})
    assert agrees(before, {"metadata": {"name": "x"}, "spec": {"a": 1}})
    assert not agrees(before, after)


KAI = {"kind": "SchedulingShard", "apiVersion": "kai.scheduler/v1", "controller": True, "name": "default"}


@pytest.mark.parametrize(
    ("metadata", "is_ours"),
    [
        ({}, False),
        ({"labels": {"app.kubernetes.io/managed-by": "kai-operator"}}, False),
        ({"ownerReferences": [KAI]}, True),
        ({"ownerReferences": [{**KAI, "kind": "Config"}]}, True),
        ({"ownerReferences": [{**KAI, "kind": "Queue"}]}, False),
        ({"ownerReferences": [{**KAI, "kind": "ReplicaSet", "apiVersion": "apps/v1"}]}, False),
    ],
)
def test_ownership(metadata: Object, is_ours: bool) -> None:
    assert ours({"metadata": metadata}) is is_ours


@pytest.mark.parametrize(
    ("kind", "live", "wanted", "anew"),
    [
        ("Deployment", {"spec": {"selector": 1}}, {"spec": {"selector": 1}}, False),
        ("Deployment", {"spec": {"selector": 1}}, {"spec": {"selector": 2}}, True),
        ("Secret", {"type": "Opaque"}, {"type": "kubernetes.io/tls"}, True),
        ("Service", {"spec": {"clusterIP": "10.0.0.1"}}, {"spec": {"clusterIP": "None"}}, True),
        ("Service", {"spec": {"clusterIP": "10.0.0.1"}}, {"spec": {}}, False),
        ("ConfigMap", {"data": {"a": "1"}}, {"data": {"a": "2"}}, False),
    ],
)
def test_fields_for_life(kind: str, live: Object, wanted: Object, anew: bool) -> None:
    assert must_be_recreated(live, {"kind": kind, **wanted}) is anew


@pytest.mark.parametrize(
    ("cdi", "version", "used"),
    [
        ({}, "v25.10.0", False),
        ({"enabled": True}, "v25.10.0", True),
        ({"enabled": True}, "v26.3.1", True),
        ({"enabled": True}, "v25.9.9", False),
        ({"enabled": True, "default": True}, "v24.1.0", True),
        ({"enabled": True}, "", False),
    ],
)
def test_cdi_as_the_gpu_operator_says(cdi: Object, version: str, used: bool) -> None:
    policy = {"metadata": {"labels": {"app.kubernetes.io/version": version}}, "spec": {"cdi": cdi}}
    assert uses_cdi(policy) is used


def ready(**row: str) -> list[Object]:
    return [{"type": "Ready", **row}]


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        (None, "GpuFractioningConfig default: conditions not found"),
        ([], "GpuFractioningConfig default: conditions not found"),
        ([{"type": "Other", "status": "True"}], "GpuFractioningConfig default: Ready condition not found"),
        (
            ready(status="False", reason="NoDriver", message="not here"),
            "Ready=False, reason=NoDriver, message=not here",
        ),
        (ready(status="Unknown"), "Ready=Unknown, reason=, message="),
        (ready(status="True"), ""),
    ],
)
def test_whether_gpus_can_be_shared(conditions: list[Object] | None, reason: str) -> None:
    status = {} if conditions is None else {"status": {"conditions": conditions}}
    assert fractions_not_ready({"kind": "GpuFractioningConfig", **status}) == reason


# -------------------------------------------------------------------------------------------------------- conditions
@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        (
            Findings(),
            {
                "Reconciling": (False, "reconciled", "Reconciliation completed successfully"),
                "Deployed": (True, "deployed", "Resources deployed"),
                "Available": (True, "available", "System available"),
                "DependenciesFulfilled": (True, "dependencies_fulfilled", "Dependencies are fulfilled"),
                "Ready": (True, "ready", "System is ready"),
            },
        ),
        (
            Findings(["A: not deployed"], ["A: x", "B: y"], ["P is missing Q"]),
            {
                "Deployed": (False, "deployed", "A: not deployed"),
                "Available": (False, "available", "A: x\nB: y"),
                "DependenciesFulfilled": (False, "dependencies_missing", "\nP is missing Q"),
                "Ready": (False, "not_ready", "System not ready"),
            },
        ),
        (
            Findings(database="refused"),
            {
                "Available": (
                    False,
                    "prometheus_connection_failed",
                    "Failed to ping external Prometheus: refused",
                ),
                "Ready": (False, "not_ready", "System not ready"),
            },
        ),
        (
            Findings(database=""),
            {"Available": (True, "prometheus_connected", "External Prometheus connectivity verified")},
        ),
    ],
)
def test_what_conditions_say(findings: Findings, expected: Object) -> None:
    rows = {kind: tuple(rest) for kind, *rest in of_findings(findings)}
    assert {kind: rows[kind] for kind in expected} == expected


def test_conditions_change_only_when_something_does() -> None:
    rows = [("Ready", True, "ready", "System is ready")]
    other = {"type": "Mine", "status": "True"}
    first = merged([other], rows, ObservedAt(1, 0.0))
    assert first is not None
    assert first[0] == other
    assert first[1]["lastTransitionTime"] == "1970-01-01T00:00:00Z"
    assert merged(first, rows, ObservedAt(1, 60.0)) is None
    again = merged(first, rows, ObservedAt(2, 60.0))
    assert again is not None
    assert (again[1]["observedGeneration"], again[1]["lastTransitionTime"]) == (2, "1970-01-01T00:00:00Z")
    turned = merged(first, [("Ready", False, "not_ready", "no")], ObservedAt(1, 60.0))
    assert turned is not None
    assert turned[1]["lastTransitionTime"] == "1970-01-01T00:01:00Z"


def deployed(name: str, **status: Any) -> Object:
    metadata = {"name": name, "generation": 2}
    return {"kind": "Deployment", "metadata": metadata, "spec": {"replicas": 2}, "status": status}


RUNS = {"conditions": [{"type": "Available", "status": "True"}], "updatedReplicas": 2, "observedGeneration": 2}


@pytest.mark.parametrize(
    ("status", "available"),
    [
        (RUNS, True),
        ({}, False),
        ({**RUNS, "replicas": 2}, True),
        ({**RUNS, "replicas": 3}, False),  # one of the pods from before still answers
        ({**RUNS, "updatedReplicas": 1}, False),
        ({**RUNS, "observedGeneration": 1}, False),
        ({**RUNS, "conditions": [{"type": "Available", "status": "False"}]}, False),
    ],
)
def test_when_a_deployment_is_available(status: Object, available: bool) -> None:
    live = deployed("x", **status)
    presence = Presence({("Deployment", "x"): live})
    lines = [] if available else ["Part: Deployment [x] is not available"]
    assert not_available({"Part": [deployed("x")]}, presence) == lines


def test_what_is_not_deployed() -> None:
    operands = {"A": [deployed("a")], "B": [deployed("b")], "C": [deployed("c")]}
    presence = Presence(
        {("Deployment", "a"): deployed("a"), ("Deployment", "c"): {}}, {("Deployment", "c"): "Deployment c: forbidden"}
    )
    assert not_deployed(operands, presence) == [
        "B: not deployed",
        "C: not deployed: Deployment c: forbidden",
    ]


# ------------------------------------------------------------------------------------------------- external database
async def test_an_external_database_is_looked_after() -> None:
    answers, asked, told_times = ["down", ""], [], []

    async def ping(address: str, seconds: float) -> str:
        asked.append((address, seconds))
        return answers.pop(0) if answers else ""

    probe = PrometheusProbe(ping, lambda: told_times.append(probe.outcome))
    settings = {"interval": 3600, "timeout": 3, "maxRetries": 1}
    spec = {"enabled": True, "externalPrometheusUrl": "http://p/", "externalPrometheusHealthProbe": settings}
    task = asyncio.create_task(probe.run())
    probe.set_target(read_config({"prometheus": spec}).prometheus)
    await _until(lambda: probe.outcome == "down")
    assert asked == [("http://p/api/v1/status/config", 3)]
    probe.set_target(read_config({"prometheus": {**spec, "externalPrometheusUrl": "http://q"}}).prometheus)
    await _until(lambda: probe.outcome == "")
    probe.set_target(None)
    assert probe.outcome is None
    assert told_times == ["down", ""]
    task.cancel()


async def _until(check: Any) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not check():
            await asyncio.sleep(0)
