"""What the value of a flag must be like, beside its type. A check says what is wrong with a value; nothing: it is well.

The operator asks the same checks before it starts a component, so a value that is wrong never stops what runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import click

from pykai.objects import units

Check = Callable[[Any], str]
_METRIC_PREFIX = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_METRIC_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_LARGEST_PORT = 65535


def anything(_: Any) -> str:
    """No check."""
    return ""


def number(value: float) -> str:
    """A number one can count with."""
    return "" if math.isfinite(value) else f"{value} is not a number to count with"


def no_nan(ctx: click.Context, param: click.Parameter, value: float) -> float:
    """The value of an option with a range, which nan passes because it compares with nothing."""
    if math.isnan(value):
        raise click.BadParameter("nan is not a number to count with")
    return value


def at_least(least: float) -> Check:
    """A number that is not smaller."""
    return lambda value: number(value) or ("" if value >= least else f"must be at least {least:g}, not {value:g}")


def time_at_least(least: float) -> Check:
    """A duration of at least so many seconds."""
    return lambda text: (
        _time_wrong(text) or ("" if units.parse_duration(text) >= least else f"must be at least {least:g}s")
    )


def time_above(bound: float) -> Check:
    """A duration of more than so many seconds."""
    return lambda text: (
        _time_wrong(text) or ("" if units.parse_duration(text) > bound else f"must be longer than {bound:g}s")
    )


def _time_wrong(text: str) -> str:
    try:
        units.parse_duration(text)
    except units.DurationError as error:
        return str(error)
    return ""


def port(value: int) -> str:
    """A port to listen on; 0 is a free one."""
    return "" if 0 <= value <= _LARGEST_PORT else f"{value} is not a port (0 to {_LARGEST_PORT})"


def address(text: str) -> str:
    """Where to listen."""
    from pykai.observe.http import AddressError, address_of  # not every command with flags listens

    try:
        address_of(text)
    except AddressError as error:
        return str(error)
    return ""


def metric_prefix(text: str) -> str:
    """The beginning of metrics' names."""
    if not text or _METRIC_PREFIX.fullmatch(text):
        return ""
    return f"{text!r} cannot begin the name of a metric (letters, digits and _, no digit first)"


def metric_labels(names: Mapping[str, str], taken: tuple[str, ...]) -> str:
    """Labels of metrics, each for one thing; `taken`: those there are already."""
    for at, name in enumerate(names.values()):
        if not _METRIC_LABEL.fullmatch(name):
            return f"{name!r} is not a label of a metric (letters, digits and _, no digit first)"
        if name in (*taken, *list(names.values())[:at]):
            return f"label {name!r} would be there twice"
    return ""
