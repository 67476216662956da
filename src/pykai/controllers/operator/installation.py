"""Everything that the desired objects depend on, as one value: the Config, the operator's site, the observed cluster.

All components are one image; reservation and scaling pods have one each, built from the same file. Charts and Configs
written for KAI carry the names of its images, and the schema of Config fills them in: they all stand for ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pykai.kube.api import Object
from pykai.objects import names
from pykai.objects.config_kinds import Config, Image

RESERVATION: Final = "resource-reservation"
SCALING_POD: Final = "scaling-pod"
COMPONENT_IMAGES: Final = frozenset(
    {
        "admission",
        "binder",
        "crd-upgrader",
        "nodescaleadjuster",
        "numa-placement-exporter",
        "operator",
        "podgroupcontroller",
        "podgrouper",
        "queuecontroller",
        "scheduler",
    }
)
IMAGE_ALIASES: Final = {"resourcereservation": RESERVATION, "scalingpod": SCALING_POD}


def image_reference(image: Image, site: Site) -> str:
    """`repository/name:tag`, with the operator's own parts where the image does not say."""
    name = site.image if image.name in COMPONENT_IMAGES else IMAGE_ALIASES.get(image.name, image.name)
    return f"{image.repository or site.registry}/{name}:{image.tag or site.tag}"


SecretData = Mapping[str, str]
"""What a Secret holds: base64 by file name."""

VPA_KIND = "verticalpodautoscalers.autoscaling.k8s.io"
PROMETHEUS_KIND = "prometheuses.monitoring.coreos.com"
MONITOR_KIND = "servicemonitors.monitoring.coreos.com"


@dataclass(frozen=True)
class Site:
    """What the operator knows of itself: its namespace, and where images come from unless Config says otherwise."""

    namespace: str = names.SYSTEM_NAMESPACE
    registry: str = "registry/local/kai-scheduler"
    tag: str = "latest"
    image: str = "pykai"
    pull_secret: str = ""


@dataclass(frozen=True)
class Leader:
    """The pod that holds a lease."""

    pod: str
    address: str
    node: str = ""


@dataclass(frozen=True)
class Facts:
    """What the cluster is like.

    `installed`: which of the optional kinds exist, as `plural.group`. `certificates`: by Service, what its Secret holds
    or is to hold; the Secrets of `provided` are not ours. `leaders`: by the name of the lease. `database`: the
    Prometheus object we made, if it is there. `now`: seconds since 1970.
    """

    fake_gpu_nodes: bool = False
    cdi: bool = False
    installed: frozenset[str] = frozenset()
    certificates: Mapping[str, SecretData] = field(default_factory=dict)
    provided: frozenset[str] = frozenset()
    leaders: Mapping[str, Leader] = field(default_factory=dict)
    database: Object | None = None
    now: float = 0.0


@dataclass(frozen=True)
class Installation:
    """What the objects are made from."""

    config: Config
    site: Site = Site()
    facts: Facts = field(default_factory=Facts)

    def replicas(self, own: int | None) -> int:
        """How many copies of a component run: its own number, else the global one, else one."""
        if own is not None:
            return own
        return 1 if self.config.shared.replica_count is None else self.config.shared.replica_count
