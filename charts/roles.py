"""What each component may do, as one table: cluster-wide, in the system's namespace, and in namespaces of its own.

Least privilege: a component gets the verbs its code uses, and writes outside user namespaces are granted where they
happen. What the scheduler follows and which workloads the pod grouper reads comes from their own tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pykai.cli.install import KUEUE_TOPOLOGY
from pykai.controllers.operator.observation import CLUSTER_POLICY, FRACTIONING, MANAGED, WEBHOOKS
from pykai.controllers.podgrouper.reader import plural_of
from pykai.controllers.podgrouper.rules.workload_kinds import TABLE as WORKLOADS
from pykai.kube.api import Resource
from pykai.kube.api_resources import WORKLOAD
from pykai.objects import names as known
from pykai.objects.crds import DEFINITIONS
from pykai.scheduler.informers import SOURCES

Row = tuple[str, str, str]
"""API group, resources and verbs, the latter two with spaces between."""

FOLLOW = "list watch"
DEFINITIONS_FOLLOWED: Row = ("apiextensions.k8s.io", "customresourcedefinitions", FOLLOW)
EVENTS: Row = ("", "events", "create patch")
LEASES = ("coordination.k8s.io", "leases")
RUN_AI, KAI, DRA = "scheduling.run.ai", "kai.scheduler", "resource.k8s.io"
OPERATED = "get list watch create patch delete"
_EXPLICIT = ("", "apps", "batch", "nvidia.com")
"""Groups that hold more than workloads: only the known kinds of them are read."""


@dataclass(frozen=True)
class Role:
    """The rights of one service account; `named` rules speak of the objects with these names only.

    `lease`: the one it is elected by; that it may also make one is for installations whose operator is not at work.
    """

    name: str
    account: str
    cluster: tuple[Row, ...] = ()
    system: tuple[Row, ...] = ()
    reservation: tuple[Row, ...] = ()
    scaling: tuple[Row, ...] = ()
    named: tuple[tuple[Row, tuple[str, ...]], ...] = ()
    lease: str = ""


SUSPENDED: tuple[Row, ...] = (
    ("batch", "jobs", "patch"),
    ("jobset.x-k8s.io", "jobsets", "patch"),
    ("ray.io", "rayjobs rayclusters", "patch"),
    ("trainer.kubeflow.org", "trainjobs", "patch"),
)
"""Workloads with `spec.suspend`, for the eviction strategy `suspend`."""


def _followed() -> tuple[Row, ...]:
    """Everything the scheduler follows, a row per group."""
    return tuple(_by_group((source.resource.group, source.resource.plural) for source in SOURCES))


def _workloads() -> tuple[Row, ...]:
    """Every workload group the pod grouper knows; kinds in between an owner and its pods belong to the same groups."""
    groups = sorted({row.group for row in WORKLOADS.values()})
    explicit = {(row.group, plural_of(row.kind)) for row in WORKLOADS.values() if row.group in _EXPLICIT[1:]}
    explicit |= {("", "replicationcontrollers"), ("nvidia.com", "dynamocomponentdeployments")}
    explicit |= {(WORKLOAD.group, WORKLOAD.plural)}
    whole: list[Row] = [(group, "*", "get") for group in groups if group not in _EXPLICIT]
    return (*_by_group(explicit, "get"), *whole)


def _by_group(pairs: Iterable[tuple[str, str]], verbs: str = FOLLOW) -> list[Row]:
    groups: dict[str, list[str]] = {}
    for group, plural in sorted(pairs):
        groups.setdefault(group, []).append(plural)
    return [(group, " ".join(plurals), verbs) for group, plurals in groups.items()]


def _made(kinds: Iterable[Resource]) -> tuple[Row, ...]:
    return tuple(_by_group(((kind.group, kind.plural) for kind in kinds), OPERATED))


ROLES: tuple[Role, ...] = (
    Role(
        "kai-scheduler",
        "scheduler",
        cluster=(
            *_followed(),
            DEFINITIONS_FOLLOWED,
            EVENTS,
            ("", "pods", "get patch delete"),
            ("", "pods/status", "patch"),
            ("", "pods/finalizers", "update"),
            (RUN_AI, "bindrequests", "get create delete"),
            (RUN_AI, "podgroups podgroups/status queues/status", "patch"),
            *SUSPENDED,
            ("authentication.k8s.io", "tokenreviews", "create"),
            ("authorization.k8s.io", "subjectaccessreviews", "create"),
        ),
        system=((*LEASES, "get create update"),),
    ),
    Role(
        "kai-binder",
        "binder",
        cluster=(
            ("", "pods", "get list watch patch delete"),
            ("", "pods/binding", "create"),
            ("", "pods/status", "patch"),
            ("", "pods/finalizers", "update"),
            ("", "nodes", FOLLOW),
            ("", "configmaps", "get create patch delete"),
            ("", "persistentvolumes persistentvolumeclaims", "list watch patch"),
            ("storage.k8s.io", "storageclasses", FOLLOW),
            (DRA, "resourceclaims", "get list create patch delete"),
            (DRA, "resourceclaims/status resourceclaims/binding", "update patch"),
            (RUN_AI, "bindrequests", "get list watch delete"),
            (RUN_AI, "bindrequests/status", "patch"),
            EVENTS,
        ),
        reservation=(("", "pods", "create"),),
        lease=known.BINDER_LEASE,
    ),
    Role(
        "kai-podgrouper",
        "pod-grouper",
        cluster=(
            ("", "pods", "get list watch patch"),
            ("", "namespaces", FOLLOW),
            ("", "configmaps", "get"),
            ("scheduling.k8s.io", "priorityclasses compositepodgroups", FOLLOW),
            ("scheduling.k8s.io", "podgroups", "get list watch"),
            ("scheduling.k8s.io", "podgroups/status", "patch"),
            (RUN_AI, "podgroups", "get list watch create patch"),
            ("run.ai", "kartas", FOLLOW),
            ("apiextensions.k8s.io", "customresourcedefinitions", "get list watch"),
            *_workloads(),
            EVENTS,
        ),
        lease=known.POD_GROUPER_LEASE,
    ),
    Role(
        "kai-podgroup-controller",
        "podgroup-controller",
        cluster=(
            ("", "pods nodes", FOLLOW),
            ("scheduling.k8s.io", "priorityclasses", FOLLOW),
            (DRA, "resourceclaims", FOLLOW),
            (RUN_AI, "podgroups", FOLLOW),
            (RUN_AI, "podgroups/status", "patch"),
            DEFINITIONS_FOLLOWED,
        ),
        lease=known.POD_GROUP_CONTROLLER_LEASE,
    ),
    Role(
        "queuecontroller",
        "queue-controller",
        cluster=((RUN_AI, "queues podgroups", FOLLOW), (RUN_AI, "queues/status", "patch")),
        lease=known.QUEUE_CONTROLLER_LEASE,
    ),
    Role(
        "kai-node-scale-adjuster",
        "node-scale-adjuster",
        cluster=(("", "pods", FOLLOW),),
        scaling=(("", "pods", "create delete"), ("", "pods/status", "patch")),
        lease=known.NODE_SCALE_ADJUSTER_LEASE,
    ),
    Role(
        "kai-dashboard",
        "kai-dashboard",
        cluster=(
            *_followed(),
            DEFINITIONS_FOLLOWED,
            ("", "events", FOLLOW),
            (KAI, "configs schedulingshards", "list"),
            ("authentication.k8s.io", "tokenreviews", "create"),
            ("authorization.k8s.io", "subjectaccessreviews", "create"),
        ),
    ),
    Role(
        "kai-admission",
        "admission",
        cluster=(("scheduling.k8s.io", "priorityclasses", "get list watch"), (RUN_AI, "queues podgroups", "get")),
    ),
    Role("kai-numa-placement-exporter", "numa-placement-exporter", cluster=(("", "pods", "list patch"),)),
    Role("kai-resource-reservation", "", reservation=(("", "pods", "get patch"),)),
    Role(
        "kai-operator",
        "kai-operator",
        cluster=(
            (KAI, "configs schedulingshards", "get list watch"),
            (KAI, "configs/status schedulingshards/status", "patch"),
            (KAI, "configs/finalizers", "update"),
            ("", "nodes", FOLLOW),
            DEFINITIONS_FOLLOWED,
            *_by_group((kind.group, kind.plural) for kind in (CLUSTER_POLICY, *FRACTIONING)),
            *_by_group(((kind.group, kind.plural) for kind in WEBHOOKS), "list watch create"),
            (RUN_AI, "queues", "create patch"),  # dry runs, which show that webhooks answer
        ),
        reservation=(("", "pods", "create patch"), (RUN_AI, "podgroups", "create patch")),
        system=(
            *_made(kind for kind in MANAGED if kind.namespaced),
            ("discovery.k8s.io", "endpointslices/restricted", "create"),
            ("", "pods", FOLLOW),
        ),
        lease=known.OPERATOR_LEASE,
        named=(
            (
                (WEBHOOKS[0].group, " ".join(kind.plural for kind in WEBHOOKS), "get patch delete"),
                (
                    "kai-podgroup-validation-v2alpha2",
                    "kai-queue-validation-v2",
                    "mutating-kai-admission",
                    "validating-kai-admission",
                ),
            ),
        ),
    ),
    Role(
        "kai-scheduler-crd-manager",
        "crd-upgrader",
        cluster=(
            ("apiextensions.k8s.io", "customresourcedefinitions", "create"),
            (KUEUE_TOPOLOGY.group, KUEUE_TOPOLOGY.plural, "list"),
            (KAI, "topologies", "create"),
        ),
        named=(
            (
                ("apiextensions.k8s.io", "customresourcedefinitions", "get patch"),
                tuple(sorted([*(definition.name for definition in DEFINITIONS), KUEUE_TOPOLOGY.qualified])),
            ),
        ),
    ),
)


def document() -> dict[str, dict[str, Any]]:
    """The table as the chart's templates read it, by the name of the role."""
    return {role.name: _entry(role) for role in ROLES}


def _entry(role: Role) -> dict[str, Any]:
    scopes = {
        "cluster": [*map(_rule, role.cluster), *(_rule(row, names) for row, names in role.named)],
        "system": [*map(_rule, role.system), *_election(role.lease)],
        "reservation": [_rule(row) for row in role.reservation],
        "scaling": [_rule(row) for row in role.scaling],
    }
    return {"account": role.account, **{scope: rules for scope, rules in scopes.items() if rules}}


def _election(lease: str) -> list[dict[str, Any]]:
    """What an election needs; making an object cannot be limited by its name."""
    return [_rule((*LEASES, "create")), _rule((*LEASES, "get update"), (lease,))] if lease else []


def _rule(row: Row, names: tuple[str, ...] = ()) -> dict[str, Any]:
    group, resources, verbs = row
    rule: dict[str, Any] = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return {**rule, "resourceNames": list(names)} if names else rule
