"""An event loop whose time jumps: when every task waits, it is at once as late as the first of them waits for.

What takes seconds takes none, and a busy machine makes nothing late. For code that asks the loop for the time and talks
to no socket, thread or process: what comes from outside would always come too late.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

Given = ParamSpec("Given")


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting for a time it moves `now` there."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "every task waits, and none for a time"
            self.now += max(timeout, 0.0)
        return found


class JumpingLoop(asyncio.SelectorEventLoop):
    """Seconds since its beginning, none of which passes while something runs."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def in_no_time(test: Callable[Given, Coroutine[Any, Any, None]]) -> Callable[Given, None]:
    """Run an asynchronous test on a loop of this kind."""

    @functools.wraps(test)
    def run(*arguments: Given.args, **named: Given.kwargs) -> None:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(test(*arguments, **named))

    return run
