"""Label and field selectors in the server's syntax, compiled to predicates.

An absent label satisfies `!=` and `notin`, as on the server; a field the server does not index is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pykai.kube.api import Object, Resource
from pykai.kube.errors import BadRequest

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=|>|<)\s*([-A-Za-z0-9_.]*)")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")

EVERY_KIND_FIELDS = ("metadata.name", "metadata.namespace")
FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "jobs.batch": ("status.successful",),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}


def labels_matching(selector: str) -> LabelTest:
    """The test for a selector such as `app=web,tier in (a,b),!old`; an empty selector matches everything."""
    tests = [_requirement(part.strip()) for part in re.split(r",(?![^(]*\))", selector) if part.strip()]
    return lambda labels: all(test(labels) for test in tests)


def _requirement(text: str) -> LabelTest:
    if match := _SET.fullmatch(text):
        key, operator, values = match.groups()
        return _expression(key, "In" if operator == "in" else "NotIn", [value.strip() for value in values.split(",")])
    if match := _EXISTS.fullmatch(text):
        return _expression(match[2], "DoesNotExist" if match[1] else "Exists", [])
    if match := _EQUAL.fullmatch(text):
        key, operator, value = match.groups()
        return _expression(key, {"!=": "NotIn", ">": "Gt", "<": "Lt"}.get(operator, "In"), [value])
    raise BadRequest(f"unable to parse requirement: {text!r} is not a label selector")


def _expression(key: str, operator: str, values: list[str]) -> LabelTest:
    tests: dict[str, LabelTest] = {
        "In": lambda labels: key in labels and labels[key] in values,
        "NotIn": lambda labels: key not in labels or labels[key] not in values,
        "Exists": lambda labels: key in labels,
        "DoesNotExist": lambda labels: key not in labels,
        "Gt": lambda labels: _number(labels.get(key)) > _number(values[0]),
        "Lt": lambda labels: _number(labels.get(key)) < _number(values[0]),
    }
    if operator not in tests:
        raise BadRequest(f"{operator!r} is not a valid label selector operator")
    return tests[operator]


def _number(text: str | None) -> float:
    """NaN, which compares false with everything, for what is not an integer."""
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else float("nan")


def fields_matching(selector: str, resource: Resource) -> Callable[[Object], bool] | None:
    """The test for a selector such as `spec.nodeName=n1`; None where there is nothing to test."""
    allowed = EVERY_KIND_FIELDS + FIELDS.get(resource.qualified, ())
    wanted: list[tuple[list[str], str, bool]] = []
    for part in filter(None, (piece.strip() for piece in selector.split(","))):
        match = re.fullmatch(r"([A-Za-z.]+)\s*(==|=|!=)\s*(.*)", part)
        if match is None:
            raise BadRequest(f"invalid field selector {part!r}")
        if match[1] not in allowed:
            raise BadRequest(f"field label not supported: {match[1]}")
        wanted.append((match[1].split("."), match[3], match[2] != "!="))
    if not wanted:
        return None
    return lambda body: all((_field(body, path) == value) is equal for path, value, equal in wanted)


def _field(body: Object, path: list[str]) -> str:
    value: Any = body
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, bool) or value is None:
        return "true" if value else ("false" if path[-1] in {"unschedulable", "hostNetwork"} else "")
    return str(value)
