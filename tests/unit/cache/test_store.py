"""Objects by key in two layers are like a dict, whatever happens, and so are copies of them."""

from __future__ import annotations

import weakref
from random import Random
from typing import Any

import numpy as np
import pytest

from pykai.cache.readings import in_order
from pykai.cache.store import FEW, Key, Layers, Moment, Store
from tests import builders


@pytest.mark.parametrize("seed", range(10))
def test_layers_are_like_a_dict(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykai.cache.store.FEW", seed)
    random = Random(seed)
    pairs: list[tuple[Layers, dict[tuple[str, str], object]]] = [(Layers(), {})]
    for _ in range(400):
        layers, plain = random.choice(pairs)
        key = ("", str(random.randrange(30)))
        if random.random() < 0.6:
            obj = object()
            assert layers.put(key, obj) == (key not in plain)
            plain[key] = obj
        else:
            assert layers.drop(key) == (plain.pop(key, None) is not None)
        if random.random() < 0.05:
            pairs.append((layers.copy(), dict(plain)))
        for found, wanted in pairs:
            assert list(found.items()) == list(wanted.items())
            assert found.objects() == list(wanted.values())
            assert len(found) == len(wanted)
            assert (found.get(key), key in found) == (wanted.get(key), key in wanted)


@pytest.mark.parametrize("most", [3, 70_000, 200_000])
def test_rows_are_in_order_of_their_numbers(most: int) -> None:
    random = Random(most)
    numbers = [random.randrange(-1, most) for _ in range(5000)]
    assert in_order(np.array(numbers)).tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)


class Thing:
    """An object that can be observed."""


def test_objects_that_are_gone_do_not_stay_in_memory() -> None:
    layers, things = Layers(), [Thing() for _ in range(2_000)]
    kept = [weakref.ref(thing) for thing in things]
    for number, thing in enumerate(things):
        layers.put(("", str(number)), thing)
    del thing
    things.clear()
    for number in range(2_000):
        layers.drop(("", str(number)))
    assert not [each for each in kept if each() is not None]


def read_again(store: Store, then: Moment, seen: dict[Key, Any]) -> dict[Key, Any] | None:
    """What a reader knows that had seen these objects and looks at nothing else than what the store says happened."""
    happened = store.since(then)
    if happened is None:
        return None
    found = {key: store.by_key.get(key) if key in happened else obj for key, obj in seen.items()}
    for key, last in happened.items():
        if last:
            found.pop(key, None)
            found[key] = store.by_key.get(key)
    return {key: obj for key, obj in found.items() if obj is not None}


@pytest.mark.parametrize("seed", range(20))
def test_a_reader_is_told_all_that_happened_since(seed: int) -> None:
    random, original, told = Random(seed), Store(list), 0
    readers: list[tuple[Moment, dict[Key, Any]]] = []
    stores = [original]
    for _ in range(200):
        store = random.choice(stores)
        match random.randrange(12):
            case 0 if store is original:
                store.add([builders.decoded(builders.queue(f"q{random.randrange(8)}"))])
            case 1:
                stores = [original, original.copy()]
            case 2 | 3:
                readers.append((store.moment, dict(store.by_key)))
            case _:
                store.put(builders.decoded(builders.queue(f"q{random.randrange(8)}")), random.random() < 0.3)
        for then, seen in readers:
            found = read_again(store, then, seen)
            if found is not None:
                told += 1
                assert list(found.items()) == list(store.by_key.items())
    assert told > 100


def test_the_log_of_changes_is_limited_by_the_number_of_objects() -> None:
    store, queue = Store(list), builders.decoded(builders.queue("q"))
    for _ in range(3 * FEW):
        store.put(queue, gone=False)
    assert store.moment.length <= FEW
