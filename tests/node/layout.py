"""Where things of a real node are, and the configuration files of its parts."""

from __future__ import annotations

import json
from pathlib import Path

from pykai.local.build import Module

MACHINE = Path(__file__).with_name("machine")
NODE_MODULE = Module(MACHINE, "node", ("kubelet", "--version"))
PROJECT = Path(__file__).parents[2]
HOME = PROJECT / "build" / "node"
"""The working directory of a run."""
KUBELET_HOME = Path("/var/lib/kubelet")
"""Fixed: device plugins and drivers look for sockets below it."""
FIXED = (KUBELET_HOME, *map(Path, ("/run/containerd", "/var/lib/cni", "/var/log/containers")))
"""What the parts of a node use whatever their configuration says; inside, directories of `HOME` are mounted there."""
CNI_PROGRAMS = Path("/usr/lib/cni")
CGROUP = "pykai-node"
ADDRESS = "172.30.0.1"
"""Of node and API server, on the loopback device of the network namespace: pods reach it, nothing outside does."""
NODE = "real-1"
PODS = "10.244.0.0/24"
GPUS = ("GPU-aaaaaaaa-0000-0000-0000-000000000001", "GPU-bbbbbbbb-0000-0000-0000-000000000002")
SOCKET = HOME / "containerd.sock"
RUNTIME_LOG = HOME / "logs" / "runtime.log"
NO_NVML = HOME / "no-nvml"
"""While this file exists, the runtime brings no NVML into containers."""


def cgroup_roots() -> list[Path]:
    """The root of every cgroup hierarchy: one, or with version 1 one for each controller."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return [root]
    return [each for each in root.iterdir() if each.is_dir() and not each.is_symlink()]


def containerd() -> str:
    """The configuration of containerd, with a runtime `nvidia` that brings GPUs into containers."""
    plugin = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""
version = 2
root = "{HOME}/containerd"
state = "{HOME}/containerd-state"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{HOME}/containerd-opt"
[{plugin}]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[{plugin}.cni]
  bin_dir = "{CNI_PROGRAMS}"
  conf_dir = "{HOME}/cni"
[{plugin}.containerd]
  default_runtime_name = "runc"
[{plugin}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{plugin}.containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
[{plugin}.containerd.runtimes.nvidia.options]
  BinaryName = "{HOME}/nvidia-runtime"
"""


def network() -> str:
    """A bridge for the pods of this node."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "kai0", "isGateway": True, "ipMasq": True, "hairpinMode": True}
    plugins = [{**bridge, "ipam": {**ipam, "dataDir": f"{HOME}/cni-data"}}]
    return json.dumps({"cniVersion": "0.4.0", "name": "kai", "plugins": plugins})


def kubelet() -> str:
    """The configuration of the kubelet; JSON is YAML, too."""
    return json.dumps({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "address": ADDRESS,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "failSwapOn": False,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "serializeImagePulls": False,
        "resolvConf": "",
        "podLogsDir": f"{HOME}/pod-logs",
        "syncFrequency": "10s",
    })  # fmt: skip


def proxy(kubeconfig: Path) -> str:
    """The configuration of kube-proxy; it leaves the limits of connection tracking alone."""
    return json.dumps({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": PODS,
        "bindAddress": "127.0.0.1",
        "hostnameOverride": NODE,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "conntrack": {"maxPerCore": 0, "min": 0},
    })  # fmt: skip
