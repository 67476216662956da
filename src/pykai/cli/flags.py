"""Flags of components as tables: each row declares a flag's name, default, help and validation.

Names, defaults and syntax (`--leader-elect`, `--leader-elect=false`, `--qps=50`) are those of KAI's components, so that
charts and scripts keep working. A flag of KAI that has no effect here is accepted, and its use is logged.

A check takes a value of the flag's type and returns an error message, empty if the value is valid. The operator runs
the same checks before it deploys a component, so an invalid value never takes down a running one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
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
    """The input of a command is invalid: exit code 2."""

    exit_code = 2


def accept_any(_: Any) -> str:
    """Accept every value."""
    return ""


def number(value: float) -> str:
    """Accept finite numbers."""
    return "" if math.isfinite(value) else f"{value} is not a finite number"


def no_nan(ctx: click.Context, param: click.Parameter, value: float) -> float:
    """Callback of a float option with a range: reject nan, which passes click's range check."""
    if math.isnan(value):
        raise click.BadParameter("nan is not a finite number")
    return value


def at_least(least: float) -> Check:
    """Return a check that accepts finite numbers of at least `least`."""
    return lambda value: number(value) or ("" if value >= least else f"must be at least {least:g}, not {value:g}")


def time_at_least(least: float) -> Check:
    """Return a check that accepts durations of at least this many seconds."""
    return lambda text: (
        _duration_error(text) or ("" if units.parse_duration(text) >= least else f"must be at least {least:g}s")
    )


def time_above(bound: float) -> Check:
    """Return a check that accepts durations longer than this many seconds."""
    return lambda text: (
        _duration_error(text) or ("" if units.parse_duration(text) > bound else f"must be longer than {bound:g}s")
    )


def _duration_error(text: str) -> str:
    try:
        units.parse_duration(text)
    except units.DurationError as error:
        return str(error)
    return ""


def port(value: int) -> str:
    """Accept a port to listen on; 0 picks a free port."""
    return "" if 0 <= value <= _LARGEST_PORT else f"{value} is not a port (0 to {_LARGEST_PORT})"


def address(text: str) -> str:
    """Accept a listen address such as `:8080`."""
    from pykai.observe.http import AddressError, address_of  # not every command with flags listens

    try:
        address_of(text)
    except AddressError as error:
        return str(error)
    return ""


def metric_prefix(text: str) -> str:
    """Accept a prefix of metric names."""
    if not text or _METRIC_PREFIX.fullmatch(text):
        return ""
    return f"{text!r} is not a valid prefix of metric names (letters, digits and _, no digit first)"


def metric_labels(names: Mapping[str, str], taken: tuple[str, ...]) -> str:
    """Check the values of the map as metric labels: valid, distinct, and none of `taken`."""
    for at, name in enumerate(names.values()):
        if not _METRIC_LABEL.fullmatch(name):
            return f"{name!r} is not a valid metric label (letters, digits and _, no digit first)"
        if name in (*taken, *list(names.values())[:at]):
            return f"label {name!r} is used twice"
    return ""


@dataclass(frozen=True)
class Flag:
    """One flag; its type is that of its default.

    `unset`: the value is None if the flag was not given. `ineffective`: why the flag has no effect. `one_dash`: the
    flag may be written `-name` as well. `check`: validates a value.
    """

    name: str
    default: Scalar
    help: str
    unset: bool = False
    ineffective: str = ""
    one_dash: bool = False
    check: Check = accept_any

    @property
    def parameter(self) -> str:
        """The name of the command's Python parameter."""
        return self.name.replace("-", "_")

    def option(self) -> Callable[[F], F]:
        """Return the flag as an option of a click command."""
        text = f"No effect: {self.ineffective}." if self.ineffective else self.help
        settings: dict[str, Any] = {"type": type(self.default), "help": text, "hidden": bool(self.ineffective)}
        settings["callback"] = self._validated
        if isinstance(self.default, bool):
            settings |= {"is_flag": False, "flag_value": "true", "metavar": "[=BOOLEAN]"}
        if not self.unset:
            settings |= {"default": self.default, "show_default": self.default != ""}
        spellings = [f"--{self.name}", *([f"-{self.name}"] if self.one_dash else [])]
        return click.option(*spellings, self.parameter, **settings)

    def _validated(self, ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        check = number if self.check is accept_any and isinstance(value, float) else self.check
        if value is not None and (problem := check(value)):
            raise click.BadParameter(problem)
        return value


def takes(*tables: Iterable[Flag]) -> Callable[[F], F]:
    """Return a decorator that adds the flags of these tables to a command, in order; duplicate names are an error."""
    flags = [flag for table in tables for flag in table]
    names = [flag.name for flag in flags]
    duplicates = {name for name in names if names.count(name) > 1}
    if duplicates:
        raise ValueError(f"flag {sorted(duplicates)[0]} is in two tables")

    def decorate(command: F) -> F:
        for flag in reversed(flags):
            command = flag.option()(command)
        return command

    return decorate


def warn_ineffective(flags: Iterable[Flag], values: Mapping[str, Any]) -> None:
    """Log a warning for each given flag that has no effect."""
    import structlog  # slow to import, and --help does not need it

    log = structlog.get_logger("flags")
    for flag in flags:
        if flag.ineffective and values.get(flag.parameter) not in (None, flag.default):
            log.warning("flag has no effect", flag=f"--{flag.name}", why=flag.ineffective)


@contextmanager
def reported_flag_errors(flag: str, *errors: type[Exception]) -> Iterator[None]:
    """Report these errors as a click.BadParameter that names the flag."""
    try:
        yield
    except errors as error:
        raise click.BadParameter(str(error), param_hint=f"--{flag}") from error


def pairs(text: str, flag: str) -> dict[str, str]:
    """Parse `k=v,k2=v2`; a part without `=` is a click.BadParameter that names the flag."""
    parsed: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{part!r} is not of the form key=value", param_hint=f"--{flag}")
        parsed[key.strip()] = value.strip()
    return parsed


def client(burst: int) -> tuple[Flag, ...]:
    """Return the flags of the API client: kubeconfig and rate limits."""
    return (
        Flag("kubeconfig", "", "Path of a kubeconfig; empty: $KUBECONFIG, the pod's service account, ~/.kube/config."),
        Flag("qps", 50.0, "Average requests to the API server per second; 0 or less: unlimited."),
        Flag("burst", burst, "Maximum burst of requests to the API server.", check=at_least(1)),
    )


CLIENT = client(burst=300)


def sharing_mode(text: str) -> str:
    """Accept a GPU sharing mode, or an empty text."""
    known = ", ".join(names.SHARING_MODES)
    return "" if text in ("", *names.SHARING_MODES) else f"{text!r} is not a GPU sharing mode; known are {known}"


SHARING_MODE = Flag(
    "gpu-sharing-mode",
    "",
    f"How pods share GPUs: {', '.join(names.SHARING_MODES)}; empty: set by other flags.",
    check=sharing_mode,
)
BY_CONFIG_MAP = (names.NON_MEMORY_ENFORCED, names.HAMI_CORE)
"""Modes in which containers read their devices from ConfigMaps."""
LOGS = (
    Flag("zap-devel", True, "Log text; false logs JSON."),
    Flag("zap-log-level", "", "Lowest level to log: debug, info, error, or a number (larger is more).", unset=True),
    Flag("zap-encoder", "", "Log format: console or json.", unset=True),
    Flag("zap-stacktrace-level", "", "", ineffective="every logged exception has its traceback", unset=True),
    Flag("zap-time-encoding", "", "", ineffective="times are ISO 8601", unset=True),
)
SERVERS = (
    Flag("metrics-bind-address", ":8080", "Address of /metrics; 0 disables it.", check=address),
    Flag("health-probe-bind-address", ":8081", "Address of /healthz and /readyz; 0 disables it.", check=address),
)
ELECTION = (Flag("leader-elect", False, "Run only while holding the lease: only one of several replicas is active."),)
WORKERS = (Flag("max-concurrent-reconciles", 10, "Maximum number of concurrent reconciles.", check=at_least(1)),)
