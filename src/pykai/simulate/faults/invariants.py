"""Invariants of a cluster under faults: some hold at any time, others once the cluster is at rest.

The checks watch the API server without faults and recompute what the product computes; they share no code with it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pykai.kube.api import Api, EventType, Object, Resource
from pykai.kube.api_resources import (
    BIND_REQUEST,
    CONFIG,
    CONFIG_MAP,
    DEPLOYMENT,
    NODE,
    NODE_TOPOLOGY,
    POD,
    POD_GROUP,
    QUEUE,
    RESOURCE_CLAIM,
)
from pykai.kube.clock import wall
from pykai.kube.errors import NotFound
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import WatchChange
from pykai.objects import names
from pykai.objects.units import amount

ROUNDING = 0.01
"""GPU fractions of memory requests are rounded up to hundredths."""
GRACE_SECONDS = 60.0
"""The staleness that components are allowed: they may count nodes and pods deleted less than this long ago."""
FAILED_BY_USER = "marked as failed by a user"
"""The status reason of a BindRequest that a user, not the binder, marks as failed."""
REPLICAS_BY_USER = 3
"""The replicas to which users scale operator-managed Deployments; no Config of a history requests it."""
DEPLOYED = frozenset(
    {
        "admission",
        "binder",
        "kai-scheduler-default",
        "node-scale-adjuster",
        "pod-grouper",
        "podgroup-controller",
        "queue-controller",
    }
)
"""The Deployments of a Config and a shard named `default`."""
GROUPED_SECONDS = 60.0
"""The latest that a bound pod names its PodGroup: in one process with the scheduler, it is written after the bind."""
COUNTED = ("cpu", "memory", names.NVIDIA_GPU)
_WATCH_DELAY_SECONDS = 0.1
"""The delay after which every watch has delivered earlier writes."""
_FINISHED = ("Succeeded", "Failed")
_SYSTEM_NAMESPACES = (names.RESERVATION_NAMESPACE, names.SCALING_NAMESPACE)


@dataclass(frozen=True)
class Violation:
    """A violated invariant; `check` is its name."""

    at: float
    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


@dataclass(frozen=True)
class Cluster:
    """All objects of the cluster at one time."""

    pods: list[Object]
    nodes: dict[str, Object]
    groups: list[Object]
    queues: list[Object]
    requests: list[Object]
    config_maps: list[Object]
    claims: list[Object]
    configs: list[Object]
    deployments: list[Object]
    zone_gpus: float = float("inf")
    """GPUs of a NUMA zone: the most that a pod can use on nodes with policy single-numa-node."""

    @property
    def active(self) -> list[Object]:
        return [pod for pod in self.pods if is_active(pod)]

    @property
    def members(self) -> dict[str, list[Object]]:
        """Active pods by `namespace/name` of their PodGroup."""
        found: defaultdict[str, list[Object]] = defaultdict(list)
        for pod in self.active:
            if group := group_of(pod):
                found[group].append(pod)
        return dict(found)


async def read_cluster(api: Api) -> Cluster:
    """Read the current state of the cluster."""

    async def every(resource: Resource) -> list[Object]:
        return list((await api.list(resource, Object)).items)

    return Cluster(
        await every(POD),
        {node["metadata"]["name"]: node for node in await every(NODE)},
        await every(POD_GROUP),
        await every(QUEUE),
        await every(BIND_REQUEST),
        await every(CONFIG_MAP),
        await every(RESOURCE_CLAIM),
        await every(CONFIG),
        await every(DEPLOYMENT),
        await _zone_gpus(api),
    )


async def _zone_gpus(api: Api) -> float:
    try:
        nodes = (await api.list(NODE_TOPOLOGY, Object)).items
    except NotFound:
        return float("inf")
    rows = [row for node in nodes for zone in node["zones"] for row in zone["resources"]]
    return min((amount(row["capacity"]) for row in rows if row["name"] == names.NVIDIA_GPU), default=float("inf"))


# -------------------------------------------------------------------------------------------------------- while it runs
class RunningChecks:
    """Watches every change and reports violations by `report(check, text)`.

    `abandoned`: whether a write of a process that was killed may have arrived a moment ago.
    """

    def __init__(self, api: Api, report: Callable[[str, str], None], abandoned: Callable[[], bool]) -> None:
        self._report = report
        self._abandoned = abandoned
        self._watches = InformerFactory(api)
        self._nodes = self._watches.of(NODE, Object)
        self._pods = self._watches.of(POD, Object)
        self._groups = self._watches.of(POD_GROUP, Object)
        self._claims = self._watches.of(RESOURCE_CLAIM, Object)
        self._requests = self._watches.of(BIND_REQUEST, Object)
        self._config_maps = self._watches.of(CONFIG_MAP, Object)
        self._deleted_nodes: dict[str, float] = {}
        """Node -> time of its deletion."""
        self._members: defaultdict[str, dict[str, float]] = defaultdict(dict)
        """PodGroup -> uids of its pods -> when each was last seen."""
        self._minimums: defaultdict[str, dict[int, float]] = defaultdict(dict)
        """PodGroup -> minMember -> the end of its validity; infinity for the current value."""

    async def run(self) -> None:
        """Check until cancelled."""
        self._nodes.subscribe(self._node_changed)
        self._groups.subscribe(self._group_changed)
        self._pods.subscribe(self._pod_changed)
        self._claims.subscribe(self._claim_changed)
        self._requests.subscribe(self._request_changed)
        await self._watches.run()

    def _request_changed(self, change: WatchChange[Object]) -> None:
        """Check that the binder marks a BindRequest as failed only after rolling back the attempt."""
        status = change.object.get("status") or {}
        if (
            change.type is EventType.MODIFIED
            and status.get("phase") == "Failed"
            and status.get("reason") != FAILED_BY_USER
        ):
            key = change.key[0], change.object["spec"].get("podName") or ""
            asyncio.get_running_loop().call_later(_WATCH_DELAY_SECONDS, self._check_undone, key)

    def _check_undone(self, key: tuple[str, str]) -> None:
        pod = self._pods.get(key[1], key[0])
        requests = [each for _, each in self._requests.items() if each["spec"].get("podName") == key[1]]
        if pod is None or not is_active(pod) or pod["spec"].get("nodeName") or any(map(_is_open, requests)):
            return
        if self._abandoned():
            return
        uid = pod["metadata"]["uid"]
        left = ["the label of a device"] if device_groups(pod) else []
        left += [
            f"ConfigMap {name}" for (_, name), each in self._config_maps.items() if uid in _user_uids(each, "metadata")
        ]
        left += [
            f"ResourceClaim {name}" for (_, name), each in self._claims.items() if uid in _user_uids(each, "status")
        ]
        if left:
            self._report("bind not undone", f"{title_of(pod)} was not bound, and has {left[0]} of the attempt")

    def _node_changed(self, change: WatchChange[Object]) -> None:
        if change.type is EventType.DELETED:
            self._deleted_nodes[change.key[1]] = wall()

    def _group_changed(self, change: WatchChange[Object]) -> None:
        least = self._minimums["/".join(change.key)]
        for minimum, until in least.items():
            least[minimum] = min(until, wall())
        if change.type is not EventType.DELETED:
            least[int(change.object["spec"].get("minMember") or 1)] = float("inf")

    def _pod_changed(self, change: WatchChange[Object]) -> None:
        pod, title = change.object, "/".join(change.key)
        if group := group_of(pod):
            self._members[group][pod["metadata"]["uid"]] = wall()
        if change.type is EventType.DELETED:
            return
        node, before = pod["spec"].get("nodeName"), ((change.old or {}).get("spec") or {}).get("nodeName")
        same = change.old is not None and change.old["metadata"]["uid"] == pod["metadata"]["uid"]
        if same and before and node != before:
            self._report("bound twice", f"{title} was bound to {before} and to {node}")
        status = pod.get("status") or {}
        if (
            str(status.get("reason", "")).startswith("OutOf")
            and node not in self._deleted_nodes
            and is_active(change.old or pod)
        ):
            self._report("refused by a kubelet", f"{title} on {node}: {status.get('message')}")
        if node and not (before and same):
            self._bound(change, title, node)

    def _bound(self, change: WatchChange[Object], title: str, node: str) -> None:
        pod = change.object
        gone_for = wall() - self._deleted_nodes.get(node, float("-inf"))
        if self._nodes.get(node) is None and gone_for > GRACE_SECONDS:
            self._report("bound to a missing node", f"{title} was bound to {node}")
        self._check_devices()
        if pod["metadata"]["namespace"] not in _SYSTEM_NAMESPACES:
            asyncio.get_running_loop().call_later(GROUPED_SECONDS, self._check_minimum, change.key, title, wall())

    def _check_minimum(self, key: tuple[str, str], title: str, bound_at: float) -> None:
        """Check that the gang had enough pods when the pod was bound, allowing for stale informers."""
        pod = self._pods.get(key[1], key[0])
        group = group_of(pod) if pod else ""
        since = bound_at - GRACE_SECONDS
        known = {uid for uid, seen in self._members[group].items() if seen >= since}
        known |= {each["metadata"]["uid"] for _, each in self._pods.items() if group_of(each) == group}
        minima = [low for low, until in self._minimums[group].items() if until >= since]
        if group and minima and len(known) < min(minima):
            self._report("bound below the minimum", f"{title} of a gang of {min(minima)} with {len(known)} pods")

    def _check_devices(self) -> None:
        """Check that the fractions on every shared GPU sum to at most 1."""
        shares: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for _, pod in self._pods.items():
            node = pod["spec"].get("nodeName")
            if node and is_active(pod) and pod["metadata"]["namespace"] not in _SYSTEM_NAMESPACES:
                for group in device_groups(pod):
                    shares[node, group].append(gpu_fraction(pod, self._nodes.get(node)))
        for (node, group), portions in shares.items():
            if sum(portions) > 1.0 + ROUNDING * len(portions):
                self._report("device above 1.0", f"{group} of {node} is shared out to {sum(portions):g}")

    def _claim_changed(self, change: WatchChange[Object]) -> None:
        """Check that no device is allocated to two ResourceClaims."""
        users: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for key, claim in self._claims.items():
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or ():
                users[result["driver"], result["pool"], result["device"]].append("/".join(key))
        for device, claims in users.items():
            if len(claims) > 1:
                self._report("device claimed twice", f"{'/'.join(device)} by {' and '.join(sorted(claims))}")


# -------------------------------------------------------------------------------------------------------------- at rest
Violations = Iterable[tuple[str, str]]


def at_rest(cluster: Cluster) -> Violations:
    """Yield (check, text) for each violation of the invariants that hold at rest."""
    for check in (_gangs, _requests, _reservations, _labels, _config_maps, _claims, _statuses, _waiting):
        yield from check(cluster)
    for check in (_scaling, _installation):
        yield from check(cluster)


def _gangs(cluster: Cluster) -> Violations:
    """Each gang, and each of its sub-groups, has at least its minimum of bound pods, or none."""
    for group in cluster.groups:
        spec = group["spec"]
        members = cluster.members.get(title_of(group), [])
        bound = [pod for pod in members if pod["spec"].get("nodeName")]
        least = int(spec.get("minMember") or 1)
        if 0 < len(bound) < least:
            yield "gang in parts", f"{title_of(group)} runs with {len(bound)} of at least {least} pods"
        parts = Counter((pod["metadata"].get("labels") or {}).get(names.SUBGROUP_LABEL, "") for pod in bound)
        for part in spec.get("subGroups") or ():
            needed = int(part.get("minMember") or 0)
            if bound and parts[part["name"]] < needed:
                yield (
                    "gang in parts",
                    f"{part['name']} of {title_of(group)} runs with {parts[part['name']]} of {needed}",
                )


def _requests(cluster: Cluster) -> Violations:
    """Every BindRequest has completed and its pod exists."""
    pods = {title_of(pod): pod for pod in cluster.pods}
    for request in cluster.requests:
        pod = pods.get(f"{request['metadata']['namespace']}/{request['spec'].get('podName')}")
        phase = (request.get("status") or {}).get("phase")
        if pod is None or phase not in ("Succeeded", "Failed"):
            yield "BindRequest left over", f"{title_of(request)} ({phase or 'Pending'})"


def _reservations(cluster: Cluster) -> Violations:
    """Every shared GPU has exactly one reservation pod on its node, and every reservation pod has a shared GPU."""
    shared = {
        (pod["spec"]["nodeName"], group): title_of(pod)
        for pod in cluster.active
        if pod["spec"].get("nodeName") and pod["metadata"]["namespace"] not in _SYSTEM_NAMESPACES
        for group in device_groups(pod)
    }
    reserved: dict[tuple[str, str], str] = {}
    for pod in cluster.active:
        if pod["metadata"]["namespace"] == names.RESERVATION_NAMESPACE:
            at = (pod["spec"]["nodeName"], (pod["metadata"].get("labels") or {}).get(names.GPU_GROUP_LABEL, ""))
            if at not in shared:
                yield "reservation left over", f"{title_of(pod)} on {at[0]}"
            if at in reserved:
                yield "device reserved twice", f"{title_of(pod)} and {reserved[at]}"
            reserved[at] = title_of(pod)
    for at, pod_title in shared.items():
        if at not in reserved:
            yield "shared device without reservation", f"{pod_title} on {at[0]}"


def _labels(cluster: Cluster) -> Violations:
    """No pending pod has a GPU group label."""
    for pod in cluster.active:
        if device_groups(pod) and not pod["spec"].get("nodeName"):
            yield "label left over", f"{title_of(pod)} waits, and has the label of a device"


def _config_maps(cluster: Cluster) -> Violations:
    """Every ConfigMap of the binder belongs to a bound pod."""
    bound = {pod["metadata"]["uid"] for pod in cluster.pods if pod["spec"].get("nodeName")}
    for config_map in cluster.config_maps:
        owners = {
            owner["uid"] for owner in config_map["metadata"].get("ownerReferences") or () if owner["kind"] == "Pod"
        }
        if owners and not owners & bound:
            yield "config map left over", title_of(config_map)


def _claims(cluster: Cluster) -> Violations:
    """ResourceClaims are allocated to, and reserved for, exactly the bound pods that use them."""
    bound = {pod["metadata"]["uid"] for pod in cluster.active if pod["spec"].get("nodeName")}
    for claim in cluster.claims:
        status = claim.get("status") or {}
        users = {user["uid"] for user in status.get("reservedFor") or ()}
        if users - bound or (status.get("allocation") and not users):
            yield "claim left over", f"{title_of(claim)} is allocated, and no bound pod uses it"
    wanting = {
        (pod["metadata"]["namespace"], each["resourceClaimName"]): pod
        for pod in cluster.active
        if pod["spec"].get("nodeName")
        for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    reserved = {
        (claim["metadata"]["namespace"], claim["metadata"]["name"]): {
            user["uid"] for user in (claim.get("status") or {}).get("reservedFor") or ()
        }
        for claim in cluster.claims
    }
    for key, pod in wanting.items():
        if key in reserved and pod["metadata"]["uid"] not in reserved[key]:
            yield "claim not reserved", f"{title_of(pod)} is bound, and its claim {key[1]} is not reserved for it"


def _statuses(cluster: Cluster) -> Violations:
    """The status of PodGroups and Queues equals the sums over their pods."""
    by_queue: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for group in cluster.groups:
        held: Counter[str] = Counter()
        for pod in cluster.members.get(title_of(group), []):
            if pod["spec"].get("nodeName"):
                held.update(_allocated(pod, cluster.nodes))
        stated = ((group.get("status") or {}).get("resourcesStatus") or {}).get("allocated") or {}
        yield from _compare("PodGroup", title_of(group), stated, held)
        by_queue[group["spec"].get("queue", "")].update(held)
    parents = {queue["metadata"]["name"]: queue["spec"].get("parentQueue") or "" for queue in cluster.queues}
    totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name in parents:
        above = name
        while above:
            totals[above].update(by_queue[name])
            above = parents.get(above, "")
    for queue in cluster.queues:
        name = queue["metadata"]["name"]
        yield from _compare("Queue", name, (queue.get("status") or {}).get("allocated") or {}, totals[name])


def _compare(kind: str, title: str, stated: Mapping[str, object], held: Counter[str]) -> Violations:
    for resource in COUNTED:
        value = amount(str(stated.get(resource, 0)))
        if abs(value - held[resource]) > ROUNDING * max(1.0, abs(held[resource])):
            yield "stale status", f"{kind} {title} says {value:g} {resource}, its pods hold {held[resource]:g}"


def _waiting(cluster: Cluster) -> Violations:
    """No simple pod (single, whole GPUs, no constraints) without a queue limit is pending although a node has room."""
    free: dict[str, float] = {}
    for name, node in cluster.nodes.items():
        if not (node.get("spec") or {}).get("unschedulable"):
            free[name] = amount((node["status"].get("allocatable") or {}).get(names.NVIDIA_GPU, 0))
    for pod in cluster.pods:
        node = pod["spec"].get("nodeName")
        if node in free and (pod.get("status") or {}).get("phase") not in _FINISHED:
            free[node] -= _requested(pod, names.NVIDIA_GPU)
    queues = {queue["metadata"]["name"]: queue for queue in cluster.queues}
    for group in cluster.groups:
        members = cluster.members.get(title_of(group), [])
        waiting = [pod for pod in members if not pod["spec"].get("nodeName")]
        if len(members) != 1 or not waiting or not _is_simple(group, waiting[0]) or _is_limited(group, queues):
            continue
        gpus = _requested(waiting[0], names.NVIDIA_GPU)
        if gpus <= cluster.zone_gpus and any(gpus <= amount_free for amount_free in free.values()):
            yield "waits although it fits", title_of(waiting[0])


def _is_simple(group: Object, pod: Object) -> bool:
    spec, notes = pod["spec"], pod["metadata"].get("annotations") or {}
    special = (names.GPU_FRACTION, names.GPU_MEMORY)
    least, parts = int(group["spec"].get("minMember") or 1), group["spec"].get("subGroups")
    if names.SUBGROUP_LABEL in (pod["metadata"].get("labels") or {}):
        return False  # its podset may not exist
    whole = least == 1 and not parts and not any(key in notes for key in special)
    plain = not any(spec.get(key) for key in ("volumes", "resourceClaims", "nodeSelector", "affinity"))
    return whole and plain and not (group["spec"].get("topologyConstraint") or {}) and "numa" not in str(notes)


def _is_limited(group: Object, queues: Mapping[str, Object]) -> bool:
    """Whether a limit or a missing queue may keep the group pending."""
    name = group["spec"].get("queue", "")
    fixed = group["spec"].get("priorityClassName") == "build"
    while name:
        queue = queues.get(name)
        if queue is None:
            return True
        rows = (queue["spec"].get("resources") or {}).values()
        if any(float(row.get("limit", 0)) >= 0 for row in rows):
            return True
        if fixed and any(float(row.get("quota", 0)) >= 0 for row in rows):
            return True
        name = queue["spec"].get("parentQueue") or ""
    return group["spec"].get("queue") in {queue["spec"].get("parentQueue") for queue in queues.values()}


def _scaling(cluster: Cluster) -> Violations:
    """Every scaling pod represents a pending pod."""
    waiting = {title_of(pod) for pod in cluster.active if not pod["spec"].get("nodeName")}
    for pod in cluster.active:
        notes = {**(pod["metadata"].get("annotations") or {}), **(pod["metadata"].get("labels") or {})}
        about = f"{notes.get(names.SCALED_POD_NAMESPACE)}/{notes.get(names.SCALED_POD_NAME)}"
        if pod["metadata"]["namespace"] == names.SCALING_NAMESPACE and about not in waiting:
            yield "scaling pod left over", f"{title_of(pod)} for {about}"


def _installation(cluster: Cluster) -> Violations:
    """Everything in the Config is deployed as configured, and its status is that of the newest generation."""
    for config in cluster.configs:
        found = {one["metadata"]["name"]: one["spec"] for one in cluster.deployments}
        for name in sorted(DEPLOYED - found.keys()):
            yield "not deployed", f"Deployment {name}"
        for name in sorted(DEPLOYED & found.keys()):
            if found[name].get("replicas") == REPLICAS_BY_USER:
                yield "not restored", f"Deployment {name} has as many replicas as a user gave it"
        rows = {row["type"]: row for row in (config.get("status") or {}).get("conditions") or ()}
        done = rows.get("Reconciling") or {}
        if (done.get("status"), done.get("observedGeneration")) != ("False", config["metadata"].get("generation")):
            yield "stale status", f"Config {config['metadata']['name']} says Reconciling: {done.get('status')}"


# ---------------------------------------------------------------------------------------------------------------- facts
def is_active(pod: Object) -> bool:
    """Whether a pod is active: neither finished nor terminating."""
    return (pod.get("status") or {}).get("phase") not in _FINISHED and "deletionTimestamp" not in pod["metadata"]


def _is_open(request: Object) -> bool:
    return (request.get("status") or {}).get("phase") != "Failed"


def _user_uids(obj: Object, part: str) -> set[str]:
    """Return the uids of the owners of an object (`metadata`), or of the consumers of a claim (`status`)."""
    found = (obj.get(part) or {}).get("ownerReferences" if part == "metadata" else "reservedFor") or ()
    return {each["uid"] for each in found}


def title_of(obj: Object) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def group_of(pod: Object) -> str:
    """Return `namespace/name` of a pod's PodGroup; empty without one."""
    name = (pod["metadata"].get("annotations") or {}).get(names.POD_GROUP_ANNOTATION, "")
    return f"{pod['metadata']['namespace']}/{name}" if name else ""


def device_groups(pod: Object) -> set[str]:
    """Return the GPU groups of a pod."""
    labels = pod["metadata"].get("labels") or {}
    return {value for key, value in labels.items() if key.startswith(names.GPU_GROUP_LABEL)}


def gpu_fraction(pod: Object, node: Object | None) -> float:
    """Return the GPU fraction of a pod; 0 for a pod without one."""
    notes = pod["metadata"].get("annotations") or {}
    if names.GPU_FRACTION in notes:
        return float(notes[names.GPU_FRACTION])
    memory = ((node or {"metadata": {}})["metadata"].get("labels") or {}).get(names.GPU_MEMORY_LABEL)
    return float(notes[names.GPU_MEMORY]) / float(memory) if memory and names.GPU_MEMORY in notes else 0.0


def _requested(pod: Object, resource: str) -> float:
    rows = [(container.get("resources") or {}).get("requests") or {} for container in pod["spec"]["containers"]]
    return float(sum(amount(row.get(resource, 0)) for row in rows))


def _allocated(pod: Object, nodes: Mapping[str, Object]) -> dict[str, float]:
    found = {resource: _requested(pod, resource) for resource in COUNTED}
    devices = float((pod["metadata"].get("annotations") or {}).get(names.GPU_FRACTION_DEVICES, 1))
    found[names.NVIDIA_GPU] += devices * gpu_fraction(pod, nodes.get(pod["spec"]["nodeName"]))
    return found
