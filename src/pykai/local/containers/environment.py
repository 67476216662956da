"""What a container is given to run: the program of its image, its variables, and where their content comes from.

Images are those that this machine can stand in for. Variables are those a container lists, drawn from where it says,
with `$(NAME)` expanded in whatever it writes; content comes from other objects, the pod's own fields, and tokens made
for it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pykai.hollow.pod_status import pod_addresses
from pykai.kube.api import Api, Object, Resource
from pykai.kube.errors import NotFound
from pykai.kube.resources import CONFIG_MAP, SECRET, SERVICE_ACCOUNT


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its programs by name, each as the words that run it here; its entry point and its variables."""

    programs: Mapping[str, Sequence[str]]
    entrypoint: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


Images = Mapping[str, Image]


def name_of(reference: str) -> str:
    """The last part of an image's name, without registry, tag and digest."""
    return reference.partition("@")[0].rpartition("/")[2].partition(":")[0]


def words_of(container: Object, image: Image) -> list[str]:
    """The container's command and arguments, as written in it or in the image; ValueError if the image lacks it."""
    program, *rest = container.get("command") or image.entrypoint
    if program not in image.programs:
        raise ValueError(f"image {container['image']} has no program {program!r}")
    return [*image.programs[program], *rest, *(container.get("args") or ())]


Content = dict[str, bytes]
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_TOKEN_SECONDS = 3600


class NotYetError(Exception):
    """Something a pod needs does not exist; it waits until it does."""


class Sources:
    """What one pod may draw on."""

    def __init__(self, api: Api, pod: Object) -> None:
        self._api = api
        self._pod = pod
        self._namespace = pod["metadata"]["namespace"]

    async def config_map(self, name: str, optional: bool = False) -> Content:
        """The entries of a ConfigMap; NotYetError if there is none and it is not optional."""
        found = await self._object(CONFIG_MAP, name, optional)
        plain = {key: text.encode() for key, text in (found.get("data") or {}).items()}
        return plain | _decoded(found.get("binaryData"))

    async def secret(self, name: str, optional: bool = False) -> Content:
        """The entries of a Secret; NotYetError if there is none and it is not optional."""
        return _decoded((await self._object(SECRET, name, optional)).get("data"))

    async def token(self, asked: Mapping[str, Any]) -> bytes:
        """A token of the pod's service account, bound to the pod."""
        metadata = self._pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec = {
            "audiences": [asked["audience"]] if asked.get("audience") else [],
            "expirationSeconds": asked.get("expirationSeconds") or _TOKEN_SECONDS,
            "boundObjectRef": bound,
        }
        account = SERVICE_ACCOUNT.ref(self._pod["spec"].get("serviceAccountName") or "default", self._namespace)
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made = await self._api.post(account.sub("token"), body)
        return str(made["status"]["token"]).encode()

    def field(self, path: str) -> str:
        """A field of the pod, as the downward API names it; ValueError for one that it does not have."""
        metadata, spec, where = self._pod["metadata"], self._pod["spec"], pod_addresses(self._pod)
        keyed = _KEYED.fullmatch(path)
        if keyed:
            return str((metadata.get(keyed[1]) or {}).get(keyed[2], ""))
        plain = {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata["namespace"],
            "metadata.uid": metadata["uid"],
            "metadata.labels": _lines(metadata.get("labels") or {}),
            "metadata.annotations": _lines(metadata.get("annotations") or {}),
            "spec.nodeName": spec["nodeName"],
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "status.hostIP": where["hostIP"],
            "status.podIP": where["podIP"],
            "status.podIPs": where["podIP"],
        }
        if path not in plain:
            raise ValueError(f"fieldPath {path!r} is not one of a pod")
        return str(plain[path])

    async def _object(self, resource: Resource, name: str, optional: bool) -> Object:
        try:
            return await self._api.get(resource.ref(name, self._namespace), Object)
        except NotFound as error:
            if optional:
                return {}
            raise NotYetError(error.message) from error


def _decoded(data: Mapping[str, str] | None) -> Content:
    return {key: base64.b64decode(text) for key, text in (data or {}).items()}


def _lines(pairs: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={json.dumps(value)}" for key, value in sorted(pairs.items()))


_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][\w.-]*)\)")


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """The text with every `$(NAME)` of a known variable replaced; `$$` is a dollar."""

    def value(found: re.Match[str]) -> str:
        return variables.get(found[1], found[0]) if found[1] else "$"

    return _REFERENCE.sub(value, text)


async def variables_of(container: Object, sources: Sources, given: Mapping[str, str]) -> dict[str, str]:
    """The `given` variables and, before them, the container's own, in its order."""
    found = dict(given)
    for row in container.get("envFrom") or ():
        found |= await _all_of(row, sources)
    for row in container.get("env") or ():
        value = await _drawn(row, sources) if "valueFrom" in row else expanded(row.get("value", ""), found)
        if value is not None:
            found[row["name"]] = value
    return found


async def _all_of(row: Object, sources: Sources) -> dict[str, str]:
    content: Content = {}
    for kind, ask in (("configMapRef", sources.config_map), ("secretRef", sources.secret)):
        if kind in row:
            content |= await ask(row[kind]["name"], bool(row[kind].get("optional")))
    return {f"{row.get('prefix', '')}{key}": text.decode() for key, text in content.items()}


async def _drawn(row: Object, sources: Sources) -> str | None:
    """A variable's value from elsewhere; None if it is optional and not there."""
    source = row["valueFrom"]
    if "fieldRef" in source:
        return sources.field(source["fieldRef"]["fieldPath"])
    for kind, ask in (("configMapKeyRef", sources.config_map), ("secretKeyRef", sources.secret)):
        if kind in source:
            asked, optional = source[kind], bool(source[kind].get("optional"))
            text = (await ask(asked["name"], optional)).get(asked["key"])
            if text is None and not optional:
                raise NotYetError(f"{asked['name']} has no key {asked['key']!r}")
            return None if text is None else text.decode()
    raise ValueError(f"env {row['name']}: a source of kind {next(iter(source))} is not supported here")
