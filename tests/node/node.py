"""A real node and its control plane: starts and stops the parts, and asks the API server with kubectl.

Runs inside the namespaces of `python -m tests.node`: what it mounts and configures ends with them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deploy.image import oci

from pykai.local import control_plane
from pykai.local.build import ensure_binary
from pykai.local.clusters import ClusterFiles, free_ports
from pykai.local.control_plane import ControlPlane
from tests.node import layout
from tests.node.layout import (
    ADDRESS,
    CGROUP,
    GPUS,
    HOME,
    KUBELET_HOME,
    MACHINE,
    NODE,
    NODE_MODULE,
    PROJECT,
    cgroup_roots,
)

Object = dict[str, Any]
DRA_DRIVER = "gpu.fake.dev"
GPU_MEMORY_MIB = 81559
_TUNNELLED = ("egress-selector-config-file", "enable-aggregator-routing", "disable-admission-plugins")


def _apiserver(files: ClusterFiles) -> dict[str, str | int]:
    """As in `kai local`, but Services are reachable: kube-proxy runs, and endpoints are real."""
    flags = control_plane.FLAGS[control_plane.APISERVER](files)
    kept = {name: value for name, value in flags.items() if name not in _TUNNELLED}
    return {**kept, "endpoint-reconciler-type": "master-count"}


FLAGS = {**control_plane.FLAGS, control_plane.APISERVER: _apiserver}


class CommandError(AssertionError):
    """A command failed; the text is what it said."""


def run(*command: str | Path, given: str = "") -> str:
    """The output of a command."""
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    if done.returncode:
        raise CommandError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def patience() -> float:
    """How much longer than on a machine of one's own things may take: processes that want to run for each processor."""
    return max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0)


def until(what: str, holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What `holds` gives as soon as it is true; AssertionError with its last answer when time is up."""
    seconds *= patience()
    deadline = time.monotonic() + seconds
    while True:
        answer = holds()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not in {seconds:g} s: {what}; last answer: {answer!r}"
        time.sleep(0.3)


class RealNode:
    """One machine with a control plane; parts can be stopped and started one by one."""

    def __init__(self) -> None:
        self._controlplane = ensure_binary()
        self._binary = ensure_binary(module=NODE_MODULE)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        files = ClusterFiles(HOME / "plane", free_ports(ADDRESS), ADDRESS)
        self._plane = ControlPlane(files, self._controlplane, (control_plane.SCHEDULER,), FLAGS)
        self.kubeconfig = files.kubeconfig

    # ------------------------------------------------------------------------------------------------------- parts
    def start(self) -> None:
        """Start everything; returns when the node is ready and offers its GPUs."""
        self._plane.start()
        (HOME / "proxy.yaml").write_text(layout.proxy(self.kubeconfig))
        self.launch("containerd", "containerd", "-c", HOME / "containerd.toml")
        until("containerd answers", lambda: self._ctr_answers())
        for archive in (HOME / "pause.tar", PROJECT / "dist" / "images.tar"):
            self.ctr("images", "import", str(archive))
        self.launch("kube-proxy", self._binary, "kube-proxy", f"--config={HOME}/proxy.yaml")
        self.start_kubelet()
        self.start_device_plugin()
        labels = {"memory": GPU_MEMORY_MIB, "count": len(GPUS), "product": "NVIDIA-H100-80GB-HBM3", "present": "true"}
        self.kubectl("label", "node", NODE, *(f"nvidia.com/gpu.{key}={value}" for key, value in labels.items()))
        self.kubectl("apply", "-f", str(PROJECT / "examples/runtime-class.yaml"))

    def start_kubelet(self) -> None:
        """Start the kubelet; returns when it takes device plugins and the node is ready."""
        socket = KUBELET_HOME / "device-plugins/kubelet.sock"
        socket.unlink(missing_ok=True)  # of the kubelet before
        config, host = f"--config={HOME}/kubelet.yaml", (f"--hostname-override={NODE}", f"--node-ip={ADDRESS}")
        self.launch("kubelet", self._binary, "kubelet", config, f"--kubeconfig={self.kubeconfig}", *host)
        until("the kubelet takes device plugins", lambda: self.alive("kubelet") and socket.exists())
        until("the node is ready", lambda: "Ready" in self.conditions(f"node/{NODE}"))

    def start_device_plugin(self) -> None:
        """Offer the GPUs; needed after every start of the kubelet."""
        log, wanted = HOME / "logs/device-plugin.log", str(len(GPUS))
        log.unlink(missing_ok=True)
        self.launch("device-plugin", self._binary, "device-plugin", *GPUS)
        until("the kubelet knows the plugin", lambda: self.alive("device-plugin") and "registered" in log.read_text())
        until("the GPUs are offered", lambda: self.allocatable().get("nvidia.com/gpu") == wanted)

    def start_dra_driver(self) -> None:
        """Offer devices through a DRA driver."""
        self.launch("dra-driver", self._binary, "dra-driver", self.kubeconfig, NODE, DRA_DRIVER)
        until("devices are published", lambda: self.get("resourceslices")["items"])

    def stop_dra_driver(self) -> None:
        """Withdraw its devices: GPUs of a node that publishes some are not shared."""
        self.stop("dra-driver")
        self.kubectl("delete", "resourceslices", "--all")

    def launch(self, name: str, *command: str | Path) -> None:
        """Start a part; its output goes to a log of its own."""
        with (HOME / "logs" / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log, cwd=HOME)

    def alive(self, name: str) -> bool:
        """True while a part runs; AssertionError with the end of its log if it ended."""
        code = self._processes[name].poll()
        if code is not None:
            log = (HOME / "logs" / f"{name}.log").read_text(errors="replace").splitlines()[-15:]
            raise AssertionError("\n".join([f"{name} ended with code {code}:", *log]))
        return True

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop a part and wait for its end."""
        process = self._processes.pop(name)
        process.send_signal(number)
        process.wait(timeout=30)

    def stop_all(self) -> None:
        """Stop everything, clients before servers."""
        for name in ("dra-driver", "device-plugin", "kubelet", "kube-proxy"):
            if name in self._processes:
                self.stop(name)
        self._plane.stop()
        if "containerd" in self._processes:
            self.stop("containerd")

    # -------------------------------------------------------------------------------------------------- containerd
    def ctr(self, *arguments: str) -> str:
        """What containerd's client says about the containers of Kubernetes."""
        return run("ctr", "-a", layout.SOCKET, "-n", "k8s.io", *arguments)

    def _ctr_answers(self) -> bool:
        self.alive("containerd")
        command = ["ctr", "-a", str(layout.SOCKET), "version"]
        return subprocess.run(command, capture_output=True).returncode == 0

    def kill_container(self, pod: Object) -> None:
        """Kill the first container of a pod as the kernel's OOM killer would."""
        container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        self.ctr("tasks", "kill", "--signal", "SIGKILL", container)

    def kill_everything(self) -> None:
        """Kill every container, as a reboot does."""
        for each in self.ctr("tasks", "list", "-q").split():
            subprocess.run(["ctr", "-a", layout.SOCKET, "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", each])

    # -------------------------------------------------------------------------------------------------- API server
    def kubectl(self, *arguments: str, given: str = "") -> str:
        """What kubectl prints."""
        return run(self._controlplane, "kubectl", f"--kubeconfig={self.kubeconfig}", *arguments, given=given)

    def helm(self, *arguments: str) -> str:
        """What Helm prints."""
        return run(Path(sys.executable).with_name("helm"), f"--kubeconfig={self.kubeconfig}", *arguments)

    def get(self, what: str, namespace: str = "default") -> Object:
        """An object (`pod/x`) or a list of objects (`pods`); of all namespaces where that is empty."""
        where = ("-n", namespace) if namespace else ("-A",)
        found: Object = json.loads(self.kubectl("get", what, *where, "-o", "json"))
        return found

    def apply(self, *objects: Object) -> None:
        """Create or change objects."""
        self.kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def try_to_apply(self, *objects: Object) -> bool:
        """Create or change objects; False if the server refuses one."""
        try:
            self.apply(*objects)
        except CommandError:
            return False
        return True

    def conditions(self, what: str, namespace: str = "default") -> set[str]:
        """The types of the conditions of an object that are true."""
        rows = (self.get(what, namespace).get("status") or {}).get("conditions") or ()
        return {row["type"] for row in rows if row["status"] == "True"}

    def allocatable(self) -> dict[str, str]:
        """What the node offers to pods."""
        return dict(self.get(f"node/{NODE}")["status"]["allocatable"])

    def summary(self) -> str:
        """Pods, bind requests and the last events, for a test that failed."""
        asked = (("pods", "-A", "-o", "wide"), ("bindrequests", "-A"), ("events", "-A", "--sort-by=.lastTimestamp"))
        parts = []
        for words in asked:
            with contextlib.suppress(CommandError):
                parts += self.kubectl("get", *words).splitlines()[-30:]
        return "\n".join(parts)

    def environment(self, pod: str, namespace: str) -> dict[str, str]:
        """The environment that the container of a test pod really has."""
        lines = self.kubectl("logs", "-n", namespace, pod).splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


def prepare() -> None:
    """Files, mounts and addresses of the node."""
    for directory in ("logs", "cni", "plane", "pod-logs"):
        (HOME / directory).mkdir(exist_ok=True)
    for name, text in {
        "containerd.toml": layout.containerd(),
        "kubelet.yaml": layout.kubelet(),
        "cni/10-kai.conflist": layout.network(),
    }.items():
        (HOME / name).write_text(text)
    runtime = Path(__file__).with_name("runtime.py").read_text()
    runtime = f"#!{sys.executable} -I\n" + runtime.replace("@HOME@", str(HOME)).replace("@GPUS@", json.dumps(GPUS))
    (HOME / "nvidia-runtime").write_text(runtime)
    (HOME / "nvidia-runtime").chmod(0o755)
    run("gcc", "-Os", "-static", "-o", HOME / "pause", MACHINE / "pause.c")
    library = HOME / "libnvidia-ml.so.1"
    run("gcc", "-Os", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", library, MACHINE / "nvml.c")
    _write_images(HOME / "pause.tar")
    for root in cgroup_roots():
        (root / CGROUP).mkdir(exist_ok=True)
    run("mount", "--make-rshared", "/")
    for fixed in layout.FIXED:
        own = HOME / "fixed" / fixed.name
        own.mkdir(parents=True)
        run("mount", "--bind", own, fixed)
        run("mount", "--make-shared", fixed)
    run("ip", "link", "set", "lo", "up")
    run("ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo")
    run("ip", "route", "add", "default", "dev", "lo", "src", ADDRESS)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _write_images(archive: Path) -> None:
    """`localhost/pause:1`, of sandboxes, and `localhost/test:1`, which prints its environment."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "tmp").mkdir()
        shutil.copy(HOME / "pause", Path(folder) / "pause")
        layer = oci.layer(Path(folder), "pause")
    images = [oci.Image("localhost/pause", ["/pause"]), oci.Image("localhost/test", ["/pause", "env"])]
    oci.write(archive, images, [layer], oci.Settings("1", "amd64", "65535:65535", "/", {}))


@contextlib.contextmanager
def real_node() -> Iterator[RealNode]:
    """A running node."""
    os.environ.pop("KUBECONFIG", None)
    os.environ["KUBECACHEDIR"] = str(HOME / "kubectl")
    prepare()
    node = RealNode()
    try:
        node.start()
        yield node
    finally:
        node.stop_all()


def pod(name: str, arguments: Sequence[str] = ("env",), **more: Any) -> Object:
    """A test pod of namespace `team`.

    `gpus`: whole ones; `resources`, `annotations`, `queue`; `priority`: its class; `grace`: seconds; `spec`: more.
    """
    container: Object = {
        "name": "main", "image": "localhost/test:1", "imagePullPolicy": "Never", "command": ["/pause"],
        "args": list(arguments), "resources": {},
    }  # fmt: skip
    if more.get("gpus"):
        container["resources"] = {"limits": {"nvidia.com/gpu": more["gpus"]}}
    container["resources"] |= more.get("resources", {})
    spec = {
        "schedulerName": "kai-scheduler",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": more.get("grace", 2),
        "containers": [container],
        **({"priorityClassName": more["priority"]} if "priority" in more else {}),
        **more.get("spec", {}),
    }
    metadata = {"name": name, "namespace": "team", "labels": {"kai.scheduler/queue": more.get("queue", "test")}}
    metadata["annotations"] = more.get("annotations", {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
