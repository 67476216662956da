"""Domains of topologies: trees of nodes, what fits where, and in which order domains are tried.

The cases speak of objects with children; the product has slices of columns. Domain ids of the cases become label
values. A workload without a sub-group is called `workload` here, a sub-group without a name there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.devices import Share
from pykai.engine.policy import Policy
from pykai.engine.trial import Trial
from pykai.kernels import domains as kernel
from pykai.kernels.domains import DomainTree, domain_tree
from pykai.model.gangs import TopologyRequirement
from pykai.objects import kinds
from pykai.plugins.domains import Candidates, ConstraintError, DomainRoom, Layout, TopologyUsage, depths
from pykai.plugins.topology import Member, Topology
from tests.conformance.adapters import clusters
from tests.conformance.cases import NotApplicable, Record, choose

Case = dict[str, Any]
CONSTRAINT_ERRORS = ("topology constraint error", "no topology constraints")
T = TypeVar("T")
Leaf = tuple[Case, ...]
"""A domain without children and all domains above it, from the top."""


def requirement(given: Case) -> TopologyRequirement:
    return TopologyRequirement(*(given.get(key, "") for key in ("topology", "required_level", "preferred_level")))


def required(given: T, what: str) -> T:
    """What a case cannot do without."""
    if not given:
        raise NotApplicable(f"the case has not {what}")
    return given


def leaves(domain: Case, above: Leaf = ()) -> Iterator[Leaf]:
    path = (*above, domain)
    children = domain.get("children", ())
    for child in children:
        yield from leaves(child, path)
    if not children:
        yield path


def tree_of(paths: Sequence[Leaf], levels: Sequence[str]) -> DomainTree:
    """One node per leaf; a leaf that lies above a level has no value there."""
    at = [{domain["level"]: domain["id"] for domain in path} for path in paths]
    return domain_tree([[known.get(level) for known in at] for level in levels])


def ids(tree: DomainTree, paths: Sequence[Leaf], levels: Sequence[str], order: Sequence[int]) -> list[str]:
    """The ids of the domains of the deepest level, in the given order."""
    first = [paths[tree.order[tree.starts[len(levels)][domain]]] for domain in order]
    return [domain["id"] for path in first for domain in path if domain["level"] == levels[-1]]


# --------------------------------------------------------------------------------------------------------- structure
def level_domains(given: Case) -> Case:
    paths = list(leaves(given["root"]))
    tree = tree_of(paths, [given["level"]])
    return {"domain_ids": ids(tree, paths, [given["level"]], range(tree.count(1)))}


def part_of_topology(given: Case) -> Case:
    labels = given["node_info"].get("labels", {})
    tree = domain_tree([[labels.get(level["nodeLabel"])] for level in required(given["levels"], "a level")])
    return {"result": len(tree.order) == 1}


def lowest_common_domain(given: Case) -> Case:
    levels = [level["nodeLabel"] for level in required(given["levels"], "a level")]
    labels = [node.get("labels", {}) for node in given["node_set"]]
    tree = domain_tree([[known.get(level) for known in labels] for level in levels])
    preferred = given["topology_constraint"].get("preferred_level")
    depth = kernel.common_depth(tree, levels.index(preferred) + 1 if preferred in levels else len(levels))
    return {
        "domain_id": ".".join(labels[tree.order[0]][level] for level in levels[:depth]) if depth else "root",
        "level": levels[depth - 1] if depth else "root",
        "valid_nodes": sorted(given["node_set"][row]["name"] for row in tree.order.tolist()),
    }


def refused(error: object) -> Case:
    return {"error": str(error)}


def relevant_levels(given: Case) -> Case:
    levels, group = given["topology_tree"]["levels"], given["sub_group"]
    wish = requirement(group["topology_constraint"])
    try:
        wanted = depths({given["topology_tree"]["name"]: levels}, wish, group["name"])
    except ConstraintError as error:
        return refused(error)
    return {"levels": [levels[depth - 1] if depth else "root" for depth in wanted.candidates()]}


# ------------------------------------------------------------------------------------------------- order and scores
def node_scores(given: Case) -> Case:
    level = given["preferred_level"]
    found = [domain for path in leaves(given["domain"]) for domain in path if domain["level"] == level]
    names = [(name, at) for at, domain in enumerate(found) for name in domain.get("nodes") or [None]]
    tree = domain_tree([[f"{at:06}" for _, at in names]])
    scores = zip(tree.order.tolist(), kernel.position_scores(tree, 1, list(range(len(found)))), strict=True)
    return {"scores": {names[row][0]: score for row, score in scores if names[row][0] is not None}}


def sorted_tree(given: Case) -> Case:
    """Sorts one level after the other from the top, each with the order of the whole tree.

    The cases also sort what lies directly below the deepest level; a job without a request is as tight everywhere.
    """
    root, wants = given["root"], given["tasks_resources"] or {"gpu": 0}
    paths = list(leaves(root))
    levels = [domain["level"] for domain in max(paths, key=len)]
    deepest = levels.index(given["max_depth_level"]) if given["max_depth_level"] in levels else len(levels)
    levels = levels[1 : deepest + 2]
    if not levels or not given["max_depth_level"]:
        return {"root": root}
    tree = tree_of(paths, levels)
    free = np.array([[paths[row][-1]["idle_or_releasing"].get(r, 0.0) for row in tree.order] for r in wants])
    total, sums = np.array(list(wants.values()), dtype=np.float64), kernel.sums_by_depth(tree, len(levels), free)
    order = kernel.TreeOrder(tree, [kernel.tightness(total, np.array(figures)).tolist() for figures in sums])
    for depth in range(1, len(levels) + 1):
        names = ids(tree, paths, levels[:depth], order.level(depth))
        root = arranged(root, levels[depth - 1], names)
    return {"root": root}


def arranged(domain: Case, level: str, names: Sequence[str]) -> Case:
    children = [arranged(child, level, names) for child in domain.get("children", ())]
    if children and children[0]["level"] == level:
        children.sort(key=lambda child: names.index(child["id"]) if child["id"] in names else len(names))
    return Record({**domain, **({"children": children} if children else {})})


# --------------------------------------------------------------------------------------------------------- figures
def fill(trial: Trial, nodes: Sequence[Case]) -> None:
    """Give the nodes the idle, releasing and shared amounts of the case."""
    space, rows = trial.snapshot.space, trial.snapshot.nodes.rows
    for given in nodes:
        for block, key in ((trial.idle, "idle"), (trial.releasing, "releasing")):
            for row, resource in enumerate(space.names):
                block[row, rows[given["name"] or "unnamed"]] = given[key].get(resource, 0)
        allocated = given.get("allocated_shared_gpus_memory", {})
        trial.shares[rows[given["name"] or "unnamed"]] = {
            device: Share(used=used, allocated=allocated.get(device, 0))
            for device, used in given.get("used_shared_gpus_memory", {}).items()
        }


def allocatable_pods(given: Case) -> Case:
    top = given["domain"]
    paths = list(leaves(top))
    levels = [domain["level"] for domain in max(paths, key=len)]
    labels = {n: {d["level"]: d["id"] for d in path} for path in paths for n in path[-1].get("nodes", ())}
    nodes = [
        Record({**node, "name": name, "labels": {**node["labels"], **labels.get(name, {})}})
        for name, node in top["node_details"].items()
    ]
    required(given["tasks"], "a pod to place")
    pods = [clusters.pod(task["name"], task) for task in given["tasks"]]
    trial = Trial(clusters.snapshot([*map(clusters.node, nodes), *pods]))
    fill(trial, nodes)
    by_row = trial.snapshot.nodes.labels
    tree = domain_tree([[known.get(level) for known in by_row] for level in levels])
    room = DomainRoom(trial, Layout(tree, len(by_row)), TopologyUsage(trial).request(range(len(pods))), len(levels))
    found: dict[str, int] = {}
    for depth, sums in enumerate(room.sums[1:], start=1):
        first = tree.order[tree.starts[depth]].tolist()
        found |= {by_row[row][levels[depth - 1]]: int(sums[0][at]) for at, row in enumerate(first)}
    return {"domain": counted(Record({k: v for k, v in top.items() if k != "node_details"}), found)}


def counted(domain: Case, pods: dict[str, int]) -> Case:
    children = [counted(child, pods) for child in domain.get("children", ())]
    return {
        **domain,
        "allocatable_pods": pods.get(domain["id"], 0),
        **({"children": children} if children else {}),
    }


# ------------------------------------------------------------------------------------------------------ whole search
def cycle_of(given: Case, nodes: Sequence[Case], topologies: dict[str, Sequence[str]]) -> Cycle:
    """The case's job on the nodes, with its pods where the case has them."""
    job, tree = given["job"], given["job"]["root_sub_group_set"]
    required(len(job["pods"]) >= len(given["tasks"]) and job["pods"], "the pods to place")
    stated = requirement(tree.get("topology_constraint", {}))
    constraint = {
        "topology": stated.topology,
        "requiredTopologyLevel": stated.required,
        "preferredTopologyLevel": stated.preferred,
    }
    spec = {"minMember": required(tree["pod_sets"], "a pod set")[0]["min_available"], "topologyConstraint": constraint}
    meta = {"name": job["name"]}
    pods = [clusters.pod(name, task, job["name"]) for name, task in job["pods"].items()]
    topology_objects = [
        clusters.as_kind(
            kinds.Topology,
            {"metadata": {"name": name}, "spec": {"levels": [{"nodeLabel": level} for level in levels]}},
        )
        for name, levels in topologies.items()
    ]
    group = clusters.as_kind(kinds.PodGroup, {"metadata": meta, "spec": spec})
    found = clusters.snapshot(
        [*map(clusters.node, nodes), group, *pods, *topology_objects],
        {name: task["status"] for name, task in job["pods"].items()},
    )
    at = [found.nodes.rows.get(job["pods"][name].get("node_name", ""), -1) for name in found.pods.names]
    found = replace(found, pods=replace(found.pods, node=np.array(at, dtype=np.int64)))
    return Cycle(found, Policy((Topology(),)), now=0.0)


def allocatable_domains(given: Case) -> Case:
    """The search over domains whose figures the case states; nodes are made up for those without domains below."""
    by_level = given["topology_tree"]["domains_by_level"]
    levels = given["topology_tree"]["levels"]
    required([level for level in levels if level in by_level], "a domain")
    levels = levels[: max(at for at, level in enumerate(levels, start=1) if level in by_level)]
    known = [["root"], *(sorted(by_level.get(level, ())) for level in levels)]
    nodes = [
        {"name": name, "labels": labels_of(domain, levels, known), "allocatable": {}}
        for domain in known[-1]
        for name in by_level[levels[-1]][domain].get("nodes", [f"node of {domain}"])
    ]
    wish = requirement(given["sub_group"]["topology_constraint"])
    try:
        wanted = depths({wish.topology: levels}, wish, given["sub_group"]["name"])
    except ConstraintError as error:
        return refused(error)
    cycle = cycle_of(given, nodes, {wish.topology: levels})
    figures = [
        [by_level.get(level, {}).get(d, {}) for d in ds] for level, ds in zip(["root", *levels], known, strict=True)
    ]
    room = [[f.get("allocatable_pods", 0) for f in row] or [0] for row in figures]
    grounds = TopologyUsage(cycle.trial)
    ask = replace(grounds.request([0]), count=given["tasks_count"])
    ground = grounds.usage(wish.topology, None)
    for sums, stated in zip(ground.room(ask, wanted.deepest).sums, room, strict=False):
        sums[0] = stated
    domains = Candidates(ground, ask, wanted)
    active = Member(cycle, 0, cycle.snapshot.gangs.tree(0), wish).active_nodes() if wanted.required else []
    found: list[Case] = []
    for depth in wanted.candidates():
        near = domains.near(active, depth) if active else np.ones(len(figures[depth]), dtype=bool)
        found.extend(figures[depth][at] for at in np.flatnonzero(near).tolist() if domains.holds(depth, at))
    return {"domains_unordered": [{k: d[k] for k in ("id", "level", "allocatable_pods")} for d in found]}


def labels_of(domain: str, levels: Sequence[str], known: Sequence[Sequence[str]]) -> Case:
    """Ids of the domains around one: an id ends with the ids of what is above it; `` where the case has none."""
    around = [next((d for d in found if f".{domain}".endswith(f".{d}")), "") for found in known[1:]]
    return dict(zip(levels, around, strict=True))


def subsets(given: Case) -> Case:
    topologies = {name: tree["levels"] for name, tree in given["topology_trees"].items()}
    required(given["tasks"], "a pod to place")
    cycle = cycle_of(given, given["node_set"], topologies)
    fill(cycle.trial, given["node_set"])
    names = cycle.snapshot.nodes.names
    group = cycle.snapshot.gangs.tree(0)
    answer = Topology().subsets(cycle, 0, group, range(len(given["tasks"])), None)
    errors = [error.message for error in answer.why]
    if errors and errors[0].startswith(CONSTRAINT_ERRORS):
        return refused(errors[0])
    sets = [sorted(names if rows is None else (names[row] for row in rows.tolist())) for rows in answer.sets]
    scores = {pod: Topology().pod_score(cycle, pod) for pod in range(len(given["tasks"]))}
    by_node = {name: column[row] for column in scores.values() if column is not None for row, name in enumerate(names)}
    return {"node_subsets": sets, "node_scores_by_sub_group": {given["sub_group"]["name"]: by_node} if by_node else {}}


OPERATIONS: dict[str, Callable[[Case], Case]] = {
    "calculateNodeScores": node_scores,
    "getLevelDomains": level_domains,
    "isNodePartOfTopology": part_of_topology,
    "lowestCommonDomainID": lowest_common_domain,
    "sortTree": sorted_tree,
    "calcTreeAllocatable": allocatable_pods,
    "calculateRelevantDomainLevels": relevant_levels,
    "getJobAllocatableDomains": allocatable_domains,
    "subSetNodesFn": subsets,
}


def check(case: Case, _: Case) -> list[str]:
    expected, got = Record(case["expected"]), choose(OPERATIONS, case["input"]["operation"])(case["input"])
    if "error" in expected and "error" in got:
        return []  # the wording is ours
    for result in (expected, got):
        if "domains_unordered" in result:
            domains = result["domains_unordered"]
            result["domains_unordered"] = sorted(domains, key=lambda domain: (domain["level"], domain["id"]))
    if "domain" in expected:
        expected["domain"] = {k: v for k, v in expected["domain"].items() if k != "node_details"}
    if "node_subsets" in expected:
        expected["node_subsets"] = [sorted(names) for names in expected["node_subsets"]]
        expected.setdefault("node_scores_by_sub_group", {})
    return [] if got == expected else [f"expected {expected}, got {got}"]


SUITES = {"topology/topology": check}
