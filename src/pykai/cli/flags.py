"""Flags of components as tables: one row per flag, from which the command line, its help and its checks are made.

The names and defaults are those users of KAI have in their charts and scripts, and they are written as those programs
take them: `--leader-elect`, `--leader-elect=false`, `--qps=50`. A flag that means nothing to this program is accepted,
because scripts contain it, and its use is answered with a line in the log that says so.

A check says what is wrong with a value that has the flag's type, and nothing where it is well. The operator makes the
same checks before it starts a component, so a wrong value never stops what runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from pykai.objects import names, units

F = TypeVar("F", bound=Callable[..., Any])
Scalar = str | int | float | bool
Check = Callable[[Any], str]
_METRIC_PREFIX = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_METRIC_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_LARGEST_PORT = 65535


class InputError(click.ClickException):
    """The input of a command is wrong."""

    exit_code = 2


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


@dataclass(frozen=True)
class Flag:
    """One flag; the type of its value is that of its default.

    `unset`: whether it was given matters, and None is passed when it was not. `ineffective` says why it does nothing.
    `one_dash`: it may be written `-name` as well. `check` says what is wrong with a value that has the type.
    """

    name: str
    default: Scalar
    help: str
    unset: bool = False
    ineffective: str = ""
    one_dash: bool = False
    check: Check = anything

    @property
    def parameter(self) -> str:
        """The name of the Python parameter."""
        return self.name.replace("-", "_")

    def option(self) -> Callable[[F], F]:
        """The flag as an option of a click command."""
        text = f"No effect: {self.ineffective}." if self.ineffective else self.help
        given: dict[str, Any] = {"type": type(self.default), "help": text, "hidden": bool(self.ineffective)}
        given["callback"] = self._checked
        if isinstance(self.default, bool):
            given |= {"is_flag": False, "flag_value": "true", "metavar": "[=BOOLEAN]"}
        if not self.unset:
            given |= {"default": self.default, "show_default": self.default != ""}
        spellings = [f"--{self.name}", *([f"-{self.name}"] if self.one_dash else [])]
        return click.option(*spellings, self.parameter, **given)

    def _checked(self, ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        check = number if self.check is anything and isinstance(value, float) else self.check
        if value is not None and (wrong := check(value)):
            raise click.BadParameter(wrong)
        return value


def takes(*tables: Iterable[Flag]) -> Callable[[F], F]:
    """A decorator: the command takes the flags of these tables, in this order; a name in two tables is an error."""
    flags = [flag for table in tables for flag in table]
    names = [flag.name for flag in flags]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"flag {sorted(twice)[0]} stands in two tables")

    def decorate(command: F) -> F:
        for flag in reversed(flags):
            command = flag.option()(command)
        return command

    return decorate


def warn_ineffective(flags: Iterable[Flag], given: Mapping[str, Any]) -> None:
    """Say in the log which of the given flags do nothing, and why."""
    import structlog  # costs more than all flags together, and help needs none of it

    log = structlog.get_logger("flags")
    for flag in flags:
        if flag.ineffective and given.get(flag.parameter) not in (None, flag.default):
            log.warning("flag has no effect", flag=f"--{flag.name}", why=flag.ineffective)


def pairs(text: str, flag: str) -> dict[str, str]:
    """`k=v,k2=v2` as a map; a part without `=` is refused, naming the flag."""
    found: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{part!r} is not of the form key=value", param_hint=f"--{flag}")
        found[key.strip()] = value.strip()
    return found


def client(burst: int) -> tuple[Flag, ...]:
    """How the API server is reached, and how often unless the flags say otherwise."""
    return (
        Flag(
            "kubeconfig", "", "Path of a kubeconfig; without it $KUBECONFIG, the pod's service account, ~/.kube/config."
        ),
        Flag("qps", 50.0, "Requests to the API server a second over time; 0 or less is no limit."),
        Flag("burst", burst, "Requests to the API server at once.", check=at_least(1)),
    )


CLIENT = client(burst=300)


def sharing_mode(text: str) -> str:
    """A GPU sharing mode, or none."""
    known = ", ".join(names.SHARING_MODES)
    return "" if text in ("", *names.SHARING_MODES) else f"{text!r} is no GPU sharing mode; known are {known}"


SHARING_MODE = Flag(
    "gpu-sharing-mode",
    "",
    f"How pods share GPUs: {', '.join(names.SHARING_MODES)}; empty: as other flags say.",
    check=sharing_mode,
)
BY_CONFIG_MAP = (names.NON_MEMORY_ENFORCED, names.HAMI_CORE)
"""Modes in which containers learn their devices from ConfigMaps."""
LOGS = (
    Flag("zap-devel", True, "Log for people; false logs JSON."),
    Flag("zap-log-level", "", "Least level to log: debug, info, error, or a number (larger is more).", unset=True),
    Flag("zap-encoder", "", "Form of log lines: console or json.", unset=True),
    Flag("zap-stacktrace-level", "", "", ineffective="traces are logged with the errors that have them", unset=True),
    Flag("zap-time-encoding", "", "", ineffective="times are ISO 8601", unset=True),
)
SERVERS = (
    Flag("metrics-bind-address", ":8080", "Where /metrics is served; 0 for nowhere.", check=address),
    Flag(
        "health-probe-bind-address",
        ":8081",
        "Where /healthz and /readyz are served; 0 for nowhere.",
        check=address,
    ),
)
ELECTION = (Flag("leader-elect", False, "Work only while holding the lease, so that one of several replicas does."),)
WORKERS = (Flag("max-concurrent-reconciles", 10, "How many objects are worked on at once.", check=at_least(1)),)
