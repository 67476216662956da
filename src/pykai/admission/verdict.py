"""The result of admission, and how a rule denies an object.

Rules raise `DeniedError` with the message for the user; the public functions of this package convert it to an
`AdmissionVerdict` in one place each, so that no content of an object escapes as an exception.

An API server with our CRDs sends only valid objects; one without them, a simulator or a test may not. So `declared`
first checks an object against the schema of its kind, and rules can rely on the types of fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from msgspec import ValidationError, convert

from pykai.kube.api import Object
from pykai.objects.schema import DURATION_RULES, Definition, Kind, Schema
from pykai.objects.schema_validation import default, violations

PatchOperation = Object
Parameters = ParamSpec("Parameters")
K = TypeVar("K", bound=Kind)
_RULES = "x-kubernetes-validations"
_SCHEMAS: dict[str, Schema] = {}


class DeniedError(Exception):
    """A rule is violated; the user sees the message and the `warnings`."""

    def __init__(self, message: str, warnings: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.warnings = warnings


@dataclass(frozen=True)
class AdmissionVerdict:
    """Whether an object is admitted, the reason if not, warnings for the user, and the mutation (JSON patch).

    `warnings` are those of KAI, `advice` is pykai's own; the user sees both.
    """

    allowed: bool = True
    message: str = ""
    warnings: tuple[str, ...] = ()
    patch: tuple[PatchOperation, ...] = ()
    advice: tuple[str, ...] = ()


def judged(rule: Callable[Parameters, AdmissionVerdict]) -> Callable[Parameters, AdmissionVerdict]:
    """Return the rule with `DeniedError` converted to a denial."""

    @wraps(rule)
    def judge(*args: Parameters.args, **kwargs: Parameters.kwargs) -> AdmissionVerdict:
        try:
            return rule(*args, **kwargs)
        except DeniedError as refusal:
            return AdmissionVerdict(False, refusal.message, refusal.warnings)

    return judge


def declared(definition: Definition, kind: type[K], name: str, value: object) -> K:
    """Return the object decoded as its kind; deny it with the path of the first field that violates its schema.

    CEL rules are left to the API server, except the one for durations.
    """
    schema = _SCHEMAS.get(definition.name)
    if schema is None:
        schema = _SCHEMAS[definition.name] = _without_rules(definition.schema())
    try:
        complete = default(value, schema)
        for path, problem in violations(complete, schema):
            raise DeniedError(f"{name}.{path}: {problem}" if path else f"{name}: {problem}")
        return convert({"metadata": {}, **complete}, kind)
    except (ValidationError, UnicodeError, RecursionError, OverflowError) as misfit:
        raise DeniedError(f"{name}: {misfit}") from None


def _without_rules(schema: Schema) -> Schema:
    made = {key: value for key, value in schema.items() if key != _RULES or value == DURATION_RULES[_RULES]}
    if "properties" in made:
        made["properties"] = {name: _without_rules(field) for name, field in made["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), dict):
            made[name] = _without_rules(made[name])
    return made
