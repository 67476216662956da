"""kube-scheduler as judge: random pods and nodes; for every pod the same feasible nodes, and a node that both prefer.

A probe is pinned to one node by an extended resource that only this node offers, so that nothing else about the pod
changes. Every probe has a namespace, a CSI driver and host ports of its own, with copies of the pods that are there:
what one finds does not depend on the others; it is deleted at the end. `make test-differential CLUSTERS=50 PROBES=8`
draws more clusters than the sample here, with so many pods each (on every node in turn).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from os import environ
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from pykai.engine.cycle import Cycle
from pykai.engine.decide import decide
from pykai.engine.plugin_api import PodScore
from pykai.engine.policy import Policy
from pykai.kube.api import Patch
from pykai.kube.api_resources import (
    CSI_NODE,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SERVICE_ACCOUNT,
)
from pykai.kube.client import HttpApi
from pykai.kube.errors import NotFound
from pykai.local.cluster_session import connect
from pykai.local.control_plane import ControlPlane, start_cluster
from pykai.model.params import SchedulerParams
from pykai.model.snapshot import Snapshot
from pykai.objects import kinds
from pykai.plugins.registry import BUILT_IN, make, make_all
from tests import builders
from tests.builders import Manifest, decoded

CLUSTERS = int(environ.get("CLUSTERS", "2"))
PROBES = int(environ.get("PROBES", "5"))
NODES = "abcd"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ZONE = "topology.kubernetes.io/zone"
OWN = "own-namespace"
"""Stands for the name of the probe's namespace, which is also a label of it."""
DRIVER = "own-driver.example.com"
"""Stands for the probe's CSI driver."""
PORTS = {80: 0, 81: 1}
ROOM = {"cpu": "4000", "memory": "40Ti", "pods": "1000"}
"""So much that what pods request makes no difference to scores."""
IMAGES = {"large": 900, "middle": 500, "small": 100}
"""Size in MiB."""
ALWAYS = [{"key": f"node.kubernetes.io/{state}", "operator": "Exists"} for state in ("not-ready", "unreachable")]
"""Nodes without a kubelet: whether they are ready does not matter here."""
JUDGE = "default-scheduler"
POLICY = Policy(make_all([(name, {}) for name in BUILT_IN]))


@pytest.fixture(scope="module")
def plane(control_plane_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with kube-scheduler, without kubelets."""
    made = start_cluster(tmp_path_factory.mktemp("judge") / "tests", control_plane_binary, ["kube-scheduler"])
    yield made
    made.stop()


@pytest.fixture
async def judge(plane: ControlPlane) -> AsyncIterator[HttpApi]:
    async with connect(plane.files.kubeconfig) as api:
        yield api


# ---------------------------------------------------------------------------------------------------- drawing
def slot(name: str) -> str:
    return f"example.com/slot-{name}"


def draw_nodes(random: Random, prefix: str) -> list[Manifest]:
    made = []
    for letter in NODES:
        name = f"{prefix}-{letter}"
        labels = {"host": name, "disk": random.choice(["ssd", "hdd"])}
        if random.random() < 0.8:
            labels["zone"] = labels[ZONE] = random.choice("xy")
        taints = [{"key": "old", "effect": random.choice(["NoSchedule", "PreferNoSchedule"])}]
        spec = {"taints": taints} if random.random() < 0.4 else {}
        node = builders.node(name, 0, labels, {**ROOM, slot(name): "100"}, **spec)
        node["status"]["images"] = [
            {"names": [f"{image}:latest"], "sizeBytes": size << 20}
            for image, size in IMAGES.items()
            if random.random() < 0.4
        ]
        made.append(node)
    return made


def draw_limits(random: Random, nodes: list[Manifest]) -> list[Manifest]:
    """CSINodes: how many volumes some of the nodes attach."""
    names = [node["metadata"]["name"] for node in nodes]
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": name},
            "spec": {"drivers": [{"name": DRIVER, "nodeID": name, "allocatable": {"count": random.randint(1, 2)}}]},
        }
        for name in names
        if random.random() < 0.7
    ]


def draw_volumes(random: Random) -> list[Manifest]:
    """Bound claims with their volumes: for one pod or for several, of a zone, for some nodes."""
    made: list[Manifest] = []
    for name in ("c0", "c1", "c2"):
        modes = [random.choice(["ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"])]
        size = {"storage": "1Gi"}
        volume: Manifest = {
            "accessModes": modes,
            "capacity": size,
            "storageClassName": "",
            "csi": {"driver": DRIVER, "volumeHandle": f"{OWN}-{name}"},
            "claimRef": {"namespace": OWN, "name": name},
        }
        if random.random() < 0.3:
            wanted = {"key": "disk", "operator": "In", "values": [random.choice(["ssd", "hdd"])]}
            volume["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}}
        labels = {ZONE: random.choice("xy")} if random.random() < 0.3 else {}
        claim = {
            "accessModes": modes,
            "resources": {"requests": size},
            "storageClassName": "",
            "volumeName": f"{OWN}-{name}",
        }
        made += [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"{OWN}-{name}", "labels": labels},
                "spec": volume,
                "status": {"phase": "Bound"},
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": OWN},
                "spec": claim,
                "status": {"phase": "Bound"},
            },
        ]
    return made


def as_seen_by(objects: list[Manifest], namespace: str, number: int = 0) -> list[Manifest]:
    """The objects of one probe: with its namespace, its driver and its ports."""
    text = json.dumps(objects).replace(OWN, namespace).replace(DRIVER, f"{namespace}.example.com")
    for port, at in PORTS.items():
        text = text.replace(f'"hostPort": {port}', f'"hostPort": {1000 + 2 * number + at}')
    found: list[Manifest] = json.loads(text)
    return found


def draw_selector(random: Random) -> Manifest:
    return {"matchLabels": {"app": random.choice(["web", "db"])}}


def draw_term(random: Random) -> Manifest:
    term = {"labelSelector": draw_selector(random), "topologyKey": random.choice(["host", "zone"])}
    if random.random() < 0.3:
        term["namespaceSelector"] = {"matchLabels": {"team": random.choice([OWN, OWN, "nobody"])}}
    if random.random() < 0.2:
        term[random.choice(["matchLabelKeys", "mismatchLabelKeys"])] = ["version"]
    return term


def draw_spec(random: Random) -> Manifest:
    """Tolerations, node and pod affinity, spread, volumes, host ports: some of each."""
    spec: Manifest = {"tolerations": list(ALWAYS), "affinity": {}}
    if random.random() < 0.5:
        spec["tolerations"].append({"key": "old", "operator": "Exists"})
    if random.random() < 0.3:
        spec["nodeSelector"] = {"disk": random.choice(["ssd", "hdd"])}
    if random.random() < 0.3:
        wanted = {"key": "zone", "operator": random.choice(["In", "NotIn"]), "values": ["x"]}
        spec["affinity"]["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}}
    for side in ("podAffinity", "podAntiAffinity"):
        if random.random() < 0.3:
            spec["affinity"][side] = {REQUIRED: [draw_term(random)]}
    if random.random() < 0.7:
        spread = {
            "topologyKey": random.choice(["host", "zone"]),
            "maxSkew": random.choice([1, 1, 2]),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": draw_selector(random),
            "nodeAffinityPolicy": random.choice(["Honor", "Ignore"]),
            "nodeTaintsPolicy": random.choice(["Honor", "Ignore"]),
        }
        if random.random() < 0.3:
            spread["minDomains"] = random.randint(1, 3)
        if random.random() < 0.2:
            spread["matchLabelKeys"] = ["version"]
        spec["topologySpreadConstraints"] = [spread]
    if random.random() < 0.5:
        used = random.sample(["c0", "c1", "c2"], random.choice([1, 1, 2]))
        spec["volumes"] = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in used]
    return spec


def draw_pod(random: Random, name: str, on: str = "") -> Manifest:
    return made_pod(random, name, on, draw_spec(random))


def made_pod(random: Random, name: str, on: str, spec: Manifest) -> Manifest:
    labels = {"app": random.choice(["web", "db"]), "version": random.choice("12")}
    pod = builders.pod(name, name, on, {}, spec, labels=labels)
    del pod["metadata"]["uid"]
    if random.random() < 0.3:
        pod["spec"]["containers"][0]["ports"] = [{"containerPort": 1, "hostPort": random.choice(list(PORTS))}]
    return pod


# ---------------------------------------------------------------------------------------------------- deciding
def ours(cluster: list[Manifest], pods: list[Manifest]) -> bool:
    """Whether our engine binds the last of the pods."""
    plan = decide(snapshot_of(cluster, pods), POLICY, now=builders.NOW)
    return [bind.pod[1] for bind in plan.binds] == [pods[-1]["metadata"]["name"]]


def snapshot_of(cluster: list[Manifest], pods: list[Manifest]) -> Snapshot:
    groups = [builders.pod_group(pod["metadata"]["name"]) for pod in pods]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "labels": {"team": "ns"}}}
    objects = as_seen_by([builders.queue(), namespace, *cluster, *groups, *pods], "ns")
    return builders.snapshot(map(decoded, objects), params=SchedulerParams(partitioned=False, image_locality=True))


async def _account(api: HttpApi, namespace: str) -> None:
    """Wait until the namespace has the service account that pods need."""
    for _ in range(600):
        try:
            await api.get(SERVICE_ACCOUNT.ref("default", namespace), kinds.ConfigMap)
        except NotFound:
            await asyncio.sleep(0.1)
        else:
            return


async def _bind(api: HttpApi, volumes: list[Manifest], namespace: str) -> None:
    """Create volumes and their claims, and wait until the controller has bound them."""
    for resource, space, phase in (
        (PERSISTENT_VOLUME, "", "Available"),
        (PERSISTENT_VOLUME_CLAIM, namespace, "Bound"),
    ):
        made = [each for each in volumes if each["kind"] == resource.kind]
        for each in made:
            await api.create(resource, each, space)
        for each in made:
            ref = resource.ref(each["metadata"]["name"], space)
            while (await api.get(ref, kinds.PersistentVolumeClaim)).status.phase not in (phase, "Bound"):
                await asyncio.sleep(0.2)


def used_by(volumes: list[Manifest], pods: list[Manifest]) -> list[Manifest]:
    """The claims of pods, and their volumes."""
    text = json.dumps(pods)
    return [each for each in volumes if f'"claimName": "{each["metadata"]["name"].rsplit("-", 1)[-1]}"' in text]


class Verdict(NamedTuple):
    """Of kube-scheduler: a node, or why there is none."""

    node: str
    message: str = ""


async def theirs(api: HttpApi, namespace: str, volumes: list[Manifest], pods: list[Manifest]) -> Verdict:
    """Where kube-scheduler binds the last of the pods, in a namespace where the others are."""
    await api.create(NAMESPACE, {"metadata": {"name": namespace, "labels": {"team": namespace}}})
    await _account(api, namespace)
    await _bind(api, volumes, namespace)
    for pod in pods:
        spec = {**pod["spec"], "schedulerName": JUDGE, "automountServiceAccountToken": False}
        metadata = {"name": pod["metadata"]["name"], "labels": pod["metadata"]["labels"]}
        await api.create(POD, {"metadata": metadata, "spec": spec}, namespace)
    ref = POD.ref(pods[-1]["metadata"]["name"], namespace)
    for _ in range(600):
        seen = await api.get(ref, kinds.Pod)
        if seen.spec.node_name:
            return Verdict(seen.spec.node_name)
        for each in seen.status.conditions or ():
            refused = each.type == "PodScheduled" and each.status == "False"
            if refused and "not found" not in each.message:  # volumes come by watches of their own, perhaps later
                return Verdict("", each.message)
        await asyncio.sleep(0.1)
    raise AssertionError(f"kube-scheduler says nothing about {namespace}")


def pinned(pod: Manifest, node: str) -> Manifest:
    amounts = {slot(node): "1"}
    container = {**pod["spec"]["containers"][0], "resources": {"requests": amounts, "limits": amounts}}
    return {**pod, "spec": {**pod["spec"], "containers": [container]}}


@asynccontextmanager
async def registered(
    api: HttpApi, nodes: list[Manifest], limits: list[Manifest], spaces: list[str]
) -> AsyncIterator[None]:
    """The nodes on the control plane; `limits` hold for the driver of each of the namespaces, which go at the end."""
    drivers = [f"{space}.example.com" for space in spaces]
    for node in nodes:
        await api.create(NODE, node)
        await api.patch(NODE.ref(node["metadata"]["name"]).sub("status"), Patch.merge({"status": node["status"]}))
    for limit in limits:
        (stated,) = limit["spec"]["drivers"]
        await api.create(CSI_NODE, {**limit, "spec": {"drivers": [{**stated, "name": name} for name in drivers]}})
    try:
        yield
    finally:
        volumes = (await api.list(PERSISTENT_VOLUME, kinds.PersistentVolume)).items
        used = [
            *(NAMESPACE.ref(space) for space in spaces),
            *(PERSISTENT_VOLUME.ref(volume.metadata.name) for volume in volumes),
            *(NODE.ref(node["metadata"]["name"]) for node in nodes),
            *(CSI_NODE.ref(limit["metadata"]["name"]) for limit in limits),
        ]
        for ref in used:
            with suppress(NotFound):  # a volume of the cluster before may end its protection, and go, meanwhile
                await api.delete(ref)


@pytest.mark.parametrize("seed", range(CLUSTERS))
async def test_the_same_nodes_are_feasible(judge: HttpApi, seed: int) -> None:
    random = Random(seed)
    nodes = draw_nodes(random, f"n{seed}")
    names = [node["metadata"]["name"] for node in nodes]
    limits, volumes = draw_limits(random, nodes), draw_volumes(random)
    there = [draw_pod(random, f"e{at}", random.choice(names)) for at in range(random.randint(0, 5))]
    drawn = [draw_pod(random, "probe") for _ in range(PROBES)]
    probes = [pinned(pod, name) for pod in drawn for name in names]
    spaces = [f"s{seed}-{at}" for at in range(len(probes))]
    async with registered(judge, nodes, limits, spaces):
        jobs = [
            theirs(
                judge,
                space,
                as_seen_by(used_by(volumes, [*there, probe]), space),
                as_seen_by([*there, probe], space, at),
            )
            for at, (space, probe) in enumerate(zip(spaces, probes, strict=True))
        ]
        found = await asyncio.gather(*jobs)
    for verdict, probe in zip(found, probes, strict=True):
        mine = ours([*nodes, *limits, *volumes], [*there, probe])
        assert mine is bool(verdict.node), json.dumps([verdict, probe, nodes, limits, volumes, there])


# --------------------------------------------------------------------------------------------------- preferences
def draw_preference(random: Random) -> Manifest:
    """One kind of preference: how several kinds are weighed against each other is a matter of each scheduler."""
    spec: Manifest = {"tolerations": list(ALWAYS), "affinity": {}}
    weights = [random.choice([1, 50, 100]) for _ in range(2)]
    kind = random.choice(["node", "near", "apart", "taint", "spread", "image"])
    if kind != "taint":
        spec["tolerations"].append({"key": "old", "operator": "Exists"})
    match kind:
        case "node":
            terms = [
                {
                    "weight": weight,
                    "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]},
                }
                for weight, key, value in zip(weights, ("zone", "disk"), ("x", "ssd"), strict=True)
            ]
            spec["affinity"]["nodeAffinity"] = {PREFERRED: terms}
        case "near" | "apart" as side:
            terms = [{"weight": weight, "podAffinityTerm": draw_term(random)} for weight in weights]
            spec["affinity"]["podAffinity" if side == "near" else "podAntiAffinity"] = {PREFERRED: terms}
        case "image":
            spec["containers"] = [{"name": name, "image": name} for name in random.sample([*IMAGES], 2)]
        case "spread":
            spread = {"topologyKey": "host", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
            spec["topologySpreadConstraints"] = [{**spread, "labelSelector": draw_selector(random)}]
    return spec


def favourites(cluster: list[Manifest], pods: list[Manifest]) -> set[str]:
    """The nodes that the last of the pods likes best, by its preferences alone."""
    snapshot = snapshot_of(cluster, pods)
    plugins = [*make("preferences"), *make("podaffinity"), *make("imagelocality")]
    cycle = Cycle(snapshot, Policy(tuple(plugins)), now=builders.NOW)
    row = list(snapshot.pods.names).index("probe")
    c = snapshot.pods.of_class(row)
    scores = cycle.node_facts.steady_scores(c).column(True, False)
    for plugin in cycle.policy.of(PodScore):
        if plugin.concerns(cycle, c) and (score := plugin.pod_score(cycle, row)) is not None:
            scores = scores + score
    return {name for name, score in zip(snapshot.nodes.names, scores, strict=True) if score == scores.max()}


@pytest.mark.parametrize("seed", range(CLUSTERS))
async def test_a_node_that_both_prefer_is_chosen(judge: HttpApi, seed: int) -> None:
    random = Random(seed)
    nodes = draw_nodes(random, f"p{seed}")
    for node in nodes:
        for taint in node["spec"].get("taints", ()):
            taint["effect"] = "PreferNoSchedule"
    names = [node["metadata"]["name"] for node in nodes]
    plain: Manifest = {"tolerations": list(ALWAYS)}
    there = [made_pod(random, f"e{at}", random.choice(names), plain) for at in range(random.randint(1, 5))]
    probes = [made_pod(random, "probe", "", draw_preference(random)) for _ in range(PROBES)]
    for pod in (*there, *probes):
        pod["spec"]["containers"][0].pop("ports", None)
    spaces = [f"p{seed}-{at}" for at in range(len(probes))]
    async with registered(judge, nodes, [], spaces):
        jobs = [
            theirs(judge, space, [], as_seen_by([*there, probe], space))
            for space, probe in zip(spaces, probes, strict=True)
        ]
        found = await asyncio.gather(*jobs)
    for chosen, probe in zip(found, probes, strict=True):
        assert chosen.node in favourites(nodes, [*there, probe]), json.dumps([chosen, probe, nodes, there])
