"""Hollow kubelets: any number of nodes without machines, run by asyncio tasks of one process.

To the control plane they are kubelets: they register nodes and keep them ready, admit or reject bound pods, run and
terminate them, and serve `kubectl logs`. A pod runs a program of the caller (`KubeletSettings.on_start`) or its
containers (a `Runtime`).

Lease renewals are spread evenly, and less frequent with many nodes, to keep the load on the API server low; the node
monitor grace period (`NODE_GRACE_SECONDS`) is three times the longest interval. One server on loopback serves the
kubelet API of all nodes with a self-signed certificate, which the API server does not verify by default.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import tempfile
import time
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pykai.hollow.hollow_node import (
    HOST,
    GpuShape,
    NodeLedger,
    NodeShape,
    allocatable,
    node_conditions,
    node_object,
    shape_devices,
)
from pykai.hollow.kubelet_settings import KubeletSettings, LogOptions, PodLog, Runtime
from pykai.hollow.pod_lifecycle import PodLifecycles
from pykai.kube.api import Api, EventType, Object, Patch, Selection
from pykai.kube.api_resources import LEASE, NODE, POD
from pykai.kube.clock import wall
from pykai.kube.errors import AlreadyExists, ApiError, NotFound
from pykai.kube.informer import SharedInformer
from pykai.kube.informer_store import WatchChange
from pykai.local.control_plane import NODE_GRACE_SECONDS
from pykai.objects import names, units
from pykai.observe.http import listening

LEASE_NAMESPACE = "kube-node-lease"
FAKE_LABEL = ("kwok.x-k8s.io/node", "fake")
"""The label of Node objects without a kubelet, which kwok-based autoscalers create; hollow kubelets adopt them."""
_RENEWALS_PER_SECOND = 20
_RENEWAL_INTERVAL_SECONDS = (10.0, NODE_GRACE_SECONDS / 3)
_RENEWAL_STEP_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_CONCURRENT_REGISTRATIONS = 32


def renewal_interval(nodes: int) -> float:
    """Return the interval between two renewals of a node's lease in seconds."""
    shortest, longest = _RENEWAL_INTERVAL_SECONDS
    return min(longest, max(shortest, nodes / _RENEWALS_PER_SECOND))


def _micro_time() -> str:
    return datetime.fromtimestamp(wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Registration:
    """Registers hollow nodes and renews their leases; `kubelet_port`: the port of the kubelet API."""

    def __init__(self, api: Api, kubelet_port: int) -> None:
        self._api = api
        self._kubelet_port = kubelet_port

    async def register(self, shapes: Iterable[NodeShape]) -> list[Object]:
        """Register every node as ready, or adopt the existing one; return the Node objects."""
        limit = asyncio.Semaphore(_CONCURRENT_REGISTRATIONS)

        async def one(shape: NodeShape) -> Object:
            async with limit:
                return await self._register(shape)

        return await asyncio.gather(*map(one, shapes))

    async def _register(self, shape: NodeShape) -> Object:
        body = node_object(shape, units.rfc3339(wall()), self._kubelet_port)
        try:
            node = await self._api.create(NODE, body)
        except AlreadyExists:
            labels = {"metadata": {"labels": body["metadata"]["labels"]}}
            await self._api.patch(NODE.ref(shape.name), Patch.merge(labels))
            node = await self._patch_status(shape.name, body["status"])
        owner = {"apiVersion": "v1", "kind": "Node", "name": shape.name, "uid": node["metadata"]["uid"]}
        lease = {
            "metadata": {"name": shape.name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
            "spec": {
                "holderIdentity": shape.name,
                "leaseDurationSeconds": NODE_GRACE_SECONDS,
                "renewTime": _micro_time(),
            },
        }
        try:
            await self._api.create(LEASE, lease)
        except AlreadyExists:
            await self.renew(shape.name)
        return node

    async def _patch_status(self, name: str, status: Object) -> Object:
        return await self._api.patch(NODE.ref(name).sub("status"), Patch.strategic({"status": status}))

    async def heal(self, name: str) -> None:
        """Report the node ready again after the node controller marked it otherwise."""
        while True:
            try:
                await self._patch_status(name, {"conditions": node_conditions(units.rfc3339(wall()), gpus=False)})
            except NotFound:
                return
            except ApiError:
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def renew(self, name: str) -> None:
        """Renew the node's lease; errors are ignored until the next renewal."""
        lease = LEASE.ref(name, LEASE_NAMESPACE)
        try:
            await self._api.patch(lease, Patch.merge({"spec": {"renewTime": _micro_time()}}))
        except ApiError:
            return

    async def keep_renewing(self, names: Collection[str]) -> None:
        """Renew the leases until cancelled, spread evenly; `names` may change meanwhile."""
        while True:
            present = list(names)
            steps = int(renewal_interval(len(present)) / _RENEWAL_STEP_SECONDS)
            for step in range(steps):
                await asyncio.gather(*map(self.renew, present[step::steps]))
                await asyncio.sleep(_RENEWAL_STEP_SECONDS)


def is_ready(node: Object) -> bool:
    """Whether the node has the condition Ready."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def shape_of(node: Object) -> NodeShape | None:
    """Return the shape of a Node object with FAKE_LABEL; None for any other."""
    labels, key = node["metadata"].get("labels") or {}, FAKE_LABEL[0]
    if labels.get(key) != FAKE_LABEL[1]:
        return None
    resources = dict((node.get("status") or {}).get("allocatable") or {})
    gpus = int(resources.pop(names.NVIDIA_GPU, 0))
    gpu_shape = GpuShape(
        gpus,
        int(labels.get(names.GPU_MEMORY_LABEL, GpuShape().memory_mib)),
        labels.get("nvidia.com/gpu.product", GpuShape().product),
    )
    return NodeShape(
        node["metadata"]["name"],
        gpu_shape if gpus else None,
        resources.pop("cpu", "0"),
        resources.pop("memory", "0"),
        int(resources.pop("pods", "110")),
        labels,
        resources=resources,
    )


FindLog = Callable[[str, str, str, bool], PodLog | None]


def self_signed() -> bytes:
    """Return a self-signed certificate for loopback and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hollow kubelets")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=365))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + secret


def _tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        pem = Path(directory) / "kubelet.pem"
        pem.write_bytes(self_signed())
        context.load_cert_chain(pem)
    return context


def log_options(query: dict[str, str]) -> LogOptions:
    """Parse the query of a log request; ValueError if it is malformed."""
    since = time.time() - int(query["sinceSeconds"]) if "sinceSeconds" in query else 0.0
    if "sinceTime" in query:
        since = datetime.fromisoformat(query["sinceTime"].replace("Z", "+00:00")).timestamp()
    return LogOptions(
        tail=int(query["tailLines"]) if "tailLines" in query else None,
        since=since,
        follow=query.get("follow") == "true",
        timestamps=query.get("timestamps") == "true",
    )


async def _send_log(find: FindLog, request: web.Request) -> web.StreamResponse:
    namespace, pod, container = (request.match_info[part] for part in ("namespace", "pod", "container"))
    previous = request.query.get("previous") == "true"
    log = find(namespace, pod, container, previous)
    if log is None:
        what = "previous run of container" if previous else "container"
        raise web.HTTPBadRequest(text=f"there is no {what} {container!r} of pod {namespace}/{pod} here\n")
    try:
        options = log_options(dict(request.query))
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    async for text in log.read(options):
        await response.write(text.encode())
    await response.write_eof()
    return response


async def _not_implemented(request: web.Request) -> web.StreamResponse:
    raise web.HTTPNotImplemented(text="hollow nodes run no containers; kubectl logs shows the devices they would see")


def serving(find: FindLog) -> AbstractAsyncContextManager[int]:
    """Serve the logs that `find(namespace, pod, container, previous)` returns while the block runs; yield the port."""
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", partial(_send_log, find))
    for what in ("exec", "attach", "portForward"):
        app.router.add_route("*", f"/{what}/{{rest:.*}}", _not_implemented)
    return listening(app, 0, HOST, _tls(), shutdown_seconds=0.5)


_BOUND_PODS = Selection(fields="spec.nodeName!=")


class HollowKubelets:
    """The hollow kubelets of these nodes, with their `ledgers` and `pods`; `ready` is set once pods can be bound."""

    def __init__(
        self,
        api: Api,
        shapes: Iterable[NodeShape],
        settings: KubeletSettings | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        self._api = api
        self._initial_shapes = tuple(shapes)
        self.ledgers: dict[str, NodeLedger] = {}
        self.pods = PodLifecycles(api, self.ledgers, settings or KubeletSettings(), runtime)
        self._pod_informer = SharedInformer(api, POD, Object, _BOUND_PODS)
        self._node_informer = SharedInformer(api, NODE, Object)
        self._registration = Registration(api, kubelet_port=0)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Run the kubelets until cancelled; permanent errors are raised."""
        async with serving(self.pods.log_of) as port:
            self._registration = Registration(self._api, port)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pod_informer.run())
                    group.create_task(self._node_informer.run())
                    await self.add(self._initial_shapes)
                    await self._follow_objects()
                    self.ready.set()
                    await self._registration.keep_renewing(self.ledgers)
            finally:
                await self.pods.close()

    async def add(self, shapes: Iterable[NodeShape]) -> None:
        """Add nodes; existing nodes of these names are adopted."""
        new = list(shapes)
        for shape in new:
            self.ledgers[shape.name] = NodeLedger(shape_devices(shape), allocatable(shape))
        await self._registration.register(new)

    async def _follow_objects(self) -> None:
        """Follow nodes and pods; running pods are processed first, so that they keep their devices."""
        await self._node_informer.synced()
        self._node_informer.subscribe(self._node_changed)
        await self._pod_informer.synced()
        for pod in sorted((pod for _, pod in self._pod_informer.items()), key=_device_rank):
            self.pods.seen(pod)
        self._pod_informer.subscribe(self._pod_changed)

    def _pod_changed(self, change: WatchChange[Object]) -> None:
        if change.type is EventType.DELETED:
            self.pods.gone(change.object)
        else:
            self.pods.seen(change.object)

    def _node_changed(self, change: WatchChange[Object]) -> None:
        ledger, shape = self.ledgers.get(change.key[1]), shape_of(change.object)
        if change.type is EventType.DELETED:
            if shape is not None:
                self.ledgers.pop(shape.name, None)
        elif ledger is not None:
            ledger.resize(change.object["status"].get("allocatable") or {})
            if not is_ready(change.object):
                self._start_task(self._registration.heal(change.key[1]))
        elif shape is not None:
            self._start_task(self._adopt(shape))

    async def _adopt(self, shape: NodeShape) -> None:
        """Adopt a Node object; if the API server rejects a write, the next change of the object tries again."""
        try:
            await self.add([shape])
        except ApiError:
            self.ledgers.pop(shape.name, None)

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        """Run a task beside the informers."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _device_rank(pod: Object) -> int:
    """Return the rank in which pods get devices after a restart: 0 with a recorded device, 1 running, 2 new."""
    if names.RESERVED_GPU_INDEX in (pod["metadata"].get("annotations") or {}):
        return 0
    return 1 if (pod.get("status") or {}).get("phase") == "Running" else 2
