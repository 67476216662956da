"""Storage of a small cluster: claims, volumes, classes and pools as they were written. Affinities of volumes and pools
name one label, sizes are whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.objects import kinds
from tests.properties.small_world import Cluster, Fields, snapshot_of
from tests.properties.twin.world import World

SELECTED = "volume.kubernetes.io/selected-node"
WAIT = "WaitForFirstConsumer"
POOLED = "example.com/pooled"
"""The provisioner that publishes how much it has left."""


def size(item: Fields) -> int:
    """Of a volume or a claim."""
    return int(item["spec"].get("capacity", item["spec"].get("resources", {}).get("requests"))["storage"])


@dataclass(repr=False)
class Storage:
    """A cluster with its storage, by name; `by_pools`: --schedule-csi-storage."""

    cluster: Cluster
    by_pools: bool
    classes: dict[str, Fields] = field(default_factory=dict)
    claims: dict[str, Fields] = field(default_factory=dict)
    volumes: dict[str, Fields] = field(default_factory=dict)
    pools: dict[str, Fields] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        """Every gang has its search: what failed for others says nothing."""
        driver = {"metadata": {"name": POOLED}, "spec": {"storageCapacity": True}}
        items: list[tuple[Any, dict[str, Fields]]] = [
            (kinds.StorageClass, self.classes),
            (kinds.PersistentVolumeClaim, self.claims),
            (kinds.PersistentVolume, self.volumes),
            (kinds.CSIStorageCapacity, self.pools),
            (kinds.CSIDriver, {POOLED: driver}),
        ]
        more = [kinds.decode(msgspec.json.encode(item), kind) for kind, some in items for item in some.values()]
        found = snapshot_of([*self.cluster.objects(), *more])
        return replace(found, params=replace(found.params, use_signatures=False, schedule_csi_storage=self.by_pools))

    def __repr__(self) -> str:
        shown = {**self.volumes, **self.claims, **self.pools}
        return f"{self.cluster!r}\n" + "\n".join(f"{name}: {item}" for name, item in shown.items())

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text(repr(self))

    # --------------------------------------------------------------------------------------------------------- reading
    def labels(self, node: str) -> dict[str, str]:
        found: dict[str, str] = next(n for n in self.cluster.nodes if n["metadata"]["name"] == node)["metadata"][
            "labels"
        ]
        return found

    def named_by(self, pod: str) -> list[str]:
        """The claims that a pod names, each once."""
        found = [p for p in self.cluster.pods if p["metadata"]["name"] == pod]
        volumes = found[0]["spec"].get("volumes", []) if found else []
        return list(dict.fromkeys(volume["persistentVolumeClaim"]["claimName"] for volume in volumes))

    def unbound(self, pod: str) -> list[str]:
        """Its claims without a volume, the smallest first."""
        found = [claim for claim in self.named_by(pod) if claim in self.claims and not self.bound(claim)]
        return sorted(found, key=lambda claim: size(self.claims[claim]))

    def bound(self, claim: str) -> bool:
        return "volumeName" in self.claims[claim]["spec"]

    def class_of(self, item: Fields) -> Fields:
        return self.classes[item["spec"]["storageClassName"]]

    def selected(self, claim: str) -> str | None:
        """The node that the volume of a claim is being made for."""
        node: str | None = self.claims[claim]["metadata"].get("annotations", {}).get(SELECTED)
        return node

    def reaches(self, volume: str, node: str) -> bool:
        """Whether a volume can be used from a node."""
        affinity = self.volumes[volume]["spec"].get("nodeAffinity")
        if affinity is None:
            return True
        wanted = affinity["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]
        return self.labels(node).get(wanted["key"]) in wanted["values"]

    def pools_of(self, storage_class: str, node: str) -> list[str]:
        labels = self.labels(node).items()
        return [
            name
            for name, pool in self.pools.items()
            if pool["storageClassName"] == storage_class and pool["nodeTopology"]["matchLabels"].items() <= labels
        ]

    def largest(self, pool: str) -> int:
        """The largest volume that a pool gives."""
        fields = self.pools[pool]
        return int(fields["maximumVolumeSize"] if "maximumVolumeSize" in fields else fields["capacity"])


def places(world: World, statuses: set[Status]) -> Iterator[tuple[int, str, str]]:
    """(Row, name, node) of pods that have a place in one of these statuses."""
    for row, (name, now) in enumerate(zip(world.snapshot.pods.names, world.pods, strict=True)):
        for place in now.places():
            if place.status in statuses:
                yield row, name, world.snapshot.nodes.names[place.node]
