"""Containers as host processes: their environment and files, and how they are started, probed and restarted.

    sources ─► environment, volumes
    execution, probes ─► container ─► pod_runtime (what hollow kubelets call, and the images)

Isolation is replaced as follows. Mounts are below a directory of the container, `CONTAINER_SANDBOX_MOUNT_POINT` (as for
host-process containers in Kubernetes), and mounted paths in arguments and variables are rewritten to it. Each pod has
its own loopback address, in `KAI_LISTEN_HOST`. Security contexts, resource limits and lifecycle hooks are not enforced.

Invariant: no process outlives its context manager; if this process is killed, the kernel kills its children (Linux).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ctypes
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
import msgspec

from pykai.hollow.kubelet_settings import ContainerLog
from pykai.hollow.pod_status import container_status, exited, pod_addresses
from pykai.kube.api import Api, Fields, Object, Resource
from pykai.kube.api_resources import CONFIG_MAP, SECRET, SERVICE_ACCOUNT
from pykai.kube.backoff import Backoff
from pykai.kube.errors import ApiError, NotFound
from pykai.objects import units

Content = dict[str, bytes]
_LABEL_PATH = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_TOKEN_SECONDS = 3600


class NotYetError(Exception):
    """An object that the pod needs does not exist yet."""


class Sources:
    """The sources of a pod's environment and volumes: ConfigMaps, Secrets, tokens, and the pod's fields."""

    def __init__(self, api: Api, pod: Object) -> None:
        self._api = api
        self._pod = pod
        self._namespace = pod["metadata"]["namespace"]

    async def config_map(self, name: str, optional: bool = False) -> Content:
        """Return the data of a ConfigMap; NotYetError if it does not exist and is not optional."""
        found = await self._object(CONFIG_MAP, name, optional)
        text = {key: value.encode() for key, value in (found.get("data") or {}).items()}
        return text | _decoded(found.get("binaryData"))

    async def secret(self, name: str, optional: bool = False) -> Content:
        """Return the data of a Secret; NotYetError if it does not exist and is not optional."""
        return _decoded((await self._object(SECRET, name, optional)).get("data"))

    async def token(self, projection: Fields) -> bytes:
        """Return a token of the pod's service account, bound to the pod."""
        metadata = self._pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec = {
            "audiences": [projection["audience"]] if projection.get("audience") else [],
            "expirationSeconds": projection.get("expirationSeconds") or _TOKEN_SECONDS,
            "boundObjectRef": bound,
        }
        account = SERVICE_ACCOUNT.ref(self._pod["spec"].get("serviceAccountName") or "default", self._namespace)
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        response = await self._api.post(account.sub("token"), body)
        return str(response["status"]["token"]).encode()

    def field(self, path: str) -> str:
        """Return the value of a `fieldPath` of the downward API; ValueError for an unsupported one."""
        metadata, spec, addresses = self._pod["metadata"], self._pod["spec"], pod_addresses(self._pod)
        keyed_path = _LABEL_PATH.fullmatch(path)
        if keyed_path:
            return str((metadata.get(keyed_path[1]) or {}).get(keyed_path[2], ""))
        values = {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata["namespace"],
            "metadata.uid": metadata["uid"],
            "metadata.labels": _downward_lines(metadata.get("labels") or {}),
            "metadata.annotations": _downward_lines(metadata.get("annotations") or {}),
            "spec.nodeName": spec["nodeName"],
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "status.hostIP": addresses["hostIP"],
            "status.podIP": addresses["podIP"],
            "status.podIPs": addresses["podIP"],
        }
        if path not in values:
            raise ValueError(f"fieldPath {path!r} is not one of a pod")
        return str(values[path])

    async def _object(self, resource: Resource, name: str, optional: bool) -> Object:
        try:
            return await self._api.get(resource.ref(name, self._namespace), Object)
        except NotFound as error:
            if optional:
                return {}
            raise NotYetError(error.message) from error


def _decoded(data: Mapping[str, str] | None) -> Content:
    return {key: base64.b64decode(text) for key, text in (data or {}).items()}


def _downward_lines(pairs: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={json.dumps(value)}" for key, value in sorted(pairs.items()))


_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][\w.-]*)\)")


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Expand `$(NAME)` for known variables; `$$` is an escaped dollar."""

    def value(match: re.Match[str]) -> str:
        return variables.get(match[1], match[0]) if match[1] else "$"

    return _REFERENCE.sub(value, text)


async def variables_of(container: Object, sources: Sources, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a container: its own variables, which may refer to the `given` ones."""
    variables = dict(given)
    for row in container.get("envFrom") or ():
        for kind, read in (("configMapRef", sources.config_map), ("secretRef", sources.secret)):
            if kind in row:
                content = await read(row[kind]["name"], bool(row[kind].get("optional")))
                variables |= {f"{row.get('prefix', '')}{key}": text.decode() for key, text in content.items()}
    for row in container.get("env") or ():
        value = await _value_from(row, sources) if "valueFrom" in row else expanded(row.get("value", ""), variables)
        if value is not None:
            variables[row["name"]] = value
    return variables


async def _value_from(row: Object, sources: Sources) -> str | None:
    """Return the value of a variable with `valueFrom`; None if it is optional and absent."""
    source = row["valueFrom"]
    if "fieldRef" in source:
        return sources.field(source["fieldRef"]["fieldPath"])
    for kind, read in (("configMapKeyRef", sources.config_map), ("secretKeyRef", sources.secret)):
        if kind in source:
            reference, optional = source[kind], bool(source[kind].get("optional"))
            text = (await read(reference["name"], optional)).get(reference["key"])
            if text is None and not optional:
                raise NotYetError(f"{reference['name']} has no key {reference['key']!r}")
            return None if text is None else text.decode()
    raise ValueError(f"env {row['name']}: a source of kind {next(iter(source))} is not supported here")


_PROBES = _READY, _ALIVE = "readinessProbe", "livenessProbe"
_BACKOFF_FACTOR = 64
"""The maximum backoff as a multiple of the initial one."""
_START_FAILED_CODE = 128
_RETRY_SECONDS = 0.5
_MAX_LINE_BYTES = 16 * 1024 * 1024
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Command:
    """A command line with its complete environment and working directory."""

    words: Sequence[str]
    environment: Mapping[str, str]
    directory: Path


def _die_with_parent() -> None:
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


@asynccontextmanager
async def running_process(
    command: Command, write_line: Callable[[str], None], grace: Callable[[], float]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process while the block runs; then terminate it, and kill it after `grace()` seconds."""
    # Not asyncio's pipe: with that, a process counts as running while any child of it has its output open.
    read_end, write_end = os.pipe()
    logging = asyncio.create_task(_log(read_end, write_line))
    try:
        process = await asyncio.create_subprocess_exec(
            *command.words,
            env=command.environment,
            cwd=command.directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        try:
            yield process
        finally:
            await _terminate(process, grace())
    finally:
        os.close(write_end)
        await logging


async def _log(output: int, write_line: Callable[[str], None]) -> None:
    """Log every line from a pipe until the write end is closed."""
    lines = asyncio.StreamReader(_MAX_LINE_BYTES)
    protocol = asyncio.StreamReaderProtocol(lines)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(output, "rb"))
    with contextlib.closing(transport):
        async for line in lines:
            write_line(line.decode(errors="replace").rstrip("\n"))


async def _terminate(process: asyncio.subprocess.Process, grace: float) -> None:
    """Terminate the process, and kill its process group after the grace period, or at once if cancelled."""
    try:
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            process.terminate()
            await asyncio.wait_for(process.wait(), grace)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


Prepare = Callable[[Object], Awaitable[Command]]


class ProbeSettings(msgspec.Struct, frozen=True, rename="camel"):
    """Timing and thresholds of a probe, with Kubernetes' defaults."""

    initial_delay_seconds: float = 0
    period_seconds: float = 10
    timeout_seconds: float = 1
    success_threshold: int = 1
    failure_threshold: int = 3


def address_of(probe: Object, container: Object, host: str) -> str:
    """Return the URL of an HTTP probe on `host`; ValueError for other types of probes."""
    request = probe.get("httpGet")
    if request is None:
        raise ValueError(f"container {container['name']}: only httpGet probes are supported here")
    ports = {port.get("name"): port["containerPort"] for port in container.get("ports") or ()}
    port = ports.get(request["port"], request["port"])
    return f"{request.get('scheme', 'HTTP').lower()}://{host}:{port}{request.get('path', '/')}"


async def probe_answers(url: str, seconds: float) -> bool:
    """Whether a GET returns 2xx or 3xx in time."""
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, ssl=False) as answer:
            return 200 <= answer.status < 400
    except (TimeoutError, aiohttp.ClientError):
        return False


async def probe(settings: ProbeSettings, ask: Callable[[], Awaitable[bool]], report: Callable[[bool], None]) -> None:
    """Probe until cancelled, and `report` each time a threshold of equal results in a row is reached."""
    await asyncio.sleep(settings.initial_delay_seconds)
    last, streak = False, 0
    while True:
        good = await ask()
        last, streak = good, streak + 1 if good == last else 1
        if streak == (settings.success_threshold if good else settings.failure_threshold):
            report(good)
        await asyncio.sleep(settings.period_seconds)


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """Settings common to the containers of a pod.

    `host`: their listen address; `policy`: the restart policy; `grace`: returns the termination grace period;
    `changed`: is called when a container's status changes.
    """

    host: str
    policy: str
    restart_seconds: float
    grace: Callable[[], float]
    changed: Callable[[], None]
    prepare: Prepare


class ContainerProcess:
    """A container that runs as a process; `state`, `last`, `restarts` and `ready` are fields of its status."""

    def __init__(self, spec: Object, settings: ContainerSettings, log: ContainerLog) -> None:
        self.state: Object = {"waiting": {"reason": "ContainerCreating"}}
        self.last: Object = {}
        self.restarts = 0
        self._backoff = Backoff(settings.restart_seconds, settings.restart_seconds * _BACKOFF_FACTOR)
        self.ready = False
        self._spec = spec
        self._settings = settings
        self._log = log
        self._probe_urls: dict[str, str] = {}

    @property
    def exit_code(self) -> int | None:
        """The exit code of the container; None unless it has terminated."""
        code: int | None = (self.state.get("terminated") or {}).get("exitCode")
        return code

    def status(self, uid: str) -> Object:
        """Return the ContainerStatus in the status of the pod with this uid."""
        status = container_status(uid, self._spec, self.state, self.restarts)
        return status | {"ready": self.ready, "lastState": self.last}

    async def run(self) -> None:
        """Run and restart the container until it ends by its restart policy; cancellation terminates the process."""
        while True:
            await self._execute(await self._prepare_command())
            if self._settings.policy == "Never" or (self._settings.policy == "OnFailure" and self.exit_code == 0):
                return
            reason = "CrashLoopBackOff" if self.exit_code else "Completed"
            self.last, self.restarts = self.state, self.restarts + 1
            self._set_state({"waiting": {"reason": reason}})
            await asyncio.sleep(self._backoff.after(self.restarts))
            self._log.begin()

    def _set_state(self, state: Object, *, ready: bool = False) -> None:
        self.state, self.ready = state, ready
        self._settings.changed()

    async def _prepare_command(self) -> Command:
        """Prepare the command, and wait until all objects that it needs exist."""
        probes = [kind for kind in _PROBES if kind in self._spec]
        while True:
            try:
                self._probe_urls = {
                    kind: address_of(self._spec[kind], self._spec, self._settings.host) for kind in probes
                }
                return await self._settings.prepare(self._spec)
            except (NotYetError, ValueError, ApiError) as error:
                self._set_state({"waiting": {"reason": "CreateContainerConfigError", "message": str(error)}})
                await asyncio.sleep(_RETRY_SECONDS)

    async def _execute(self, command: Command) -> None:
        started, code = _now(), _START_FAILED_CODE
        try:
            async with running_process(command, self._log.current.write, self._settings.grace) as process:
                self._set_state({"running": {"startedAt": started}}, ready=_READY not in self._spec)
                await self._wait_for_end(process)
            code = process.returncode or 0
        except OSError as error:
            self._log.current.write(f"cannot be started: {error}")
        finally:
            self._log.current.close()
            self._set_state(exited(code if code >= 0 else 128 - code, started, _now()))

    async def _wait_for_end(self, process: asyncio.subprocess.Process) -> None:
        unhealthy = asyncio.Event()
        ends = [asyncio.create_task(process.wait()), asyncio.create_task(unhealthy.wait())]
        probes = [
            asyncio.create_task(self._probe(_READY, self._set_ready)),
            asyncio.create_task(self._probe(_ALIVE, lambda good: None if good else unhealthy.set())),
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*ends, *probes):
                task.cancel()
            await asyncio.gather(*ends, *probes, return_exceptions=True)

    async def _probe(self, kind: str, report: Callable[[bool], None]) -> None:
        url = self._probe_urls.get(kind)
        if url is not None:
            settings = msgspec.convert(self._spec[kind], ProbeSettings)
            await probe(settings, partial(probe_answers, url, settings.timeout_seconds), report)

    def _set_ready(self, good: bool) -> None:
        self._set_state(self.state, ready=good)


def _now() -> str:
    return units.rfc3339(time.time())
