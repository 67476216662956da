"""The answer of admission, and the one way a rule says no.

Rules raise `RefusedError` with the text the user will read; the public functions of this package turn it into a
`Verdict` at one place each, so nothing an object contains escapes as an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec

PatchOperation = dict[str, Any]
Parameters = ParamSpec("Parameters")


class RefusedError(Exception):
    """A rule is broken; `warnings` go to the user beside the message."""

    def __init__(self, message: str, warnings: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.warnings = warnings


@dataclass(frozen=True)
class Verdict:
    """Whether an object is admitted, why not, what to tell the user, and how to change the object (JSON patch)."""

    allowed: bool = True
    message: str = ""
    warnings: tuple[str, ...] = ()
    patch: tuple[PatchOperation, ...] = ()


def judged(rule: Callable[Parameters, Verdict]) -> Callable[Parameters, Verdict]:
    """The rule with `RefusedError` turned into a denial."""

    @wraps(rule)
    def judge(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Verdict:
        try:
            return rule(*args, **kwargs)
        except RefusedError as refusal:
            return Verdict(False, refusal.message, refusal.warnings)

    return judge
