"""`python -m tests.node [ARGUMENT ...]`: the tests of a real node, in namespaces of their own; arguments are pytest's.

Everything the node starts, mounts and configures lives in new PID, mount and network namespaces, which the kernel
removes with their first process, however that ends. What no namespace holds is restored from outside: the cgroup of the
pods, some sysctls, mount points and the working directory. A run that was killed leaves these; the next one restores
them first.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pykai.local.build import Lines, ensure_binary
from tests.node import earlier
from tests.node.layout import CGROUP, CNI_PROGRAMS, FIXED, HOME, NODE_MODULE, cgroup_roots

PROGRAMS = {
    "containerd": "containerd", "runc": "runc", "iptables": "iptables", "conntrack": "conntrack", "ip": "iproute2",
    "unshare": "util-linux", "setpriv": "util-linux", "gcc": "gcc libc6-dev", "mount": "mount", "ldconfig": "libc-bin",
}  # fmt: skip
"""What the node runs, and the Debian package that has it."""
SYSCTLS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys")
"""What a kubelet sets for the whole machine."""
_SAVED = HOME.with_name("node-before.json")
_LOCK = Path("/run/lock/pykai-node")
_INSIDE = "--inside"
_CGROUP_SECONDS = 20.0


def obstacle() -> str:
    """Why no real node can run here; empty if one can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a real node needs Linux and root"
    packages = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    packages += [] if CNI_PROGRAMS.is_dir() else ["containernetworking-plugins"]
    return f"missing here: {' '.join(packages)} (names of Debian's packages)" if packages else ""


def restore() -> None:
    """Bring the machine back to what it was before a run."""
    if _SAVED.exists():
        before = json.loads(_SAVED.read_text())
        for name, value in before["sysctls"].items():
            Path("/proc/sys", name).write_text(value)
        for directory in before["absent"]:
            with contextlib.suppress(OSError):  # not made yet, or in use by something else since
                Path(directory).rmdir()
        _SAVED.unlink()
    deadline = time.monotonic() + _CGROUP_SECONDS
    while not _without_cgroups() and time.monotonic() < deadline:
        time.sleep(0.2)
    shutil.rmtree(HOME, ignore_errors=True)


def _save() -> None:
    """Note what `restore` needs."""
    sysctls = {name: Path("/proc/sys", name).read_text() for name in SYSCTLS}
    absent = [str(directory) for directory in FIXED if not directory.exists()]
    _SAVED.write_text(json.dumps({"sysctls": sysctls, "absent": absent}))


def _without_cgroups() -> bool:
    """Remove the pods' cgroups, leaves first; False while one is busy."""
    for root in cgroup_roots():
        below = sorted((root / CGROUP).rglob("*/"), key=lambda each: -len(each.parts))
        for directory in [*(each for each in below if each.is_dir()), root / CGROUP]:
            with contextlib.suppress(OSError):
                directory.rmdir()
    return not any((root / CGROUP).exists() for root in cgroup_roots())


def leftovers() -> list[str]:
    """What a run left on the machine although it should not."""
    kept = [str(root / CGROUP) for root in cgroup_roots() if (root / CGROUP).exists()]
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [*kept, *(each for each in mounts if each.startswith(str(HOME)) or "/var/lib/kubelet/" in each)]


@contextlib.contextmanager
def only_node() -> Iterator[None]:
    """The directories of a kubelet are fixed: one real node per machine."""
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build() -> None:
    """What a node runs, while there is a network to load modules from: inside there is none."""
    ensure_binary(Lines(print))
    ensure_binary(Lines(print, "node"), NODE_MODULE)
    if commit := earlier.found():
        earlier.build(commit)


def outside(arguments: Sequence[str]) -> int:
    """Run the tests in new namespaces and restore the machine."""
    reason = obstacle()
    if reason:
        print(f"tests of a real node skipped: {reason}")
        return 0
    build()
    with only_node():
        restore()
        HOME.mkdir(parents=True)
        _save()
        for directory in FIXED:
            directory.mkdir(parents=True, exist_ok=True)
        namespaces = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        bound = ("setpriv", "--pdeathsig", "KILL")  # what is inside ends with this process, also when that is killed
        command = [*bound, "unshare", *namespaces, sys.executable, "-m", "tests.node", _INSIDE, *arguments]
        try:
            code = subprocess.run(command).returncode
        finally:
            restore()
        for each in leftovers():
            print(f"left on the machine: {each}")
            code = code or 1
    return code


def inside(arguments: Sequence[str]) -> int:
    """The first process of the namespaces: starts pytest and adopts what containers leave."""
    tests = os.fork()
    if tests == 0:
        os._exit(pytest.main([str(Path(__file__).parent), "-p", "no:cacheprovider", *arguments]))
    while True:
        child, status = os.wait()
        if child == tests:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(inside(given[1:]) if given[:1] == [_INSIDE] else outside(given))
