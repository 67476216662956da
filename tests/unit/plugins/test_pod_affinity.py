from __future__ import annotations

from typing import Any

import pytest

from pykai.cache.cluster import ClusterCache
from pykai.model.params import SchedulerParams
from pykai.objects import kinds, names
from pykai.plugins import affinity
from pykai.plugins.affinity import PreferredPodAffinity, RequiredPodAffinity
from pykai.plugins.predicates import LateStart
from pykai.plugins.scoring import NodeAvailability
from tests import builders
from tests.builders import as_kind
from tests.unit.plugins.small_clusters import closed, cycle, node, placed, pod, reason, row

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ZONES = [node("a", {"zone": "1", "host": "a"}), node("b", {"zone": "1", "host": "b"}), node("c", {"zone": "2"})]
WEB = {"app": "web"}


def term(key: str = "zone", labels: dict[str, str] | None = None, **rest: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": labels or {"app": "db"}}, "topologyKey": key, **rest}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def apart(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def likes(side: str, weight: int, of: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {side: {PREFERRED: [{"weight": weight, "podAffinityTerm": of}]}}}


def on(where: str, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"nodeName": where, **(spec or {})}


def verdict(spec: dict[str, Any], *others: Any) -> tuple[str | None, ...] | None:
    """What the required rules say of a pod on nodes a, b and c; None where they do not concern it."""
    plugin = RequiredPodAffinity()
    made = cycle([*ZONES, *others, pod("p", spec, labels={**WEB, "hash": "2"})], [plugin])
    if not made.resources.of(row(made, "p")).all:
        return None
    found = closed(made, plugin, "p")
    return tuple(found.get(name) for name in "abc")


DB = pod("db", on("a"), labels={"app": "db"})
LEAVING = pod("db", on("a"), labels={"app": "db"}, terminating=True)
FAR_DB = pod("far", on("a"), labels={"app": "db"}, namespace="other")
TEAM_X = as_kind(kinds.Namespace, {"metadata": {"name": "other", "labels": {"team": "x"}}})
OLD_WEB = pod("old", on("a"), labels={**WEB, "hash": "1"})
NEW_WEB = pod("new", on("a"), labels={**WEB, "hash": "2"})
SHY_OF_OTHERS = pod("shy", on("a", apart(term(labels=WEB, mismatchLabelKeys=["hash"]))), labels={**WEB, "hash": "1"})
SHY_OF_EQUALS = pod("shy", on("a", apart(term(labels=WEB, matchLabelKeys=["hash"]))), labels={**WEB, "hash": "1"})
NEAR, APART, SHUNNED = affinity.NOT_NEAR, affinity.NOT_APART, affinity.REPELLED
BOTH = term(labels={"app": "db", "tier": "x"})
RULES = [  # the pod's spec, who is there, verdicts for nodes a, b, c
    ({}, [DB], None),
    (near(term()), [DB], (None, None, NEAR)),
    (near(term("host")), [DB], (None, NEAR, NEAR)),
    (near(term()), [], (NEAR, NEAR, NEAR)),
    (near(term()), [LEAVING], (NEAR, NEAR, NEAR)),
    (near(term(), BOTH), [DB], (NEAR, NEAR, NEAR)),
    (near(term(), term("host")), [DB], (None, NEAR, NEAR)),
    (near(term(labels=WEB)), [], (None, None, None)),
    (near(term("host", WEB)), [], (None, None, NEAR)),
    (near(term(labels=WEB), BOTH), [], (NEAR, NEAR, NEAR)),
    (near(term("host", WEB)), [pod("w", on("b"), labels=WEB)], (NEAR, None, NEAR)),
    (apart(term()), [DB], (APART, APART, None)),
    (apart(term("host")), [DB], (APART, None, None)),
    (apart(term()), [LEAVING], (None, None, None)),
    (near(term()), [FAR_DB], (NEAR, NEAR, NEAR)),
    (near(term(namespaces=["other"])), [FAR_DB], (None, None, NEAR)),
    (near(term(namespaces=["other"])), [DB], (NEAR, NEAR, NEAR)),
    (near(term(namespaceSelector={})), [FAR_DB], (None, None, NEAR)),
    (near(term(namespaceSelector={"matchLabels": {"team": "x"}})), [FAR_DB, TEAM_X], (None, None, NEAR)),
    (apart(term(namespaceSelector={"matchLabels": {"team": "x"}})), [FAR_DB, TEAM_X], (APART, APART, None)),
    (near(term(namespaceSelector={"matchLabels": {"team": "y"}})), [FAR_DB, TEAM_X], (NEAR, NEAR, NEAR)),
    (near(term(labels=WEB, matchLabelKeys=["hash"])), [OLD_WEB], (None, None, None)),
    (near(term(labels=WEB, matchLabelKeys=["missing"])), [OLD_WEB], (None, None, NEAR)),
    (apart(term(labels=WEB, matchLabelKeys=["hash"])), [OLD_WEB], (None, None, None)),
    (apart(term(labels=WEB, mismatchLabelKeys=["hash"])), [OLD_WEB], (APART, APART, None)),
    (apart(term(labels=WEB, mismatchLabelKeys=["hash"])), [NEW_WEB], (None, None, None)),
    ({}, [SHY_OF_OTHERS], (SHUNNED, SHUNNED, None)),
    ({}, [SHY_OF_EQUALS], None),
    (near(term(namespaceSelector={"matchLabels": {"team": "x"}})), [FAR_DB, DB], (NEAR, NEAR, NEAR)),
    (
        near(term(namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "other"}})),
        [FAR_DB],
        (None, None, NEAR),
    ),
    ({}, [pod("x", on("c", apart(term(labels=WEB))))], (None, None, SHUNNED)),
    ({}, [pod("x", on("a", apart(term("host", WEB))))], (SHUNNED, None, None)),
    ({}, [pod("x", on("a", apart(term("host", WEB))), namespace="other")], None),
    ({}, [pod("x", on("a", apart(term(labels={"app": "none"}))))], None),
    ({}, [pod("x", on("a", near(term(labels=WEB))))], None),
    (apart(term()), [DB, pod("x", on("c", apart(term(labels=WEB))))], (APART, APART, SHUNNED)),
]


@pytest.mark.parametrize(("spec", "others", "expected"), RULES)
def test_required_rules(spec: dict[str, Any], others: list[Any], expected: tuple[str | None, ...] | None) -> None:
    assert verdict(spec, *others) == expected


def test_a_term_without_selector_speaks_of_nobody() -> None:
    assert verdict(apart({"topologyKey": "zone"}), DB) == (None, None, None)


def test_pods_of_one_cycle_see_one_another() -> None:
    web = [pod(f"w{i}", apart(term(labels=WEB)), labels=WEB) for i in range(3)]
    friend = pod("x", near(term(labels=WEB)))
    made = cycle([*ZONES, *web, friend], [RequiredPodAffinity()])
    assert placed(made) == {"w0": "a", "w1": "c", "w2": "", "x": "a"}
    assert reason(made, "w2") == f"no nodes with enough resources were found: 3 {APART}."


def test_the_first_of_its_kind_goes_anywhere_and_the_rest_follow() -> None:
    web = [pod(f"w{i}", near(term("host", WEB)), labels=WEB) for i in range(3)]
    assert placed(cycle([*ZONES, *web], [RequiredPodAffinity()])) == {"w0": "a", "w1": "a", "w2": "a"}


def test_undone_placements_and_supposed_evictions_do_not_count() -> None:
    made = cycle([*ZONES, DB, pod("p", apart(term()))], [RequiredPodAffinity()])
    trial, plugin, db, mark = made.trial, RequiredPodAffinity(), row(made, "db"), made.trial.mark()
    assert closed(made, plugin, "p") == {"a": APART, "b": APART}
    trial.suppose_evicted(db)
    assert closed(made, plugin, "p") == {}
    assert made.resources.must_wait(row(made, "p"), 0)
    trial.place(db, 2, wait=True)
    assert closed(made, plugin, "p") == {"c": APART}
    trial.undo_to(mark)
    assert closed(made, plugin, "p") == {"a": APART, "b": APART}
    assert not made.resources.must_wait(row(made, "p"), 0)


def test_a_place_that_is_being_left_can_be_waited_for() -> None:
    plugins = [RequiredPodAffinity(), NodeAvailability(), LateStart()]
    assert placed(cycle([*ZONES[:2], LEAVING, pod("p", apart(term()))], plugins)) == {"p": "~a"}
    assert placed(cycle([*ZONES, LEAVING, pod("p", apart(term()))], plugins)) == {"p": "c"}


def test_where_no_pod_has_affinity_nothing_is_counted() -> None:
    made = cycle([*ZONES, DB, pod("p")], [RequiredPodAffinity(), PreferredPodAffinity()])
    assert placed(made) == {"p": "a"}
    assert not made.pod_locations.opened


WISHES = [  # the pod's spec, who is there, weights on nodes a, b, c
    ({}, [DB], None),
    (likes("podAffinity", 10, term()), [DB], (10, 10, 0)),
    (likes("podAntiAffinity", 10, term("host")), [DB], (-10, 0, 0)),
    (likes("podAffinity", 10, term()), [DB, pod("db2", on("b"), labels={"app": "db"})], (20, 20, 0)),
    (likes("podAffinity", 10, term()), [FAR_DB], (0, 0, 0)),
    ({}, [pod("x", on("c", likes("podAffinity", 7, term(labels=WEB))))], (0, 0, 7)),
    ({}, [pod("x", on("c", likes("podAntiAffinity", 7, term(labels=WEB))))], (0, 0, -7)),
    ({}, [pod("x", on("c", near(term(labels=WEB))))], None),
    (
        likes("podAffinity", 10, term()),
        [DB, pod("x", on("b", likes("podAntiAffinity", 4, term("host", WEB))))],
        (10, 6, 0),
    ),
]


@pytest.mark.parametrize(("spec", "others", "weights"), WISHES)
def test_preferred_scores(spec: dict[str, Any], others: list[Any], weights: tuple[int, ...] | None) -> None:
    made = cycle([*ZONES, *others, pod("p", spec, labels=WEB)], [PreferredPodAffinity()])
    score = PreferredPodAffinity().pod_score(made, row(made, "p"))
    assert (None if score is None else tuple((score / 1e6).tolist())) == weights


WHERE = [("podAntiAffinity", {"p0": "a", "p1": "b"}), ("podAffinity", {"p0": "a", "p1": "a"})]


@pytest.mark.parametrize(("side", "where"), WHERE)
def test_pods_of_one_gang_are_neighbours_to_each_other(side: str, where: dict[str, str]) -> None:
    group = {"metadata": {"name": "g", "namespace": "ns"}, "spec": {"queue": "q", "minMember": 2}}
    spec, notes = likes(side, 1, term("host", WEB)), {names.POD_GROUP_ANNOTATION: "g"}
    pods = [pod(name, spec, labels=WEB, annotations=notes) for name in ("p0", "p1")]
    made = cycle([*ZONES, as_kind(kinds.PodGroup, group), *pods], [PreferredPodAffinity()])
    assert placed(made) == where


def test_labels_that_no_term_reads_do_not_tell_pods_apart() -> None:
    spec, expression = apart(term()), {"key": "tier", "operator": "Exists"}
    by_tier = near({"labelSelector": {"matchExpressions": [expression]}, "topologyKey": "zone"})
    jobs = [pod(f"p{at}", spec, labels={"app": "web", "job": str(at)}) for at in range(3)]
    tiers = [pod(f"t{at}", spec, labels={"app": "web", "tier": str(at)}) for at in range(2)]
    elsewhere = pod("e", spec, labels={"app": "web"}, namespace="other")
    rows = cycle([*ZONES, *jobs, *tiers, elsewhere], []).snapshot.pods
    assert len(set(rows.klass.tolist())) == 2  # one for each namespace
    rows = cycle([*ZONES, *jobs, *tiers, elsewhere, pod("n", by_tier)], []).snapshot.pods
    of_pod = dict(zip(rows.names, rows.klass.tolist(), strict=True))
    assert len({of_pod[name] for name in ("p0", "p1", "p2")}) == 1
    assert len(set(of_pod.values())) == 5


def test_a_term_that_comes_later_reads_labels_that_were_passed_over() -> None:
    cache = ClusterCache(SchedulerParams())
    cache.load([builders.decoded(builders.queue()), *ZONES, *pod("p", apart(term()), labels={"tier": "1"})])
    cache.load(pod("q", apart(term()), labels={"tier": "2"}))
    assert len(cache.snapshot(10.0).pods.classes) == 1
    cache.load(pod("r", apart(term(labels={"tier": "1"})), labels={"tier": "2"}))
    labels = [c.labels for c in cache.snapshot(10.0).pods.classes]
    assert labels == [{"tier": "1"}, {"tier": "2"}, {"tier": "2"}]
