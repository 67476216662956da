"""What a grouping rule is given: the pod, what owns it, the settings, and a way to ask for more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pykai.controllers.grouping.fields import Object, name_of, namespace_of
from pykai.controllers.grouping.lookup import Lookup
from pykai.controllers.grouping.spec import GroupSpec
from pykai.objects import names

POD_GROUP_API = "scheduling.run.ai/v2alpha2"
TRAIN, BUILD, INFERENCE = "train", "build", "inference"


@dataclass(frozen=True)
class Settings:
    """How this installation groups pods; one field per flag of the component.

    `kind_defaults` names the ConfigMap (namespace, name) with priority and preemptibility per kind; None = no such map.
    """

    scheduler_name: str = names.SCHEDULER_NAME
    queue_label: str = names.QUEUE_LABEL
    node_pool_label: str = names.NODE_POOL_LABEL
    search_legacy_groups: bool = True
    knative_gang: bool = True
    karta_fallback: bool = True
    kind_defaults: tuple[str, str] | None = None


@dataclass(frozen=True)
class Workload:
    """A pod and its owners: the direct one first, `top` last. No owners are given where a rule looks at `top` alone."""

    top: Object
    pod: Object
    owners: tuple[Object, ...]
    settings: Settings
    lookup: Lookup
    default_priority: str = TRAIN

    @property
    def chain(self) -> tuple[Object, ...]:
        """The owners whose labels and annotations count, the nearest first."""
        return self.owners or (self.top,)

    @property
    def pod_name(self) -> str:
        return name_of(self.pod)

    @property
    def home(self) -> str:
        """The namespace of the workload's objects."""
        return namespace_of(self.top) or namespace_of(self.pod)

    def seen_from(self, top: Object) -> Workload:
        """The same pod, grouped as if it belonged to this object alone."""
        return replace(self, top=top, owners=())

    def existing_group(self, group: str) -> Object | None:
        """The PodGroup of that name beside the pod."""
        return self.lookup.get(POD_GROUP_API, "PodGroup", namespace_of(self.pod) or self.home, group)


Rule = Callable[[Workload], GroupSpec]
