"""What should exist: the objects of every operand, from the Config, its shards and what the cluster is like.

Pure. Every object is stamped as ours: the label by which it is found again, and the Config as its owner, so that the
cluster's garbage collection removes all of them when the Config goes, whether or not an operator is there to do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pykai.config.fields import FieldError
from pykai.controllers.operator import attachments, numa_exporter, prometheus, shard_objects
from pykai.controllers.operator.components import COMPONENTS
from pykai.controllers.operator.installation import VPA_KIND, Installation
from pykai.controllers.operator.shard_settings import Shard, read_shard
from pykai.controllers.operator.webhooks import WebhookParts
from pykai.objects import names

Object = dict[str, Any]
SCHEDULERS = "SchedulerForConfig"
_CLUSTER_WIDE = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})


@dataclass(frozen=True)
class Wanted:
    """The objects of each operand by its title, those of each shard by its name, and what stands in the way.

    `missing`: lines about what the cluster lacks. `refused`: by shard, which of its fields is wrong and why.
    `remarks`: by shard, lines about what it asks for in vain.
    """

    operands: Mapping[str, Sequence[Object]]
    shards: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    missing: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    remarks: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def all(self) -> Iterator[Object]:
        """Every object."""
        for objects in (*self.operands.values(), *self.shards.values()):
            yield from objects


def desired(installation: Installation, specs: Mapping[str, Object], parts: WebhookParts, owner: Object) -> Wanted:
    """All objects that should exist; `specs` are those of the shards by name, `owner` the reference to the Config."""
    config = installation.config
    shards, refused = _read(specs)
    operands = {row.title: row.objects(installation, parts) for row in COMPONENTS}
    operands[prometheus.TITLE] = prometheus.objects(installation)
    enabled = config.scheduler.service.enabled is not False
    operands[SCHEDULERS] = [attachments.account(shard_objects.ACCOUNT, installation)] if enabled else []
    operands[numa_exporter.TITLE] = numa_exporter.objects(shards, installation)
    made = _shard_objects(installation, shards, refused)
    stamp = _Stamp(config.namespace, owner)
    return Wanted(
        {title: [stamp.on(each) for each in objects] for title, objects in operands.items()},
        {name: [stamp.on(each) for each in objects] for name, objects in made.items()},
        _missing(installation),
        refused,
    )


def _read(specs: Mapping[str, Object]) -> tuple[list[Shard], dict[str, str]]:
    """The shards that can be read, and what is wrong with the others; of two for the same nodes the first counts."""
    shards: dict[str, Shard] = {}
    refused: dict[str, str] = {}
    for name, spec in sorted(specs.items()):
        try:
            shard = read_shard(name, spec)
        except FieldError as error:
            refused[name] = str(error)
            continue
        first = shards.setdefault(shard.spec.partition_label_value, shard)
        if first is not shard:
            refused[name] = f"spec.partitionLabelValue: shard {first.name} already schedules these nodes"
    return list(shards.values()), refused


def _shard_objects(
    installation: Installation, shards: Sequence[Shard], refused: dict[str, str]
) -> dict[str, list[Object]]:
    """The objects of each shard; one that is wrong is added to `refused` and keeps no other from running."""
    made: dict[str, list[Object]] = {}
    for shard in shards:
        try:
            made[shard.name] = shard_objects.objects(shard, installation)
        except FieldError as error:
            refused[shard.name] = str(error)
    return made


def _missing(installation: Installation) -> list[str]:
    config, lines = installation.config, prometheus.missing(installation)
    if VPA_KIND in installation.facts.installed:
        return lines
    asked = [row.title for row in COMPONENTS if row.enabled(config) and row.part(config).vpa.enabled]
    if config.scheduler.vpa.enabled:
        asked.append(shard_objects.TITLE)
    return lines + [f"{title} is missing vertical pod autoscaler" for title in asked]


@dataclass(frozen=True)
class _Stamp:
    namespace: str
    owner: Object

    def on(self, item: Object) -> Object:
        """The object, marked as ours."""
        metadata = item["metadata"]
        labels = {**(metadata.get("labels") or {}), names.MANAGED_BY_LABEL: names.OPERATOR}
        where = {} if item["kind"] in _CLUSTER_WIDE else {"namespace": self.namespace}
        return {**item, "metadata": {**metadata, **where, "labels": labels, "ownerReferences": [self.owner]}}
