"""Why a gang is pending, as data, and the texts of conditions and events, which are KAI's, rendered from it.

Every reason has a token, and tokens have categories (`CATEGORIES`): of several reasons of a gang the one with the first
category dominates. The result of an action for one gang is an `Outcome`, shared by all equivalent gangs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pykai.engine.queues import OVER_LIMIT, OVER_QUOTA, OverCapacity
from pykai.model.plan import Category

NO_NODES = "no nodes with enough resources were found"
GROUP_BASE = "Unable to schedule podgroup"
POD_ERRORS = "PodSchedulingErrors"
ALL_CONSIDERED = "taking all considerations into account"
QUEUE_MISSING = "QueueDoesNotExist"
PREEMPTION_DELAY = "PreemptionDelayNotElapsed"


class Token(StrEnum):
    """Kinds of reasons given by anything but searches for victims."""

    QUEUE_HAS_CHILDREN = "QueueHasChildren"
    NO_SUB_GROUP = "SubGroupDoesNotExist"
    NO_TOPOLOGY = "TopologyDoesNotExist"
    MISSING_OBJECT = "ReferencedObjectMissing"
    REFUSED = "PodRefused"
    CLAIM = "ResourceClaimNotReady"
    NO_MATCH = "NoMatchingNodes"
    PODS_MISSING = "PodsMissing"
    GATED = "SchedulingGated"
    TOO_LARGE = "TooLargeForEveryNode"
    SHORT = "InsufficientResources"
    GANG_SHORT = "GangDoesNotFit"
    TOPOLOGY = "TopologyTooNarrow"
    NOT_REACHED = "QueueDepthReached"
    REST = "RestTriedNextCycle"
    UNKNOWN = "Unschedulable"


class SearchToken(StrEnum):
    """Results of a search for victims; codes are prefixed with the name of the action."""

    AT_FAIR_SHARE = "QueueAtFairShare"
    OVER_QUOTA = "OverQueueQuota"
    NO_VICTIMS = "NoEligibleVictims"
    PROTECTED = "VictimsProtected"
    NO_SOLUTION = "NoSolutionFound"
    BUDGET_SPENT = "SearchBudgetSpent"
    BACKOFF = "SearchBackoff"
    NOT_ATTEMPTED = "NotAttempted"
    DISABLED = "Disabled"
    INSUFFICIENT_GPUS = "InsufficientGPUs"
    NOT_PREEMPTIBLE = "NotPreemptible"
    DELAYED = "DelayNotElapsed"


AT_FAIR_SHARE = f"Reclaim{SearchToken.AT_FAIR_SHARE}"
DESCRIPTIONS: Mapping[str, str] = {
    Token.QUEUE_HAS_CHILDREN: "workloads belong to a queue without children",
    Token.NO_SUB_GROUP: "a pod names a sub-group that its PodGroup does not have",
    Token.NO_TOPOLOGY: "the topology, or the level of it that is required, does not exist",
    Token.MISSING_OBJECT: "a ConfigMap, claim or volume that the pod needs does not exist",
    Token.REFUSED: "a plugin refuses the pod",
    Token.CLAIM: "a resource claim does not exist, or cannot be allocated",
    Token.NO_MATCH: "no node has the labels, taints or conditions that the pod demands",
    Token.PODS_MISSING: "fewer pods exist than the gang needs",
    Token.GATED: "pods have scheduling gates",
    Token.TOO_LARGE: "a pod requests more than any node has when it is empty",
    Token.SHORT: "no node has enough free",
    Token.GANG_SHORT: "there is room for some of the gang's pods, but not for all it needs",
    Token.TOPOLOGY: "no domain of the required level has room for the gang",
    Token.NOT_REACHED: "the action considers only the first workloads of each queue",
    Token.REST: "the gang got a place in this cycle, and its other pods are tried in the next",
    Token.UNKNOWN: "the gang got no turn",
    SearchToken.AT_FAIR_SHARE: "the queue would exceed its fair share: it may not reclaim from others",
    SearchToken.OVER_QUOTA: "non-preemptible work would exceed the quota of its queue",
    SearchToken.NO_VICTIMS: "there is nothing that may be evicted for the workload, or not enough",
    SearchToken.PROTECTED: "what could be evicted is protected for some time",
    SearchToken.NO_SOLUTION: "no evictions that are allowed make enough room",
    SearchToken.BUDGET_SPENT: "the time for searches was spent; the search goes on in the next cycle",
    SearchToken.BACKOFF: "the last search found nothing; the next one is made later (minFailedSearchBackoff)",
    SearchToken.NOT_ATTEMPTED: "no search was made for the workload",
    SearchToken.DISABLED: "the action is switched off",
    SearchToken.INSUFFICIENT_GPUS: "fewer GPUs are free in all than the workload requests",
    SearchToken.NOT_PREEMPTIBLE: "workloads move only for preemptible ones",
    SearchToken.DELAYED: "the workload may not cause evictions yet",
}
"""The meaning of tokens, those of searches without prefix. KAI's own codes are missing: their messages explain them."""
SEARCHES = ("Consolidation", "Reclaim", "Preempt")


def described(code: str) -> str:
    """Return the meaning of a code without figures, so that it does not change from cycle to cycle; empty: unknown."""
    suffix = next((code.removeprefix(name) for name in SEARCHES if code.startswith(name)), code)
    return DESCRIPTIONS.get(suffix, "")


CATEGORIES: Mapping[str, Category] = {
    QUEUE_MISSING: Category.MISCONFIGURED,
    Token.QUEUE_HAS_CHILDREN: Category.MISCONFIGURED,
    Token.NO_SUB_GROUP: Category.MISCONFIGURED,
    Token.NO_TOPOLOGY: Category.MISCONFIGURED,
    Token.MISSING_OBJECT: Category.MISCONFIGURED,
    Token.REFUSED: Category.MISCONFIGURED,
    Token.NO_MATCH: Category.MISCONFIGURED,
    Token.PODS_MISSING: Category.NOT_READY,
    Token.GATED: Category.NOT_READY,
    Token.CLAIM: Category.NOT_READY,
    Token.TOO_LARGE: Category.NEVER_FITS,
    OVER_LIMIT: Category.QUEUE_POLICY,
    OVER_QUOTA: Category.QUEUE_POLICY,
    Token.NOT_REACHED: Category.QUEUE_POLICY,
    AT_FAIR_SHARE: Category.QUEUE_POLICY,
    Token.TOPOLOGY: Category.SHORTAGE,
    Token.GANG_SHORT: Category.SHORTAGE,
    Token.SHORT: Category.SHORTAGE,
    Token.REST: Category.SHORTAGE,
}
"""By token, in the order of precedence: of several reasons the first dominates. Other tokens never dominate."""
_RANKS = {token: place for place, token in enumerate(CATEGORIES)}


def rank(token: str) -> int:
    """Return the position of a token in the order of precedence; the smallest dominates."""
    return _RANKS.get(token, len(_RANKS))


class Outcome(NamedTuple):
    """The result of an action for a gang and for all gangs equivalent to it."""

    token: str
    message: str
    dominates: bool = False
    """Whether it may be the dominant reason, by the category of its token."""


@dataclass(frozen=True)
class NodeReason:
    """Why one node is infeasible for a pod: the reason, its figures, and a suffix to both."""

    text: str
    figures: str = ""
    """Empty where the reason has none."""
    suffix: str = ""

    def rendered(self, alone: bool) -> str:
        """Return the text. Without `alone`, for a gang of several pods, figures are left out: they differ by pod."""
        figures = self.figures and (self.figures if alone else ALL_CONSIDERED)
        return self.text + (f", {figures}" if figures else "") + self.suffix


@dataclass(frozen=True)
class FitError:
    """Why no node is feasible for a pod: node counts by reason and, if detailed errors are on, the reasons by node."""

    counts: Mapping[str, int]
    by_node: Mapping[str, tuple[NodeReason, ...]] = field(default_factory=dict)
    base: str = NO_NODES

    def text(self) -> str:
        reasons = sorted(f"{count} {reason}" for reason, count in self.counts.items())
        return self.base + (": " + ". \n".join(reasons) + "." if reasons else "")

    def detailed(self, alone: bool) -> str:
        """Return a text with one line per node; `alone`: the gang has no other pod."""
        texts = {
            node: ", ".join(reason.rendered(alone) for reason in reasons) for node, reasons in self.by_node.items()
        }
        return f"\n{self.base}." + "".join(sorted(f"\n{node}: {reasons}." for node, reasons in texts.items()))


@dataclass(frozen=True)
class GangError:
    """One reason why a gang is pending; `capacity`: the limit or quota that it would exceed."""

    reason: str
    message: str
    capacity: OverCapacity | None = None
    node_group: str = ""
    token: str = ""
    """Finer than the reason; empty: the reason is the token."""
    fit: tuple[int, int] = (0, 0)
    """For how many pods of the gang nodes were found, and how many it needs; (0, 0): not counted."""
    gist: str = ""
    """What dominates in the message, where that counts nodes that are short of resources first; empty: the message."""


@dataclass
class Reasons:
    """The reasons collected in a cycle for pods and gangs that stay pending."""

    pods: dict[int, str] = field(default_factory=dict)
    gangs: dict[int, list[GangError]] = field(default_factory=dict)
    outcomes: dict[str, dict[int, Outcome]] = field(default_factory=dict)
    """Action -> gang -> the result of the action."""
    passed_over: dict[str, Outcome] = field(default_factory=dict)
    """Action -> why gangs without an outcome got no turn."""

    def gang(self, gang: int, *errors: GangError) -> None:
        """Add errors of a gang, without duplicates."""
        if errors:
            known = self.gangs.setdefault(gang, [])
            seen = set(known)
            known.extend(error for error in dict.fromkeys(errors) if error not in seen)

    def found(self, action: str, gangs: Iterable[int], outcome: Outcome) -> None:
        """Set the outcome of an action for these gangs."""
        self.outcomes.setdefault(action, {}).update(dict.fromkeys(gangs, outcome))

    def forget(self, gang: int) -> None:
        self.gangs.pop(gang, None)


def about_pod(title: str, text: str) -> str:
    """Return the text of a gang one of whose pods could not be placed."""
    return f"Resources were not found for pod {title} due to: {text}"


def gang_text(errors: list[GangError]) -> str:
    """Return one line per distinct message, with a count where it is repeated."""
    if len(errors) == 1:
        return _ended(f"{errors[0].reason}: {errors[0].message}")
    counted = Counter(error.message for error in errors)
    lines = sorted(message if n == 1 else f"{n} {message}" for message, n in counted.items())
    return _ended(f"{GROUP_BASE}: " + ". \n".join(line.removesuffix(".") for line in lines))


def _ended(text: str) -> str:
    """Return the text with one full stop at its end."""
    return text if text.endswith(".") else f"{text}."
