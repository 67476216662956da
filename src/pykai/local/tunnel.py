"""The API server's way to nodes and pods: a proxy that knows where on this machine their addresses are.

Kubernetes has a place for it: an API server that is not in the network of its cluster is given an egress proxy
(HTTP CONNECT over a socket) for all it asks of kubelets, pods and the Services of webhooks.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import socketserver
import threading
from pathlib import Path
from typing import Any

from pykai.hollow.addresses import on_this_machine

SOCKET = "egress.sock"
_CONNECT_SECONDS = 10.0
_CHUNK = 65536


def egress_configuration() -> dict[str, Any]:
    """What the API server is told; it runs in the directory of the socket, whose whole path may be too long for one."""
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": SOCKET}}}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


class _Connect(socketserver.StreamRequestHandler):
    """One connection: `CONNECT host:port`, then bytes both ways until either side has enough."""

    connection: socket.socket

    def handle(self) -> None:
        """Connect and carry."""
        request = self.rfile.readline().decode("latin-1").split()
        while self.rfile.readline().strip():
            pass
        host, _, port = request[1].rpartition(":") if len(request) == 3 else ("", "", "")
        if not port.isdigit() or request[0] != "CONNECT":
            self.wfile.write(b"HTTP/1.1 400 only CONNECT host:port\r\n\r\n")
            return
        try:
            far = socket.create_connection((on_this_machine(host.strip("[]")), int(port)), _CONNECT_SECONDS)
        except OSError as error:
            self.wfile.write(f"HTTP/1.1 502 {error}\r\n\r\n".encode())
            return
        with far:
            far.settimeout(None)
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with contextlib.suppress(OSError):
                _carry(self.connection, far)


def _carry(one: socket.socket, other: socket.socket) -> None:
    with selectors.DefaultSelector() as ready:
        ready.register(one, selectors.EVENT_READ, other)
        ready.register(other, selectors.EVENT_READ, one)
        while True:
            for key, _ in ready.select():
                assert isinstance(key.fileobj, socket.socket)
                content = key.fileobj.recv(_CHUNK)
                if not content:
                    return
                key.data.sendall(content)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


class Tunnel:
    """The proxy of one control plane, at SOCKET in its directory, in threads of its own."""

    def __init__(self, directory: Path) -> None:
        (directory / SOCKET).unlink(missing_ok=True)
        with contextlib.chdir(directory):
            self._server = _Server(SOCKET, _Connect)
        self._socket = directory / SOCKET
        threading.Thread(target=self._server.serve_forever, name="tunnel", daemon=True).start()

    def close(self) -> None:
        """Take no more connections; those that are open end with their partners."""
        self._server.shutdown()
        self._server.server_close()
        self._socket.unlink(missing_ok=True)
