"""Flags of components: how they are written, and what they become."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import pytest
import structlog
from click.testing import CliRunner

from pykai.apps import admission, node_scale_adjuster, pod_group_controller, pod_grouper, queue_controller
from pykai.apps.cli import COMMANDS, main
from pykai.apps.flags import Flag, pairs, takes
from pykai.objects import names

TABLE = (
    Flag("on", False, "A switch."),
    Flag("rate", 1.5, "A number."),
    Flag("count", 3, "A whole number."),
    Flag("word", "", "A text.", unset=True),
    Flag("short", 1, "With one dash, too.", one_dash=True),
)


@pytest.fixture(autouse=True)
def usual_logs() -> Iterator[None]:
    """Commands set up logging for their process, which here is that of all tests."""
    yield
    structlog.reset_defaults()


def given(*arguments: str, tables: Any = (TABLE,)) -> dict[str, Any]:
    """What a command with these tables is given for these arguments."""
    seen: dict[str, Any] = {}

    @click.command()
    @takes(*tables)
    def command(**values: Any) -> None:
        seen.update(values)

    result = CliRunner().invoke(command, list(arguments))
    assert result.exit_code == 0, result.output
    return seen


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"on": False, "rate": 1.5, "count": 3, "word": None}),
        (["--on"], {"on": True}),
        (["--on=false"], {"on": False}),
        (["--on=true", "--rate=2", "--count", "7"], {"on": True, "rate": 2.0, "count": 7}),
        (["--on", "--word="], {"on": True, "word": ""}),
        (["-short", "2"], {"short": 2}),
        (["-short=2"], {"short": 2}),
        (["--short=2"], {"short": 2}),
    ],
)
def test_flags_are_written_as_their_users_know_them(arguments: list[str], expected: dict[str, Any]) -> None:
    found = given(*arguments)
    assert {key: found[key] for key in expected} == expected


def test_a_flag_in_two_tables_is_refused() -> None:
    with pytest.raises(ValueError, match="flag on stands in two tables"):
        takes(TABLE, [Flag("on", True, "Again.")])


def test_pairs() -> None:
    assert pairs("a=b, c=d,", "x") == {"a": "b", "c": "d"}
    with pytest.raises(click.BadParameter, match="'a' is not of the form key=value"):
        pairs("a", "x")


def test_every_command_of_the_table_exists_and_has_help() -> None:
    for name in COMMANDS:
        result = CliRunner().invoke(main, [name, "--help"])
        assert result.exit_code == 0, f"{name}: {result.output}{result.exception!r}"


def test_the_grouper_reads_its_flags() -> None:
    found = given(
        "--scheduler-name=x",
        "--knative-gang-schedule=false",
        "--default-priorities-configmap-name=m",
        "--default-priorities-configmap-namespace=n",
        "--pod-label-selector=team=a",
        tables=(pod_grouper.FLAGS, pod_grouper.WORKERS),
    )
    settings = pod_grouper.settings_of(found)
    assert (settings.grouping.scheduler_name, settings.grouping.knative_gang) == ("x", False)
    assert settings.grouping.kind_defaults == ("n", "m")
    watched = pod_grouper.alone(settings).pods
    assert (watched.labels, watched.fields) == ("team=a", "spec.schedulerName=x")


def test_half_a_config_map_is_refused() -> None:
    found = given("--default-priorities-configmap-name=m", tables=(pod_grouper.FLAGS, pod_grouper.WORKERS))
    with pytest.raises(click.UsageError, match="must be given together"):
        pod_grouper.settings_of(found)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "nvidia"),
        (["--gpu-pod-runtime-class-name=old"], "old"),
        (["--gpu-fraction-runtime-class-name=new", "--gpu-pod-runtime-class-name=old"], "new"),
        (["--gpu-fraction-runtime-class-name="], ""),
    ],
)
def test_the_runtime_class_of_shared_gpus(arguments: list[str], expected: str) -> None:
    settings = admission.pod_settings(given(*arguments, tables=(admission.FLAGS,)))
    assert settings.fraction_runtime_class == expected
    assert not settings.gpu_sharing


def test_the_queue_controller_reads_its_labels() -> None:
    found = given(
        "--queue-label-to-metric-label=tier=priority",
        "--enable-webhook=false",
        tables=(queue_controller.FLAGS, queue_controller.WEBHOOK),
    )
    settings = queue_controller.settings_of(found)
    assert (settings.labels.names, settings.webhook) == ({"tier": "priority"}, None)


def test_the_adjuster_refuses_a_ratio_that_is_no_part() -> None:
    found = given("--gpu-memory-to-fraction-ratio=2", tables=(node_scale_adjuster.FLAGS,))
    with pytest.raises(click.BadParameter, match=r"2.0 is not in \(0, 1\]"):
        node_scale_adjuster.settings_of(found)
    settings = node_scale_adjuster.settings_of(given(tables=(node_scale_adjuster.FLAGS,)))
    assert settings.scaling.template.namespace == names.SCALING_NAMESPACE


def test_a_component_without_a_cluster_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    result = CliRunner().invoke(pod_group_controller.podgroup_controller, ["--zap-time-encoding=epoch"])
    assert result.exit_code == 1
    told, error = result.output.splitlines()
    assert "flag=--zap-time-encoding" in told
    assert error.startswith("Error: there is no kubeconfig")
