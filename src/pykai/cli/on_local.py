"""All components on a local cluster: what `kai local` runs beside the control plane and the hollow nodes.

They share the process of the cluster's owner. The cluster is installed first; webhooks are served on loopback under a
certificate of their own, kept beside the cluster's other files, and registered before the cluster counts as ready.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

from pykai.admission.pods import PodSettings
from pykai.cli import all as everything
from pykai.cli.component import Process, live
from pykai.cli.install import install
from pykai.cli.reservation import on_hollow_nodes
from pykai.cli.webhooks import WebhookSettings
from pykai.kube.api import Api
from pykai.local.session import Component, connect
from pykai.objects import names

HOST = "127.0.0.1"
_PROCESS = Process("kai", metrics_address=f"{HOST}:0", health_address="0")


def settings(certificates: Path) -> everything.AllSettings:
    """Everything switched on that users try first: GPU sharing; without runtime classes, which hollow nodes lack."""
    webhook = WebhookSettings(everything.PATHS, host=HOST, port=0, certificates=certificates, own_host=HOST)
    pods = PodSettings(gpu_sharing=True, fraction_runtime_class="")
    usual = everything.settings_for(names.SCHEDULER_NAME, pods, webhook)
    reservations = replace(usual.binder.reservations, runtime_class="")
    return replace(
        usual,
        scheduler=replace(usual.scheduler, plugin_port=0),
        binder=replace(usual.binder, reservations=reservations),
    )


class Product:
    """The product on the one local cluster of this process."""

    def __init__(self) -> None:
        self._api: Api | None = None

    async def run(self, kubeconfig: Path, ready: asyncio.Event) -> None:
        """Install the product and run all of it until cancelled."""
        async with connect(kubeconfig) as api:
            self._api = api
            await install(api)
            compose = partial(everything.compose, settings(kubeconfig.parent / "webhook"))
            await live(api, _PROCESS, compose, all_ready=ready)

    async def run_pods_only(self, kubeconfig: Path, ready: asyncio.Event) -> None:
        """Only let programs in pods work until cancelled; the components are somebody else's affair."""
        async with connect(kubeconfig) as api:
            self._api = api
            ready.set()
            await asyncio.Event().wait()

    def connection(self) -> Api:
        """The client that programs in pods use; an error before the product runs, after which a pod is restarted."""
        if self._api is None:
            raise RuntimeError("the local cluster is not connected yet")
        return self._api


_PRODUCT = Product()
KAI = Component("kai", _PRODUCT.run)
PODS_ONLY = Component("pod-programs", _PRODUCT.run_pods_only)
RESERVATION = on_hollow_nodes(_PRODUCT.connection)
