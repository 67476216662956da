"""Containers as processes: shells in the place of images, on the API server in memory."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pykai.hollow.hollow_node import NodeShape, on_this_machine, pod_ip
from pykai.hollow.kubelet_settings import LogOptions, PodLog
from pykai.kube.api import Deletion, Object, Patch
from pykai.kube.api_resources import CONFIG_MAP, POD, SECRET
from pykai.kube.memory.memory_api import MemoryApi
from pykai.local import containers as probes
from pykai.local import pod_runtime
from pykai.local.containers import Sources, expanded
from pykai.local.kubelet import HollowKubelets
from pykai.local.pod_runtime import Containers, Host, Image, command_line, image_name, relocated
from pykai.local.process import identify
from tests.hollow_nodes import hollow_nodes
from tests.timeouts import TIMEOUT_SECONDS

from .pods import await_gone, await_phase, eventually, pod, status_of

SHELL = Image({"sh": ("sh",), "python": (sys.executable,)}, ("sh", "-c"), {"COLOUR": "red"})
FOREVER = "while true; do sleep 0.05; done"


# ------------------------------------------------------------------------------------------------------------- parts
@pytest.mark.parametrize(
    "reference", ["pykai", "pykai:0.1", "r/pykai:0.1", "localhost:5000/a/pykai", "r/a/pykai:v1@sha256:abc"]
)
def test_the_name_of_an_image(reference: str) -> None:
    assert image_name(reference) == "pykai"


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({}, ["sh", "-c"]),
        ({"args": ["exit 1"]}, ["sh", "-c", "exit 1"]),
        ({"command": ["sh", "x"], "args": ["y"]}, ["sh", "x", "y"]),
        ({"command": ["python"]}, [sys.executable]),
    ],
)
def test_what_a_container_runs(container: Object, words: list[str]) -> None:
    assert command_line({"image": "shell", **container}, SHELL) == words


def test_a_program_that_is_not_in_the_image_is_named() -> None:
    with pytest.raises(ValueError, match="image shell has no program 'bash'"):
        command_line({"image": "shell", "command": ["bash"]}, SHELL)


@pytest.mark.parametrize(
    ("text", "result"), [("a $(X) b", "a 1 b"), ("$(Y)", "$(Y)"), ("$$(X)", "$(X)"), ("$X 5$", "$X 5$"), ("", "")]
)
def test_variables_in_texts(text: str, result: str) -> None:
    assert expanded(text, {"X": "1"}) == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("--config=/etc/config/config.yaml", "--config=/root/etc/config/config.yaml"),
        ("/etc/config", "/root/etc/config"),
        ("/etc/configuration /my/etc/config", "/etc/configuration /my/etc/config"),
        ("/etc/config:/certs", "/root/etc/config:/root/certs"),
    ],
)
def test_paths_under_mounts_are_moved(text: str, result: str) -> None:
    mounts = [{"name": "a", "mountPath": "/etc/config"}, {"name": "b", "mountPath": "/certs/"}]
    assert relocated(text, Path("/root"), mounts) == result


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.labels['app']", "binder"),
        ("metadata.annotations['none']", ""),
        ("metadata.labels", 'app="binder"'),
        ("spec.nodeName", "gpu"),
        ("status.podIP", pod_ip("u")),
    ],
)
def test_fields_of_the_pod(path: str, value: str) -> None:
    assert Sources(MemoryApi(time.time), pod("p", uid="u", labels={"app": "binder"})).field(path) == value


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(ValueError, match=r"fieldPath 'spec\.colour' is not one of a pod"):
        Sources(MemoryApi(time.time), pod("p", uid="u")).field("spec.colour")


@pytest.mark.parametrize(
    ("host", "reached"),
    [("10.200.3.4", "127.200.3.4"), ("10.96.0.1", "10.96.0.1"), ("127.0.0.1", "127.0.0.1"), ("a.example", "a.example")],
)
def test_where_a_pod_is_on_this_machine(host: str, reached: str) -> None:
    assert on_this_machine(host) == reached


@pytest.mark.parametrize(
    ("probe", "url"),
    [
        ({"port": 80}, "http://h:80/"),
        ({"port": "health", "path": "/readyz"}, "http://h:8081/readyz"),
        ({"port": 9443, "scheme": "HTTPS"}, "https://h:9443/"),
    ],
)
def test_where_a_probe_asks(probe: Object, url: str) -> None:
    container = {"name": "c", "ports": [{"name": "health", "containerPort": 8081}]}
    assert probes.address_of({"httpGet": probe}, container, "h") == url


@pytest.mark.parametrize(
    ("answers", "told"), [("+", [True]), ("+++", [True]), ("--+", [True]), ("---", [False]), ("+--+---", [True, False])]
)
async def test_answers_count_when_there_are_enough_in_a_row(answers: str, told: list[bool]) -> None:
    given, heard = iter(answers), list[bool]()
    done = asyncio.Event()

    async def ask() -> bool:
        answer = next(given, "")
        if not answer:
            done.set()
            await asyncio.Event().wait()
        return answer == "+"

    following = asyncio.create_task(probes.probe(probes.ProbeSettings(period_seconds=0), ask, heard.append))
    await asyncio.wait_for(done.wait(), TIMEOUT_SECONDS)
    following.cancel()
    firsts = [good for at, good in enumerate(heard) if at == 0 or heard[at - 1] != good]
    assert firsts == told


# -------------------------------------------------------------------------------------------------------------- pods
@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi(time.time)


@pytest.fixture
def playing(api: MemoryApi, tmp_path: Path) -> Callable[[], Any]:
    @asynccontextmanager
    async def play() -> AsyncIterator[HollowKubelets]:
        machine = Host(tmp_path, "https://127.0.0.1:6443", {"shell": SHELL})
        runtime = Containers(api, machine, restart_seconds=0.01)
        async with hollow_nodes(api, [NodeShape("gpu")], runtime=runtime) as kubelets:
            yield kubelets
        assert list(tmp_path.iterdir()) == [], "files of pods are left"

    return play


def shell(script: str, restart: str = "Never", **more: Any) -> Object:
    """A pod with one container that runs a script."""
    volumes = more.pop("volumes", [])
    container = {"name": "main", "image": "registry/shell:1", "args": [script], **more}
    return pod("p", spec={"containers": [container], "restartPolicy": restart, "volumes": volumes})


def said(kubelets: HollowKubelets, previous: bool = False) -> list[str]:
    log = kubelets.pods.log_of("default", "p", previous=previous)
    return [line.text for line in log.chosen(LogOptions())] if log else []


async def test_a_script_runs_with_its_variables(api: MemoryApi, playing: Any) -> None:
    await api.create(CONFIG_MAP, {"metadata": {"name": "c", "namespace": "default"}, "data": {"key": "value"}})
    env = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "key"}}},
        {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        {"name": "BOTH", "value": "$(NAME)-$(KEY)"},
    ]
    tell = 'echo "$BOTH $COLOUR ${NONE-unset} $HOSTNAME $KUBERNETES_SERVICE_PORT"; echo problem >&2; exit 3'
    async with playing() as kubelets:
        await api.create(POD, shell(tell, env=env, envFrom=[{"configMapRef": {"name": "c"}}]))
        status = await await_phase(api, "p", "Failed")
        assert said(kubelets) == ["p-value red unset p 6443", "problem"]
    (container,) = status["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 3
    assert {row["type"]: row["status"] for row in status["conditions"]}["Ready"] == "False"


async def test_volumes_are_files(api: MemoryApi, playing: Any, tmp_path: Path) -> None:
    data = {"tls.key": base64.b64encode(b"secret").decode()}
    await api.create(SECRET, {"metadata": {"name": "s", "namespace": "default"}, "data": data})
    await api.create(CONFIG_MAP, {"metadata": {"name": "c", "namespace": "default"}, "data": {"a": "1", "b": "2"}})
    (tmp_path.parent / "host").write_text("of the host")
    sources = [
        {"configMap": {"name": "c", "items": [{"key": "b", "path": "deep/b"}]}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    volumes = [
        {"name": "cert", "secret": {"secretName": "s"}},
        {"name": "all", "projected": {"sources": sources}},
        {"name": "host", "hostPath": {"path": str(tmp_path.parent)}},
        {"name": "scratch", "emptyDir": {}},
    ]
    mounts = [
        {"name": "cert", "mountPath": "/certs"},
        {"name": "all", "mountPath": "/etc/all"},
        {"name": "all", "mountPath": "/etc/name", "subPath": "name"},
        {"name": "host", "mountPath": "/host"},
        {"name": "scratch", "mountPath": "/scratch"},
    ]
    script = "cat /certs/tls.key /etc/all/deep/b /etc/name /host/host; echo; ls /etc/all; echo x > /scratch/x"
    async with playing() as kubelets:
        await api.create(POD, shell(script, volumes=volumes, volumeMounts=mounts))
        await await_phase(api, "p", "Succeeded")
        assert said(kubelets) == ["secret2pof the host", "deep", "name"]


async def test_volumes_follow_their_sources(api: MemoryApi, playing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_runtime, "_REFRESH_SECONDS", 0.05)
    await api.create(CONFIG_MAP, {"metadata": {"name": "c", "namespace": "default"}, "data": {"a": "old"}})
    volumes = [{"name": "v", "configMap": {"name": "c"}}]
    script = "until grep -q new /etc/v/a; do sleep 0.05; done"
    async with playing():
        await api.create(POD, shell(script, volumes=volumes, volumeMounts=[{"name": "v", "mountPath": "/etc/v"}]))
        await await_phase(api, "p", "Running")
        await api.patch(CONFIG_MAP.ref("c", "default"), Patch.merge({"data": {"a": "new"}}))
        await await_phase(api, "p", "Succeeded")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"envFrom": [{"secretRef": {"name": "late"}}]}, "late"),
        ({"command": ["bash"]}, "image registry/shell:1 has no program 'bash'"),
        ({"livenessProbe": {"exec": {}}}, "container main: only httpGet probes are supported here"),
        ({"volumes": [{"name": "v", "nfs": {}}]}, "volume v: volumes of kind nfs are not supported here"),
    ],
)
async def test_what_keeps_a_container_from_starting_is_told(
    api: MemoryApi, playing: Any, more: Object, message: str
) -> None:
    async def told() -> bool:
        rows = (await status_of(api, "p")).get("containerStatuses") or [{"state": {}}]
        return message in (rows[0]["state"].get("waiting") or {}).get("message", "")

    async with playing():
        await api.create(POD, shell("true", **more))
        await eventually(told)
        assert (await status_of(api, "p"))["phase"] == "Pending"
        if "envFrom" in more:
            await api.create(SECRET, {"metadata": {"name": "late", "namespace": "default"}})
            await await_phase(api, "p", "Succeeded")


async def test_a_container_that_ends_is_started_again(api: MemoryApi, playing: Any) -> None:
    async def restarted() -> Object | None:
        (row,) = (await status_of(api, "p")).get("containerStatuses") or [{"restartCount": 0}]
        return row if row["restartCount"] >= 2 and "running" in row["state"] else None

    script = f'echo x >> /scratch/x; n=$(wc -l < /scratch/x); echo "run $n"; [ "$n" -lt 3 ] && exit 7; {FOREVER}'
    work = {"volumes": [{"name": "w", "emptyDir": {}}], "volumeMounts": [{"name": "w", "mountPath": "/scratch"}]}
    async with playing() as kubelets:
        await api.create(POD, shell(script, "Always", **work))
        row = await eventually(restarted)
        assert row["lastState"]["terminated"]["exitCode"] == 7
        assert said(kubelets, previous=True) == ["run 2"]

        async def speaks() -> bool:
            return said(kubelets) == ["run 3"]

        await eventually(speaks)


SERVER = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists(self.path.lstrip("/")) else 503)
        self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer((os.environ["KAI_LISTEN_HOST"], 8080), Handler).serve_forever()
"""


async def test_probes_decide_who_is_ready_and_who_lives(api: MemoryApi, playing: Any, tmp_path: Path) -> None:
    def probe(path: str, failures: int) -> Object:
        return {"httpGet": {"port": 8080, "path": path}, "periodSeconds": 0.05, "failureThreshold": failures}

    async def state() -> tuple[str, int]:
        status = await status_of(api, "p")
        ready = {row["type"]: row["status"] for row in status.get("conditions") or ()}.get("Ready", "")
        return ready, (status.get("containerStatuses") or [{"restartCount": 0}])[0]["restartCount"]

    async def becomes(wanted: tuple[str, int]) -> None:
        async def check() -> bool:
            return await state() == wanted

        await eventually(check)

    given = {"readinessProbe": probe("/ready", 1), "livenessProbe": probe("/alive", 60)}
    async with playing():
        await api.create(POD, shell(SERVER, "Always", command=["python", "-c"], **given))
        await becomes(("False", 0))
        (root,) = tmp_path.glob("*/containers/main")
        (root / "ready").touch()
        await becomes(("True", 0))
        (root / "ready").unlink()
        await becomes(("False", 0))
        (root / "ready").touch()
        await becomes(("False", 1))
        (root / "alive").touch()
        await becomes(("True", 1))


async def said_ready(kubelets: HollowKubelets) -> PodLog:
    """The log of the pod p once it says that its program is ready."""

    async def found() -> PodLog | None:
        log = kubelets.pods.log_of("default", "p")
        return log if log and log.chosen(LogOptions()) else None

    log: PodLog = await eventually(found)
    return log


@pytest.mark.parametrize(("trap", "words"), [("trap 'echo bye; exit 0' TERM", ["bye"]), ("sleep 60 & true", [])])
async def test_a_deleted_pod_may_say_goodbye(api: MemoryApi, playing: Any, trap: str, words: list[str]) -> None:
    async with playing() as kubelets:
        await api.create(POD, shell(f"{trap}; echo ready; {FOREVER}"))
        log = await said_ready(kubelets)
        begun = time.monotonic()
        await api.delete(POD.ref("p", "default"))
        await await_gone(api, "p")
        assert time.monotonic() - begun < 20, "long before its grace of 30 seconds ends"
        assert [line.text for line in log.chosen(LogOptions())] == ["ready", *words]


async def test_a_container_that_ends_sooner_does_not_cut_the_grace_of_others(api: MemoryApi, playing: Any) -> None:
    """And what a container leaves running goes with it."""
    slow = shell("trap 'sleep 0.3; echo bye; exit 0' TERM; sleep 60 & echo ready; wait")
    slow["spec"]["containers"].append({"name": "quick", "image": "shell", "args": ["exec sleep 60"]})
    async with playing() as kubelets:
        await api.create(POD, slow)
        log = await said_ready(kubelets)
        await await_phase(api, "p", "Running")
        begun = time.monotonic()
        await api.delete(POD.ref("p", "default"))
        await await_gone(api, "p")
        assert time.monotonic() - begun < 20
        assert [line.text for line in log.chosen(LogOptions())] == ["ready", "bye"]


async def test_who_does_not_listen_is_ended_by_force(api: MemoryApi, playing: Any) -> None:
    async with playing() as kubelets:
        await api.create(POD, shell(f"trap '' TERM; echo ready; {FOREVER}"))
        await said_ready(kubelets)
        begun = time.monotonic()
        await api.delete(POD.ref("p", "default"), Deletion(grace_seconds=1))
        await await_gone(api, "p")
        assert time.monotonic() - begun > 0.5


async def test_a_process_does_not_outlive_its_force_deleted_pod(api: MemoryApi, playing: Any) -> None:
    async with playing() as kubelets:
        await api.create(POD, shell(f"trap '' TERM; echo $$$$; {FOREVER}"))
        log = await said_ready(kubelets)
        pid = int(log.chosen(LogOptions())[0].text)
        begun = time.monotonic()
        await api.delete(POD.ref("p", "default"), Deletion(grace_seconds=0))

        async def ended() -> bool:
            return identify(pid) is None

        await eventually(ended)
        assert time.monotonic() - begun < 20, "the process had the grace of a pod that still exists"


PARENT = """
import asyncio, sys
from pathlib import Path
from pykai.local.containers import Command, running_process

async def main():
    async with running_process(Command(["sleep", "60"], {}, Path("/")), print, lambda: 1.0) as process:
        print(process.pid, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends the children of a killed process")
def test_no_process_outlives_a_killed_kubelet() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
