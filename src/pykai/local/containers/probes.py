"""Probes: a container is asked at intervals, and what it answers often enough in a row counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec

Object = dict[str, Any]


class Rhythm(msgspec.Struct, frozen=True, rename="camel"):
    """When to ask, and how many equal answers count; Kubernetes' defaults."""

    initial_delay_seconds: float = 0
    period_seconds: float = 10
    timeout_seconds: float = 1
    success_threshold: int = 1
    failure_threshold: int = 3


def address_of(probe: Object, container: Object, host: str) -> str:
    """The URL a probe asks on `host`; ValueError for a probe that is none of HTTP."""
    asked = probe.get("httpGet")
    if asked is None:
        raise ValueError(f"container {container['name']}: only httpGet probes are supported here")
    ports = {port.get("name"): port["containerPort"] for port in container.get("ports") or ()}
    port = ports.get(asked["port"], asked["port"])
    return f"{asked.get('scheme', 'HTTP').lower()}://{host}:{port}{asked.get('path', '/')}"


async def answers(url: str, seconds: float) -> bool:
    """Whether a GET is answered well and in time."""
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, ssl=False) as answer:
            return 200 <= answer.status < 400
    except (TimeoutError, aiohttp.ClientError):
        return False


async def follow(rhythm: Rhythm, ask: Callable[[], Awaitable[bool]], tell: Callable[[bool], None]) -> None:
    """Ask until cancelled, and `tell` each time enough equal answers came in a row."""
    await asyncio.sleep(rhythm.initial_delay_seconds)
    last, streak = False, 0
    while True:
        good = await ask()
        last, streak = good, streak + 1 if good == last else 1
        if streak == (rhythm.success_threshold if good else rhythm.failure_threshold):
            tell(good)
        await asyncio.sleep(rhythm.period_seconds)
