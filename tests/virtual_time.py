"""For tests marked `virtual_time`: let tasks run, let time pass, and give retries a jitter that is known."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

from pykai.simulate.loop import VirtualLoop


async def settle(turns: int = 50) -> None:
    """Let every task run until it waits for something outside."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def advance(seconds: float) -> None:
    """Let time pass, and let every task do what it then can."""
    await settle()
    await asyncio.sleep(seconds)
    await settle()


def set_jitter(value: float) -> None:
    """Let the clock of the running loop draw this number each time."""
    loop = cast(VirtualLoop, asyncio.get_running_loop())
    loop.clock = replace(loop.clock, jitter=lambda: value)
