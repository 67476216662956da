"""An event loop in virtual time: when every task waits, its clock jumps to the first deadline.

Sleeping costs no time, and a busy machine makes nothing late. For code that reads the clock of its loop and uses no
socket, thread or process: input from outside would always come too late.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

Given = ParamSpec("Given")


class _VirtualSelector(selectors.SelectSelector):
    """Instead of waiting for a time it moves `now` there."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "every task waits, and none for a time"
            self.now += max(timeout, 0.0)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """Seconds since its beginning, none of which passes while something runs."""

    def __init__(self) -> None:
        self._virtual_selector = _VirtualSelector()
        super().__init__(self._virtual_selector)

    def time(self) -> float:
        return self._virtual_selector.now


def in_virtual_time(test: Callable[Given, Coroutine[Any, Any, None]]) -> Callable[Given, None]:
    """Run an asynchronous test on a loop of this kind."""

    @functools.wraps(test)
    def run(*arguments: Given.args, **named: Given.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*arguments, **named))

    return run
