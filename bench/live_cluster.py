"""The cluster of the end-to-end benchmark: control plane and hollow nodes, with kube-scheduler and `kai all` in turns.

Each part is a process of its own, so that its processor time can be told. The cluster is `kai local` without our
components. Each of the two schedulers runs only while it is measured: one that watches costs the API server, too.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.measure import BenchError
from pykai.local import clusters, control_plane
from pykai.local.build import ensure_binary
from pykai.local.clusters import ClusterFiles, Ports
from pykai.local.process import cpu_seconds

NAME = "bench-e2e"
KAI = "kai all"
SCHEDULER = "kai scheduler"
QUEUE_CONTROLLER = "kai queue-controller"
KUBELETS = "hollow kubelets"
_CLI = (sys.executable, "-m", "pykai")
_READY_SECONDS = 60.0
_USUAL_HEALTH = "health-probe-bind-address"
_HEALTH = {SCHEDULER: "listen-address", QUEUE_CONTROLLER: "metrics-listen-address"}
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
    """A cluster with hollow nodes for the block, without any scheduler."""
    order = [f"--name={name}", "--bare", f"--nodes={nodes}", f"--gpus={gpus}"]
    if subprocess.run([*_CLI, "local", "up", *order]).returncode:
        raise BenchError("the cluster did not start")
    try:
        record = clusters.read_record(name)
        assert record is not None, "a cluster that is up has a record"
        pids = {name: process.pid for name, process in record.parts.items()}
        yield LiveCluster(Path(record.kubeconfig), {**pids, KUBELETS: record.owner.pid})
    finally:
        subprocess.run([*_CLI, "local", "down", f"--name={name}"], stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def kai_all(cluster: LiveCluster, directory: Path) -> Iterator[None]:
    """Every component of ours on the cluster, for the block; it begins when they are ready. `directory`: for files.

    Their webhooks go with them: the API server would ask itself about every pod whether they are to be called.
    """
    flags = (
        *("--install", "--qps=0", "--gpu-sharing-enabled", "--metrics-bind-address=0", "--plugin-server-port=0"),
        *("--webhook-own-host=127.0.0.1", "--webhook-addr=0", f"--webhook-cert-dir={directory}"),
    )
    with component(cluster, directory, KAI, *flags):
        yield
    hooks = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    subprocess.run(["kubectl", "delete", hooks, "--all"], env=environment, stdout=subprocess.DEVNULL, check=True)


@contextlib.contextmanager
def kube_scheduler(cluster: LiveCluster, directory: Path) -> Iterator[None]:
    """kube-scheduler on the cluster, for the block; it begins when it is ready. `directory`: for its log."""
    port = _free_port()
    flags = control_plane.arguments(control_plane.SCHEDULER, ClusterFiles(cluster.kubeconfig.parent, Ports(0, 0, 0)))
    line = [str(ensure_binary()), *flags, "--bind-address=127.0.0.1", f"--secure-port={port}"]
    with _running(cluster, control_plane.SCHEDULER, line, directory / "kube-scheduler.log") as (process, log):
        _await_ready(process, f"https://127.0.0.1:{port}/readyz", log, _READY_SECONDS)
        yield


@contextlib.contextmanager
def component(
    cluster: LiveCluster, directory: Path, command: str, *flags: str, seconds: float = _READY_SECONDS
) -> Iterator[None]:
    """A process of ours, such as `kai all`, for the block, which begins when it is ready; in `seconds` at most."""
    port = _free_port()
    line = [*_CLI, *command.split()[1:], *flags, f"--{_HEALTH.get(command, _USUAL_HEALTH)}=127.0.0.1:{port}"]
    with _running(cluster, command, line, directory / "kai.log") as (process, log):
        _await_ready(process, f"http://127.0.0.1:{port}/readyz", log, seconds)
        yield


@contextlib.contextmanager
def _running(
    cluster: LiveCluster, part: str, line: Sequence[str], log: Path
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process that is a part of the cluster for the block, and its log; BenchError if it ends by itself."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    with log.open("wb") as file:
        process = subprocess.Popen(line, env=environment, stdout=file, stderr=file)
    try:
        cluster.pids[part] = process.pid
        yield process, log
        if process.poll() is not None:
            raise BenchError(f"{part} ended by itself; the end of its log:\n{log.read_text()[-2000:]}")
    finally:
        cluster.pids.pop(part, None)
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _await_ready(process: subprocess.Popen[bytes], url: str, log: Path, seconds: float) -> None:
    trusting = urllib.request.HTTPSHandler(context=ssl._create_unverified_context())  # it signs its own certificate
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), trusting)
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, OSError), opener.open(url, timeout=5):
            return
        time.sleep(0.1)
    raise BenchError(f"a component is not ready; the end of its log:\n{log.read_text()[-2000:]}")
