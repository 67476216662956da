"""One control plane as processes: start until usable, notice a crash, stop without a trace.

Invariants: no process outlives its owner (each part holds a leash, see controlplane/main.go); a failed start leaves no
process; every failure names the part and shows the end of its log.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from pykai.local import parts
from pykai.local.process import ProcessId, end_all, identify
from pykai.local.site import Site, free_ports, prepare, write_kubeconfig
from pykai.local.tunnel import Tunnel, egress_configuration

START_SECONDS = 60.0
STOP_SECONDS = 10.0
_CRASHED_STOP_SECONDS = 1.0
_POLL_SECONDS = 0.05
_TAIL_LINES = 15
_PORT_ATTEMPTS = 3
_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


class ClusterError(RuntimeError):
    """The cluster cannot do what was asked; the text is for the user."""


class PartError(ClusterError):
    """A part of the control plane ended or did not become ready."""

    def __init__(self, part: str, what: str, log: Path) -> None:
        super().__init__(f"{part} {what}; the end of {log}:\n{tail(log)}")
        self.part = part
        self.log = log


def tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """The last lines of a log, indented; a remark if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 256 * lines))
            kept = file.read().decode(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        kept = []
    return "\n".join(f"  {line}" for line in kept) or "  (empty)"


def _always() -> None:
    """Nobody wants to give up."""


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager and `extra` parts of one site, owned by this process."""

    def __init__(self, site: Site, binary: Path, extra: Sequence[str] = ()) -> None:
        unknown = [part for part in extra if part not in parts.FLAGS]
        if unknown:
            raise ClusterError(f"unknown part {unknown[0]!r}; there are {', '.join(parts.FLAGS)}")
        self.site = site
        self._binary = binary
        self._extra = tuple(extra)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._tunnel: Tunnel | None = None
        self._go_on = _always

    def start(self, seconds: float = START_SECONDS, go_on: Callable[[], None] = _always) -> None:
        """Start every part and return once pods can be created; PartError leaves nothing running.

        `go_on` is called again and again meanwhile; what it raises ends the start the same way.
        """
        deadline = time.monotonic() + seconds
        self._go_on = go_on
        try:
            prepare(self.site)
            self._open_tunnel()
            self._launch(parts.ETCD)
            self._await(parts.ETCD, lambda: _answers(f"{self.site.etcd_url}/health"), deadline)
            self._launch(parts.APISERVER)
            self._await(parts.APISERVER, self._api_ready, deadline)
            write_kubeconfig(self.site)
            for part in (parts.CONTROLLER_MANAGER, *self._extra):
                self._launch(part)
            self._await(parts.CONTROLLER_MANAGER, lambda: self._api_answers(_DEFAULT_ACCOUNT), deadline)
        except BaseException:
            self.stop()
            raise

    def processes(self) -> dict[str, ProcessId]:
        """The parts that run, by name."""
        found = {part: identify(process.pid) for part, process in self._running.items()}
        return {part: process for part, process in found.items() if process is not None}

    def check(self) -> None:
        """PartError if a part has ended by itself."""
        for part, process in self._running.items():
            code = process.poll()
            if code is not None:
                end = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                raise PartError(part, end, self.site.log(part))

    def stop(self) -> None:
        """End every part, clients before servers; after a crash there is no point in waiting for a gentle end."""
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

    def _open_tunnel(self) -> None:
        self.site.egress.write_text(json.dumps(egress_configuration()))
        self._tunnel = Tunnel(self.site.directory)

    def _launch(self, part: str) -> None:
        with self.site.log(part).open("ab") as log:
            self._running[part] = subprocess.Popen(
                [self._binary, *parts.arguments(part, self.site)],
                cwd=self.site.directory,
                env={**os.environ, "CONTROLPLANE_LEASH": "stdin"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # A Ctrl-C in the terminal is for the owner, who then stops the parts in order.
                start_new_session=True,
            )

    def _await(self, part: str, ready: Callable[[], bool], deadline: float) -> None:
        while not ready():
            self._go_on()
            self.check()
            if time.monotonic() > deadline:
                raise PartError(part, "is not ready in time", self.site.log(part))
            time.sleep(_POLL_SECONDS)

    def _api_ready(self) -> bool:
        return self.site.certificate.exists() and self._api_answers("/readyz")

    def _api_answers(self, path: str) -> bool:
        try:
            trust = ssl.create_default_context(cafile=str(self.site.certificate))
        except (ssl.SSLError, OSError):
            return False  # half-written
        return _answers(self.site.url + path, self.site.admin_token(), trust)


def _answers(url: str, token: str = "", trust: ssl.SSLContext | None = None) -> bool:
    """Whether a GET succeeds. This is the one place outside `kube` that asks an API server: is it there at all?"""
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
    directory: Path, binary: Path, extra: Sequence[str] = (), go_on: Callable[[], None] = _always
) -> ControlPlane:
    """Start a control plane in `directory` on ports of its own; `go_on` may raise to give up.

    A port found free can be taken before its part listens on it; then all is tried again with others.
    """
    for attempt in range(1, _PORT_ATTEMPTS + 1):
        plane = ControlPlane(Site(directory, free_ports()), binary, extra)
        try:
            plane.start(go_on=go_on)
        except PartError as failure:
            if attempt == _PORT_ATTEMPTS or "address already in use" not in str(failure):
                raise
        else:
            return plane
    raise AssertionError("unreachable: the last attempt returns or raises")
