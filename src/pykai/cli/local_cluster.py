"""What runs on a local cluster beside the control plane and the hollow nodes: all components, pod programs, images.

They run in the process of the cluster's owner. The product is installed first; its webhooks are served on loopback with
a self-issued certificate in the cluster's directory, and are registered before the cluster becomes ready.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pykai.admission.pod_rules import PodSettings
from pykai.admission.registration import PodSelection
from pykai.cli import all as everything
from pykai.cli.admission import WebhookSettings
from pykai.cli.component import Process, run_composition
from pykai.cli.install import install
from pykai.cli.resource_reservation import on_hollow_nodes
from pykai.controllers.node_scale import NodeScalerSettings, ScalingPodTemplate, ScalingSettings
from pykai.hollow.hollow_node import HollowDevice
from pykai.hollow.kubelet_settings import Log, OnStart
from pykai.hollow.kubelet_settings import Program as PodProgram
from pykai.kube.api import Api, Object
from pykai.local.cluster_session import LocalComponent, connect
from pykai.local.pod_runtime import Image, Images
from pykai.objects import names

HOST = "127.0.0.1"
_PROCESS = Process("kai", metrics_address=f"{HOST}:0", health_address="0")


def settings(certificates: Path, mode: str = "", autoscaled: bool = False) -> everything.AllSettings:
    """Return the settings of all components: GPU sharing is enabled; no runtime classes, which hollow nodes lack.

    `mode`: the GPU sharing mode, by default NonMemoryEnforced. `autoscaled`: run the node scale adjuster, which makes
    waiting GPU shares visible to an autoscaler.
    """
    selection = PodSelection(checks_resizes=True)
    webhook = WebhookSettings(everything.PATHS, selection, host=HOST, port=0, certificates=certificates, own_host=HOST)
    pods = PodSettings(gpu_sharing=True, fraction_runtime_class="")
    defaults = everything.settings_for(names.SCHEDULER_NAME, pods, webhook)
    reservations = replace(defaults.binder.reservations, runtime_class="")
    configured = replace(
        defaults,
        scheduler=replace(defaults.scheduler, plugin_port=0),
        binder=replace(defaults.binder, reservations=reservations),
        scaling=NodeScalerSettings(ScalingSettings(ScalingPodTemplate("scaling-pod"))) if autoscaled else None,
    )
    return everything.with_sharing_mode(configured, mode) if mode else configured


class LocalProduct:
    """The product on the local cluster of this process; `mode`: the GPU sharing mode, by default NonMemoryEnforced."""

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
            await run_composition(api, _PROCESS, compose, all_ready=ready)

    async def run_pods_only(self, kubeconfig: Path, ready: asyncio.Event) -> None:
        """Connect the programs in pods until cancelled; the chart or the user runs the components."""
        async with connect(kubeconfig) as api:
            self._api = api
            ready.set()
            await asyncio.Event().wait()

    def connection(self) -> Api:
        """The API client of programs in pods; before the product runs, an error, which restarts the pod."""
        if self._api is None:
            raise RuntimeError("the local cluster is not connected yet")
        return self._api


_PRODUCT = LocalProduct()
KAI = LocalComponent("kai", _PRODUCT.run)
PODS_ONLY = LocalComponent("pod-programs", _PRODUCT.run_pods_only)
RESERVATION = on_hollow_nodes(_PRODUCT.connection)

COMPONENTS: Sequence[LocalComponent] = (KAI,)
"""The components of every local cluster."""


def components(mode: str, autoscaled: bool) -> Sequence[LocalComponent]:
    """Return the components, configured for a GPU sharing mode and for an autoscaler, if there is one."""
    _PRODUCT.mode, _PRODUCT.autoscaled = mode, autoscaled
    return COMPONENTS


PROGRAMS: Sequence[OnStart] = (RESERVATION,)
"""The programs that pods run; the first that applies to a pod wins."""

IMAGES: Images = {
    "pykai": Image({"kai": (sys.executable, "-m", "pykai")}, ("kai",), {"PYTHONUNBUFFERED": "1"}),
}
"""Images whose containers run as processes: with `--bare`, the components that the chart and its operator deploy."""


def first_program(pod: Object, node: str, devices: tuple[HollowDevice, ...], log: Log) -> PodProgram | None:
    """Return the program that a pod on a hollow node runs; None if there is none for it."""
    programs = (choose(pod, node, devices, log) for choose in PROGRAMS)
    return next((program for program in programs if program is not None), None)
