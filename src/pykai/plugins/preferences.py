"""Node preferences of pods: preferred node affinity, no taints `PreferNoSchedule`, and images that the node has.
Topology spread is in `spread`, pod affinity in `affinity`.

Each is a score from 0 to 100 times its weight in kube-scheduler. Their sum is less than the score of a node that is
available now: a preference orders nodes, it does not make a pod wait. They depend on nodes and class only, except
images, which are not part of a class: they count if the plugin `imagelocality` is configured.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from msgspec import json

from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import ANY, NodeLook
from pykai.kernels.selectors import in_some_term
from pykai.kernels.taints import TaintTable
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Mask
from pykai.model.snapshot import NodeTable
from pykai.objects.pod_template import ContainerImage, PreferredNodeTerm, Toleration
from pykai.plugins import node_labels

FULL = 100.0
MEBIBYTE = 1024.0 * 1024.0
LEAST_IMAGES, MOST_IMAGE = 23 * MEBIBYTE, 1000 * MEBIBYTE
"""Of all images of a pod together, and of each of its containers."""
AFFINITY_WEIGHT = 2.0
TAINT_WEIGHT = 3.0
_PREFERRED = json.Decoder(list[PreferredNodeTerm])
_TOLERATIONS = json.Decoder(list[Toleration])
_IMAGES = json.Decoder(list[ContainerImage] | None)
_CONTAINER_IMAGES = json.Decoder(list[dict[str, Any]] | None)


@dataclass(frozen=True)
class PreferredNodeAffinity:
    """The weights of the preferred node affinity terms that a node matches, 200 for the best node."""

    steady: ClassVar[bool] = True

    def class_key(self, pod_class: PodClass) -> Hashable:
        affinity = pod_class.template.affinity.node_affinity
        return json.encode(affinity.preferred) if affinity is not None and affinity.preferred else ANY

    def score(self, look: NodeLook) -> Column | float:
        key = self.class_key(look.pod_class)
        return 0.0 if key is ANY else look.trial.snapshot.nodes.derived(affinity_scores, key)[look.nodes]


def affinity_scores(nodes: NodeTable, preferred: bytes) -> Column:
    """By node; `preferred`: the terms as JSON."""
    labels, fields = nodes.derived(node_labels.labels), nodes.derived(node_labels.fields)
    weights = np.zeros(len(nodes))
    for term in _PREFERRED.decode(preferred):
        weights += term.weight * in_some_term(labels, fields, [term.preference])
    most = weights.max(initial=0.0)
    return AFFINITY_WEIGHT * np.floor(FULL * weights / most) if most > 0 else weights


@dataclass(frozen=True)
class PreferNoSchedule:
    """300 for nodes whose taints `PreferNoSchedule` are all tolerated, 0 for those with most that are not."""

    steady: ClassVar[bool] = True

    def class_key(self, pod_class: PodClass) -> Hashable:
        tolerations: Sequence[Toleration] = pod_class.template.tolerations
        relevant = [each for each in tolerations if each.effect in ("", "PreferNoSchedule")]
        return json.encode(relevant) if relevant else ANY

    def score(self, look: NodeLook) -> Column | float:
        nodes = look.trial.snapshot.nodes
        if nodes.derived(discouraging_taints).empty:
            return 0.0
        return nodes.derived(taint_scores, self.class_key(look.pod_class))[look.nodes]


def discouraging_taints(nodes: NodeTable) -> TaintTable:
    return TaintTable(nodes.taints, ("PreferNoSchedule",))


def taint_scores(nodes: NodeTable, key: Hashable) -> Column:
    """By node; `key`: the tolerations as JSON, or ANY."""
    tolerations = _TOLERATIONS.decode(key) if isinstance(key, bytes) else []
    untolerated = nodes.derived(discouraging_taints).untolerated(tolerations)
    most = untolerated.max(initial=0)
    if most == 0:
        return np.zeros(len(nodes))
    return np.asarray(TAINT_WEIGHT * (FULL - np.floor(FULL * untolerated / most)))


# ------------------------------------------------------------------------------------------------------------- images
@dataclass(frozen=True)
class ImageLocality:
    """0 to 100 for nodes that have images of the pod, by the size of the images that need not be pulled.

    The size of an image is scaled by the fraction of nodes that have it, so that no node attracts all pods of a new
    image. Images of less than 23 MiB in total do not count, and no container counts for more than 1,000 MiB.
    """

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        return bool(cycle.snapshot.nodes.derived(held_images))

    def pod_score(self, cycle: Cycle, pod: int) -> Column | None:
        spec = cycle.snapshot.pods.objects[pod].spec
        return cycle.snapshot.nodes.derived(
            image_scores, images_of(bytes(spec.init_containers), bytes(spec.containers))
        )


class HeldImage(NamedTuple):
    """The nodes that have an image, and its size in bytes."""

    nodes: Mask
    size: int


def held_images(nodes: NodeTable) -> dict[str, HeldImage]:
    """By name the images that some nodes have, but not all: those of which a score may differ."""
    found: dict[str, HeldImage] = {}
    for row, written in enumerate(nodes.images):
        for image in _IMAGES.decode(written) or () if bytes(written) else ():
            for name in image.names or ():
                held = found.setdefault(name, HeldImage(np.zeros(len(nodes), dtype=bool), image.size_bytes))
                held.nodes[row] = True
    return {name: held for name, held in found.items() if not held.nodes.all()}


@lru_cache(maxsize=1024)
def images_of(init_containers: bytes, containers: bytes) -> tuple[str, ...]:
    """The images of a pod's containers, with their tags, in order; the parts of its spec as JSON."""
    lists = [_CONTAINER_IMAGES.decode(part) or [] for part in (init_containers, containers) if part]
    stated = [each.get("image") for some in lists for each in some]
    return tuple([_tagged(name) for name in stated if isinstance(name, str)])


def _tagged(name: str) -> str:
    """As nodes report it: without a tag or digest it is the newest."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def image_scores(nodes: NodeTable, images: tuple[str, ...]) -> Column | None:
    """By node; None where no node is better than another."""
    held = nodes.derived(held_images)
    some = [held[name] for name in images if name in held]
    if not some:
        return None
    present = np.zeros(len(nodes))
    for image in some:
        present += np.where(image.nodes, np.floor(image.size * image.nodes.sum() / len(nodes)), 0.0)
    least, most = LEAST_IMAGES, MOST_IMAGE * len(images)
    return np.asarray(np.floor(FULL * (np.clip(present, least, most) - least) / (most - least)))
