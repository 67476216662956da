"""Config and shards as typed values: defaults come from the schemas, mistakes are named."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.config.fields import FieldError
from pykai.controllers.operator.installation import read_config, read_shard, with_defaults

SCHEMA = {
    "properties": {
        "a": {"type": "integer", "default": 1},
        "part": {"properties": {"b": {"default": "x"}, "c": {"type": "string"}}},
        "open": {"type": "object", "additionalProperties": {"properties": {"d": {"default": True}}}},
        "bare": {"type": "object"},
    }
}


@pytest.mark.parametrize(
    ("given", "complete"),
    [
        ({}, {"a": 1, "part": {"b": "x"}}),
        ({"a": 0, "part": {"c": "y"}}, {"a": 0, "part": {"b": "x", "c": "y"}}),
        ({"a": None, "open": {"k": {}}}, {"a": 1, "part": {"b": "x"}, "open": {"k": {"d": True}}}),
        ({"bare": {"free": 1}}, {"a": 1, "part": {"b": "x"}, "bare": {"free": 1}}),
    ],
)
def test_defaults_reach_absent_parts(given: dict[str, Any], complete: dict[str, Any]) -> None:
    assert with_defaults(given, SCHEMA) == complete


def test_an_empty_config_is_complete() -> None:
    config = read_config({})
    assert (config.namespace, config.shared.scheduler_name) == ("kai-scheduler", "kai-scheduler")
    assert config.binder.resource_reservation.namespace == "kai-resource-reservation"
    assert config.binder.resource_reservation.runtime_class_name is None
    assert config.admission.webhook.target_port == 9443
    assert config.queue_controller.controller_service.metrics.name == "metrics"
    assert config.numa_placement_exporter.service.enabled is None
    assert not config.prometheus.enabled


def test_a_component_without_autoscaler_has_the_global_one() -> None:
    config = read_config({"global": {"vpa": {"enabled": True}}, "binder": {"vpa": {"enabled": False}}})
    assert config.admission.vpa.enabled
    assert config.scheduler.vpa.enabled
    assert not config.binder.vpa.enabled


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"binder": {"metricsPort": "http"}}, "spec.binder.metricsPort"),
        ({"global": {"jsonLog": "yes"}}, "spec.global.jsonLog"),
        ({"admission": {"service": {"image": "x"}}}, "spec.admission.service.image"),
    ],
)
def test_a_wrong_field_is_named(spec: dict[str, Any], path: str) -> None:
    with pytest.raises(FieldError) as refusal:
        read_config(spec)
    assert refusal.value.path == path


def test_an_empty_shard_is_complete() -> None:
    shard = read_shard("default", {})
    assert (shard.spec.placement_strategy.gpu, shard.spec.placement_strategy.cpu) == ("binpack", "binpack")
    assert shard.spec.usage_db_config is None
    assert shard.spec.scenario_search_budgets == {}
