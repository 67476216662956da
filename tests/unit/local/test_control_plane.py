"""Start and stop of parts, with a shell script in the place of the control plane."""

from __future__ import annotations

import contextlib
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykai.local.clusters import ClusterFiles, free_ports
from pykai.local.control_plane import (
    _PORT_ATTEMPTS,
    SOCKET,
    ControlPlane,
    PartError,
    Tunnel,
    egress_configuration,
    start_cluster,
)


def script(directory: Path, body: str) -> Path:
    path = directory / "binary"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_part_that_crashes_at_start_is_named_with_its_last_words(tmp_path: Path) -> None:
    binary = script(tmp_path, 'echo "cannot open the door"; exit 3')
    plane = ControlPlane(ClusterFiles(tmp_path / "demo", free_ports()), binary)
    with pytest.raises(PartError, match=r"(?s)etcd ended with code 3.*cannot open the door") as failure:
        plane.start()
    assert failure.value.part == "etcd"
    assert plane.processes() == {}


def test_a_part_that_never_answers_is_named_and_stopped(tmp_path: Path) -> None:
    binary = script(tmp_path, "while :; do sleep 0.1; done")
    plane = ControlPlane(ClusterFiles(tmp_path / "demo", free_ports()), binary)
    with pytest.raises(PartError, match="etcd is not ready in time"):
        plane.start(seconds=0.3)
    assert not running(str(binary))


def running(program: str) -> list[str]:
    """Processes that have a program among their arguments."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found += [process.name] if program in (process / "cmdline").read_text().split("\0") else []
    return found


def test_a_taken_port_is_tried_again_with_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = script(tmp_path, f'echo "$3" >> {tmp_path}/tries; echo "bind: address already in use"; exit 1')
    with pytest.raises(PartError, match="address already in use"):
        start_cluster(tmp_path / "demo", binary)
    assert len((tmp_path / "tries").read_text().splitlines()) == _PORT_ATTEMPTS


def test_other_failures_are_not_tried_again(tmp_path: Path) -> None:
    binary = script(tmp_path, f"echo x >> {tmp_path}/tries; exit 1")
    with pytest.raises(PartError):
        start_cluster(tmp_path / "demo", binary)
    assert (tmp_path / "tries").read_text() == "x\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """One whose path is longer than the address of a socket may be."""
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    return deep


@pytest.fixture
def tunnel(directory: Path) -> Iterator[Tunnel]:
    opened = Tunnel(directory)
    yield opened
    opened.close()
    assert list(directory.iterdir()) == []


def asking(directory: Path, request: str) -> tuple[socket.socket, str]:
    """A connection to the tunnel, and the first line of its answer to a request."""
    with contextlib.chdir(directory):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(5)
        connection.connect(SOCKET)
    connection.sendall(f"{request}\r\nHost: 127.0.0.1\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += connection.recv(1)
    return connection, answer.decode().splitlines()[0]


@pytest.mark.usefixtures("tunnel")
def test_a_pod_is_reached_by_its_address(directory: Path) -> None:
    with socket.create_server(("127.200.3.4", 0)) as server:
        connection, line = asking(directory, f"CONNECT 10.200.3.4:{server.getsockname()[1]} HTTP/1.1")
        pod, _ = server.accept()
        with connection, pod:
            assert line == "HTTP/1.1 200 OK"
            connection.sendall(b"ping")
            assert pod.recv(10) == b"ping"
            pod.sendall(b"pong")
            assert connection.recv(10) == b"pong"
            pod.close()
            assert connection.recv(10) == b"", "the end of one side is the end of both"


@pytest.mark.usefixtures("tunnel")
@pytest.mark.parametrize(
    ("request_line", "answer"),
    [
        ("GET / HTTP/1.1", "HTTP/1.1 400 only CONNECT host:port"),
        ("CONNECT nowhere HTTP/1.1", "HTTP/1.1 400 only CONNECT host:port"),
        ("CONNECT 10.200.3.4:1 HTTP/1.1", "HTTP/1.1 502 [Errno 111] Connection refused"),
    ],
)
def test_what_cannot_be_reached_is_said(directory: Path, request_line: str, answer: str) -> None:
    connection, line = asking(directory, request_line)
    connection.close()
    assert line == answer


def test_the_api_server_is_told_of_the_socket() -> None:
    (selection,) = egress_configuration()["egressSelections"]
    assert selection["connection"]["transport"]["uds"]["udsName"] == SOCKET
