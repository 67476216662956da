"""`scenarioSearchBudgets`: how long KAI may search for victims.

pykai bounds the search by counts (`engine.policy.SearchLimits`), so that a plan depends on its input and not on how
fast the machine is. The times are therefore only checked: a file that KAI refuses is refused here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykai.config.fields import FieldError
from pykai.objects import duration

PATH = "scenarioSearchBudgets"
_PER_KEY: dict[str, tuple[str, ...]] = {
    "maxActionSearchDuration": ("default", "reclaim", "preempt", "consolidation"),
    "maxGeneratorSearchDuration": ("default", "NodeLocalGreedy", "MultiNodeGang"),
}
_SINGLE = ("maxJobSearchDuration", "minJobSearchDuration")


def check(budgets: Mapping[str, Any]) -> None:
    """Refuse what is not a set of budgets; FieldError names the field."""
    for field, value in budgets.items():
        if field in _SINGLE:
            _seconds(f"{PATH}.{field}", value)
        elif field in _PER_KEY:
            _check_map(field, value)
        else:
            raise FieldError(PATH, f"unknown field {field!r}")
    least, most = (_seconds(f"{PATH}.{name}", budgets.get(name, "0")) for name in reversed(_SINGLE))
    if most and least >= most:
        raise FieldError(PATH, "minJobSearchDuration must be less than maxJobSearchDuration")


def _check_map(field: str, value: object) -> None:
    path, keys = f"{PATH}.{field}", _PER_KEY[field]
    if not isinstance(value, Mapping):
        raise FieldError(path, "expected a map")
    for key, text in value.items():
        if key not in keys:
            raise FieldError(path, f"contains invalid key {key!r}; valid keys: {', '.join(keys)}")
        _seconds(f"{path}.{key}", text)


def _seconds(path: str, value: object) -> float:
    """A duration; a bare number is nanoseconds, as snapshot files have them."""
    try:
        seconds = value / 1e9 if isinstance(value, int) else duration.parse(str(value))
    except duration.DurationError as error:
        raise FieldError(path, str(error)) from error
    if seconds < 0:
        raise FieldError(path, "must be non-negative")
    return seconds
