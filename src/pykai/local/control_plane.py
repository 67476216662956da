"""A control plane as processes: the flags of its parts, their start, crash detection and stop.

Invariants: no process outlives its owner (each part watches its standard input, see controlplane/main.go); a failed
start leaves no process running; every failure names the part and shows the end of its log.

The flags trade durability for speed, which suits short-lived clusters: no fsync, no leader election, high client
limits. Hollow kubelets renew their leases rarely, so the node monitor grace period is long; their nodes are ready when
they are created, so the API server does not taint new nodes.

The API server reaches nodes and pods through an egress proxy (HTTP CONNECT over a Unix socket), as one outside the
cluster network does; the proxy maps their addresses to this machine.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import selectors
import socket
import socketserver
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pykai.hollow.hollow_node import on_this_machine
from pykai.kube.api import Object
from pykai.local.clusters import ClusterError, ClusterFiles, free_ports, prepare, write_kubeconfig
from pykai.local.process import ProcessId, end_all, identify

NODE_GRACE_SECONDS: Final = 120
_BACKEND_BYTES: Final = 4 * 1024**3


def _etcd(files: ClusterFiles) -> dict[str, str | int]:
    peer = f"http://{files.host}:{files.ports.etcd_peer}"
    return {
        "name": "default",
        "data-dir": str(files.directory / "etcd"),
        "listen-client-urls": files.etcd_url,
        "advertise-client-urls": files.etcd_url,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        "unsafe-no-fsync": "true",
        "log-level": "warn",
        "quota-backend-bytes": _BACKEND_BYTES,
    }


def _apiserver(files: ClusterFiles) -> dict[str, str | int]:
    key = str(files.service_account_key)
    return {
        "etcd-servers": files.etcd_url,
        "bind-address": files.host,
        "advertise-address": files.host,
        "secure-port": files.ports.api,
        "cert-dir": str(files.pki),
        "endpoint-reconciler-type": "none",
        "service-cluster-ip-range": "10.96.0.0/16",
        "authorization-mode": "RBAC",
        "disable-admission-plugins": "TaintNodesByCondition",
        "token-auth-file": str(files.tokens),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": key,
        "service-account-signing-key-file": key,
        "kubelet-preferred-address-types": "InternalIP",
        # There is no kube-proxy: the server connects to endpoints of a Service itself, through the tunnel.
        "enable-aggregator-routing": "true",
        "egress-selector-config-file": str(files.egress),
        "allow-privileged": "true",
        "profiling": "false",
        "max-requests-inflight": 3000,
        "max-mutating-requests-inflight": 1000,
    }


def _controller_manager(files: ClusterFiles) -> dict[str, str | int]:
    return {
        "kubeconfig": str(files.kubeconfig),
        "leader-elect": "false",
        "secure-port": 0,
        "service-account-private-key-file": str(files.service_account_key),
        "root-ca-file": str(files.certificate),
        "node-monitor-grace-period": f"{NODE_GRACE_SECONDS}s",
        "concurrent-job-syncs": 20,
        "kube-api-qps": 2000,
        "kube-api-burst": 4000,
    }


def _scheduler(files: ClusterFiles) -> dict[str, str | int]:
    return {
        "kubeconfig": str(files.kubeconfig),
        "leader-elect": "false",
        "secure-port": 0,
        "kube-api-qps": 2000,
        "kube-api-burst": 4000,
    }


ETCD: Final = "etcd"
APISERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"

FlagTable = Mapping[str, Callable[[ClusterFiles], dict[str, str | int]]]
FLAGS: Final[FlagTable] = {
    ETCD: _etcd,
    APISERVER: _apiserver,
    CONTROLLER_MANAGER: _controller_manager,
    SCHEDULER: _scheduler,
}


def arguments(part: str, files: ClusterFiles, flags: FlagTable = FLAGS) -> list[str]:
    """Return the command-line arguments of a part."""
    return [part, *(f"--{flag}={value}" for flag, value in flags[part](files).items())]


SOCKET = "egress.sock"
_CONNECT_SECONDS = 10.0
_CHUNK = 65536


def egress_configuration() -> Object:
    """Return the egress selector configuration.

    The socket is relative to the API server's working directory: an absolute path may be too long for a Unix socket.
    """
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": SOCKET}}}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


class _ConnectHandler(socketserver.StreamRequestHandler):
    """Handles one connection: `CONNECT host:port`, then copies bytes both ways until either side closes."""

    connection: socket.socket

    def handle(self) -> None:
        """Connect to the target and copy bytes both ways."""
        request = self.rfile.readline().decode("latin-1").split()
        while self.rfile.readline().strip():
            pass
        host, _, port = request[1].rpartition(":") if len(request) == 3 else ("", "", "")
        if not port.isdigit() or request[0] != "CONNECT":
            self.wfile.write(b"HTTP/1.1 400 only CONNECT host:port\r\n\r\n")
            return
        try:
            target = socket.create_connection((on_this_machine(host.strip("[]")), int(port)), _CONNECT_SECONDS)
        except OSError as error:
            self.wfile.write(f"HTTP/1.1 502 {error}\r\n\r\n".encode())
            return
        with target:
            target.settimeout(None)
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with contextlib.suppress(OSError):
                _copy_both_ways(self.connection, target)


def _copy_both_ways(client: socket.socket, target: socket.socket) -> None:
    with selectors.DefaultSelector() as ready:
        ready.register(client, selectors.EVENT_READ, target)
        ready.register(target, selectors.EVENT_READ, client)
        while True:
            for key, _ in ready.select():
                assert isinstance(key.fileobj, socket.socket)
                content = key.fileobj.recv(_CHUNK)
                if not content:
                    return
                key.data.sendall(content)


class _TunnelServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


class Tunnel:
    """The egress proxy of one control plane, on SOCKET in its directory; runs in its own threads."""

    def __init__(self, directory: Path) -> None:
        (directory / SOCKET).unlink(missing_ok=True)
        with contextlib.chdir(directory):
            self._server = _TunnelServer(SOCKET, _ConnectHandler)
        self._socket = directory / SOCKET
        threading.Thread(target=self._server.serve_forever, name="tunnel", daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections; open ones end when a peer closes them."""
        self._server.shutdown()
        self._server.server_close()
        self._socket.unlink(missing_ok=True)


START_SECONDS = 180.0
"""Timeout of a start, which usually takes ten seconds."""
STOP_SECONDS = 10.0
_CRASHED_STOP_SECONDS = 1.0
_POLL_SECONDS = 0.05
_TAIL_LINES = 15
_PORT_ATTEMPTS = 3
_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


class PartError(ClusterError):
    """A part of the control plane ended or did not become ready."""

    def __init__(self, part: str, what: str, log: Path) -> None:
        super().__init__(f"{part} {what}; the end of {log}:\n{tail(log)}")
        self.part = part
        self.log = log


def tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """Return the last lines of a log, indented; `(empty)` if there are none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 256 * lines))
            last = file.read().decode(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        last = []
    return "\n".join(f"  {line}" for line in last) or "  (empty)"


def _never_abort() -> None:
    """The default `go_on`: never aborts a start."""


class ControlPlane:
    """The parts of one cluster, owned by this process: etcd, kube-apiserver, kube-controller-manager and `extra`."""

    def __init__(self, files: ClusterFiles, binary: Path, extra: Sequence[str] = (), flags: FlagTable = FLAGS) -> None:
        unknown = [part for part in extra if part not in flags]
        if unknown:
            raise ClusterError(f"unknown part {unknown[0]!r}; there are {', '.join(flags)}")
        self.files = files
        self._binary = binary
        self._extra = tuple(extra)
        self._flags = flags
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._tunnel: Tunnel | None = None
        self._go_on = _never_abort

    def start(self, seconds: float = START_SECONDS, go_on: Callable[[], None] = _never_abort) -> None:
        """Start every part and return once pods can be created; after a PartError nothing is running.

        `go_on` is called repeatedly meanwhile; an exception from it aborts the start in the same way.
        """
        deadline = time.monotonic() + seconds
        self._go_on = go_on
        try:
            prepare(self.files)
            self.files.egress.write_text(json.dumps(egress_configuration()))
            self._tunnel = Tunnel(self.files.directory)
            self._launch(ETCD)
            self._wait_until(ETCD, lambda: _answers(f"{self.files.etcd_url}/health"), deadline)
            self._launch(APISERVER)
            self._wait_until(APISERVER, lambda: self._api_answers("/readyz"), deadline)
            write_kubeconfig(self.files)
            for part in (CONTROLLER_MANAGER, *self._extra):
                self._launch(part)
            self._wait_until(CONTROLLER_MANAGER, lambda: self._api_answers(_DEFAULT_ACCOUNT), deadline)
        except BaseException:
            self.stop()
            raise

    def processes(self) -> dict[str, ProcessId]:
        """Return the running parts by name."""
        running = {part: identify(process.pid) for part, process in self._running.items()}
        return {part: process for part, process in running.items() if process is not None}

    def check(self) -> None:
        """Raise PartError if a part has ended unexpectedly."""
        for part, process in self._running.items():
            code = process.poll()
            if code is not None:
                end = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                raise PartError(part, end, self.files.log(part))

    def stop(self) -> None:
        """Stop every part, clients before servers; after a crash with a short grace period."""
        crashed = any(process.poll() is not None for process in self._running.values())
        for part in reversed(list(self._running)):
            process = self._running.pop(part)
            known = identify(process.pid)
            end_all([known] if known else [], _CRASHED_STOP_SECONDS if crashed else STOP_SECONDS)
            process.wait()
            if process.stdin:
                process.stdin.close()
        if self._tunnel is not None:
            self._tunnel.close()
            self._tunnel = None

    def _launch(self, part: str) -> None:
        with self.files.log(part).open("ab") as log:
            self._running[part] = subprocess.Popen(
                [self._binary, *arguments(part, self.files, self._flags)],
                cwd=self.files.directory,
                env={**os.environ, "CONTROLPLANE_LEASH": "stdin"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Ctrl-C must only reach the owner, which then stops the parts in order.
                start_new_session=True,
            )

    def _wait_until(self, part: str, ready: Callable[[], bool], deadline: float) -> None:
        while not ready():
            self._go_on()
            self.check()
            if time.monotonic() > deadline:
                raise PartError(part, "is not ready in time", self.files.log(part))
            time.sleep(_POLL_SECONDS)

    def _api_answers(self, path: str) -> bool:
        try:
            trust = ssl.create_default_context(cafile=str(self.files.certificate))
        except (ssl.SSLError, OSError):
            return False  # not written, or half-written
        return _answers(self.files.url + path, self.files.admin_token(), trust)


def _answers(url: str, token: str = "", trust: ssl.SSLContext | None = None) -> bool:
    """Whether a GET returns 200. This readiness check is the only request to an API server outside of `kube`."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=trust)] if trust else [])
    )
    try:
        with contextlib.closing(opener.open(request, timeout=5)) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, http.client.HTTPException, OSError):
        return False


def start_cluster(
    directory: Path,
    binary: Path,
    extra: Sequence[str] = (),
    go_on: Callable[[], None] = _never_abort,
    flags: FlagTable = FLAGS,
) -> ControlPlane:
    """Start a control plane in `directory` on free ports; `go_on` may raise to abort.

    Another process may take a port before the part listens on it; then the start is repeated with other ports.
    """
    for attempt in range(1, _PORT_ATTEMPTS + 1):
        plane = ControlPlane(ClusterFiles(directory, free_ports()), binary, extra, flags)
        try:
            plane.start(go_on=go_on)
        except PartError as error:
            if attempt == _PORT_ATTEMPTS or "address already in use" not in str(error):
                raise
        else:
            return plane
    raise AssertionError("unreachable: the last attempt returns or raises")
