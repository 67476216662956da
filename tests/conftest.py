"""What holds for every test: logging is as in a fresh process, and no example of a property has a time limit.

A test or module marked `virtual_time` runs on the event loop of `kai simulate`: sleeping takes no time, and nothing is
late. Its code reads the clock of its loop and uses no socket, thread or process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
import structlog
from hypothesis import settings

from pykai.simulate.loop import VirtualLoop

settings.register_profile("pykai", deadline=None)  # a machine that is busy with other things proves nothing
settings.load_profile("pykai")


def pytest_runtest_setup(item: pytest.Item) -> None:
    structlog.reset_defaults()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of a test: in virtual time, whose wall clock begins at the present, or a real one."""
    if item.get_closest_marker("virtual_time"):
        return {"virtual": lambda: VirtualLoop(time.time())}
    return {"real": asyncio.new_event_loop}
