"""Node scale adjuster: devices that waiting pods need and that scaling pods ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykai.controllers.node_scale import ScalingPodTemplate, ScalingSettings, devices_needed, devices_of, waiting_shares
from tests.conformance.cases import choose

Case = dict[str, Any]


def needed(given: Case) -> Case:
    ratio = given["config"].get("gpu_memory_to_fraction_ratio", 0.0)
    settings = ScalingSettings(ScalingPodTemplate("image"), gpu_memory_to_fraction_ratio=ratio)
    shares = waiting_shares(given["unschedulable_pods"] or [], settings)
    return {"result": devices_needed(shares.values()), "pods": [name for _, name in shares]}


def scaling_devices(given: Case) -> list[int]:
    return [devices_of(pod) for pod in given["scaling_pods"] or []]


OPERATIONS: dict[str, Callable[[Case], Case]] = {
    "scale_adjuster.calculator.calculateNumNeededDevices": needed,
    "scale_adjuster.calculator.calculateNumScalingDevices": lambda given: {"result": sum(scaling_devices(given))},
    "scale_adjuster.calculator.calculateMaxScalingDevices": lambda given: {
        "result": max(scaling_devices(given), default=0)
    },
}


def node_scale(case: Case, _document: Case) -> list[str]:
    got = choose(OPERATIONS, case["function"])(case["input"])
    expected = case["expected"]
    if "pods" in expected:
        expected, got = {**expected, "pods": sorted(expected["pods"])}, {**got, "pods": sorted(got["pods"])}
    return [] if got == expected else [f"got {got}, expected {expected}"]


SUITES = {"controllers/node_scale_adjuster": node_scale}
