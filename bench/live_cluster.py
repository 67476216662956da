"""The cluster of the end-to-end benchmark: control plane, hollow nodes and kube-scheduler, then `kai all` beside them.

Each part is a process of its own, so that its processor time can be told. The cluster is `kai local` without our
components: they are started when it is their turn, and kube-scheduler is measured before that, undisturbed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.measure import BenchError
from pykai.local import clusters
from pykai.local.process import cpu_seconds

NAME = "bench-e2e"
KAI = "kai all"
SCHEDULER = "kai scheduler"
KUBELETS = "hollow kubelets"
_CLI = (sys.executable, "-m", "pykai.apps.cli")
_READY_SECONDS = 60.0
_USUAL_HEALTH = "health-probe-bind-address"
_HEALTH = {SCHEDULER: "listen-address"}
"""The flag that says where /readyz is served."""


@dataclass
class LiveCluster:
    """A running cluster: the kubeconfig, and the process id of every part by name."""

    kubeconfig: Path
    pids: dict[str, int] = field(default_factory=dict)

    def cpu(self) -> dict[str, float]:
        """Seconds of processor time that each part has used so far."""
        return {part: cpu_seconds(pid) for part, pid in self.pids.items()}


@contextlib.contextmanager
def live_cluster(nodes: int, gpus: int, name: str = NAME) -> Iterator[LiveCluster]:
    """A cluster with kube-scheduler and hollow nodes for the block."""
    order = [f"--name={name}", "--bare", "--kube-scheduler", f"--nodes={nodes}", f"--gpus={gpus}"]
    if subprocess.run([*_CLI, "local", "up", *order]).returncode:
        raise BenchError("the cluster did not start")
    try:
        record = clusters.read_record(name)
        assert record is not None, "a cluster that is up has a record"
        parts = {name: process.pid for name, process in record.parts.items()}
        yield LiveCluster(Path(record.kubeconfig), {**parts, KUBELETS: record.owner.pid})
    finally:
        subprocess.run([*_CLI, "local", "down", f"--name={name}"], stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def kai_all(cluster: LiveCluster, directory: Path) -> Iterator[None]:
    """Every component of ours on the cluster, for the block; it begins when they are ready. `directory`: for files."""
    flags = (
        *("--install", "--qps=0", "--gpu-sharing-enabled", "--metrics-bind-address=0", "--plugin-server-port=0"),
        *("--webhook-own-host=127.0.0.1", "--webhook-addr=0", f"--webhook-cert-dir={directory}"),
    )
    with component(cluster, directory, KAI, *flags):
        yield


@contextlib.contextmanager
def component(
    cluster: LiveCluster, directory: Path, command: str, *flags: str, seconds: float = _READY_SECONDS
) -> Iterator[None]:
    """A process of ours, such as `kai all`, for the block, which begins when it is ready; in `seconds` at most."""
    port, log = _free_port(), directory / "kai.log"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    line = [*_CLI, *command.split()[1:], *flags, f"--{_HEALTH.get(command, _USUAL_HEALTH)}=127.0.0.1:{port}"]
    with log.open("wb") as file:
        process = subprocess.Popen(line, env=environment, stdout=file, stderr=file)
    try:
        cluster.pids[command] = process.pid
        _await_ready(process, f"http://127.0.0.1:{port}/readyz", log, seconds)
        yield
        if process.poll() is not None:
            raise BenchError(f"{command} ended by itself; the end of its log:\n{log.read_text()[-2000:]}")
    finally:
        cluster.pids.pop(command, None)
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _await_ready(process: subprocess.Popen[bytes], url: str, log: Path, seconds: float) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, OSError), opener.open(url, timeout=5):
            return
        time.sleep(0.1)
    raise BenchError(f"a component is not ready; the end of its log:\n{log.read_text()[-2000:]}")
