"""Whether a pod may be evicted: the disruption budgets that select it have the last word."""

from __future__ import annotations

from collections.abc import Iterable

from pykai.kube.api import Object
from pykai.kube.errors import ApiError, TooManyRequests
from pykai.kube.memory.pods import FINISHED
from pykai.kube.memory.selectors import selector_object_matches

CONDITION: Object = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
STILL_COUNTING_SECONDS = 10


def budget_for(pod: Object, budgets: Iterable[Object]) -> Object | None:
    """The budget an eviction is charged to, None if it needs none; TooManyRequests if the budget is spent."""
    if pod["status"].get("phase") in (*FINISHED, "Pending") or "deletionTimestamp" in pod["metadata"]:
        return None
    labels = pod["metadata"].get("labels") or {}
    own = [b for b in budgets if selector_object_matches((b.get("spec") or {}).get("selector"), labels)]
    if len(own) > 1:
        raise ApiError(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    if not own or _unready_and_exempt(pod, own[0]):
        return None
    _check(own[0])
    return own[0]


def charged(budget: Object) -> Object:
    """The budget after one more disruption."""
    status = budget["status"]
    return {**budget, "status": {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1}}


def _unready_and_exempt(pod: Object, budget: Object) -> bool:
    if any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or []):
        return False
    status = budget.get("status") or {}
    enough: bool = status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0
    return enough or budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"


def _check(budget: Object) -> None:
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _refusal(f"The disruption budget {name} is still being processed by the server.", STILL_COUNTING_SECONDS)
    if status.get("disruptionsAllowed", 0) <= 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _refusal(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently", 0)


def _refusal(why: str, wait_seconds: int) -> TooManyRequests:
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    if wait_seconds:
        details["retryAfterSeconds"] = wait_seconds
    return TooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", details=details)
