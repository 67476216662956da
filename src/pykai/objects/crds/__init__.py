"""The custom resources of the system as tables, and the definitions (CRDs) generated from them."""

from __future__ import annotations

from typing import Any, Final

from pykai.objects.crds.bindrequest import BIND_REQUEST
from pykai.objects.crds.config import CONFIG
from pykai.objects.crds.definition import Definition
from pykai.objects.crds.podgroup import POD_GROUP
from pykai.objects.crds.queue import QUEUE
from pykai.objects.crds.shard import SHARD
from pykai.objects.crds.topology import TOPOLOGY

DEFINITIONS: Final[tuple[Definition, ...]] = (QUEUE, POD_GROUP, BIND_REQUEST, CONFIG, SHARD, TOPOLOGY)


def manifests() -> list[dict[str, Any]]:
    """All CustomResourceDefinition objects."""
    return [definition.manifest() for definition in DEFINITIONS]
