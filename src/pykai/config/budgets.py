"""`scenarioSearchBudgets`: how long a search for victims may take, as `engine.budgets.SearchBudgets` and back.

What KAI refuses is refused here, too. Durations are Go's; a bare number is nanoseconds, as snapshot files have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykai.config.fields import FieldError
from pykai.engine.budgets import DEFAULT, GENERATOR_SECONDS, SEARCHING, SearchBudgets
from pykai.objects import duration

PATH = "scenarioSearchBudgets"
_ACTIONS, _GENERATORS = "maxActionSearchDuration", "maxGeneratorSearchDuration"
_JOB, _LEAST_JOB = "maxJobSearchDuration", "minJobSearchDuration"
_MAPS: dict[str, tuple[str, ...]] = {
    _ACTIONS: (DEFAULT, *SEARCHING),
    _GENERATORS: tuple(GENERATOR_SECONDS),
}
_OF_FIELD = {_JOB: "job", _LEAST_JOB: "least_job"}


def read(document: Mapping[str, Any]) -> SearchBudgets:
    """The budgets of a configuration; FieldError names the field that is wrong."""
    for name in document:
        if name not in _MAPS and name not in _OF_FIELD:
            raise FieldError(PATH, f"unknown field {name!r}")
    single = {_OF_FIELD[name]: _seconds(f"{PATH}.{name}", document[name]) for name in _OF_FIELD if name in document}
    budgets = SearchBudgets(actions=_map(document, _ACTIONS), generators=_map(document, _GENERATORS), **single)
    if budgets.job and budgets.least_job >= budgets.job:
        raise FieldError(PATH, f"{_LEAST_JOB} must be less than {_JOB}")
    return budgets


def document(budgets: SearchBudgets) -> dict[str, Any]:
    """The budgets as a configuration says them."""
    return {
        _ACTIONS: {action: duration.render(seconds) for action, seconds in budgets.actions.items()},
        _JOB: duration.render(budgets.job),
        _LEAST_JOB: duration.render(budgets.least_job),
        _GENERATORS: {generator: duration.render(seconds) for generator, seconds in budgets.generators.items()},
    }


def _map(given: Mapping[str, Any], name: str) -> dict[str, float]:
    path, keys, value = f"{PATH}.{name}", _MAPS[name], given.get(name, {})
    if not isinstance(value, Mapping):
        raise FieldError(path, "expected a map")
    for key in value:
        if key not in keys:
            raise FieldError(path, f"contains invalid key {key!r}; valid keys: {', '.join(keys)}")
    return {key: _seconds(f"{path}.{key}", text) for key, text in value.items()}


def _seconds(path: str, value: object) -> float:
    try:
        seconds = value / 1e9 if isinstance(value, int) and not isinstance(value, bool) else duration.parse(str(value))
    except duration.DurationError as error:
        raise FieldError(path, str(error)) from error
    if seconds < 0:
        raise FieldError(path, "must be non-negative")
    return seconds
