"""In-place resize of running pods: more CPU or memory must fit the limits and quotas of the pod's queues.

The webhook of the subresource `pods/resize`. The pod's group, its queue and the queue's ancestors are fetched for each
request, because resizes are rare; unknown objects deny nothing. Moving resources between containers of one pod and
requesting less are always admitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pykai.admission.verdict import AdmissionVerdict, DeniedError, judged
from pykai.kube.api import Fields
from pykai.objects.names import SCHEDULER_NAME
from pykai.objects.pod_resize import pod_requests
from pykai.objects.units import QuantityError, milli, parse_quantity

_MEGABYTE = 10**6


@dataclass(frozen=True)
class ResizeSettings:
    """`strict`: queues with a finite limit or quota admit no upsize."""

    scheduler_name: str = SCHEDULER_NAME
    strict: bool = False


@dataclass(frozen=True)
class QuotaFacts:
    """The pod's group, whether it is non-preemptible, and its queue with its ancestors, as the API server has them now.

    Without a known queue there are no queues.
    """

    group: str = ""
    non_preemptible: bool = False
    queues: Sequence[Fields] = field(default_factory=tuple)


@dataclass(frozen=True)
class _Measure:
    """One resource: how amounts are compared and shown; `key` in a queue's spec, where one unit is `unit`."""

    title: str
    key: str
    unit: float

    def amount(self, resources: Fields | None) -> float:
        text = (resources or {}).get(self.key, 0)
        try:
            return milli(text) if self.key == "cpu" else float(parse_quantity(text))
        except QuantityError:
            return 0.0

    def shown(self, amount: float) -> str:
        return f"{amount:.0f}m" if self.key == "cpu" else f"{amount:.0f} bytes"

    def sum(self, held: float, more: float) -> str:
        return f"{held:.0f}m + {more:.0f}m" if self.key == "cpu" else f"{held:.0f} + {more:.0f} bytes"


_MEASURES = (_Measure("CPU", "cpu", 1.0), _Measure("Memory", "memory", float(_MEGABYTE)))


def needs_check(pod: object, settings: ResizeSettings) -> bool:
    """Whether a resized pod is one of ours."""
    spec = pod.get("spec") if isinstance(pod, dict) else None
    return isinstance(spec, dict) and spec.get("schedulerName") == settings.scheduler_name


@judged
def validate_resize(new: object, old: object, facts: QuotaFacts, settings: ResizeSettings) -> AdmissionVerdict:
    """Admit a resize that fits the pod's queues."""
    if not isinstance(new, dict) or not isinstance(old, dict) or not needs_check(new, settings):
        return AdmissionVerdict()
    try:
        more = _upsize(new, old)
    except (QuantityError, AttributeError, TypeError):
        return AdmissionVerdict()  # the API server rejects objects that are no pods
    metadata = new.get("metadata") or {}
    title = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
    for queue in facts.queues:
        for measure, delta in more.items():
            for problem in _problems(queue, measure, delta, facts.non_preemptible, settings.strict):
                raise DeniedError(f"resize rejected: pod {title} (PodGroup {facts.group}) {problem}")
    return AdmissionVerdict()


def _upsize(new: Fields, old: Fields) -> dict[_Measure, float]:
    """Return by how much the request exceeds what the pod is charged now, for each resource its spec changes."""
    wanted, former = (pod_requests(pod, actual=False) for pod in (new, old))
    charged = pod_requests(old, actual=True)
    changed = [measure for measure in _MEASURES if measure.amount(wanted) != measure.amount(former)]
    more = {measure: measure.amount(wanted) - measure.amount(charged) for measure in changed}
    return {measure: delta for measure, delta in more.items() if delta > 0}


def _problems(queue: Fields, measure: _Measure, delta: float, non_preemptible: bool, strict: bool) -> Iterator[str]:
    name, status = (queue.get("metadata") or {}).get("name") or "", queue.get("status") or {}
    limit, quota = (_bound(queue, measure, which) for which in ("limit", "quota"))
    what = f"{measure.title} upsize"
    if strict and limit is not None:
        yield f"{what} not permitted on queue {name} with finite {measure.title} limit ({measure.shown(limit)})"
    if strict and non_preemptible and quota is not None:
        shown = measure.shown(quota)
        yield f"non-preemptible {what} not permitted on queue {name} with finite {measure.title} quota ({shown})"
    held = measure.amount(status.get("allocated"))
    if limit is not None and held + delta > limit:
        amounts = f"({measure.sum(held, delta)}) over limit ({measure.shown(limit)})"
        yield f"{what} would push queue {name} Allocated {amounts}"
    fixed = measure.amount(status.get("allocatedNonPreemptible"))
    if non_preemptible and quota is not None and fixed + delta > quota:
        amounts = f"({measure.sum(fixed, delta)}) over quota ({measure.shown(quota)})"
        yield f"{what} would push queue {name} AllocatedNonPreemptible {amounts}"


def _bound(queue: Fields, measure: _Measure, which: str) -> float | None:
    """Return a finite limit or quota of a queue; None if unlimited. A missing amount is 0."""
    resources = (queue.get("spec") or {}).get("resources")
    if resources is None:
        return None
    value = float((resources.get(measure.key) or {}).get(which) or 0)
    return None if value < 0 else value * measure.unit
