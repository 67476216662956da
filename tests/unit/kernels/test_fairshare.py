from __future__ import annotations

import numpy as np
import pytest

from pykai.kernels import reference
from pykai.kernels.fairshare import QueueColumns, divide_level, fair_shares


def gpu_queues(**columns: list[float]) -> QueueColumns:
    """Queues that ask for GPUs only: no quota, no limit, weight 1 and 100 GPUs wanted, where not told otherwise."""
    count = len(next(iter(columns.values())))
    defaults = {"deserved": 0, "limit": -1, "weight": 1, "request": 100, "usage": 0}
    rows = {
        name: np.stack([np.zeros(count), np.zeros(count), columns.get(name, [value] * count)])
        for name, value in defaults.items()
    }
    per_queue = {name: np.array(columns.get(name, [0] * count)) for name in ("priority", "creation")}
    return QueueColumns(**rows, **per_queue, rank=np.arange(count))


def gpus(total: float, k: float = 0.0, **columns: list[float]) -> list[float]:
    shares: list[float] = divide_level(np.array([0, 0, total]), gpu_queues(**columns), k)[2].tolist()
    return shares


@pytest.mark.parametrize(
    ("total", "columns", "expected"),
    [
        pytest.param(8, {"deserved": [2, 4], "request": [1, 9]}, [1, 7], id="unused quota is lent"),
        pytest.param(2, {"deserved": [2, 2]}, [2, 2], id="quota holds in an over-subscribed cluster"),
        pytest.param(8, {"deserved": [-1, 0], "request": [6, 9]}, [6, 2], id="unlimited quota is all there is"),
        pytest.param(8, {"limit": [3, -1]}, [3, 5], id="limit"),
        pytest.param(8, {"limit": [0, -1]}, [0, 8], id="a limit of zero gives nothing"),
        pytest.param(8, {"weight": [1, 3]}, [2, 6], id="weight"),
        pytest.param(8, {"weight": [0, 1], "request": [9, 5]}, [0, 5], id="no weight, no surplus"),
        pytest.param(8, {"weight": [-1]}, [8], id="the only weight counts whatever it is"),
        pytest.param(8, {"priority": [1, 2], "request": [9, 5]}, [3, 5], id="priority"),
        pytest.param(5, {"creation": [9, 3]}, [2, 3], id="the left-over unit goes to the oldest"),
        pytest.param(5, {"weight": [3, 2, 2]}, [2, 2, 1], id="the left-over units go to the largest fractions"),
        pytest.param(0.5, {"weight": [1, 1]}, [0.5, 0], id="less than a unit"),
        pytest.param(-3, {"deserved": [2, 0]}, [2, 0], id="a negative total leaves the quotas"),
    ],
)
def test_gpus_of_one_level(total: float, columns: dict[str, list[float]], expected: list[float]) -> None:
    assert gpus(total, 0.0, **columns) == pytest.approx(expected)


@pytest.mark.parametrize(("k", "expected"), [(0.0, [5, 5]), (1.0, [3, 7]), (10.0, [0, 10])])
def test_past_usage_counts_as_much_as_k_says(k: float, expected: list[float]) -> None:
    assert gpus(10, k, usage=[0.6, 0.2]) == pytest.approx(expected)


@pytest.mark.parametrize(("use", "expected"), [([1.0, 1.0], [0, 0]), ([1.0, 0.5], [0, 10])])
def test_who_used_far_more_than_its_part_gets_no_surplus(use: list[float], expected: list[float]) -> None:
    """Half of the weight, and ten times the difference to the use: nothing is left, where all are so for nobody."""
    twins = [reference.Claimant(0, -1, 1, 100, used, 0, 0, rank) for rank, used in enumerate(use)]
    reference.divide(twins, 10, 10.0)
    assert gpus(10, 10.0, usage=use) == [twin.fair for twin in twins] == expected


def test_children_divide_the_share_of_their_parent() -> None:
    columns = gpu_queues(deserved=[0, 0, 0, 0, 0], request=[6, 100, 100, 100, 100], weight=[1, 1, 1, 2, 1])
    fair = fair_shares(np.array([-1, -1, 0, 0, 1]), np.array([0, 0, 20.0]), columns, 0.0)
    assert fair[2].tolist() == [6, 14, 2, 4, 14]


def test_many_equal_queues_get_equal_shares() -> None:
    assert gpus(4900, weight=[0.1] * 49) == [100] * 49


@pytest.mark.parametrize("parent", [[1, 0], [-1, 7], [-1, 1]])
def test_a_queue_that_hangs_on_no_root_is_refused(parent: list[int]) -> None:
    with pytest.raises(ValueError, match="parent"):
        fair_shares(np.array(parent), np.zeros(3), gpu_queues(weight=[1, 1]), 0.0)


def test_columns_of_wrong_shape_and_equal_ranks_are_refused() -> None:
    good = gpu_queues(weight=[1, 1])
    parts = {name: getattr(good, name) for name in good.__dataclass_fields__}
    with pytest.raises(ValueError, match="usage"):
        QueueColumns(**{**parts, "usage": np.zeros(2)})
    with pytest.raises(ValueError, match="rank"):
        QueueColumns(**{**parts, "rank": np.zeros(2, np.int64)})
