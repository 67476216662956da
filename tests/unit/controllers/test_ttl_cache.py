"""Caches of recent values and of our own writes; conversions between typed and unstructured objects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykai.controllers.ttl_cache import MUTATION_SECONDS, MutationCache, TTLCache
from pykai.controllers.unstructured import merge_patch_between, to_unstructured, unstructured_pod
from pykai.kube.api import EventType
from pykai.kube.informer_store import WatchChange
from pykai.objects import kinds


@pytest.mark.virtual_time
async def test_values_are_forgotten_in_time_and_thrown_away() -> None:
    recent: TTLCache[int, str] = TTLCache(10.0)
    recent.put(1, "one")
    recent.put(2, "two", seconds=1.0)
    await asyncio.sleep(5)
    assert (recent.get(1), recent.get(2)) == ("one", None)
    await asyncio.sleep(6)
    assert recent.get(1) is None
    for number in range(1000):
        await asyncio.sleep(1)
        recent.put(number, "x")
    assert len(recent) < 200


@pytest.mark.virtual_time
async def test_a_burst_leaves_nothing_behind() -> None:
    recent: TTLCache[int, str] = TTLCache(10.0)
    for number in range(1000):
        recent.put(number, "x")
    recent.put(1000, "x", seconds=25.0)
    await asyncio.sleep(21)
    assert len(recent) == 1
    await asyncio.sleep(10)
    assert len(recent) == 0


def shown(version: str, uid: str = "u", kind: EventType = EventType.MODIFIED) -> WatchChange[Any]:
    group = kinds.PodGroup(metadata=kinds.ObjectMeta(name="g", namespace="n", uid=uid, resource_version=version))
    return WatchChange(kind, ("n", "g"), group, None)


@pytest.mark.parametrize(
    ("change", "forgotten"),
    [
        (shown("9"), False),
        (shown("10"), True),
        (shown("100"), True),
        (shown("9", kind=EventType.DELETED), True),
        (shown("9", uid="another", kind=EventType.DELETED), False),
    ],
)
@pytest.mark.virtual_time
async def test_a_write_counts_until_the_watch_shows_it(change: WatchChange[Any], forgotten: bool) -> None:
    mutations = MutationCache()
    mutations.put(("n", "g"), {"metadata": {"uid": "u", "resourceVersion": "10"}})
    mutations.observe(change)
    assert (mutations.get(("n", "g")) is None) is forgotten


@pytest.mark.parametrize(("version", "counts"), [("9", True), ("10", False), ("11", False)])
@pytest.mark.virtual_time
async def test_an_answer_that_comes_after_its_event_does_not_count(version: str, counts: bool) -> None:
    """Nor one about an object that was deleted and created again: versions grow over all objects."""
    mutations = MutationCache()
    mutations.put(("n", "g"), {"metadata": {"uid": "u", "resourceVersion": "10"}})
    shown = kinds.ObjectMeta("g", "n", uid="another", resource_version=version)
    assert (mutations.get(("n", "g"), shown) is not None) is counts


@pytest.mark.virtual_time
async def test_a_write_that_is_never_shown_is_not_believed_for_ever() -> None:
    mutations = MutationCache()
    mutations.put(("n", "g"), {"metadata": {"uid": "u", "resourceVersion": "10"}})
    await asyncio.sleep(MUTATION_SECONDS + 1)
    assert mutations.get(("n", "g")) is None


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1, "b": 2}, {"a": 1}, {"b": None}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1, "z": 3}}, {"a": {"y": None, "z": 3}}),
        ({"a": [1]}, {"a": [1, 2]}, {"a": [1, 2]}),
        ({}, {"a": {}}, {"a": {}}),
        ({"a": {"x": 1}}, {"a": 5}, {"a": 5}),
    ],
)
def test_the_patch_between_two_states(old: Any, new: Any, patch: Any) -> None:
    assert merge_patch_between(old, new) == patch


def test_a_pods_phase_is_there_even_at_its_default() -> None:
    pod = kinds.Pod(metadata=kinds.ObjectMeta(name="p"))
    assert unstructured_pod(pod)["status"] == {"phase": "Pending"}
    assert to_unstructured(pod)["spec"] == {}
