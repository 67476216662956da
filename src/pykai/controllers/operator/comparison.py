"""Whether a live object is what it should be, and whether it is ours to change.

A live object agrees when every field we set has our value; what the server or others added does not count. Fields that
we no longer set are noticed by a fingerprint of the whole wanted object, which it carries in an annotation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from pykai.objects import units

Object = dict[str, Any]
FINGERPRINT: Final = "kai.scheduler/applied"
_AMOUNTS = frozenset({"requests", "limits"})
_OWNERS = frozenset({"Config", "SchedulingShard"})
_GROUP = "kai.scheduler/"
_FOR_LIFE: Final = {
    "Deployment": ("spec", "selector"),
    "DaemonSet": ("spec", "selector"),
    "Service": ("spec", "clusterIP"),
    "Secret": ("type",),
    "EndpointSlice": ("addressType",),
}


def fingerprinted(wanted: Object) -> Object:
    """The wanted object with its fingerprint."""
    text = json.dumps(wanted, sort_keys=True, separators=(",", ":"))
    print_ = hashlib.sha256(text.encode()).hexdigest()[:16]
    metadata = wanted["metadata"]
    annotations = {**(metadata.get("annotations") or {}), FINGERPRINT: print_}
    return {**wanted, "metadata": {**metadata, "annotations": annotations}}


def agrees(live: Any, wanted: Any, key: str = "") -> bool:
    """Whether everything wanted is there; nothing and empty mean the same, amounts are compared as amounts."""
    if isinstance(wanted, Mapping):
        given = live if isinstance(live, Mapping) else {}
        if key in _AMOUNTS:
            return given.keys() == wanted.keys() and all(_same_amount(given[name], wanted[name]) for name in wanted)
        return all(agrees(given.get(name), item, name) for name, item in wanted.items())
    if isinstance(wanted, list):
        present = live if isinstance(live, list) else []
        return len(present) == len(wanted) and all(map(agrees, present, wanted))
    return bool(live == wanted) or (wanted == "" and live is None)


def _same_amount(one: Any, other: Any) -> bool:
    try:
        return units.parse_quantity(one) == units.parse_quantity(other)
    except ValueError:
        return bool(one == other)


def ours(live: Object) -> bool:
    """Whether an operator made this object, ours or KAI's: a Config or a shard is its owner.

    The label does not tell: Kubernetes copies the labels of a Service to the endpoints that it makes for it.
    """
    owners = live["metadata"].get("ownerReferences") or ()
    return any(
        owner.get("controller") and owner["kind"] in _OWNERS and owner["apiVersion"].startswith(_GROUP)
        for owner in owners
    )


def adoptable(live: Object) -> bool:
    """Whether this object, which no operator made, is to become ours: a lease that replicas made for themselves."""
    return live["kind"] == "Lease" and not live["metadata"].get("ownerReferences")


def must_be_made_anew(live: Object, wanted: Object) -> bool:
    """Whether the server would refuse the change, because it is to a field that stays for an object's life."""
    path = _FOR_LIFE.get(wanted["kind"])
    if path is None:
        return False
    asked = _at(wanted, path)
    return asked is not None and asked != _at(live, path)


def _at(item: Object, path: tuple[str, ...]) -> Any:
    value: Any = item
    for name in path:
        value = (value or {}).get(name)
    return value
