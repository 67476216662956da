"""Node selectors of slices and allocations: which nodes reach a device. Terms are alternatives, all of a term holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Terms = Mapping[str, Any]
"""A v1 NodeSelector: `nodeSelectorTerms` with `matchExpressions` and `matchFields`."""


def _beyond(value: str | None, values: Sequence[str], sign: int) -> bool:
    """Whether a label is a number above (sign 1) or below (sign -1) the one that is given."""
    try:
        return sign * int(value or "") > sign * int("".join(values[:1]))
    except ValueError:
        return False


_OPERATORS: dict[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _beyond(value, values, 1),
    "Lt": lambda value, values: _beyond(value, values, -1),
}


def selector_matches(selector: Terms, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node has what some term of the selector asks for; an empty term matches nothing."""
    return any(_term(term, name, labels) for term in selector.get("nodeSelectorTerms") or ())


def _term(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return _all(expressions, labels) and _all(fields, {"metadata.name": name})


def _all(expressions: Iterable[Mapping[str, Any]], found: Mapping[str, str]) -> bool:
    return all(
        _OPERATORS[e.get("operator", "")](found.get(e.get("key", "")), e.get("values") or ())
        if e.get("operator") in _OPERATORS
        else False
        for e in expressions
    )


def only_node(name: str) -> dict[str, Any]:
    """The selector of exactly one node."""
    return {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}


def together(selectors: Sequence[Terms]) -> dict[str, Any] | None:
    """One term that asks for what the first term of each selector asks for; None where there is nothing to ask."""
    term: dict[str, list[Any]] = {}
    for selector in selectors:
        first = (selector.get("nodeSelectorTerms") or [{}])[0]
        for part in ("matchExpressions", "matchFields"):
            new = [e for e in first.get(part) or () if e not in term.get(part, ())]
            if new:
                term.setdefault(part, []).extend(new)
    return {"nodeSelectorTerms": [term]} if term else None
