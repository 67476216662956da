"""Structured logging of components to standard error, one line per event, as text or JSON.

Fields have fixed names (`pod=team-a/train-0`, `node=...`, `gpus=...`), so that a search for a pod finds its lines; each
line names the component. Libraries log through the same handlers.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

DEFAULT_VERBOSITY = 3
_WIDTH = 40


def set_up(verbosity: int = DEFAULT_VERBOSITY, as_json: bool = False, stream: TextIO | None = None) -> None:
    """Configure logging to `stream` (standard error if None), with the verbosity of KAI's `--v`.

    0 and 1 log warnings; 2 and 3 also actions taken; 4 and more also considered ones.
    """
    level, target = level_of(verbosity), stream or sys.stderr
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    context = structlog.contextvars.merge_contextvars
    processors: list[Processor] = [context, _add_component, structlog.processors.add_log_level, stamp]
    if as_json:
        json = structlog.processors.JSONRenderer()
        processors += [_capital_level, structlog.processors.format_exc_info, json]
    else:
        plain, colors = structlog.dev.plain_traceback, target.isatty()
        processors.append(
            structlog.dev.ConsoleRenderer(
                colors=colors, pad_event_to=_WIDTH, sort_keys=False, exception_formatter=plain
            )
        )
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda name="": _ComponentLogger(target, name),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[_LibraryHandler()], force=True)


def collect_errors() -> list[str]:
    """Configure logging to drop all lines but collect errors in the returned list."""
    errors: list[str] = []

    def keep(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        error = event.pop("exc_info", None)
        fields = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
        errors.append(" ".join(filter(None, (str(event["event"]), fields, repr(error) if error else ""))))
        raise structlog.DropEvent

    structlog.configure(
        processors=[keep],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        cache_logger_on_first_use=False,
    )
    return errors


class _ComponentLogger(structlog.PrintLogger):
    """The logger of a component; `name`: the component."""

    def __init__(self, target: TextIO, name: str) -> None:
        super().__init__(target)
        self.name = name


class _LibraryHandler(logging.Handler):
    """Handler for log records of libraries."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record in our format."""
        structlog.get_logger(record.name).log(record.levelno, record.getMessage(), exc_info=record.exc_info)


def level_of(verbosity: int) -> int:
    """Return the lowest level that is logged at this verbosity."""
    if verbosity <= 1:
        return logging.WARNING
    return logging.INFO if verbosity <= DEFAULT_VERBOSITY else logging.DEBUG


def _add_component(logger: WrappedLogger, _: str, event: EventDict) -> EventDict:
    name = getattr(logger, "name", "")
    return {"component": name, **event} if name and "component" not in event else event


def _capital_level(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    event["level"] = str(event["level"]).upper()
    return event
