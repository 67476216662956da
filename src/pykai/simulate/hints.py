"""Labels and annotations that look like ours and have no effect: misspelt, or written where they are not read.

Any key is allowed on an object, so these are no errors; but a pod without the GPU it was meant to have runs happily.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Final

from pykai.objects import names
from pykai.simulate import checks
from pykai.simulate.manifests import Object

_LABELS: Final = frozenset(
    {names.QUEUE_LABEL, names.LEGACY_QUEUE_LABEL, names.NODE_POOL_LABEL, names.PRIORITY_CLASS_LABEL}
)
_POD_ANNOTATIONS: Final = frozenset(
    {
        names.GPU_FRACTION,
        names.GPU_MEMORY,
        names.GPU_FRACTION_DEVICES,
        names.GPU_FRACTION_CONTAINER,
        names.GPU_FRACTION_CONTAINER_TYPE,
    }
)
_OTHERS: Final = frozenset(
    {
        names.SUBGROUP_LABEL,
        names.TASK_PRIORITY_LABEL,
        names.PREEMPTIBILITY_LABEL,
        names.POD_GROUP_ANNOTATION,
        names.SKIP_PODGROUPER,
        names.PREEMPTION_DELAY,
        names.STALENESS_GRACE_PERIOD,
        names.BATCH_MIN_MEMBER,
        names.TOPOLOGY,
        names.TOPOLOGY_REQUIRED,
        names.TOPOLOGY_PREFERRED,
        names.SEGMENT_SIZE,
        names.SEGMENT_TOPOLOGY_REQUIRED,
        names.SEGMENT_TOPOLOGY_PREFERRED,
    }
)
_KNOWN: Final = {key.lower(): key for key in _LABELS | _POD_ANNOTATIONS | _OTHERS}
_NAMES: Final = frozenset(value for value in vars(names).values() if isinstance(value, str))
_ALIKE: Final = 0.9


def hints(obj: Object) -> Iterator[tuple[str, str]]:
    """(path, what is odd about it) for a Pod, or a workload and its templates; nothing for other kinds."""
    found = list(checks.pods_in(obj))
    if found:
        yield from _misread(obj["metadata"], "metadata", pod=obj["kind"] == "Pod")
    for below, template in found:
        if below:
            yield from _misread(template.get("metadata") or {}, f"{below}metadata", pod=True)


def _misread(meta: Object, path: str, pod: bool) -> Iterator[tuple[str, str]]:
    for key in meta.get("labels") or {}:
        here = f"{path}.labels.{key}"
        if key in _POD_ANNOTATIONS:
            yield here, "has no effect as a label: write it as an annotation"
        else:
            yield from _misspelt(key, here)
    for key in meta.get("annotations") or {}:
        here = f"{path}.annotations.{key}"
        if key in _LABELS:
            yield here, "has no effect as an annotation: write it as a label"
        elif key in _POD_ANNOTATIONS and not pod:
            yield here, "has no effect here, it is read of pods: write it under spec.template.metadata.annotations"
        else:
            yield from _misspelt(key, here)


def _misspelt(key: str, here: str) -> Iterator[tuple[str, str]]:
    if meant := _meant(key):
        yield here, f"has no effect: did you mean {meant}?"


@cache
def _meant(key: str) -> str:
    """The key of ours that another is almost; empty where there is none. Workloads share their keys."""
    found = [] if key in _NAMES else get_close_matches(key.lower(), _KNOWN, n=1, cutoff=_ALIKE)
    return _KNOWN[found[0]] if found else ""
