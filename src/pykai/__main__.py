"""Where the `kai` command starts: SIGTERM ends it from the first line on.

In a container `kai` is process 1, and the kernel drops a signal for which process 1 has no handler. A component
installs its own when it runs; until then, while modules are imported, the pod would hang until it is killed.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

_INIT = 1
_TERMINATED = 128 + signal.SIGTERM


def _exit(_number: int, _frame: FrameType | None) -> None:
    """Exit at once: before a component runs there is nothing to release."""
    os._exit(_TERMINATED)


def start() -> None:
    """Run the command line."""
    if os.getpid() == _INIT:
        signal.signal(signal.SIGTERM, _exit)
    from pykai.cli.main import main  # after the handler

    main()


if __name__ == "__main__":
    start()
