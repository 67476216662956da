"""Logs of hollow pods, in memory and over the kubelet's door."""

from __future__ import annotations

import asyncio
import time

import aiohttp
import pytest

from pykai.hollow.pod_log import ContainerLog, PodLog, Wish
from pykai.local.kubelet_server import log_options, serving
from tests.timeouts import TIMEOUT_SECONDS


async def collect(log: PodLog, wish: Wish) -> list[str]:
    return [text.rstrip("\n") async for text in log.read(wish)]


@pytest.mark.parametrize(
    ("tail", "expected"), [(None, ["a", "b", "c"]), (2, ["b", "c"]), (0, []), (9, ["a", "b", "c"])]
)
async def test_tail(tail: int | None, expected: list[str]) -> None:
    log = PodLog()
    log.write("a\nb")
    log.write("c")
    assert await collect(log, Wish(tail=tail)) == expected


async def test_since_and_timestamps() -> None:
    log = PodLog()
    log.write("old")
    await asyncio.sleep(0.01)
    middle = time.time()
    log.write("new")
    (line,) = await collect(log, Wish(since=middle, timestamps=True))
    assert line.endswith("Z new")


async def test_follow_sees_every_line_once_and_ends_with_the_pod() -> None:
    log = PodLog()
    log.write("before")
    reader = asyncio.create_task(collect(log, Wish(follow=True)))
    for number in range(5):
        await asyncio.sleep(0)
        log.write(str(number))
    log.write("last")
    log.close()
    assert await asyncio.wait_for(reader, TIMEOUT_SECONDS) == ["before", "0", "1", "2", "3", "4", "last"]


@pytest.mark.parametrize(
    ("query", "wish"),
    [
        ({}, Wish()),
        ({"tailLines": "3", "follow": "true", "timestamps": "true"}, Wish(3, 0.0, follow=True, timestamps=True)),
        ({"sinceTime": "1970-01-01T00:01:00Z"}, Wish(since=60.0)),
    ],
)
def test_log_options(query: dict[str, str], wish: Wish) -> None:
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
