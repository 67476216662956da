"""Scheduler scenarios: a cluster as Kubernetes objects -> cache -> decide -> where every pod ended up.

The whole product path is used: only the statuses KAI's tests set by hand are turned into the objects that mean them.
"""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pykai.cache.cluster import ClusterCache
from pykai.cache.requests import row_amount
from pykai.engine.cycle import Cycle
from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.engine.reasons import GROUP_BASE, GangError
from pykai.model.params import SchedulerParams
from pykai.model.plan import Verdict
from pykai.model.resources import GPU
from pykai.model.status import Status
from pykai.objects import kinds
from pykai.objects.units import rfc3339
from pykai.plugins.dra import Session as ClaimSession
from pykai.plugins.numa import ZoneAccounts
from pykai.plugins.registry import make_all

NOW = 1_800_000_000.0
Case = dict[str, Any]
ALLOCATED = {"Allocated", "Bound", "Binding", "Running"}
ACTIVE_USED = ALLOCATED | {"Pipelined", "Releasing", "StuckInReleasing"}
BEFORE_RUNNING = ("Allocated", "Binding", "Bound")
"""A pod that has a node and does not run yet is one and the same object."""
PHASES = {"Releasing": "Running", "StuckInReleasing": "Running"}
PHASES |= dict.fromkeys(("Pipelined", "Gated", *BEFORE_RUNNING), "Pending")


@dataclass
class TaskState:
    status: str
    node: str = ""
    groups: list[str] = field(default_factory=list)


@dataclass
class Session:
    """What one run left behind, in the words of the cases."""

    tasks: dict[str, TaskState]
    cycle: Cycle
    calls: dict[str, int]
    rows: dict[str, int]
    errors: dict[str, str]
    verdicts: tuple[Verdict, ...]


def obj(kind: type[Any], data: Case) -> Any:
    return kinds.decode(json.dumps(data), kind)


# ----------------------------------------------------------------------------------------------------------- building
def nodes(case: Case) -> list[Any]:
    found = []
    for name, node in case["resolved"]["nodes"].items():
        data = deepcopy(node["k8s"])
        if not node["gpu_memory_synced"]:
            data["metadata"]["labels"].pop("nvidia.com/gpu.memory", None)
        data["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        found.append(obj(kinds.Node, data))
        if node.get("numa_topology"):
            found.append(obj(kinds.NodeResourceTopology, numa_object(name, node["numa_topology"])))
    return found


def numa_object(name: str, stated: Case) -> Case:
    def amount(resource: str, value: float) -> str:
        return f"{int(value)}m" if resource == "cpu" else str(int(value))

    zones = [
        {
            "name": zone["id"],
            "type": "Node",
            "resources": [
                {
                    "name": resource,
                    "capacity": amount(resource, value),
                    "allocatable": amount(resource, value),
                    "available": amount(resource, zone.get("available", {}).get(resource, 0)),
                }
                for resource, value in zone.get("allocatable", {}).items()
            ],
        }
        for zone in stated["zones"]
    ]
    attributes = [
        {"name": "topologyManagerPolicy", "value": stated.get("policy", "none")},
        {"name": "topologyManagerScope", "value": stated.get("scope", "container")},
    ]
    return {"metadata": {"name": name}, "zones": zones, "attributes": attributes}


def duration(seconds: float) -> str:
    return f"{seconds:.9f}s"


def queues(case: Case) -> list[Any]:
    found = []
    for name, queue in case["resolved"]["queues"].items():
        resources = {
            r: {"quota": v["quota"], "limit": v["limit"], "overQuotaWeight": v["over_quota_weight"]}
            for r, v in queue["resources"].items()
        }
        spec: Case = {"priority": queue["priority"], "resources": resources, "parentQueue": queue["parent"]}
        if "reclaim_min_runtime_seconds" in queue:
            spec["reclaimMinRuntime"] = duration(queue["reclaim_min_runtime_seconds"])
        if "preempt_min_runtime_seconds" in queue:
            spec["preemptMinRuntime"] = duration(queue["preempt_min_runtime_seconds"])
        created = rfc3339(NOW + queue["creation_offset_seconds"])
        found.append(obj(kinds.Queue, {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec}))
    return found


def sub_groups(tree: Case, parent: str | None) -> list[Case]:
    found = []
    for podset in tree.get("pod_sets", []):
        found.append({"name": podset["name"], "minMember": podset.get("min_available", 0), **constraint(podset)})
    for group in tree.get("sub_group_sets", []):
        item = {"name": group["name"], **constraint(group)}
        if "min_sub_group" in group:
            item["minSubGroup"] = group["min_sub_group"]
        found.append(item)
        found.extend(sub_groups(group, group["name"]))
    for item in found:
        if parent is not None:
            item.setdefault("parent", parent)
    return found


def constraint(group: Case) -> Case:
    stated = group.get("topology_constraint")
    if not stated:
        return {}
    return {
        "topologyConstraint": {
            "topology": stated.get("topology", ""),
            "requiredTopologyLevel": stated.get("required_level", ""),
            "preferredTopologyLevel": stated.get("preferred_level", ""),
        }
    }


def pod_group(name: str, group: Case, tasks: dict[str, TaskState]) -> Any:
    tree = group["root_sub_group_set"]
    spec: Case = {
        "queue": group["queue"],
        "priorityClassName": f"p{group['priority']}",
        "preemptibility": group["preemptibility"],
        **constraint(tree),
    }
    only = tree.get("pod_sets", [])
    if len(only) == 1 and only[0]["name"] == "default" and not tree.get("sub_group_sets") and not constraint(only[0]):
        spec["minMember"] = only[0].get("min_available", 0)
    else:
        spec["subGroups"] = sub_groups(tree, None)
    if "min_sub_group" in tree:
        spec["minSubGroup"] = tree["min_sub_group"]
    if "preemption_delay_seconds" in group:
        spec["preemptionDelay"] = duration(group["preemption_delay_seconds"])
    if "staleness_grace_period_seconds" in group:
        spec["stalenessGracePeriod"] = duration(group["staleness_grace_period_seconds"])
    annotations = {}
    if any(tasks[pod].status in ALLOCATED for pod in group["pods"]):
        annotations["kai.scheduler/last-start-timestamp"] = rfc3339(NOW - 60)
    if "stale_since_offset_seconds" in group:
        annotations["kai.scheduler/stale-podgroup-timestamp"] = rfc3339(NOW + group["stale_since_offset_seconds"])
    metadata = {
        "name": name,
        "namespace": group.get("namespace", ""),
        "creationTimestamp": rfc3339(NOW + group["creation_offset_seconds"]),
        "annotations": annotations,
    }
    return obj(kinds.PodGroup, {"metadata": metadata, "spec": spec})


def pod(case: Case, name: str, task: TaskState) -> Any:
    data = deepcopy(case["resolved"]["pods"][name]["k8s"])
    state = case["resolved"]["pods"][name]["state"]
    meta, spec = data["metadata"], data.setdefault("spec", {})
    labels = meta.setdefault("labels", {})
    if state.get("sub_group"):
        labels["kai.scheduler/subgroup-name"] = state["sub_group"]
    if state.get("is_legacy_mig_task"):
        meta.setdefault("annotations", {})["nvidia.com/mig-1g.10gb"] = "1"
        for container in spec["containers"]:
            requests = container.get("resources", {}).get("requests", {})
            for resource in [r for r in requests if r.startswith("nvidia.com/mig-")]:
                del requests[resource]
    if task.groups and task.status in ACTIVE_USED:
        if len(task.groups) == 1:
            labels["runai-gpu-group"] = task.groups[0]
        else:
            labels.update({f"runai-gpu-group/{g}": g for g in task.groups})
    data["status"] = {**data.get("status", {}), "phase": PHASES.get(task.status, task.status)}
    if task.status == "Gated":
        spec["schedulingGates"] = [{"name": "gate"}]
    if task.status == "Releasing":
        meta["deletionTimestamp"] = rfc3339(NOW - 1)
    if task.status == "StuckInReleasing":
        meta["deletionTimestamp"] = rfc3339(NOW - 3600)
    spec["nodeName"] = task.node if task.status in ACTIVE_USED - {"Pipelined"} else ""
    return obj(kinds.Pod, data)


def params(profile: Case) -> SchedulerParams:
    values = profile["params"]
    return SchedulerParams(
        scheduler_name=values["scheduler_name"],
        partitioned=False,
        max_consolidation_victims=values["max_number_consolidation_preemptees"],
        use_signatures=values["use_scheduling_signatures"],
        allow_consolidating_reclaim=values["allow_consolidating_reclaim"],
        staleness_grace=values["global_default_staleness_grace_period_seconds"],
        restrict_nodes=values["restrict_scheduling_nodes"],
        queue_label_key=values["queue_label_key"],
        detailed_fit_errors=False,
        dra_enabled=profile["feature_gates"]["dynamic_resources_enabled"],
    )


def cluster(case: Case, tasks: dict[str, TaskState], profile: Case, claims: dict[Any, Any]) -> ClusterCache:
    cache = ClusterCache(params(profile))
    cache.load(nodes(case))
    cache.load(queues(case))
    resolved = case["resolved"]
    priorities = {group["priority"] for group in resolved["pod_groups"].values()}
    cache.load(obj(kinds.PriorityClass, {"metadata": {"name": f"p{p}"}, "value": p}) for p in priorities)
    cache.load(pod_group(name, group, tasks) for name, group in resolved["pod_groups"].items())
    cache.load(pod(case, name, tasks[name]) for name in resolved["pods"])
    cache.load(obj(kinds.Topology, topology) for topology in resolved.get("topologies", []))
    dra = {"ResourceClaim": kinds.ResourceClaim, "ResourceSlice": kinds.ResourceSlice, "DeviceClass": kinds.DeviceClass}
    for data in resolved.get("dra_objects", []):
        key = (data["metadata"].get("namespace", ""), data["metadata"]["name"])
        if data["kind"] == "ResourceClaim" and key in claims:
            data = {**data, "status": claims[key]}
        cache.load([obj(dra[data["kind"]], data)])
    return cache


def policy(case: Case, profile: Case) -> Policy:
    skipped = profile.get("skipped_plugins", [])
    configured = [
        (plugin["name"], plugin.get("arguments", {}))
        for tier in profile["tiers"]
        for plugin in tier["plugins"]
        if plugin["name"] not in skipped
    ]
    if profile.get("numa_plugin_appended"):
        configured.append(("numa", {}))
    depth = profile["params"].get("queue_depth_per_action") or {}
    return Policy(make_all(configured), tuple(case["actions"]), queue_depth=depth)


# ------------------------------------------------------------------------------------------------------------ running
def told(errors: list[GangError]) -> str:
    """Why a gang waits, as the cases have it: every message, with its domain."""
    base = errors[0].reason if len(errors) == 1 else GROUP_BASE
    lines = sorted((f"<{e.node_group}>: " if e.node_group else "") + e.message for e in errors)
    return f"\n{base}." + "".join(f"\n{line}." for line in lines)


@dataclass(frozen=True)
class Observer:
    """A plugin that gives pods their promises when a cycle opens, and keeps the cycle: cases state its figures."""

    promised: dict[int, TaskState]
    cycles: list[Cycle] = field(default_factory=list)

    def open(self, cycle: Cycle) -> None:
        self.cycles.append(cycle)
        for row, task in self.promised.items():
            cycle.trial.place(row, cycle.snapshot.nodes.rows[task.node], tuple(task.groups), wait=True)


def run(case: Case, profile: Case, tasks: dict[str, TaskState], claims: Case, actions: bool = True) -> Session:
    """One session. A pod that starts as Pipelined was promised its place by an earlier action of the session."""
    snapshot, chosen = cluster(case, tasks, profile, claims).snapshot(NOW), policy(case, profile)
    rows = {name: row for row, name in enumerate(snapshot.pods.names)}
    promised = {rows[name]: task for name, task in tasks.items() if task.status == "Pipelined"}
    observer = Observer(promised)
    chosen = replace(chosen, plugins=(*chosen.plugins, observer), actions=chosen.actions if actions else ())
    verdicts = decide(snapshot, chosen, NOW).verdicts
    (cycle,) = observer.cycles
    trial = cycle.trial
    after = {}
    for name, task in tasks.items():
        if name not in rows:
            after[name] = TaskState(task.status, task.node, task.groups)
            continue
        row = rows[name]
        status = Status(trial.status[row])
        title = "Binding" if status is Status.ALLOCATED else status.title
        title = task.status if title in BEFORE_RUNNING and task.status in BEFORE_RUNNING else title
        node = pods_node(cycle, row) or (task.node if title == task.status else "")
        after[name] = TaskState(title, node, list(trial.gpu_groups.get(row, ())) or task.groups)
    calls = {
        "bind": sum(not wait for wait in trial.placed.values()),
        "evict": len(trial.evicted),
        "pipeline": sum(wait for pod, wait in trial.placed.items() if pod not in promised),
    }
    gangs = cycle.snapshot.gangs.names
    errors = {gangs[g]: told(e) for g, e in cycle.reasons.gangs.items()}
    return Session(after, cycle, calls, rows, errors, tuple(verdicts))


def pods_node(cycle: Cycle, row: int) -> str:
    node = cycle.trial.node[row]
    return cycle.snapshot.nodes.names[node] if node >= 0 else ""


def carry_over(case: Case, before: dict[str, TaskState], after: dict[str, TaskState]) -> dict[str, TaskState]:
    deleted = {job["name"] for job in case["input"]["jobs"] if job.get("delete_job_in_test")}
    result = {}
    for name, task in after.items():
        job = case["resolved"]["pods"][name]["state"]["job"]
        if task.status == "Releasing" and job in deleted:
            result[name] = task
        elif task.status in ("Releasing", "Pipelined"):
            result[name] = TaskState("Pending", "", before[name].groups)
        elif task.status == "Binding":
            result[name] = TaskState("Running", task.node, task.groups)
        else:
            result[name] = task
    return result


# ---------------------------------------------------------------------------------------------------------- comparing
def mismatches(case: Case, session: Session) -> list[str]:  # noqa: C901 - one branch per field that a case may expect
    expected, resolved, bad = case["expected"], case["resolved"], []
    by_job: dict[str, list[str]] = {}
    for name, data in resolved["pods"].items():
        by_job.setdefault(data["state"]["job"], []).append(name)

    def amounts(names: list[str], want: Case, title: str) -> None:
        rows = [session.rows[n] for n in names if n in session.rows]
        trial = session.cycle.trial
        classes = [trial.of_class(row) for row in rows]
        gpus = sum(c.request[GPU] - c.dra_gpus if c.gpu_kind.value in ("Regular", "Fraction") else 0 for c in classes)
        if len(rows) == len(names) and abs(gpus - want.get("gpus_required", 0)) > 1e-9:
            bad.append(f"{title}: gpus {gpus} != {want.get('gpus_required', 0)}")
        accepted = sum(trial.accepted_gpus(row) for row in rows)
        if want.get("gpus_accepted") and abs(accepted - want["gpus_accepted"]) > 1e-9:
            bad.append(f"{title}: accepted {accepted} != {want['gpus_accepted']}")
        if want.get("milli_cpu_required") and sum(c.request[0] for c in classes) != want["milli_cpu_required"]:
            bad.append(f"{title}: cpu")
        if want.get("memory_required") and sum(c.request[1] for c in classes) != want["memory_required"]:
            bad.append(f"{title}: memory")

    def state(name: str, want: Case) -> None:
        task = session.tasks[name]
        if task.status != want["status"]:
            bad.append(f"{name}: status {task.status} != {want['status']}")
        if want.get("node_name") and task.node != want["node_name"]:
            bad.append(f"{name}: node {task.node} != {want['node_name']}")

    for job, want in expected.get("jobs", {}).items():
        for name in by_job[job]:
            state(name, want)
            if "numa_zones" in want and sorted(zone_indices(session, name)) != sorted(want["numa_zones"]):
                bad.append(f"{name}: zones {zone_indices(session, name)} != {want['numa_zones']}")
        amounts(by_job[job], want, job)
        message = want.get("expected_error_message")
        if message and session.errors.get(job) != message:
            bad.append(f"{job}: message {session.errors.get(job)!r} != {message!r}")
    for name, want in expected.get("tasks", {}).items():
        if name in session.tasks:
            state(name, want)
            amounts([name], want, name)
    bad.extend(node_mismatches(session, expected.get("nodes", {})))
    for call, most in expected["max_cache_calls_per_session"].items():
        if session.calls[call] > most:
            bad.append(f"{call} calls {session.calls[call]} > {most}")
    bad.extend(placement_mismatches(case, session))
    return bad


def claim_statuses(session: Session) -> Case:
    found = session.cycle.resources.get(ClaimSession)
    return {} if found is None else dict(found.claim_statuses())


def zone_indices(session: Session, name: str) -> list[int]:
    accounts = session.cycle.resources.get(ZoneAccounts)
    held = accounts.held.get(session.rows[name]) if accounts else None
    return [] if held is None else np.flatnonzero(held.amounts.any(axis=1)).tolist()


def zone_available(session: Session, node: int, zone: int) -> dict[str, float]:
    """What a zone will have available, by resource name in row units; empty where the node reports no zones."""
    accounts = session.cycle.resources.get(ZoneAccounts)
    at = accounts.zones.position.get(node) if accounts else None
    if accounts is None or at is None:
        return {}
    return {name: float(accounts.later[zone, i, at]) for i, name in accounts.zones.reported[at].items()}


def node_mismatches(session: Session, wanted: Case) -> list[str]:
    bad = []
    trial, names = session.cycle.trial, session.cycle.snapshot.nodes.rows
    for name, want in wanted.items():
        for key, block in (("idle_gpus", trial.idle), ("releasing_gpus", trial.releasing)):
            value = float(block[GPU, names[name]])
            if value != want.get(key, 0):
                bad.append(f"node {name}: {key} {value} != {want.get(key, 0)}")
        if "numa_zones_available" in want:
            for zone, amounts in want["numa_zones_available"].items():
                left = zone_available(session, names[name], int(zone))
                for resource, text in amounts.items():
                    value = row_amount(resource, text)
                    if left.get(resource, 0) != value:
                        bad.append(f"node {name} zone {zone}: {resource} {left.get(resource, 0)} != {value}")
    return bad


def placement_mismatches(case: Case, session: Session) -> list[str]:
    """`sub_group_placement` of the hand-written cases: which nodes and domains sub-groups ended up in."""
    bad = []
    for want in case["expected"].get("sub_group_placement") or ():
        groups = want.get("sub_groups") or [want["sub_group"]]
        used = {group: nodes_used(case, session, want["job"], group) for group in groups}
        domains = {
            group: [domain_of(case, want["domain_label"], node) for node in nodes] for group, nodes in used.items()
        }
        together = [domain for group in groups for domain in domains[group]]
        if "node_set" in want and sorted({n for nodes in used.values() for n in nodes}) != sorted(want["node_set"]):
            bad.append(f"{groups}: nodes {used} != {want['node_set']}")
        if "domain_counts" in want and Counter(together) != want["domain_counts"]:
            bad.append(f"{groups}: domains {Counter(together)} != {want['domain_counts']}")
        if want.get("each_in_single_domain") and any(len(set(d)) != 1 for d in domains.values()):
            bad.append(f"{groups}: more than one domain each: {domains}")
        if want.get("domains_distinct") and len(set(together)) != len(groups):
            bad.append(f"{groups}: domains not distinct: {domains}")
        if "domain_set" in want and set(together) != set(want["domain_set"]):
            bad.append(f"{groups}: domains {set(together)} != {want['domain_set']}")
    return bad


def nodes_used(case: Case, session: Session, job: str, group: str) -> list[str]:
    states = {name: data["state"] for name, data in case["resolved"]["pods"].items()}
    return [
        session.tasks[name].node
        for name, state in states.items()
        if state["job"] == job and state.get("sub_group") == group
    ]


def domain_of(case: Case, label: str, node: str) -> str:
    return str(case["resolved"]["nodes"][node]["k8s"]["metadata"]["labels"].get(label, "")) if node else ""


def matched(case: Case, profile: Case) -> Session:
    """The session that is compared first: the only one, or the cluster rebuilt after the rounds."""
    tasks = {
        name: TaskState(d["state"]["status"], d["state"].get("node_name", ""), d["state"].get("gpu_groups", []))
        for name, d in case["resolved"]["pods"].items()
    }
    if case["mode"] == "single_session":
        return run(case, profile, tasks, {})
    claims: Case = {}
    errors: dict[str, str] = {}
    verdicts: tuple[Verdict, ...] = ()
    for _ in range(case["rounds"]["until_match"]):
        session = run(case, profile, tasks, claims)
        claims, errors, verdicts = claim_statuses(session), session.errors, session.verdicts
        tasks = carry_over(case, tasks, session.tasks)
    return replace(run(case, profile, tasks, claims, actions=False), errors=errors, verdicts=verdicts)


def scenario(case: Case, document: Case) -> list[str]:
    profile = document["profiles"][case["scheduler_profile"]]
    session = matched(case, profile)
    bad = mismatches(case, session)
    tasks, claims = session.tasks, claim_statuses(session)
    for number in range(case.get("rounds", {}).get("after_match", 0)):
        session = run(case, profile, tasks, claims)
        bad.extend(f"after round {number}: {line}" for line in mismatches(case, session))
        claims = claim_statuses(session)
        tasks = carry_over(case, tasks, session.tasks)
    return bad


# --------------------------------------------------------------------------------------------- what KAI really did
def unlike_observed(case: Case, session: Session) -> list[str]:
    """Where we end up elsewhere than KAI did, which the case need not forbid: status, node, devices in common."""
    observed = case["observed"].get("at_match", case["observed"])["tasks"]
    bad = []
    for name, seen in observed.items():
        got = session.tasks[name]
        if (got.status, got.node) != (seen["status"], seen.get("node_name", "")):
            bad.append(f"{name}: {got.status} on {got.node!r}, KAI: {seen['status']} on {seen.get('node_name')!r}")
    users = [name for name, seen in observed.items() if seen["status"] in ACTIVE_USED]
    ours = shared_by({name: session.tasks[name].groups for name in users})
    theirs = shared_by({name: observed[name].get("gpu_groups", []) for name in users})
    return bad if ours == theirs else [*bad, f"shared devices {ours}, KAI: {theirs}"]


def unexplained(session: Session) -> list[Verdict]:
    """The gangs that wait without a dominant reason, or with the one of last resort."""
    return [each for each in session.verdicts if each.dominant is None or each.dominant.token == "Unschedulable"]


def shared_by(groups: dict[str, list[str]]) -> list[list[str]]:
    """Who sits together on a device, whatever the device is called."""
    devices = {group for names in groups.values() for group in names}
    return sorted(sorted(name for name, on in groups.items() if device in on) for device in devices)


SUITES = {
    f"scheduler/{name}": scenario
    for name in (
        "allocate",
        "consolidation",
        "custom",
        "integration_allocate",
        "integration_consolidation",
        "integration_consolidation_and_reclaim",
        "integration_deletion_tests",
        "integration_numa",
        "integration_preempt",
        "integration_reclaim",
        "integration_stalegangeviction",
        "preempt",
        "reclaim",
        "stalegangeviction",
    )
}
