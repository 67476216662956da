"""The fair-share kernel agrees with its slow twin, ignores the order of the rows and keeps its promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.kernels import reference
from pykai.kernels.fairshare import QueueColumns, divide_level, divide_over_quota, fair_shares

UNIT = (1.0, 1e6, 1.0)  # scale of each resource row: millicores, bytes, devices
MAX_QUEUES = 9

amounts = st.one_of(st.integers(0, 40), st.sampled_from([0.25, 0.5, 1.65, 9.5, 32.55]), st.floats(0, 50))
quotas = st.one_of(st.just(-1), amounts)
weights = st.one_of(st.integers(0, 5), st.sampled_from([0.5, 2.5]), st.just(-1))
usages = st.one_of(st.just(0), st.floats(0, 1))
# deserved, limit, weight, request, usage of one queue for one resource
claims = st.tuples(quotas, quotas, weights, amounts, usages)


@st.composite
def trees(draw: st.DrawFn) -> tuple[np.ndarray, QueueColumns]:
    count = draw(st.integers(1, MAX_QUEUES))
    parent = np.array([draw(st.integers(-1, row - 1)) for row in range(count)])
    drawn = np.array([[draw(claims) for _ in range(count)] for _ in UNIT], dtype=np.float64)
    scaled = [drawn[:, :, i] for i in range(5)]
    for i in (0, 1, 3):
        scaled[i] = np.where(scaled[i] == -1, -1, scaled[i] * np.array(UNIT)[:, None])
    deserved, limit, weight, request, usage = scaled
    columns = QueueColumns(
        deserved=deserved,
        limit=limit,
        weight=weight,
        request=request,
        usage=usage,
        priority=np.array(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))),
        creation=np.array(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)), dtype=np.float64),
        rank=np.array(draw(st.permutations(range(count)))),
    )
    return parent, columns


totals = st.tuples(*(st.one_of(st.integers(-5, 100), st.floats(0, 100)) for _ in UNIT)).map(
    lambda drawn: np.array(drawn, dtype=np.float64) * np.array(UNIT)
)
gains = st.sampled_from([0.0, 0.5, 1.0, 10.0])


def claimants(columns: QueueColumns, resource: int) -> list[reference.Claimant]:
    rows = range(len(columns.rank))
    per_resource = (columns.deserved, columns.limit, columns.weight, columns.request, columns.usage)
    per_queue = (columns.priority, columns.creation, columns.rank)
    return [reference.Claimant(*(c[resource, n] for c in per_resource), *(c[n] for c in per_queue)) for n in rows]


@settings(max_examples=400)
@given(trees(), totals, gains)
def test_the_tree_is_divided_as_by_the_twin(tree: tuple[np.ndarray, QueueColumns], total: np.ndarray, k: float) -> None:
    parent, columns = tree
    fair = fair_shares(parent, total, columns, k)
    for resource in range(3):
        queues = claimants(columns, resource)
        reference.fair_shares(parent.tolist(), total[resource], queues, k)
        assert fair[resource] == pytest.approx([q.fair for q in queues], rel=1e-9, abs=1e-6 * UNIT[resource])


@settings(max_examples=200)
@given(trees(), totals, gains, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(tree, total, k, random) -> None:  # type: ignore[no-untyped-def]
    parent, columns = tree
    rows = np.array(random.sample(range(len(parent)), len(parent)))
    place = np.argsort(rows)
    shuffled = np.where(parent[rows] < 0, -1, place[parent[rows]])
    fair = fair_shares(shuffled, total, columns.take(rows), k)
    assert np.array_equal(fair[:, place], fair_shares(parent, total, columns, k))


@settings(max_examples=200)
@given(trees(), totals, gains)
def test_a_level_gives_quota_first_and_never_more_than_there_is(tree, total, k) -> None:  # type: ignore[no-untyped-def]
    _, columns = tree
    fair = divide_level(total, columns, k)
    deserved = np.where(columns.deserved == -1, total[:, None], columns.deserved)
    quota = np.minimum(deserved, columns.requestable)
    assert (fair >= quota).all()
    surplus = np.maximum(0, total - quota.sum(axis=1))
    assert ((fair - quota).sum(axis=1) <= surplus * (1 + 1e-9) + 1e-9).all()
    assert (fair < np.maximum(quota, columns.requestable) + 1).all()


@settings(max_examples=100)
@given(trees(), totals, gains)
def test_over_quota_adds_to_what_the_quota_gave(tree, total, k) -> None:  # type: ignore[no-untyped-def]
    _, columns = tree
    deserved = np.where(columns.deserved == -1, total[:, None], columns.deserved)
    quota = np.minimum(deserved, columns.requestable)
    fair = divide_over_quota(total - quota.sum(axis=1), quota, columns, k)
    assert fair == pytest.approx(divide_level(total, columns, k), rel=1e-9, abs=1e-3)
