"""Geometry of bars, charts and marks for SVG attributes: pages need neither scripts nor inline styles to draw them.

Curves are drawn in a box of 1000 by 100 that stretches to its place; strokes and marks do not scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from pykai.dashboard.board import BoardSample
from pykai.explain.views import EvictionView, QueueView
from pykai.model.resources import UNLIMITED

WIDTH, HEIGHT = 1000.0, 100.0
COLOURS = 12
OTHER = "qx"
"""The CSS class of queues without a colour."""
MOST_POINTS = 240
ACTIONS = {"reclaim": "a-reclaim", "preempt": "a-preempt", "consolidation": "a-consolidation"}


class Bar(msgspec.Struct, frozen=True):
    """Segments of a queue's bar, in per cent of its width; None: no mark."""

    within: float
    """Used within quota."""
    borrowed: float
    """Used above quota."""
    wanted: float
    """Used or requested."""
    quota: float | None
    fair: float | None
    limit: float | None


def bars(queues: Sequence[QueueView], cluster: float) -> dict[str, Bar]:
    """Return a bar for every queue; queues at the same depth of the tree share a scale."""
    scales: dict[int, float] = {}
    for queue in queues:
        known = (queue.allocated.gpu, queue.fair_share.gpu, queue.quota.gpu)
        scales[queue.depth] = max(scales.get(queue.depth, 0.0), *(min(value, cluster or value) for value in known))
    return {queue.name: _bar(queue, scales[queue.depth]) for queue in queues}


def _bar(queue: QueueView, scale: float) -> Bar:
    def part(value: float) -> float:
        return round(100 * min(max(value, 0.0) / scale, 1.0), 2) if scale > 0 else 0.0

    def mark(value: float) -> float | None:
        return None if value == UNLIMITED or scale <= 0 or value > scale * 1.001 else min(part(value), 99.7)

    within = part(queue.allocated.gpu - queue.borrowed)
    return Bar(
        within=within,
        borrowed=round(part(queue.allocated.gpu) - within, 2),
        wanted=part(queue.requested.gpu),
        quota=mark(queue.quota.gpu),
        fair=mark(queue.fair_share.gpu),
        limit=mark(queue.limit.gpu),
    )


# -------------------------------------------------------------------------------------------------------------- colours
def colours(queues: Sequence[QueueView]) -> dict[str, str]:
    """Return the CSS class of every queue.

    If there are few leaves, each has its own colour. Otherwise the queues of the deepest level with few queues do, and
    the queues below share those.
    """
    parents = {queue.name: queue.parent for queue in queues}
    found = dict(legend(queues))
    for queue in queues:
        name = queue.name
        while name and name not in found:
            name = parents.get(name, "")
        found.setdefault(queue.name, found.get(name, OTHER))
    return found


def legend(queues: Sequence[QueueView]) -> list[tuple[str, str]]:
    """Return the queues that have their own colours, in tree order, with their CSS classes."""
    chosen = [queue.name for queue in queues if queue.leaf]
    if len(chosen) > COLOURS:
        chosen = [queue.name for queue in queues if not queue.depth][:COLOURS]
        for depth in range(max(queue.depth for queue in queues) + 1):
            level = [queue.name for queue in queues if queue.depth == depth]
            if len(level) > COLOURS:
                break
            chosen = level
    return [(name, f"q{at}") for at, name in enumerate(chosen)]


# --------------------------------------------------------------------------------------------------------------- curves
class Curve(msgspec.Struct, frozen=True):
    """A path in the box, its CSS class, and its title."""

    path: str
    style: str
    title: str


class Axis(msgspec.Struct, frozen=True):
    """The labels from the start of an axis to its end."""

    labels: tuple[str, ...]


class Chart(msgspec.Struct, frozen=True):
    """A drawing of values over time. `points`: times and, by title, values, for the readout at the pointer."""

    curves: tuple[Curve, ...]
    x: Axis
    y: Axis
    points: dict[str, list[float]]


def stacked(samples: Sequence[BoardSample], names: Sequence[str], styles: Mapping[str, str]) -> Chart | None:
    """Return the stacked GPUs of queues and the GPUs of the cluster; None with fewer than two samples."""
    samples = _thinned(samples)
    if len(samples) < 2:
        return None
    top = max(max(sample.gpus for sample in samples), 1.0)
    floor, curves = [0.0] * len(samples), list[Curve]()
    points = {"at": [sample.at for sample in samples]}
    for name in names:
        values = [use.allocated if (use := sample.queues.get(name)) else 0.0 for sample in samples]
        if not any(values):
            continue
        upper = [low + value for low, value in zip(floor, values, strict=True)]
        curves.append(Curve(_area(samples, floor, upper, top), f"area {styles.get(name, OTHER)}", name))
        points[name] = values
        floor = upper
    capacity = [sample.gpus for sample in samples]
    curves.append(Curve(_steps(samples, capacity, top), "line capacity", "GPUs in the cluster"))
    points["GPUs in the cluster"] = capacity
    return Chart(tuple(curves), _times(samples), _amounts(top), points)


def figures(samples: Sequence[BoardSample], name: str, style: str) -> Chart | None:
    """Return allocation, fair share, quota and requests of one queue; None with fewer than two samples."""
    samples = [sample for sample in _thinned(samples) if name in sample.queues]
    if len(samples) < 2:
        return None
    uses = [sample.queues[name] for sample in samples]

    def values(field: str) -> list[float]:
        return [getattr(use, field) for use in uses]

    top = max(1.0, *(max(use.allocated, use.fair_share, use.quota) for use in uses))
    top = max(top, min(2 * top, *(use.requested for use in uses), max(use.requested for use in uses)))
    lines = (("requested", "Requested"), ("fair_share", "Fair share"), ("quota", "Quota"))
    curves = [Curve(_area(samples, [0.0] * len(uses), values("allocated"), top), f"area {style}", "Allocated")]
    points = {"at": [sample.at for sample in samples], "Allocated": values("allocated")}
    for field, title in lines:
        shown = values(field)
        if all(value == UNLIMITED for value in shown):
            continue
        points[title] = shown
        curves.append(Curve(_steps(samples, shown, top), f"line {field.replace('_', '-')}", title))
    return Chart(tuple(curves), _times(samples), _amounts(top), points)


def _thinned(samples: Sequence[BoardSample]) -> Sequence[BoardSample]:
    """Return at most MOST_POINTS samples, including the last one."""
    if len(samples) <= MOST_POINTS:
        return samples
    step = (len(samples) - 1) / (MOST_POINTS - 1)
    return [samples[round(at * step)] for at in range(MOST_POINTS)]


def _xs(samples: Sequence[BoardSample]) -> list[float]:
    first, last = samples[0].at, samples[-1].at
    return [round(WIDTH * (sample.at - first) / ((last - first) or 1.0), 2) for sample in samples]


def _y(value: float, top: float) -> float:
    return round(HEIGHT * (1 - min(max(value, 0.0) / top, 1.0)), 2)


def _steps(samples: Sequence[BoardSample], values: Sequence[float], top: float) -> str:
    """Return the path of a step curve: a value holds until the next one."""
    xs, ys = _xs(samples), [_y(value, top) for value in values]
    path = f"M{xs[0]:g} {ys[0]:g}"
    for at in range(1, len(xs)):
        path += f"H{xs[at]:g}" + (f"V{ys[at]:g}" if ys[at] != ys[at - 1] else "")
    return path


def _area(samples: Sequence[BoardSample], floor: Sequence[float], upper: Sequence[float], top: float) -> str:
    xs, below = _xs(samples), [_y(value, top) for value in floor]
    path = f"{_steps(samples, upper, top)}L{xs[-1]:g} {below[-1]:g}"
    for at in range(len(xs) - 1, 0, -1):
        path += (f"V{below[at - 1]:g}" if below[at] != below[at - 1] else "") + f"H{xs[at - 1]:g}"
    return path + "Z"


def _times(samples: Sequence[BoardSample]) -> Axis:
    first, last = samples[0].at, samples[-1].at
    return Axis(tuple(clock(first + (last - first) * part / 4, last - first) for part in range(5)))


def clock(at: float, span: float = 0.0) -> str:
    """Format a time of day, with seconds or the date, depending on the span."""
    form = "%H:%M:%S" if span < 600 else "%H:%M" if span < 86_400 else "%b %d %H:%M"
    return datetime.fromtimestamp(at, UTC).strftime(form)


def _amounts(top: float) -> Axis:
    return Axis(tuple(f"{top * part / 2:.6g}" for part in range(3)))


# ---------------------------------------------------------------------------------------------------------------- marks
class Lane(msgspec.Struct, frozen=True):
    """The evictions from one queue, as marks in the box."""

    queue: str
    marks: tuple[Curve, ...]
    count: int


def lanes(evictions: Sequence[EvictionView], first: float, last: float) -> list[Lane]:
    """Return the timeline of evictions: a lane for each queue that lost pods, marks by action."""
    by_queue: dict[str, list[EvictionView]] = {}
    for each in evictions:
        by_queue.setdefault(each.queue, []).append(each)
    span = (last - first) or 1.0
    found = []
    for queue, lost in sorted(by_queue.items()):
        marks: dict[tuple[str, float], int] = {}
        for each in lost:
            place = round(max(min((each.at - first) / span, 1.0), 0.0) * 980 + 10, 0)
            marks[each.action, place] = marks.get((each.action, place), 0) + 1
        curves = [
            Curve(f"M{place:g} 50h.01", f"mark {ACTIONS.get(action, 'a-other')}", f"{count} by {action}")
            for (action, place), count in sorted(marks.items())
        ]
        found.append(Lane(queue, tuple(curves), len(lost)))
    return found
