from __future__ import annotations

from typing import Any

import pytest

from pykai.plugins import spread
from pykai.plugins.scoring import Pack
from pykai.plugins.spread import SoftSpread, TopologySpread
from tests.unit.plugins.small_clusters import closed, cycle, node, placed, pod, reason, row

NODES = [
    node("a", {"zone": "1", "host": "a", "disk": "ssd"}),
    node("b", {"zone": "1", "host": "b"}),
    node("c", {"zone": "2", "host": "c"}, taints=[{"key": "old", "effect": "NoSchedule"}]),
    node("d", {"host": "d", "disk": "ssd"}),
]
WEB = {"app": "web"}
UNEVEN, NO_DOMAIN = spread.UNEVEN, spread.NO_DOMAIN


def rule(key: str = "zone", skew: int = 1, soft: bool = False, **rest: Any) -> dict[str, Any]:
    """A constraint over pods `app: web`."""
    when = "ScheduleAnyway" if soft else "DoNotSchedule"
    usual = {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when, "labelSelector": {"matchLabels": WEB}}
    return {**usual, **rest}


def even(*rules: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"topologySpreadConstraints": list(rules), **spec}


def web(name: str, on: str, **meta: Any) -> Any:
    return pod(name, {"nodeName": on}, **{"labels": WEB, **meta})


ON_A = web("w", "a")
TWO_ON_A = [ON_A, web("x", "a")]
TOLERATES = {"tolerations": [{"key": "old", "operator": "Exists"}]}
RULES = [  # the pod's constraints, who is there, verdicts for nodes a, b, c, d
    ([rule()], [], (None, None, None, NO_DOMAIN)),
    ([rule()], [ON_A], (UNEVEN, UNEVEN, None, NO_DOMAIN)),
    ([rule(skew=2)], [ON_A], (None, None, None, NO_DOMAIN)),
    ([rule(skew=2)], TWO_ON_A, (UNEVEN, UNEVEN, None, NO_DOMAIN)),
    ([rule()], [web("w", "a", terminating=True)], (None, None, None, NO_DOMAIN)),
    ([rule()], [web("w", "a", namespace="other")], (None, None, None, NO_DOMAIN)),
    ([rule()], [web("w", "a"), web("x", "c")], (None, None, None, NO_DOMAIN)),
    ([rule("host")], [ON_A], (UNEVEN, None, None, None)),
    ([rule(), rule("host", skew=2)], TWO_ON_A, (UNEVEN, UNEVEN, None, NO_DOMAIN)),
    # pods on a node without all the keys are not counted
    ([rule(), rule("host")], [web("w", "d")], (None, None, None, NO_DOMAIN)),
    # fewer domains than minDomains: the fewest is 0
    ([rule("host", minDomains=4)], [web(n, n) for n in "abcd"], (None, None, None, None)),
    ([rule("host", minDomains=5)], [web(n, n) for n in "abcd"], (UNEVEN, UNEVEN, UNEVEN, UNEVEN)),
    # which nodes' domains count
    ([rule("host", nodeTaintsPolicy="Honor")], [web(n, n) for n in "abd"], (None, None, None, None)),
    ([rule("host")], [web(n, n) for n in "abd"], (UNEVEN, UNEVEN, None, UNEVEN)),
    # selectors
    ([rule(labelSelector={})], TWO_ON_A, (None, None, None, NO_DOMAIN)),
    ([rule(labelSelector=None)], TWO_ON_A, (None, None, None, NO_DOMAIN)),
    ([rule(matchLabelKeys=["hash"])], TWO_ON_A, (None, None, None, NO_DOMAIN)),
    ([rule(matchLabelKeys=["unknown"])], [ON_A], (UNEVEN, UNEVEN, None, NO_DOMAIN)),
    ([rule(matchLabelKeys=["hash"])], [web("w", "a", labels={**WEB, "hash": "1"})], (UNEVEN, UNEVEN, None, NO_DOMAIN)),
    # a pod that its own constraint does not select adds nothing
    ([rule(labelSelector={"matchLabels": {"app": "db"}})], TWO_ON_A, (None, None, None, NO_DOMAIN)),
    (
        [rule(labelSelector={"matchLabels": {"app": "db"}})],
        [web("w", "a", labels={"app": "db"})],
        (None, None, None, NO_DOMAIN),
    ),
]


@pytest.mark.parametrize(("rules", "others", "expected"), RULES)
def test_nodes_where_a_pod_would_break_a_constraint_are_closed(rules: Any, others: Any, expected: Any) -> None:
    made = cycle([*NODES, *others, pod("p", even(*rules), labels={**WEB, "hash": "1"})], [TopologySpread()])
    found = closed(made, TopologySpread(), "p")
    assert tuple(found.get(name) for name in "abcd") == expected


@pytest.mark.parametrize(
    ("policy", "spec", "expected"),
    [
        # only ssd nodes count: a has one pod, d none
        ({}, {"nodeSelector": {"disk": "ssd"}}, (UNEVEN, None, None, None)),
        # all nodes count: b and c have none either
        ({"nodeAffinityPolicy": "Ignore"}, {"nodeSelector": {"disk": "ssd"}}, (UNEVEN, None, None, None)),
    ],
)
def test_node_affinity_policy_says_whose_domains_count(policy: Any, spec: Any, expected: Any) -> None:
    constraints = even(rule("host", **policy), **spec)
    made = cycle([*NODES, ON_A, pod("p", constraints, labels=WEB)], [TopologySpread()])
    assert tuple(closed(made, TopologySpread(), "p").get(name) for name in "abcd") == expected
    # with a pod on d, too, the ssd nodes are even among themselves but not among all
    made = cycle([*NODES, ON_A, web("x", "d"), pod("p", constraints, labels=WEB)], [TopologySpread()])
    found = closed(made, TopologySpread(), "p")
    assert (found.get("a"), found.get("d")) == ((UNEVEN, UNEVEN) if policy else (None, None))


def test_tolerated_taints_count_where_taints_are_honoured() -> None:
    others = [web(name, name) for name in "abd"]
    spec = even(rule("host", nodeTaintsPolicy="Honor"), **TOLERATES)
    made = cycle([*NODES, *others, pod("p", spec, labels=WEB)], [TopologySpread()])
    assert tuple(closed(made, TopologySpread(), "p").get(name) for name in "abcd") == (UNEVEN, UNEVEN, None, UNEVEN)


def test_pods_placed_in_the_same_cycle_count() -> None:
    pods = [pod(f"p{at}", even(rule("host")), labels=WEB) for at in range(8)]
    made = cycle([*NODES, *pods], [TopologySpread(), Pack()])
    where = list(placed(made).values())
    assert sorted(where) == sorted("abcd" * 2)


def test_a_pod_that_would_break_its_constraint_waits_with_the_reason() -> None:
    made = cycle(
        [NODES[0], node("full", {"zone": "2"}, {"cpu": "0"}), ON_A, pod("p", even(rule()), labels=WEB)],
        [TopologySpread()],
    )
    assert placed(made) == {"p": ""}
    assert f"1 {UNEVEN}" in reason(made, "p")


def test_nothing_is_opened_where_no_pod_has_a_constraint() -> None:
    assert cycle([*NODES, pod("p")], [TopologySpread()]).resources.states == ()
    soft = cycle([*NODES, pod("p", even(rule(soft=True)))], [TopologySpread(), SoftSpread()])
    assert soft.resources.states == ()
    plain = cycle([*NODES, pod("p", even(rule()))], [SoftSpread()])
    assert not SoftSpread().concerns(plain, plain.trial.of_class(row(plain, "p")))


@pytest.mark.parametrize(
    ("rules", "others", "expected"),
    [
        ([rule(soft=True)], [], {"a": 200, "b": 200, "c": 200, "d": 0}),
        ([rule(soft=True)], [ON_A], {"a": 0, "b": 0, "c": 200, "d": 0}),
        ([rule("host", soft=True)], TWO_ON_A, {"a": 0, "b": 200, "c": 200, "d": 200}),
        # 2 pods x log(6) rounded is 4; one pod 2
        ([rule("host", soft=True)], [*TWO_ON_A, web("y", "b")], {"a": 0, "b": 100, "c": 200, "d": 200}),
        # maxSkew 5 adds 4 everywhere: 8, 6, 4, 4
        ([rule("host", 5, soft=True)], [*TWO_ON_A, web("y", "b")], {"a": 100, "b": 150, "c": 200, "d": 200}),
    ],
)
def test_even_domains_are_preferred(rules: Any, others: Any, expected: dict[str, float]) -> None:
    made = cycle([*NODES, *others, pod("p", even(*rules), labels=WEB)], [SoftSpread()])
    score = SoftSpread().pod_score(made, row(made, "p"))
    assert score is not None
    assert dict(zip(made.snapshot.nodes.names, score.tolist(), strict=True)) == expected


def test_soft_constraints_never_keep_a_pod_waiting() -> None:
    made = cycle([NODES[0], *TWO_ON_A, pod("p", even(rule(soft=True)), labels=WEB)], [TopologySpread(), SoftSpread()])
    assert placed(made) == {"p": "a"}
