"""What runs on a local cluster beside the control plane and the hollow nodes: all components, programs in pods, images.

They share the process of the cluster's owner. The cluster is installed first; webhooks are served on loopback under a
certificate of their own, kept beside the cluster's other files, and registered before the cluster counts as ready.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pykai.admission.pods import PodSettings
from pykai.admission.registration import PodSelection
from pykai.cli import all as everything
from pykai.cli.admission import WebhookSettings
from pykai.cli.component import Process, live
from pykai.cli.install import install
from pykai.cli.reservation import on_hollow_nodes
from pykai.controllers.node_scale import NodeScalerSettings, ScalingPodTemplate, ScalingSettings
from pykai.hollow.hollow_node import HollowDevice
from pykai.hollow.kubelet_settings import Log, OnStart
from pykai.hollow.kubelet_settings import Program as PodProgram
from pykai.kube.api import Api, Object
from pykai.local.containers import Image, Images
from pykai.local.session import LocalComponent, connect
from pykai.objects import names

HOST = "127.0.0.1"
_PROCESS = Process("kai", metrics_address=f"{HOST}:0", health_address="0")


def settings(certificates: Path, mode: str = "", autoscaled: bool = False) -> everything.AllSettings:
    """Everything switched on that users try first: GPU sharing; without runtime classes, which hollow nodes lack.

    `mode`: the GPU sharing mode; NonMemoryEnforced if empty. `autoscaled`: an autoscaler sees shares that wait.
    """
    seen = PodSelection(checks_resizes=True)
    webhook = WebhookSettings(everything.PATHS, seen, host=HOST, port=0, certificates=certificates, own_host=HOST)
    pods = PodSettings(gpu_sharing=True, fraction_runtime_class="")
    usual = everything.settings_for(names.SCHEDULER_NAME, pods, webhook)
    reservations = replace(usual.binder.reservations, runtime_class="")
    made = replace(
        usual,
        scheduler=replace(usual.scheduler, plugin_port=0),
        binder=replace(usual.binder, reservations=reservations),
        scaling=NodeScalerSettings(ScalingSettings(ScalingPodTemplate("scaling-pod"))) if autoscaled else None,
    )
    return everything.in_sharing_mode(made, mode) if mode else made


class LocalProduct:
    """The product on the one local cluster of this process; `mode`: how pods share GPUs, the usual way if empty."""

    def __init__(self, mode: str = "") -> None:
        self.mode = mode
        self.autoscaled = False
        self._api: Api | None = None

    async def run(self, kubeconfig: Path, ready: asyncio.Event) -> None:
        """Install the product and run all of it until cancelled."""
        async with connect(kubeconfig) as api:
            self._api = api
            await install(api)
            compose = partial(everything.compose, settings(kubeconfig.parent / "webhook", self.mode, self.autoscaled))
            await live(api, _PROCESS, compose, all_ready=ready)

    async def run_pods_only(self, kubeconfig: Path, ready: asyncio.Event) -> None:
        """Only let programs in pods work until cancelled; the chart or the user runs the components."""
        async with connect(kubeconfig) as api:
            self._api = api
            ready.set()
            await asyncio.Event().wait()

    def connection(self) -> Api:
        """The client that programs in pods use; an error before the product runs, after which a pod is restarted."""
        if self._api is None:
            raise RuntimeError("the local cluster is not connected yet")
        return self._api


_PRODUCT = LocalProduct()
KAI = LocalComponent("kai", _PRODUCT.run)
PODS_ONLY = LocalComponent("pod-programs", _PRODUCT.run_pods_only)
RESERVATION = on_hollow_nodes(_PRODUCT.connection)

COMPONENTS: Sequence[LocalComponent] = (KAI,)
"""What runs on every local cluster, started in this order."""


def chosen(mode: str, autoscaled: bool) -> Sequence[LocalComponent]:
    """The components, with pods that share GPUs in a mode, and an autoscaler beside them or none."""
    _PRODUCT.mode, _PRODUCT.autoscaled = mode, autoscaled
    return COMPONENTS


PROGRAMS: Sequence[OnStart] = (RESERVATION,)
"""What pods run; they are asked in this order and the first program wins."""

IMAGES: Images = {
    "pykai": Image({"kai": (sys.executable, "-m", "pykai")}, ("kai",), {"PYTHONUNBUFFERED": "1"}),
}
"""Whose containers run as processes: with `--bare`, the components that the chart and its operator deploy."""


def first_program(pod: Object, node: str, devices: tuple[HollowDevice, ...], log: Log) -> PodProgram | None:
    """What a pod on a hollow node runs, if anything."""
    programs = (choose(pod, node, devices, log) for choose in PROGRAMS)
    return next((program for program in programs if program is not None), None)
