"""Queues, pod groups and topologies that are refused. A row: what is wrong, the object, the message."""

from __future__ import annotations

from typing import Any

Row = tuple[str, dict[str, Any], str]


def queue(amounts: Any, /, name: str = "team", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"resources": amounts, **spec}}


UNLIMITED_QUEUE = {name: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for name in ("gpu", "cpu", "memory")}


def amount(what: str, field: str, value: Any, message: str) -> Row:
    resource, key = field.split(".")
    return what, queue({resource: {key: value}}), f"queue.spec.resources.{field}: {message}"


def no_number(field: str, shown: str) -> str:
    return f"Invalid value: {shown}: spec.resources.{field} in body must be of type number"


DURATION = "must be a duration such as 90s or 1h30m"
UNLIMITED = "must be -1 (unlimited) or a number of at least 0, given "
QUEUES: list[Row] = [
    ("no resources", {"metadata": {"name": "team"}, "spec": {}}, "resources must be specified"),
    ("null resources", queue(None), "resources must be specified"),
    ("no spec", {"metadata": {"name": "team"}}, "resources must be specified"),
    ("nothing at all", {}, "resources must be specified"),
    (
        "resources that are a list",
        queue([]),
        "queue.spec.resources: Invalid value: []: spec.resources in body must be of type object",
    ),
    amount("a quota of -2", "gpu.quota", -2, UNLIMITED + "-2"),
    amount("a quota of -0.5", "cpu.quota", -0.5, UNLIMITED + "-0.5"),
    amount("a limit of -1.5", "memory.limit", -1.5, UNLIMITED + "-1.5"),
    amount("a limit near -1", "gpu.limit", -1.0000001, UNLIMITED + "-1"),
    amount("a very negative limit", "cpu.limit", -1e300, UNLIMITED + "-1e+300"),
    amount("a weight of -1", "gpu.overQuotaWeight", -1, "must be a number of at least 0, given -1"),
    amount("a weight of -0.1", "memory.overQuotaWeight", -0.1, "must be a number of at least 0, given -0.1"),
    amount("a quota that is no number", "gpu.quota", float("nan"), "must be a finite number"),
    amount("an infinite quota", "gpu.quota", float("inf"), "must be a finite number"),
    amount("a limit below all", "gpu.limit", float("-inf"), "must be a finite number"),
    amount("a weight that is no number", "cpu.overQuotaWeight", float("nan"), "must be a finite number"),
    amount("a quota above all numbers", "cpu.quota", 10**400, "must be a finite number"),
    amount("a quota with a unit", "cpu.quota", "1000m", no_number("cpu.quota", '"1000m"')),
    amount("a quota that is a word", "memory.quota", "unlimited", no_number("memory.quota", '"unlimited"')),
    amount("a quota that is a truth", "gpu.limit", True, no_number("gpu.limit", "True")),
    (
        "a resource that is a number",
        queue({"gpu": 5}),
        "queue.spec.resources.gpu: Invalid value: 5: spec.resources.gpu in body must be of type object",
    ),
    ("its own parent", queue({}, parentQueue="team"), "queue.spec.parentQueue: cycle of queues team -> team"),
    ("a cycle of two", queue({}, name="a", parentQueue="b"), "queue.spec.parentQueue: cycle of queues a -> b -> a"),
    (
        "a cycle of three",
        queue({}, name="x", parentQueue="z"),
        "queue.spec.parentQueue: cycle of queues x -> z -> y -> x",
    ),
    (
        "a parent that is a number",
        queue({}, parentQueue=5),
        "queue.spec.parentQueue: Invalid value: 5: spec.parentQueue in body must be of type string",
    ),
    (
        "a priority that is a word",
        queue({}, priority="high"),
        'queue.spec.priority: Invalid value: "high": spec.priority in body must be of type integer',
    ),
    (
        "half a priority",
        queue({}, priority=0.5),
        "queue.spec.priority: Invalid value: 0.5: spec.priority in body must be of type integer",
    ),
    *[
        (
            f"minimum run time {text!r}",
            queue({}, preemptMinRuntime=text),
            f'queue.spec.preemptMinRuntime: Invalid value: "{text}": {DURATION}',
        )
        for text in ("", "5", "1h-30m", "2h45m15", "abc", "٥s", "1 h", "1d")
    ],
    (
        "a minimum run time of a hundred thousand digits",
        queue({}, preemptMinRuntime="9" * 100_000),
        "queue.spec.preemptMinRuntime: Too long: may not be more than 64 chars long",
    ),
    (
        "a reclaim time without unit",
        queue({}, reclaimMinRuntime="60"),
        f'queue.spec.reclaimMinRuntime: Invalid value: "60": {DURATION}',
    ),
]
QUEUES_THERE_ARE = {
    "b": queue({}, name="b", parentQueue="a"),
    "z": queue({}, name="z", parentQueue="y"),
    "y": queue({}, name="y", parentQueue="x"),
}


def group(*sub_groups: Any, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "g"}, "spec": {"subGroups": list(sub_groups), **spec}}


def leaf(name: Any, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"name": name, **({"parent": parent} if parent else {}), **({"minMember": 1} | fields)}


def node(name: str, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"name": name, **({"parent": parent} if parent else {}), **fields}


EXCLUSIVE = (
    "minMember and minSubGroup are mutually exclusive: set minMember ({}) to schedule a fixed number of pods, or set "
    "minSubGroup to require a minimum number of child SubGroups, but not both"
)
MID_LEVEL = "minMember cannot be set on a mid-level SubGroup (has child SubGroups); use minSubGroup instead"
ON_LEAF = "minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)"
CYCLE = "cycle detected in subgroups"
POD_GROUPS: list[Row] = [
    ("two minimums", group(minMember=3, minSubGroup=1), EXCLUSIVE.format(3)),
    ("two minimums of nothing", group(minMember=0, minSubGroup=0), EXCLUSIVE.format(0)),
    ("two of one name", group(leaf("a"), leaf("a")), "duplicate subgroup name a"),
    ("two of one name, apart", group(leaf("a"), leaf("b"), leaf("a", "b")), "duplicate subgroup name a"),
    ("two of one name before a lost parent", group(leaf("a", "x"), leaf("a")), "duplicate subgroup name a"),
    ("an unknown parent", group(leaf("a"), leaf("b", "x")), "parent x of b was not found"),
    ("its own parent", group(leaf("a", "a")), CYCLE),
    ("a cycle of two", group(leaf("a", "b"), leaf("b", "a")), CYCLE),
    ("a cycle beside a tree", group(leaf("r"), leaf("a", "c"), leaf("b", "a"), leaf("c", "b")), CYCLE),
    ("a tail into a cycle", group(leaf("t", "a"), leaf("a", "b"), leaf("b", "a")), CYCLE),
    (
        "two minimums below",
        group(leaf("p", minSubGroup=1), leaf("c", "p")),
        'subgroup "p": minMember and minSubGroup are mutually exclusive',
    ),
    ("a leaf without minimum", group(node("a")), "subgroup a: minMember is required"),
    ("a deep leaf without minimum", group(node("p"), node("c", "p")), "subgroup c: minMember is required"),
    (
        "a leaf that counts children",
        group(node("a", minSubGroup=0)),
        f'subgroup "a": {ON_LEAF}\nsubgroup a: minMember is required',
    ),
    (
        "two faulty leaves, by name",
        group(node("b"), node("a")),
        "subgroup a: minMember is required\nsubgroup b: minMember is required",
    ),
    ("pods asked of a mid-level", group(leaf("p"), leaf("c", "p")), f'subgroup "p": {MID_LEVEL}'),
    (
        "a negative minimum",
        group(minMember=-1),
        "podGroup.spec.minMember: Invalid value: -1: should be greater than or equal to 0",
    ),
    (
        "a huge minimum",
        group(minMember=2**31),
        "podGroup.spec.minMember: Invalid value: 2147483648: spec.minMember in body must be an integer of 32 bits",
    ),
    (
        "a minimum above all",
        group(minSubGroup=10**30),
        f"podGroup.spec.minSubGroup: Invalid value: {10**30}: spec.minSubGroup in body must be an integer of 32 bits",
    ),
    (
        "half a minimum",
        group(minMember=1.5),
        "podGroup.spec.minMember: Invalid value: 1.5: spec.minMember in body must be of type integer",
    ),
    (
        "a minimum in words",
        group(minMember="3"),
        'podGroup.spec.minMember: Invalid value: "3": spec.minMember in body must be of type integer',
    ),
    (
        "a minimum that is a truth",
        group(minMember=True),
        "podGroup.spec.minMember: Invalid value: True: spec.minMember in body must be of type integer",
    ),
    (
        "a negative minimum below",
        group(leaf("a", minMember=-5)),
        "podGroup.spec.subGroups[0].minMember: Invalid value: -5: should be greater than or equal to 0",
    ),
    ("no name", group({"minMember": 1}), "podGroup.spec.subGroups[0].name: Required value"),
    (
        "a name that is a number",
        group(leaf(5)),
        "podGroup.spec.subGroups[0].name: Invalid value: 5: spec.subGroups[0].name in body must be of type string",
    ),
    (
        "a sub-group that is a name",
        group("a"),
        'podGroup.spec.subGroups[0]: Invalid value: "a": spec.subGroups[0] in body must be of type object',
    ),
    (
        "sub-groups by name",
        {"spec": {"subGroups": {"a": {}}}},
        "podGroup.spec.subGroups: Invalid value: {'a': {}}: spec.subGroups in body must be of type array",
    ),
    (
        "an unknown preemptibility",
        group(preemptibility="sometimes"),
        'podGroup.spec.preemptibility: Unsupported value: "sometimes": '
        'supported values: "preemptible", "semi-preemptible", "non-preemptible"',
    ),
    (
        "a delay without unit",
        group(preemptionDelay="30"),
        f'podGroup.spec.preemptionDelay: Invalid value: "30": {DURATION}',
    ),
    (
        "a grace period in words",
        group(stalenessGracePeriod="never"),
        f'podGroup.spec.stalenessGracePeriod: Invalid value: "never": {DURATION}',
    ),
]


def topology(*levels: Any) -> dict[str, Any]:
    return {"metadata": {"name": "net"}, "spec": {"levels": list(levels)}}


def level(label: Any, alias: Any = None) -> dict[str, Any]:
    return {"nodeLabel": label, **({"alias": alias} if alias is not None else {})}


ALIASES = "invalid topology aliases: "
REPEATED = ALIASES + "aliases must be unique within the topology; duplicated: "
TAKEN = "an alias must not equal a nodeLabel; conflicting: "
TOPOLOGIES: list[Row] = [
    ("an alias twice", topology(level("a", "rack"), level("b", "rack")), REPEATED + "[rack]"),
    ("an alias three times", topology(level("a", "r"), level("b", "r"), level("c", "r")), REPEATED + "[r]"),
    (
        "two aliases twice, sorted",
        topology(level("a", "y"), level("b", "x"), level("c", "x"), level("d", "y")),
        REPEATED + "[x y]",
    ),
    ("an alias like its own label", topology(level("a", "a")), f"{ALIASES}{TAKEN}[a]"),
    ("an alias like another label", topology(level("a", "b"), level("b")), f"{ALIASES}{TAKEN}[b]"),
    ("both at once", topology(level("a", "b"), level("b", "b")), f"{REPEATED}[b]; {TAKEN}[b]"),
    (
        "an alias that is a number",
        topology(level("a", 5)),
        "topology.spec.levels[0].alias: Invalid value: 5: spec.levels[0].alias in body must be of type string",
    ),
    (
        "levels by name",
        {"spec": {"levels": {"a": 1}}},
        "topology.spec.levels: Invalid value: {'a': 1}: spec.levels in body must be of type array",
    ),
    (
        "a level that is a label",
        topology("zone"),
        'topology.spec.levels[0]: Invalid value: "zone": spec.levels[0] in body must be of type object',
    ),
]
