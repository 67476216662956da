"""What the server does differently from kind to kind, as a table.

`Kind` answers: has it a status subresource, does it count generations, may it be updated without a resourceVersion,
does a write of its status also take labels and annotations, does a new object keep the status it comes with.
Custom resources get their row from their definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pykai.kube import resources as known
from pykai.kube.api import Object, Resource
from pykai.kube.memory.apply import ListKeys, built_in_keys, schema_keys


@dataclass(frozen=True, slots=True)
class Kind:
    """The rules of one kind."""

    resource: Resource
    status: bool = False
    generation: bool = False
    blind_update: bool = True
    keeps_status: bool = False
    schema: Mapping[str, Any] | None = field(default=None, hash=False, compare=False)
    list_keys: ListKeys = field(default=built_in_keys, hash=False, compare=False)

    @property
    def custom(self) -> bool:
        """Whether a definition, not the server itself, made this kind."""
        return self.schema is not None


_STATUS = (
    known.POD,
    known.NODE,
    known.NAMESPACE,
    known.SERVICE,
    known.PERSISTENT_VOLUME,
    known.PERSISTENT_VOLUME_CLAIM,
    known.REPLICATION_CONTROLLER,
    known.DEPLOYMENT,
    known.REPLICA_SET,
    known.STATEFUL_SET,
    known.DAEMON_SET,
    known.JOB,
    known.CRON_JOB,
    known.DISRUPTION_BUDGET,
    known.RESOURCE_CLAIM,
    known.CRD,
)
_GENERATION = (
    known.POD,
    known.REPLICATION_CONTROLLER,
    known.DEPLOYMENT,
    known.REPLICA_SET,
    known.STATEFUL_SET,
    known.DAEMON_SET,
    known.JOB,
    known.CRON_JOB,
    known.DISRUPTION_BUDGET,
    known.CRD,
    known.PRIORITY_CLASS,
    known.RESOURCE_SLICE,
    known.DEVICE_CLASS,
    known.MUTATING_WEBHOOK,
    known.VALIDATING_WEBHOOK,
)
_NEEDS_VERSION = (
    known.LEASE,
    known.DISRUPTION_BUDGET,
    known.CRD,
    known.MUTATING_WEBHOOK,
    known.VALIDATING_WEBHOOK,
)
_KEEPS_STATUS = (known.NODE,)


def built_in(resource: Resource) -> Kind:
    """The row of a built-in kind."""
    return Kind(
        resource,
        status=resource in _STATUS,
        generation=resource in _GENERATION,
        blind_update=resource not in _NEEDS_VERSION,
        keeps_status=resource in _KEEPS_STATUS,
    )


def from_definition(definition: Object) -> list[Kind]:
    """The rows of a CustomResourceDefinition, one per served version."""
    spec = definition["spec"]
    names, namespaced = spec["names"], spec["scope"] == "Namespaced"
    rows = []
    for version in spec["versions"]:
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        resource = Resource(spec["group"], version["name"], names["plural"], names["kind"], namespaced)
        has_status = "status" in (version.get("subresources") or {})
        if version.get("served", True):
            keys = schema_keys(schema)
            rows.append(Kind(resource, has_status, generation=True, blind_update=False, schema=schema, list_keys=keys))
    return rows
