"""Operators on a local cluster, against a process that plays one: ready when it answers, named when it ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from pykai.admission.certificates import ServingCredentials
from pykai.kube.api import Object
from pykai.local.clusters import ClusterError
from pykai.local.operators import OPERATORS, Operator, Place, running
from pykai.local.operators.running import _on_loopback, _run
from tests.timeouts import TIMEOUT_SECONDS

CREDENTIALS = ServingCredentials(b"authority", b"", b"")
SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_has_a_module_of_a_release(name: str) -> None:
    module = OPERATORS[name].module(name)
    assert module.release().startswith("v")
    assert module.key().startswith(module.release())
    assert f"tool {module.package}\n" in (module.directory / "go.mod").read_text()
    assert not [flag for flag in module.flags() if "gitVersion" in flag], "only Kubernetes is told its version"


def test_a_webhook_is_on_loopback_and_sees_only_pods_of_its_operator(tmp_path: Path) -> None:
    place = Place(tmp_path, tmp_path, 1, 2)
    service = {"clientConfig": {"service": {"path": "/mutate"}}}

    def hook(resource: str) -> Object:
        return _on_loopback({**service, "rules": [{"resources": [resource]}]}, "its/label", place, CREDENTIALS)

    assert hook("pods")["clientConfig"]["url"] == "https://127.0.0.1:2/mutate"
    assert hook("pods")["objectSelector"]["matchExpressions"] == [{"key": "its/label", "operator": "Exists"}]
    assert "objectSelector" not in hook("jobsets")


@pytest.fixture
def binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Python as the operator's binary, beside files of its module."""
    defined = tmp_path / "build" / "files" / "kind.yaml"
    defined.parent.mkdir(parents=True)
    defined.write_text("metadata: {name: kinds.example.com}\n---\n")
    binary = tmp_path / "build" / "operator"
    binary.symlink_to(sys.executable)
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(running, "connect", lambda kubeconfig: nullcontext())

    async def define(api: object, definitions: Sequence[Object]) -> None:
        assert [each["metadata"]["name"] for each in definitions] == ["kinds.example.com"]

    monkeypatch.setattr(running, "define", define)
    return binary


def played(program: str) -> Operator:
    return Operator("example.com/x", "", "*.yaml", lambda place: ["-c", program, str(place.health_port)])


async def test_an_operator_is_ready_when_it_answers_and_ends_with_the_cluster(tmp_path: Path, binary: Path) -> None:
    ready = asyncio.Event()
    work = asyncio.create_task(_run(played(SERVER), "x", binary, tmp_path / "kubeconfig", ready))
    await asyncio.wait_for(ready.wait(), TIMEOUT_SECONDS)
    assert not work.done()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_an_operator_that_ends_shows_its_last_words(tmp_path: Path, binary: Path) -> None:
    ready = asyncio.Event()
    with pytest.raises(ClusterError, match=r"(?s)ended with code 3; the end of .*x\.log:.*no such flag"):
        await _run(played("print('no such flag'); exit(3)"), "x", binary, tmp_path / "kubeconfig", ready)
    assert not ready.is_set()
