"""Flags of components: how they are written, and what they become."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import structlog
from click.testing import CliRunner

from pykai.cli import admission, node_scale_adjuster, podgroup_controller, podgrouper, queue_controller
from pykai.cli import all as everything
from pykai.cli.admission import WEBHOOK
from pykai.cli.flags import WORKERS, Flag, pairs, takes
from pykai.cli.main import COMMANDS, main
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


REFUSED = [
    ("binder", "--metrics-bind-address=foo", "'--metrics-bind-address': 'foo' is not an address to listen on"),
    ("binder", "--max-concurrent-reconciles=0", "'--max-concurrent-reconciles': must be at least 1, not 0"),
    ("binder", '--resource-reservation-pod-resources={"request": {}}', "unknown field 'request'"),
    ("binder", '--resource-reservation-pod-resources={"limits": {"cpu": "x"}}', "limits.cpu: 'x' is not a quantity"),
    ("binder", '--resource-reservation-pod-resources={"limits": {"cpu": -1}}', "limits.cpu: -1 is negative"),
    ("queue-controller", "--webhook-addr=-1", "'--webhook-addr': -1 is not a port"),
    ("queue-controller", "--metrics-namespace=a-b", "'a-b' is not a valid prefix of metric names"),
    ("queue-controller", "--queue-label-to-metric-label=a=b c", "'b c' is not a valid metric label"),
    ("queue-controller", "--queue-label-to-metric-label=a=b,c=b", "label 'b' is used twice"),
    ("queue-controller", "--queue-label-to-metric-label=a=queue_name", "label 'queue_name' is used twice"),
    ("upgrade", "--timeout-seconds=-1", "'--timeout-seconds': must be at least 0, not -1"),
    ("numa-placement-exporter", "--poll-interval=0s", "'--poll-interval': must be longer than 0s"),
    ("numa-placement-exporter", "--poll-interval=often", "'--poll-interval': 'often' is not a duration"),
    ("numa-placement-exporter", "--drift-resync-interval=-1s", "'--drift-resync-interval': must be at least 0s"),
    ("podgrouper", "--qps=nan", "'--qps': nan is not a finite number"),
]


@pytest.mark.parametrize(("component", "argument", "message"), REFUSED)
def test_values_that_would_fail_later_are_refused_at_once(component: str, argument: str, message: str) -> None:
    result = CliRunner().invoke(main, [component, argument])
    assert result.exit_code == 2
    assert message in result.output


def test_everything_in_one_process_installs_nothing_before_its_configuration_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(everything, "install", lambda api: pytest.fail("nothing should be installed"))
    path = tmp_path / "conf.yaml"
    path.write_text("tiers: [{plugins: [{name: nosuch}]}]")
    result = CliRunner().invoke(main, ["all", "--install", f"--scheduler-conf={path}"])
    assert result.exit_code == 2
    assert "tiers[0].plugins[0]: plugin 'nosuch' does not exist" in result.output


def test_a_flag_in_two_tables_is_refused() -> None:
    with pytest.raises(ValueError, match="flag on is in two tables"):
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
        tables=(podgrouper.FLAGS, WORKERS),
    )
    settings = podgrouper.settings_of(found)
    assert (settings.grouping.scheduler_name, settings.grouping.knative_gang) == ("x", False)
    assert settings.grouping.kind_defaults == ("n", "m")
    watched = podgrouper.with_selectors(settings).pods
    assert (watched.labels, watched.fields) == ("team=a", "spec.schedulerName=x")


def test_half_a_config_map_is_refused() -> None:
    found = given("--default-priorities-configmap-name=m", tables=(podgrouper.FLAGS, WORKERS))
    with pytest.raises(click.UsageError, match="must be given together"):
        podgrouper.settings_of(found)


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
        tables=(queue_controller.FLAGS, WEBHOOK),
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
    result = CliRunner().invoke(podgroup_controller.podgroup_controller, ["--zap-time-encoding=epoch"])
    assert result.exit_code == 1
    told, error = result.output.splitlines()
    assert "flag=--zap-time-encoding" in told
    assert error.startswith("Error: there is no kubeconfig")
