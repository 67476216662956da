"""The plan's deadline: when time alone may change a decision."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import json

from pykai.cache.cluster import ClusterCache
from pykai.config.scheduler_config import PluginChoice, SchedulerConfig, policy
from pykai.engine.deadlines import RETRY_SECONDS
from pykai.engine.decide import decide
from pykai.model.params import SchedulerParams
from pykai.model.plan import Plan, Timestamp
from pykai.objects import kinds
from pykai.plugins import registry
from tests.properties.small_world import NOW as SEARCHED_AT
from tests.unit.scheduler import rig

from . import test_solver

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def made(obj: Any, kind: type[Any], **metadata: Any) -> Any:
    full = {**obj, "metadata": {"uid": obj["metadata"]["name"], "creationTimestamp": stamp(-100)} | obj["metadata"]}
    full["metadata"] |= metadata
    return json.decode(json.encode(full), type=kind)


def running(name: str, gang: str, **metadata: Any) -> Any:
    obj = rig.pod(name, gang=gang)
    obj["spec"]["nodeName"], obj["status"] = "node-0", {"phase": "Running"}
    return made(obj, kinds.Pod, **metadata)


def planned(*objects: Any, **arguments: str) -> Plan:
    """The plan with these arguments of `minruntime`."""
    cache = ClusterCache(SchedulerParams())
    cache.load([made(rig.node("node-0", gpus=1), kinds.Node), made(rig.queue("test"), kinds.Queue), *objects])
    chosen = [PluginChoice("", name) for name in registry.BUILT_IN if name != "minruntime"]
    chosen.append(PluginChoice("", "minruntime", arguments))
    config = SchedulerConfig(plugins=tuple(chosen))
    chosen_policy = policy(config, registry.make, registry.BUILT_IN)
    return decide(cache.snapshot(NOW), chosen_policy, NOW)


def deadline(*objects: Any, **arguments: str) -> float | None:
    """Seconds from now to the deadline, or None."""
    found = planned(*objects, **arguments).deadline
    return None if found is None else found - NOW


LAST_START = {"kai.scheduler/last-start-timestamp": stamp(-10)}
STALE = {"kai.scheduler/stale-podgroup-timestamp": stamp(-20)}
WAITING = [made(rig.group("b"), kinds.PodGroup), made(rig.pod("b"), kinds.Pod)]
HOLDS = [made(rig.group("a"), kinds.PodGroup, annotations=LAST_START), running("a", "a")]


def test_nothing_depends_on_time() -> None:
    assert deadline() is None
    assert deadline(*HOLDS) is None
    assert deadline(*HOLDS, *WAITING) is None


def test_protection_ends() -> None:
    assert deadline(*HOLDS, *WAITING, defaultPreemptMinRuntime="1m") == pytest.approx(50)
    assert deadline(*HOLDS, defaultPreemptMinRuntime="1m") is None, "nobody waits for it"


def test_a_delay_ends() -> None:
    delayed = [made(rig.group("b", preemptionDelay="3m"), kinds.PodGroup), made(rig.pod("b"), kinds.Pod)]
    assert deadline(*HOLDS, *delayed) == pytest.approx(80)


def test_grace_of_half_a_gang_ends() -> None:
    half = running("a", "a")
    assert deadline(made(rig.group("a", 2), kinds.PodGroup, annotations=STALE), half) == pytest.approx(40)
    assert deadline(made(rig.group("a", 2), kinds.PodGroup), half) == pytest.approx(60)
    wrong = {"kai.scheduler/stale-podgroup-timestamp": stamp(90)}
    hurt = made(rig.group("a", 2), kinds.PodGroup, annotations=wrong)
    assert deadline(hurt, half) == pytest.approx(60), "an instant to come is a wrong clock's"
    assert deadline(made(rig.group("a", 2, stalenessGracePeriod="-1s"), kinds.PodGroup), half) is None


def test_a_pod_that_does_not_end_is_waited_for_so_long() -> None:
    leaving = running("a", "a", deletionTimestamp=stamp(-30))
    assert deadline(made(rig.group("a"), kinds.PodGroup), leaving, *WAITING) == pytest.approx(90)


@pytest.mark.parametrize(("seconds", "soon"), [(10.0, RETRY_SECONDS), (1000.0, None)])
def test_searches_that_met_the_end_of_their_time_go_on_soon(seconds: float, soon: float | None) -> None:
    hurried = test_solver.policy(test_solver.GREEDY, actions={"default": seconds})
    plan = test_solver.searched(test_solver.full_house(4, ("8", "8", "8")), hurried, agrees=True)
    assert plan.deadline == (None if soon is None else SEARCHED_AT + soon)


UNMARKED = [made(rig.group("a"), kinds.PodGroup), running("a", "a")]


@pytest.mark.parametrize(
    ("objects", "protection", "written"),
    [
        (UNMARKED, "1m", ["a"]),  # it runs, nobody knows since when
        (UNMARKED, "0s", []),
        (HOLDS, "1m", []),
        (WAITING, "1m", ["b"]),  # it starts in this cycle
        ([*UNMARKED, *WAITING], "1m", ["a"]),  # there is one device
    ],
)
def test_a_start_is_written_where_a_protection_counts_from_it(
    objects: list[Any], protection: str, written: list[str]
) -> None:
    found = planned(*objects, defaultPreemptMinRuntime=protection)
    assert found.timestamps == tuple(Timestamp(("team", name), "last-start", NOW) for name in written)
