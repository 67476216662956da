"""Where the content of a pod's variables and volumes comes from: other objects, its own, and tokens made for it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

from pykai.hollow.pod_status import addresses
from pykai.kube.api import Api, Object, Resource
from pykai.kube.errors import NotFound
from pykai.kube.resources import CONFIG_MAP, SECRET, SERVICE_ACCOUNT

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
        metadata, spec, where = self._pod["metadata"], self._pod["spec"], addresses(self._pod)
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
