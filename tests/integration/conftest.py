"""A real control plane for the whole session, and what tests need to use it.

`local_cluster` is etcd, kube-apiserver and kube-controller-manager on loopback, without nodes and without any of our
components: a test brings its own (`tests.hollow_nodes`). The binary is built on first use, which takes
minutes; afterwards it comes from the user's cache. It is `kubectl` too, so the machine needs none.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
import uuid
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pykai.kube.api_resources import NAMESPACE, SERVICE_ACCOUNT
from pykai.kube.client import HttpApi
from pykai.kube.errors import NotFound
from pykai.local.build import Lines, ensure_binary
from pykai.local.cluster_session import connect
from pykai.local.control_plane import ControlPlane, start_cluster
from tests.timeouts import TIMEOUT_SECONDS

from .mission_cluster import EXAMPLES, Mission, at_work, local_up

Kubectl = Callable[..., Awaitable[str]]
Eventually = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="session")
def control_plane_binary(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The control-plane binary, built first if need be, which the terminal shows; PATH leads to its `kubectl`."""
    terminal = request.config.pluginmanager.getplugin("terminalreporter")
    say = (lambda line: terminal.write_line(line)) if terminal else print
    binary = ensure_binary(Lines(say))
    kubectl = tmp_path_factory.mktemp("bin") / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec "{binary}" kubectl "$@"\n')
    kubectl.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(kubectl.parent), prepend=os.pathsep)
        yield binary


@pytest.fixture(scope="session")
def local_cluster(control_plane_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A started control plane; stopped after the last test."""
    plane = start_cluster(tmp_path_factory.mktemp("local") / "tests", control_plane_binary)
    yield plane
    plane.stop()


@pytest.fixture
async def real_api(local_cluster: ControlPlane) -> AsyncIterator[HttpApi]:
    """A client on the local cluster; a part that has crashed meanwhile is named here."""
    local_cluster.check()
    async with connect(local_cluster.files.kubeconfig) as api:
        yield api


@pytest.fixture
async def namespace(real_api: HttpApi) -> AsyncIterator[str]:
    """A namespace of the test's own, in which pods can be created."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    await real_api.create(NAMESPACE, {"metadata": {"name": name}})
    account = SERVICE_ACCOUNT.ref("default", name)
    await _await(lambda: _exists(real_api, account))
    yield name
    await real_api.delete(NAMESPACE.ref(name))


@pytest.fixture
def kubectl(local_cluster: ControlPlane) -> Kubectl:
    """`await kubectl(*arguments, stdin="")` on the local cluster: its output; its error fails the test.

    It runs beside the event loop, which kubelets and components need meanwhile.
    """
    return kubectl_on(local_cluster.files.kubeconfig)


def kubectl_on(kubeconfig: Path | str) -> Kubectl:
    """`kubectl` on the cluster of a kubeconfig."""

    async def run(*arguments: str, stdin: str = "") -> str:
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        process = await asyncio.create_subprocess_exec(
            "kubectl", *arguments, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        output, errors = await process.communicate(stdin.encode())
        assert process.returncode == 0, f"kubectl {' '.join(arguments)}: {errors.decode()}"
        return output.decode()

    return run


@pytest.fixture
def eventually() -> Eventually:
    """`await eventually(check)`: the first true value of `check()`, which may be a coroutine function."""
    return _await


async def _await(check: Callable[[], Any], seconds: float = TIMEOUT_SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        value = check()
        value = await value if inspect.isawaitable(value) else value
        if value:
            return value
        assert time.monotonic() < deadline, f"still {value!r} after {seconds:g} s"
        await asyncio.sleep(0.05)


async def _exists(api: HttpApi, ref: Any) -> bool:
    try:
        await api.get(ref, dict)
    except NotFound:
        return False
    return True


@pytest.fixture(scope="session")
def mission_cluster(control_plane_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """`kai local up` with the nodes of the examples, for the whole session; the kubeconfig."""
    with local_up(tmp_path_factory.mktemp("mission"), f"--nodes-file={EXAMPLES / 'nodes.yaml'}") as kubeconfig:
        yield kubeconfig


@pytest.fixture
async def mission(mission_cluster: Path, eventually: Eventually) -> AsyncIterator[Mission]:
    """A user of that cluster."""
    async with at_work(kubectl_on(mission_cluster), eventually) as user:
        yield user
