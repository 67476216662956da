"""The local copy: whatever the order of lists and events, the changes told lead to the copy."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from pykai.kube.api import EventType, Object
from pykai.kube.api_resources import CONFIG_MAP
from pykai.kube.informer_store import InformerStore, WatchChange


class Typed(msgspec.Struct):
    data: dict[str, int]


def raw(name: str, uid: str, version: int, **data: Any) -> Raw:
    metadata = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    return Raw(msgspec.json.encode({"metadata": metadata, "data": data}))


def shown(changes: list[WatchChange[Any]]) -> list[tuple[str, str]]:
    return [(change.type.value, change.key[1]) for change in changes]


def listed(replica: InformerStore[Any], *raws: Raw) -> list[tuple[str, str]]:
    return shown(replica.replace(replica.page(raws)))


def test_a_new_list_is_told_as_its_difference() -> None:
    replica: InformerStore[Object] = InformerStore(CONFIG_MAP, Object)
    assert listed(replica, raw("a", "1", 1), raw("b", "2", 2), raw("c", "3", 3)) == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("ADDED", "c"),
    ]
    assert listed(replica, raw("a", "1", 1), raw("b", "2", 9), raw("c", "33", 8), raw("d", "4", 7)) == [
        ("MODIFIED", "b"),
        ("DELETED", "c"),
        ("ADDED", "c"),
        ("ADDED", "d"),
    ]
    assert listed(replica, raw("d", "4", 7)) == [("DELETED", "a"), ("DELETED", "b"), ("DELETED", "c")]


def test_an_object_already_known_is_not_decoded_again() -> None:
    replica: InformerStore[Object] = InformerStore(CONFIG_MAP, Object)
    listed(replica, raw("a", "1", 1))
    before = replica.get(("ns", "a"))
    assert listed(replica, raw("a", "1", 1)) == []
    assert replica.get(("ns", "a")) is before


def test_events_that_are_known_or_late_say_nothing() -> None:
    replica: InformerStore[Object] = InformerStore(CONFIG_MAP, Object)
    assert shown(replica.event(EventType.ADDED, raw("a", "1", 1))) == [("ADDED", "a")]
    assert replica.event(EventType.ADDED, raw("a", "1", 1)) == []
    assert shown(replica.event(EventType.ADDED, raw("a", "1", 2))) == [("MODIFIED", "a")]
    assert shown(replica.event(EventType.MODIFIED, raw("b", "2", 3))) == [("ADDED", "b")]
    assert shown(replica.event(EventType.DELETED, raw("b", "2", 4))) == [("DELETED", "b")]
    assert replica.event(EventType.DELETED, raw("b", "2", 4)) == []


def test_a_deletion_shows_the_last_state() -> None:
    replica: InformerStore[Object] = InformerStore(CONFIG_MAP, Object)
    replica.event(EventType.ADDED, raw("a", "1", 1, x=1))
    (change,) = replica.event(EventType.DELETED, raw("a", "1", 2, x=2))
    assert change.object["data"] == {"x": 2}
    assert change.old is not None
    assert change.old["data"] == {"x": 1}


def test_a_deletion_under_the_name_of_another_object_shows_the_one_that_was_known() -> None:
    replica: InformerStore[Object] = InformerStore(CONFIG_MAP, Object)
    replica.event(EventType.ADDED, raw("a", "1", 1, x=1))
    (change,) = replica.event(EventType.DELETED, raw("a", "2", 5, x=2))
    assert (change.object["metadata"]["uid"], change.object is change.old, len(replica)) == ("1", True, 0)


def test_an_unreadable_object_keeps_its_last_readable_state() -> None:
    replica: InformerStore[Typed] = InformerStore(CONFIG_MAP, Typed)
    assert listed(replica, raw("a", "1", 1, x=1), raw("b", "2", 1, x="one")) == [("ADDED", "a")]
    assert replica.event(EventType.MODIFIED, raw("a", "1", 2, x="two")) == []
    held = replica.get(("ns", "a"))
    assert held is not None
    assert held.data == {"x": 1}
    assert shown(replica.event(EventType.MODIFIED, raw("b", "2", 2, x=2))) == [("ADDED", "b")]
    assert shown(replica.event(EventType.ADDED, raw("a", "other", 3, x="new"))) == [("DELETED", "a")]


@pytest.mark.parametrize("seed", range(20))
def test_changes_replayed_give_the_copy(seed: int) -> None:
    """Random lives of a few objects, seen by events with random gaps that a new list closes."""
    choose = random.Random(seed)
    world: dict[str, tuple[str, int]] = {}
    replica: InformerStore[Object] = InformerStore(CONFIG_MAP, Object)
    replayed: dict[tuple[str, str], Object] = {}

    def replay(changes: list[WatchChange[Object]]) -> None:
        for change in changes:
            assert (change.key in replayed) is (change.type is not EventType.ADDED)
            if change.type is EventType.DELETED:
                del replayed[change.key]
            else:
                replayed[change.key] = change.object

    for version in range(1, 300):
        name, connected = choose.choice("abcde"), choose.random() < 0.8
        if name in world and choose.random() < 0.4:
            uid, _ = world.pop(name)
            event = EventType.DELETED
        else:
            event = EventType.MODIFIED if name in world else EventType.ADDED
            uid = world[name][0] if name in world else str(version)
            world[name] = (uid, version)
        if connected and choose.random() < 0.9:
            replay(replica.event(event, raw(name, uid, version)))
        else:
            replay(replica.replace(replica.page([raw(n, *state) for n, state in world.items()])))
        assert replayed == dict(replica.items())
        assert {key[1] for key in replayed} == world.keys()
