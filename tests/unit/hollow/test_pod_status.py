"""What a kubelet writes into a pod's status."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import pytest

from pykai.hollow import pod_status
from pykai.hollow.hollow_node import pod_ip
from pykai.hollow.kubelet_settings import ContainerLog, LogOptions, PodLog
from pykai.local.kubelet import log_options, serving
from pykai.objects import names
from tests.timeouts import TIMEOUT_SECONDS

NOW, LATER = "2030-01-01T00:00:00Z", "2030-01-01T00:01:00Z"


def pod(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {
            "containers": [{"name": "main", "image": "ubuntu"}],
            "initContainers": [{"name": "prepare"}, {"name": "proxy", "restartPolicy": "Always"}],
        },
        "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]},
    }
    for key, value in changes.items():
        base[key] = {**base[key], **value}
    return base


def by_type(status: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status["status"]["conditions"]}


def states(status: dict[str, Any], key: str) -> dict[str, str]:
    return {row["name"]: next(iter(row["state"])) for row in status["status"][key]}


def test_running() -> None:
    patch = pod_status.running(pod(), NOW)
    status = patch["status"]
    assert status["phase"] == "Running"
    assert status["startTime"] == NOW
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    expected = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    assert by_type(patch) == dict.fromkeys(expected, "True")
    assert states(patch, "containerStatuses") == {"main": "running"}
    assert states(patch, "initContainerStatuses") == {"prepare": "terminated", "proxy": "running"}
    assert status["containerStatuses"][0]["image"] == "ubuntu"


def test_a_pod_made_on_its_node_is_scheduled_by_its_kubelet() -> None:
    assert by_type(pod_status.running(pod(status={"conditions": []}), NOW))["PodScheduled"] == "True"


def test_restart_keeps_the_start_time() -> None:
    status = pod_status.running(pod(status={"startTime": NOW}), LATER, restarts=2)["status"]
    assert "startTime" not in status
    assert status["containerStatuses"][0]["restartCount"] == 2


@pytest.mark.parametrize(("code", "phase", "word"), [(0, "Succeeded", "Completed"), (7, "Failed", "Error")])
def test_ended(code: int, phase: str, word: str) -> None:
    patch = pod_status.ended(pod(), code, NOW, LATER)
    assert patch["status"]["phase"] == phase
    ended = patch["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended == {"exitCode": code, "reason": word, "startedAt": NOW, "finishedAt": LATER}
    assert by_type(patch)["Ready"] == "False"
    assert states(patch, "initContainerStatuses")["proxy"] == "terminated"


def test_stopped_is_the_end_by_sigterm() -> None:
    status = pod_status.stopped(pod(), NOW, LATER)["status"]
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


def test_refused() -> None:
    status = pod_status.refused("OutOfcpu", "too much")["status"]
    assert status == {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: too much"}


TIMES = [(None, None), ("0", 0.0), ("2.5", 2.5), ("forever", float("inf")), ("-1", ValueError), ("soon", ValueError)]


@pytest.mark.parametrize(("text", "value"), TIMES)
def test_annotated_seconds(text: str | None, value: float | type[Exception] | None) -> None:
    annotations = {} if text is None else {names.RUN_SECONDS: text}
    given = pod(metadata={"annotations": annotations})
    if isinstance(value, type):
        with pytest.raises(value, match=r"annotation pykai\.io/run-seconds"):
            pod_status.annotated_seconds(given, names.RUN_SECONDS)
    else:
        assert pod_status.annotated_seconds(given, names.RUN_SECONDS) == value


def test_a_range_of_seconds_is_drawn_by_the_pod() -> None:
    def drawn(uid: str) -> float:
        found = pod_status.annotated_seconds({"metadata": {"uid": uid, "annotations": {"x": "10-90"}}}, "x")
        assert found is not None
        return found

    assert 10 <= drawn("a") == drawn("a") <= 90
    assert len({drawn(uid) for uid in "abcd"}) == 4


@pytest.mark.parametrize(("text", "code"), [(None, 0), ("0", 0), ("7", 7), ("256", None), ("-1", None), ("x", None)])
def test_exit_code(text: str | None, code: int | None) -> None:
    given = pod(metadata={"annotations": {} if text is None else {pod_status.EXIT_CODE: text}})
    if code is None:
        with pytest.raises(ValueError, match=r"annotation pykai\.io/exit-code"):
            pod_status.exit_code(given)
    else:
        assert pod_status.exit_code(given) == code


@pytest.mark.parametrize(
    ("owners", "is_job"),
    [
        ([{"apiVersion": "batch/v1", "kind": "Job"}], True),
        ([{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}], False),
        ([{"apiVersion": "apps/v1", "kind": "ReplicaSet"}], False),
        ([], False),
    ],
)
def test_is_job_pod(owners: list[dict[str, str]], is_job: bool) -> None:
    assert pod_status.is_job_pod(pod(metadata={"ownerReferences": owners})) is is_job


def test_addresses_are_of_the_pod_network() -> None:
    addresses = {pod_ip(str(number)) for number in range(100)}
    assert len(addresses) > 95
    assert all(128 <= int(address.split(".")[1]) <= 255 for address in addresses)


async def collect(log: PodLog, wish: LogOptions) -> list[str]:
    return [text.rstrip("\n") async for text in log.read(wish)]


@pytest.mark.parametrize(
    ("tail", "expected"), [(None, ["a", "b", "c"]), (2, ["b", "c"]), (0, []), (9, ["a", "b", "c"])]
)
async def test_tail(tail: int | None, expected: list[str]) -> None:
    log = PodLog()
    log.write("a\nb")
    log.write("c")
    assert await collect(log, LogOptions(tail=tail)) == expected


async def test_since_and_timestamps() -> None:
    log = PodLog()
    log.write("old")
    await asyncio.sleep(0.01)
    middle = time.time()
    log.write("new")
    (line,) = await collect(log, LogOptions(since=middle, timestamps=True))
    assert line.endswith("Z new")


async def test_follow_sees_every_line_once_and_ends_with_the_pod() -> None:
    log = PodLog()
    log.write("before")
    reader = asyncio.create_task(collect(log, LogOptions(follow=True)))
    for number in range(5):
        await asyncio.sleep(0)
        log.write(str(number))
    log.write("last")
    log.close()
    assert await asyncio.wait_for(reader, TIMEOUT_SECONDS) == ["before", "0", "1", "2", "3", "4", "last"]


@pytest.mark.parametrize(
    ("query", "wish"),
    [
        ({}, LogOptions()),
        ({"tailLines": "3", "follow": "true", "timestamps": "true"}, LogOptions(3, 0.0, follow=True, timestamps=True)),
        ({"sinceTime": "1970-01-01T00:01:00Z"}, LogOptions(since=60.0)),
    ],
)
def test_log_options(query: dict[str, str], wish: LogOptions) -> None:
    assert log_options(query) == wish


async def test_served_with_tls() -> None:
    log = ContainerLog()
    log.current.write("first run")
    log.begin()
    log.current.write("hello")
    logs = {("team", "pod", "main", False): log.current, ("team", "pod", "main", True): log.previous}
    expected = {
        "team/pod/main": (200, "hello\n"),
        "team/pod/main?previous=true": (200, "first run\n"),
        "team/other/main": (400, "there is no container 'main' of pod team/other here\n"),
        "team/pod/side?previous=true": (400, "there is no previous run of container 'side' of pod team/pod here\n"),
        "team/pod/main?tailLines=x": (400, "invalid literal for int() with base 10: 'x'\n"),
    }
    async with serving(lambda *asked: logs.get(asked)) as port, aiohttp.ClientSession() as session:
        for path, wanted in expected.items():
            async with session.get(f"https://127.0.0.1:{port}/containerLogs/{path}", ssl=False) as answer:
                assert (answer.status, await answer.text()) == wanted
