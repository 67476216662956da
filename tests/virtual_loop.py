"""Asynchronous tests in virtual time, on the loop of `kai simulate`: sleeping costs nothing, and nothing is late.

For code that reads the clock of its loop and uses no socket, thread or process.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from pykai.simulate import loop

Given = ParamSpec("Given")


def in_virtual_time(test: Callable[Given, Coroutine[Any, Any, None]]) -> Callable[Given, None]:
    """Run an asynchronous test on a loop of this kind; the wall clock begins at the present."""

    @functools.wraps(test)
    def run(*arguments: Given.args, **named: Given.kwargs) -> None:
        loop.run(test(*arguments, **named), time.time())

    return run
