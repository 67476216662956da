"""Segments: workers in blocks of equal size, each of which may be tied to one domain of a topology."""

from __future__ import annotations

from collections.abc import Mapping

from pykai.controllers.grouping.fields import GroupingError, annotations_of
from pykai.controllers.grouping.spec import Topology
from pykai.controllers.grouping.workload import Workload
from pykai.objects import names

MAX_PARTS = 10_000
Annotations = Mapping[str, str]


def segment_topology(work: Workload, template: Annotations) -> Topology | None:
    """Where each segment wants to be, from the pod, the worker template, the workload; None without name and level."""
    near = (annotations_of(work.pod), template)
    wish = Topology(
        _first(names.TOPOLOGY, *near, annotations_of(work.top)),
        _first(names.SEGMENT_TOPOLOGY_REQUIRED, *near),
        _first(names.SEGMENT_TOPOLOGY_PREFERRED, *near),
    )
    return wish if wish.name and wish.has_level else None


def _first(key: str, *sources: Annotations) -> str:
    return next(filter(None, (source.get(key) for source in sources)), "")


def checked_count(segments: int) -> int:
    """The number of segments, refused where a pod group could not hold them."""
    if segments > MAX_PARTS:
        raise GroupingError(f"number of segments {segments} is greater than max allowed segmentation {MAX_PARTS}")
    return segments


def ceil_div(total: int, size: int) -> int:
    """How many blocks of a size hold a total."""
    return -(-total // size)
