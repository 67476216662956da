"""Runs pods whose containers are processes: fills their volumes, runs their containers, reports their status.

An image maps to programs of this machine.

A volume is a directory, POD/volumes/NAME, whose content is refreshed periodically as a kubelet does. A mount is a
symbolic link to it, POD/containers/CONTAINER/PATH.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from pykai.hollow.hollow_node import on_this_machine, pod_ip
from pykai.hollow.kubelet_settings import RuntimePod
from pykai.hollow.pod_status import conditions, pod_addresses, scheduled
from pykai.kube.api import Api, Object
from pykai.kube.errors import ApiError
from pykai.local.containers import (
    Command,
    ContainerProcess,
    ContainerSettings,
    Content,
    NotYetError,
    Sources,
    expanded,
    variables_of,
)
from pykai.objects import units


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its programs by name, each as a command line on this machine, its entry point and its environment."""

    programs: Mapping[str, Sequence[str]]
    entrypoint: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


Images = Mapping[str, Image]


def image_name(reference: str) -> str:
    """Return the image name without registry, path, tag and digest."""
    return reference.partition("@")[0].rpartition("/")[2].partition(":")[0]


def command_line(container: Object, image: Image) -> list[str]:
    """Return the command line of a container, by its spec or its image; ValueError if the image has no such program."""
    program, *rest = container.get("command") or image.entrypoint
    if program not in image.programs:
        raise ValueError(f"image {container['image']} has no program {program!r}")
    return [*image.programs[program], *rest, *(container.get("args") or ())]


def _selected_items(content: Content, source: Object) -> Content:
    """Return the entries of a ConfigMap or Secret that a volume contains: all, or those in `items`, by path."""
    items = source.get("items")
    if not items:
        return content
    missing = [item["key"] for item in items if item["key"] not in content]
    if missing and not source.get("optional"):
        raise NotYetError(f"there is no key {missing[0]!r}")
    return {item["path"]: content[item["key"]] for item in items if item["key"] in content}


async def _config_map(source: Object, sources: Sources) -> Content:
    return _selected_items(await sources.config_map(source["name"], bool(source.get("optional"))), source)


async def _secret(source: Object, sources: Sources) -> Content:
    name = source.get("secretName") or source["name"]
    return _selected_items(await sources.secret(name, bool(source.get("optional"))), source)


async def _downward(source: Object, sources: Sources) -> Content:
    return {row["path"]: sources.field(row["fieldRef"]["fieldPath"]).encode() for row in source.get("items") or ()}


async def _token(source: Object, sources: Sources) -> Content:
    return {source["path"]: await sources.token(source)}


async def _projected(source: Object, sources: Sources) -> Content:
    content: Content = {}
    for row in source.get("sources") or ():
        ((kind, inner),) = row.items()
        content |= await KINDS[kind](inner, sources)
    return content


async def _empty(source: Object, sources: Sources) -> Content:
    return {}


KINDS: Mapping[str, Callable[[Object, Sources], Awaitable[Content]]] = {
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward,
    "serviceAccountToken": _token,
    "projected": _projected,
    "emptyDir": _empty,
}
"""How to fill each type of volume or projected source; a hostPath links to the host's directory instead."""


async def fill(folder: Path, volumes: Iterable[Object], sources: Sources) -> None:
    """Write the content of all volumes; NotYetError if an object is missing, ValueError for unsupported volumes."""
    for volume in volumes:
        name = volume["name"]
        ((kind, source),) = ((key, value) for key, value in volume.items() if key != "name")
        if kind == "hostPath":
            _link(folder / name, Path(source["path"]))
        elif kind in KINDS:
            _write(folder / name, await KINDS[kind](source, sources))
        else:
            raise ValueError(f"volume {name}: volumes of kind {kind} are not supported here")


def _write(folder: Path, content: Content) -> None:
    """Write files into a directory, each atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        fresh.touch(mode=0o600)
        fresh.write_bytes(text)
        fresh.replace(target)


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def mount(root: Path, mounts: Iterable[Object], volumes: Path) -> None:
    """Link a container's mounts below its `root`."""
    for row in mounts:
        _link(root / row["mountPath"].strip("/"), volumes / row["name"] / row.get("subPath", ""))


def relocated(text: str, root: Path, mounts: Iterable[Object]) -> str:
    """Return the text with every mounted path replaced by its path on this machine."""
    for row in mounts:
        path = row["mountPath"].rstrip("/")
        text = re.sub(rf"(?<![\w/.-]){re.escape(path)}(?![\w.-])", f"{root}{path}", text)
    return text


_REFRESH_SECONDS = 60.0
_STOP_SECONDS = 3.0
"""Grace period of processes when the kubelet itself stops, without deletion of their pods."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Host:
    """This machine as the host of pods: the directory of their files, the API server's URL, and its images."""

    directory: Path
    server: str
    images: Images


class Containers:
    """A `Runtime` of hollow kubelets for pods that only have containers of known images."""

    def __init__(self, api: Api, host: Host, restart_seconds: float = 1.0) -> None:
        self._api = api
        self._host = host
        self._restart_seconds = restart_seconds

    def takes(self, pod: Object) -> bool:
        """Whether this runtime can run the pod."""
        spec = pod["spec"]
        known = all(image_name(container.get("image", "")) in self._host.images for container in spec["containers"])
        return known and not spec.get("initContainers")

    async def run(self, handle: RuntimePod) -> None:
        """Run the pod until it ends; cancellation terminates its processes."""
        pod = handle.latest()
        folder = self._host.directory / pod["metadata"]["uid"]
        try:
            await _RunningPod(self._api, self._host, handle, folder).run(self._restart_seconds)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class _RunningPod:
    """A running pod; `folder`: its directory."""

    def __init__(self, api: Api, host: Host, handle: RuntimePod, folder: Path) -> None:
        self._host = host
        self._handle = handle
        self._pod = handle.latest()
        self._sources = Sources(api, self._pod)
        self._volumes = folder / "volumes"
        self._roots = folder / "containers"
        self._address = on_this_machine(pod_ip(self._pod["metadata"]["uid"]))
        self._reported_conditions: dict[str, tuple[bool, str]] = {}
        self._changed = asyncio.Event()

    async def run(self, restart_seconds: float) -> None:
        spec = self._pod["spec"]
        policy = spec.get("restartPolicy", "Always")
        settings = ContainerSettings(
            self._address, policy, restart_seconds, self._grace, self._changed.set, self._prepare
        )
        containers = [ContainerProcess(each, settings, self._handle.logs[each["name"]]) for each in spec["containers"]]
        background = [
            asyncio.create_task(self._report_changes(containers)),
            asyncio.create_task(self._refresh_volumes()),
        ]
        work = [asyncio.create_task(container.run()) for container in containers]
        try:
            await asyncio.gather(*work)
        finally:
            # A second cancellation would cut the grace period short.
            for task in (*work, *background):
                if not task.cancelling():
                    task.cancel()
            await asyncio.gather(*work, *background, return_exceptions=True)
        await self._handle.report(self._status(containers))

    def _grace(self) -> float:
        return float(self._handle.latest()["metadata"].get("deletionGracePeriodSeconds", _STOP_SECONDS))

    async def _refresh_volumes(self) -> None:
        """Refresh the volumes periodically, as their sources and tokens change."""
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            try:
                await self._fill()
            except (NotYetError, ApiError) as error:
                log.warning("volumes stay as they are", pod=self._pod["metadata"]["name"], why=str(error))

    async def _fill(self) -> None:
        await fill(self._volumes, self._pod["spec"].get("volumes") or (), self._sources)

    async def _prepare(self, container: Object) -> Command:
        """Fill the volumes, link the mounts, and return the command of a container."""
        mounts = container.get("volumeMounts") or ()
        root = self._roots / container["name"]
        root.mkdir(parents=True, exist_ok=True)
        await self._fill()
        mount(root, mounts, self._volumes)
        image = self._host.images[image_name(container["image"])]
        variables = await variables_of(container, self._sources, {**image.environment, **self._base_environment(root)})
        words = [expanded(word, variables) for word in command_line(container, image)]
        return Command(
            [relocated(word, root, mounts) for word in words],
            {name: relocated(value, root, mounts) for name, value in variables.items()},
            root,
        )

    def _base_environment(self, root: Path) -> dict[str, str]:
        server = urlsplit(self._host.server)
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(root),
            "HOSTNAME": self._pod["metadata"]["name"],
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
            "CONTAINER_SANDBOX_MOUNT_POINT": str(root),
            "KAI_LISTEN_HOST": self._address,
        }

    async def _report_changes(self, containers: list[ContainerProcess]) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._handle.report(self._status(containers))

    def _status(self, containers: list[ContainerProcess]) -> Object:
        """Return the pod's status, with the conditions that have changed since the last call."""
        now, phase = units.rfc3339(time.time()), _phase(containers)
        reason = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
        ready = (True, "") if all(container.ready for container in containers) else (False, reason)
        rows = {
            **scheduled(self._pod),
            "PodReadyToStartContainers": (phase == "Running", ""),
            "Initialized": (True, ""),
            "ContainersReady": ready,
            "Ready": ready,
        }
        changed = {kind: row for kind, row in rows.items() if self._reported_conditions.get(kind) != row}
        self._reported_conditions = rows
        status = {
            "phase": phase,
            **pod_addresses(self._pod),
            "startTime": (self._pod.get("status") or {}).get("startTime") or self._pod["metadata"]["creationTimestamp"],
            "conditions": conditions(changed, now),
            "containerStatuses": [container.status(self._pod["metadata"]["uid"]) for container in containers],
        }
        return {"status": status}


def _phase(containers: list[ContainerProcess]) -> str:
    codes = [container.exit_code for container in containers]
    if all("waiting" in container.state and not container.restarts for container in containers):
        return "Pending"
    if any(code is None for code in codes):
        return "Running"
    return "Failed" if any(codes) else "Succeeded"
