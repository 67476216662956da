"""`kai scheduler`: what its flags become, and that the component runs, is ready and shows its pages."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import click
import pytest
import structlog
from click.testing import CliRunner

from pykai.cli import scheduler as app
from pykai.cli.component import Process, run_composition
from pykai.cli.flags import CLIENT, ELECTION, takes
from pykai.config.scheduler_config import SchedulerConfig
from pykai.kube.api_resources import BIND_REQUEST
from pykai.kube.informer import InformerFactory
from pykai.model.params import SchedulerParams
from pykai.observe.metrics import WorkMetrics
from tests.timeouts import TIMEOUT_SECONDS
from tests.unit.scheduler.rig import RecordingApi, furnish, pod, submit

CHANGED = {
    "--scheduler-name=other": {"scheduler_name": "other"},
    "--partition-label-value=fast": {"node_pool": "fast"},
    "--nodepool-label-key=": {"node_pool_key": "", "partitioned": False},
    "--restrict-node-scheduling": {"restrict_nodes": True},
    "--max-consolidation-preemptees=-1": {"max_consolidation_victims": -1},
    "--default-staleness-grace-period=-1s": {"staleness_grace": -1.0},
    "--stuck-in-releasing-threshold=3m": {"stuck_in_releasing": 180.0},
    "--full-hierarchy-fairness=false": {"full_hierarchy_fairness": False},
    "--update-pod-eviction-condition=true": {"update_eviction_condition": True},
    "--schedule-csi-storage": {"schedule_csi_storage": True},
    "--detailed-fit-errors": {"detailed_fit_errors": True},
    "--gpu-worker-node-label-key=g": {"gpu_worker_key": "g"},
    "--resource-reservation-app-label=r": {"reservation_app": "r"},
}


@pytest.fixture(autouse=True)
def usual_logs() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def given(*arguments: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    @click.command()
    @takes(app.FLAGS, ELECTION, CLIENT)
    def command(**values: Any) -> None:
        seen.update(values)

    result = CliRunner().invoke(command, list(arguments))
    assert result.exit_code == 0, result.output
    return seen


def test_without_flags_everything_is_as_documented() -> None:
    settings = app.settings_of(given())
    assert settings.options.params == SchedulerParams()
    assert (settings.options.debounce.period, settings.status_workers, settings.plugin_port) == (1.0, 5, 8081)
    process = app.process_of(given())
    assert (process.metrics_address, process.lease, process.client.qps) == (":8080", "", 50.0)


@pytest.mark.parametrize(("flag", "expected"), CHANGED.items())
def test_a_flag_changes_its_parameter_and_no_other(flag: str, expected: dict[str, Any]) -> None:
    assert app.settings_of(given(flag)).options.params == SchedulerParams(**expected)


@pytest.mark.parametrize(
    ("arguments", "lease"),
    [
        (["--leader-elect"], "kai-scheduler"),
        (["--leader-elect", "--partition-label-value=fast"], "kai-scheduler-fast"),
        (["--leader-elect", "--partition-label-value=A100_80GB"], "kai-scheduler-a100-80gb-a38ea2f4"),
    ],
)
def test_the_lease_of_a_shard(arguments: list[str], lease: str) -> None:
    process = app.process_of(given(*arguments, "--namespace=system"))
    assert (process.lease, process.namespace) == (lease, "system")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schedule-period=soon"], "Invalid value for --schedule-period: 'soon' is not a duration"),
        (["--schedule-period=0s"], "Invalid value for --schedule-period: must be positive"),
        (["--scheduler-conf=no-such-file"], "Invalid value for --scheduler-conf:"),
        (["--no-such-flag"], "No such option '--no-such-flag'"),
        (["--listen-address=8080"], "Invalid value for '--listen-address': '8080' is not an address to listen on"),
        (["--plugin-server-port=80800"], "Invalid value for '--plugin-server-port': 80800 is not a port"),
        (["--num-of-status-recording-workers=0"], "must be at least 1, not 0"),
        (["--metrics-namespace=my metrics"], "'my metrics' is not a valid prefix of metric names"),
        (["--burst=0"], "Invalid value for '--burst': must be at least 1, not 0"),
        (["--qps=nan"], "Invalid value for '--qps': nan is not a finite number"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app.scheduler, arguments)
    assert result.exit_code == 2
    assert message in result.output.replace("'--schedule-period'", "--schedule-period")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("actions: allocate, dance\n", "actions: failed to find Action dance as given in the config"),
        ("tiers: [{plugins: [{name: nosuch}]}]\n", "tiers[0].plugins[0]: plugin 'nosuch' does not exist"),
        ("usageDBConfig: {clientType: oracle}\n", "usageDBConfig.clientType: unknown client type: oracle"),
        (
            "usageDBConfig: {clientType: prometheus, connectionStringEnvVar: NO_SUCH_VARIABLE}\n",
            "usageDBConfig.connectionStringEnvVar: NO_SUCH_VARIABLE is not set",
        ),
        ("actions: reclaim\nactions: allocate\n", "not YAML: line 2, column 1: key 'actions' is written twice"),
        ("actions:\n\t- allocate\n", "not YAML: line 2, column 1: a tab: indent with spaces"),
        ("actions: reclaim\n---\nactions: allocate\n", "expected one YAML document, got 2"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_path(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(text)
    result = CliRunner().invoke(app.scheduler, [f"--scheduler-conf={path}"])
    assert result.exit_code == 2
    assert message in result.output


def test_what_the_configuration_asks_for_in_vain_is_logged(tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text("tiers: [{plugins: [{name: nodeplacement, arguments: {GPU: spread}}]}]")
    with structlog.testing.capture_logs() as lines:
        app.check_config(app.config_of(str(path)))
    assert [(line["log_level"], line["note"]) for line in lines] == [
        (
            "warning",
            "tiers[0].plugins[0].arguments.GPU: plugin nodeplacement has no such argument (known: cpu, gpu): "
            "it has no effect",
        )
    ]


def test_less_than_no_limit_is_no_limit() -> None:
    given = app.scheduler.make_context("scheduler", ["--qps=-1"]).params
    assert app.process_of(given).client.qps == 0


def test_every_flag_of_the_table_has_help_or_says_why_not() -> None:
    assert [flag.name for flag in app.FLAGS if not flag.help and not flag.ineffective] == []


async def test_the_component_schedules_and_shows_itself() -> None:
    api = RecordingApi()
    await furnish(api)
    await submit(api, pod("a"))
    settings = app.SchedulerSettings(plugin_port=0)
    with structlog.testing.capture_logs() as logged:
        process = Process("scheduler", metrics_address="127.0.0.1:0", health_address="0")
        task = asyncio.create_task(run_composition(api, process, partial(app.compose, settings)))
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not (await api.list(BIND_REQUEST, dict)).items:
                await asyncio.sleep(0.01)
            pages = next(line["port"] for line in logged if line["event"] == "serving")
            address = next(line["address"] for line in logged if line["event"] == "debug server started")
            async with aiohttp.ClientSession() as session:
                ready = await session.get(f"http://127.0.0.1:{pages}/readyz")
                assert (ready.status, await ready.text()) == (200, "ok")
                metrics = await (await session.get(f"http://127.0.0.1:{pages}/metrics")).text()
                assert re.search(r'kai_podgroups_scheduled_by_action\{action="allocate"\} 1', metrics)
                assert 'kai_queue_fair_share_gpu{queue_display_name="test"' in metrics
                assert (await session.get(f"http://{address}/get-snapshot")).status == 200
                assert (await session.get(f"http://{address}/get-job-order")).status == 404
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    scheduled = next(line for line in logged if line["event"] == "pod scheduled")
    assert (scheduled["pod"], scheduled["node"], scheduled["gpus"]) == ("team/a", "node-0", 1.0)


async def test_past_use_counts_where_it_is_configured() -> None:
    api = RecordingApi()
    await furnish(api)
    await submit(api, pod("a"))
    usage = {"clientType": "fake", "usageParams": {"waitTimeout": "1s"}}
    settings = app.SchedulerSettings(config=SchedulerConfig(usage_db=usage), plugin_port=None)
    watches = InformerFactory(api)
    composed = app.compose(settings, api, watches, WorkMetrics())
    assert [part.name for part in composed.parts] == ["scheduler", "memory", "scheduler-usage"]
    tasks = [asyncio.create_task(part.run(asyncio.Event())) for part in composed.parts]
    tasks.append(asyncio.create_task(watches.run()))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (await api.list(BIND_REQUEST, dict)).items:
            await asyncio.sleep(0.01)
    assert b"kai_usage_query_latency_milliseconds_count 1.0" in composed.metrics[0]()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
