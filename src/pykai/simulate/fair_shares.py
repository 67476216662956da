"""Fair shares of user-defined queues: the API of KAI's fair-share simulator on the engine's kernel.

All queues are siblings that divide one total; their allocations and parents do not affect the division. The surplus is
divided in whole units of the given amounts. -1 is unlimited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from msgspec import DecodeError, Meta, Struct, json

from pykai.config.fields import FieldError, converted
from pykai.kernels.fairshare import UNLIMITED, Floats, QueueColumns, divide_level
from pykai.objects.units import parse_timestamp

_TOTALS = {"cpu": "CPU", "memory": "Memory", "gpu": "GPU"}
RESOURCES = tuple(_TOTALS)
"""In the row order of the kernel."""
_BOUNDS = {"deserved": "deserved", "max_allowed": "maxAllowed"}
_AMOUNTS = {"fair_share": "fairShare", "over_quota_weight": "overQuotaWeight", "request": "request"}


class _Share(Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """One resource of one queue."""

    deserved: float = 0.0
    fair_share: float = 0.0
    max_allowed: float = UNLIMITED
    over_quota_weight: float = 1.0
    request: float = 100_000.0
    # Accepted for compatibility with KAI; the division ignores them.
    allocated: float = 0.0
    allocated_not_preemptible: float = 0.0
    absolute_usage: Any = None
    vacant_adjusted_usage: Any = None


_DEFAULT_SHARES = {"cpu": _Share(deserved=UNLIMITED), "memory": _Share(deserved=UNLIMITED), "gpu": _Share()}
"""The defaults of a queue: unlimited quota of cpu and memory."""


class _Shares(Struct, frozen=True, forbid_unknown_fields=True):
    gpu: _Share | None = None
    cpu: _Share | None = None
    memory: _Share | None = None

    def of(self, resource: str) -> _Share:
        return getattr(self, resource) or _DEFAULT_SHARES[resource]


class _Queue(Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    uid: str
    name: str = ""
    parent_queue: str = ""
    child_queues: list[str] | None = None
    creation_timestamp: str | None = None
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] = 0
    resource_share: _Shares = _Shares()


class _Total(Struct, rename=_TOTALS, frozen=True, forbid_unknown_fields=True):
    cpu: float = 0.0
    memory: float = 0.0
    gpu: float = 0.0


class _Request(Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    total_resource: _Total
    queues: list[_Queue]


def simulated(body: bytes, now: float) -> dict[str, dict[str, float]]:
    """Return the fair shares of all queues in a request, by uid; FieldError names the invalid field.

    `now` (seconds since the epoch) is the default creation time of queues.
    """
    request = _read(body)
    if not request.queues:
        return {}
    total = np.array([getattr(request.total_resource, name) for name in RESOURCES])
    fair = divide_level(total, _columns(request.queues, now), 0.0, _column(request.queues, "fair_share"))
    return {
        queue.uid: {name: float(fair[RESOURCES.index(name), row]) for name in ("gpu", "cpu", "memory")}
        for row, queue in enumerate(request.queues)
    }


def _read(body: bytes) -> _Request:
    try:
        document = json.decode(body)
    except (DecodeError, UnicodeDecodeError) as error:
        raise FieldError("", f"not JSON: {error}") from error
    request = converted(_without_nulls(document), _Request)
    for path, message in _problems(request):
        raise FieldError(path, message)
    return request


def _without_nulls(part: Any) -> Any:
    """Return the part without null values, which web pages send for empty fields."""
    if isinstance(part, dict):
        return {name: _without_nulls(value) for name, value in part.items() if value is not None}
    return [_without_nulls(value) for value in part] if isinstance(part, list) else part


def _problems(request: _Request) -> Iterator[tuple[str, str]]:
    for attribute, name in _TOTALS.items():
        if (amount := getattr(request.total_resource, attribute)) < 0:
            yield f"totalResource.{name}", f"{amount:g} is negative"
    uids = [queue.uid for queue in request.queues]
    for number, queue in enumerate(request.queues):
        path = f"queues[{number}]"
        if not queue.uid or uids.index(queue.uid) < number:
            yield f"{path}.uid", f"{queue.uid!r} is given twice" if queue.uid else "is empty"
        for name in RESOURCES:
            yield from _wrong_amounts(queue.resource_share.of(name), f"{path}.resourceShare.{name}")


def _wrong_amounts(share: _Share, path: str) -> Iterator[tuple[str, str]]:
    for attribute, name in _BOUNDS.items():
        amount = getattr(share, attribute)
        if amount < 0 and amount != UNLIMITED:
            yield f"{path}.{name}", f"{amount:g} is negative (-1 means unlimited)"
    for attribute, name in _AMOUNTS.items():
        if getattr(share, attribute) < 0:
            yield f"{path}.{name}", f"{getattr(share, attribute):g} is negative"


def _columns(queues: Sequence[_Queue], now: float) -> QueueColumns:
    order = {uid: rank for rank, uid in enumerate(sorted(queue.uid for queue in queues))}
    made = [parse_timestamp(queue.creation_timestamp) for queue in queues]
    return QueueColumns(
        deserved=_column(queues, "deserved"),
        limit=_column(queues, "max_allowed"),
        weight=_column(queues, "over_quota_weight"),
        request=_column(queues, "request"),
        usage=np.zeros((len(RESOURCES), len(queues))),
        priority=np.array([queue.priority for queue in queues]),
        creation=np.array([now if instant is None else instant for instant in made]),
        rank=np.array([order[queue.uid] for queue in queues]),
    )


def _column(queues: Sequence[_Queue], attribute: str) -> Floats:
    """Return one attribute of every share, [resource, queue]."""
    return np.array([[getattr(queue.resource_share.of(name), attribute) for queue in queues] for name in RESOURCES])
