"""No field of a pod that concerns scheduling is ignored in silence: each changes where the pod goes, or why it waits.

Without the field the pod goes to node `a`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.model.params import SchedulerParams
from pykai.plugins.registry import BUILT_IN, make_all
from pykai.simulate.checks import ROWS
from tests import builders
from tests.builders import NOW, Manifest, decoded

REQUIRED, PREFERRED = (f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred"))
IN_B: Manifest = {"matchExpressions": [{"key": "host", "operator": "In", "values": ["b"]}]}
WEB: Manifest = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "host"}
DB: Manifest = {**WEB, "labelSelector": {"matchLabels": {"app": "db"}}}
SPREAD: Manifest = {**WEB, "maxSkew": 1}
SIX: Manifest = {"requests": {"cpu": "6"}}
PORT: Manifest = {"ports": [{"containerPort": 80, "hostPort": 80}]}
DISK: Manifest = {"name": "d", "gcePersistentDisk": {"pdName": "x"}}


class Row(NamedTuple):
    """A field: the pod's spec with it, what else there is, where the pod goes then (empty: nowhere, and why)."""

    field: str
    spec: Manifest
    there: tuple[Manifest, ...] = ()
    node: str = "b"
    why: str = ""


def neighbour(on: str, **spec: Any) -> Manifest:
    return builders.pod("n", "", on, {}, spec, labels={"app": "web"})


def container(**fields: Any) -> Manifest:
    return {"name": "main", "image": "x", **fields}


def claim(**spec: Any) -> tuple[Manifest, Manifest]:
    """A bound claim, and its volume."""
    meta = {"name": "c", "namespace": "ns"}
    bound = {"volumeName": "v", "storageClassName": "", **spec}
    return (
        {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": bound, "status": {"phase": "Bound"}},
        {
            "kind": "PersistentVolume",
            "metadata": {"name": "v"},
            "spec": {"capacity": {"storage": "1Gi"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [IN_B]}}},
        },
    )


USES_CLAIM: Manifest = {"volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": "c"}}]}
NO_ROOM = "MaxNodePoolResources"
ROWS_OF_FIELDS = [
    Row("containers[].resources", {"containers": [container(resources=SIX)]}),
    Row("containers[].resources", {"containers": [container(resources={"requests": {"cpu": "60"}})]}, (), "", NO_ROOM),
    Row("initContainers[].resources", {"initContainers": [container(resources=SIX)]}),
    Row("overhead", {"overhead": {"cpu": "6"}}),
    Row("resources", {"resources": SIX}),
    Row(
        "containers[].ports[].hostPort",
        {"containers": [container(**PORT)]},
        (neighbour("a", containers=[container(**PORT)]),),
    ),
    Row("nodeSelector", {"nodeSelector": {"host": "b"}}),
    Row("nodeSelector", {"nodeSelector": {"host": "c"}}, (), "", "node affinity/selector"),
    Row("affinity.nodeAffinity", {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [IN_B]}}}}),
    Row("affinity.nodeAffinity", {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": IN_B}]}}}),
    Row("affinity.podAffinity", {"affinity": {"podAffinity": {REQUIRED: [WEB]}}}, (neighbour("b"),)),
    Row("affinity.podAffinity", {"affinity": {"podAffinity": {REQUIRED: [DB]}}}, (), "", "pod affinity rules"),
    Row(
        "affinity.podAffinity",
        {"affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": WEB}]}}},
        (neighbour("b"),),
    ),
    Row("affinity.podAntiAffinity", {"affinity": {"podAntiAffinity": {REQUIRED: [WEB]}}}, (neighbour("a"),)),
    Row(
        "affinity.podAntiAffinity",
        {"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": WEB}]}}},
        (neighbour("a"),),
    ),
    Row(
        "topologySpreadConstraints",
        {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "DoNotSchedule"}]},
        (neighbour("a"),),
    ),
    Row(
        "topologySpreadConstraints",
        {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]},
        (neighbour("a"),),
    ),
    Row("tolerations", {"tolerations": [{"key": "t", "operator": "Exists"}], "nodeSelector": {"host": "t"}}, (), "t"),
    Row("tolerations", {"nodeSelector": {"host": "t"}}, (), "", "untolerated taint"),
    Row("volumes[].persistentVolumeClaim", USES_CLAIM, claim()),
    Row("volumes[].persistentVolumeClaim", USES_CLAIM, (), "", 'persistentvolumeclaim "c" not found'),
    Row(
        "volumes[].ephemeral",
        {"volumes": [{"name": "e", "ephemeral": {}}]},
        (),
        "",
        'create the persistentvolumeclaim "p-e"',
    ),
    Row(
        "volumes[].configMap",
        {
            "containers": [container(volumeMounts=[{"name": "m"}])],
            "volumes": [{"name": "m", "configMap": {"name": "m"}}],
        },
        (),
        "",
        "Missing required configmaps",
    ),
    Row("volumes[] (disk)", {"volumes": [DISK]}, (neighbour("a", volumes=[DISK]),)),
    Row(
        "resourceClaims",
        {"resourceClaims": [{"name": "r", "resourceClaimName": "r"}]},
        (),
        "",
        'could not find ResourceClaim "ns/r"',
    ),
    Row("schedulingGates", {"schedulingGates": [{"name": "later"}]}, (), "", "1 are gated"),
    Row("schedulerName", {"schedulerName": "default-scheduler"}, (), ""),
    Row("nodeName", {"nodeName": "b"}, (), ""),
]


def planned(row: Row | None) -> tuple[str, str]:
    """Where the pod goes, and what is said about it if it goes nowhere."""
    nodes = [builders.node("a", 0, {"host": "a"}, {"cpu": "4"}), builders.node("b", 0, {"host": "b"})]
    tainted = builders.node("t", 0, {"host": "t"}, taints=[{"key": "t", "effect": "NoSchedule"}])
    pod = builders.pod("p", "g", "", {"cpu": "1"}, row.spec if row else None, labels={"app": "web"})
    there = row.there if row else ()
    objects = [*nodes, tainted, builders.queue(), builders.pod_group("g"), pod, *there]
    snapshot = builders.snapshot(map(decoded, objects), params=SchedulerParams(partitioned=False))
    plan = decide(snapshot, Policy(make_all([(name, {}) for name in BUILT_IN])), now=NOW)
    texts = [text for each in plan.verdicts for text in (each.message, each.not_ready, *each.pods.values())]
    return "".join(bind.node for bind in plan.binds), " ".join(texts)


def test_without_any_of_them_the_first_node_is_taken() -> None:
    assert planned(None) == ("a", "")


@pytest.mark.parametrize("row", ROWS_OF_FIELDS, ids=[f"{row.field}-{row.node or 'waits'}" for row in ROWS_OF_FIELDS])
def test_it_has_an_effect(row: Row) -> None:
    node, said = planned(row)
    assert node == row.node
    assert row.why in said


ELSEWHERE = {
    "hostNetwork": "the API server makes host ports of container ports",
    "runtimeClassName": "the API server adds overhead, node selector and tolerations of the class",
    "priority": "the API server's copy of the class; the PodGroup's counts",
    "priorityClassName": "of the PodGroup (tests of the pod grouper)",
    "preemptionPolicy": "of the PodGroup's class (tests/unit/engine/test_preemption_policy.py)",
    "workloadRef": "tests of the pod grouper",
    "schedulingGroup": "tests of the pod grouper",
}
OF_THE_KUBELET = {
    "activeDeadlineSeconds",
    "ephemeralContainers",
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "serviceAccountName",
    "serviceAccount",
    "automountServiceAccountToken",
    "imagePullSecrets",
    "securityContext",
    "hostPID",
    "hostIPC",
    "hostUsers",
    "shareProcessNamespace",
    "hostname",
    "hostnameOverride",
    "subdomain",
    "setHostnameAsFQDN",
    "hostAliases",
    "dnsPolicy",
    "dnsConfig",
    "readinessGates",
    "enableServiceLinks",
    "os",
}
"""Fields that kube-scheduler does not read either."""


def test_every_field_of_a_pod_is_accounted_for() -> None:
    known = {word.strip("!").split(":")[0].split("=")[0] for word in ROWS["PodSpec"].split()}
    shown = {row.field.split("[")[0].split(".")[0] for row in ROWS_OF_FIELDS}
    assert known - shown - ELSEWHERE.keys() - OF_THE_KUBELET == set()
    assert (shown | ELSEWHERE.keys()) & OF_THE_KUBELET == set()
