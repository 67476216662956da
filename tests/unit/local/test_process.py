"""Who a process is: a number alone names nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pykai.local.process import ProcessId, cpu_seconds, end_all, identify, resident_bytes, wait_for_end

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def identity(pid: int) -> ProcessId:
    found = identify(pid)
    assert found is not None
    return found


def test_a_process_is_itself_and_alive(sleeper: subprocess.Popen[bytes]) -> None:
    assert identity(sleeper.pid) == identity(sleeper.pid)
    assert identity(sleeper.pid).alive()
    assert identity(os.getpid()) != identity(sleeper.pid)


def test_a_zombie_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    known = identity(sleeper.pid)
    sleeper.kill()
    assert wait_for_end([known], 5) == []
    assert sleeper.returncode is None, "nobody has waited for it: it is still a zombie"
    assert identify(sleeper.pid) is None


def test_another_process_of_the_same_number_is_not_signalled(sleeper: subprocess.Popen[bytes]) -> None:
    foreign = ProcessId(sleeper.pid, "another moment")
    assert not foreign.alive()
    foreign.send(signal.SIGKILL)
    end_all([foreign], grace_seconds=0.1)
    assert identity(sleeper.pid).alive()


def test_end_all_is_gentle_first(sleeper: subprocess.Popen[bytes]) -> None:
    end_all([identity(sleeper.pid)], grace_seconds=5)
    assert sleeper.wait() == -signal.SIGTERM


def test_end_all_insists() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        end_all([identity(process.pid)], grace_seconds=0.2)
        assert process.wait() == -signal.SIGKILL


def test_no_process() -> None:
    assert identify(2**22 + 1) is None
    assert resident_bytes(2**22 + 1) == 0
    assert cpu_seconds(2**22 + 1) == 0.0
    assert resident_bytes(os.getpid()) > 1_000_000
    assert cpu_seconds(os.getpid()) > 0.0
