"""Why a gang waits, as data; the texts of conditions and events, which are KAI's, are rendered from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pykai.engine.queues import OverCapacity

NO_NODES = "no nodes with enough resources were found"
GROUP_BASE = "Unable to schedule podgroup"
POD_ERRORS = "PodSchedulingErrors"
ALL_CONSIDERED = "taking all considerations into account"


@dataclass(frozen=True)
class NodeReason:
    """Why one node does not take a pod: the reason, the figures behind it, and what has to be added to both."""

    text: str
    figures: str = ""
    """Empty where the reason says it all."""
    suffix: str = ""

    def told(self, alone: bool) -> str:
        """As a pod is told that is `alone`, or one of several: for those the figures change from one to the next."""
        figures = self.figures and (self.figures if alone else ALL_CONSIDERED)
        return self.text + (f", {figures}" if figures else "") + self.suffix


@dataclass(frozen=True)
class FitError:
    """Why no node takes a pod: counts per reason, and the reasons of each node where they were asked for."""

    counts: Mapping[str, int]
    by_node: Mapping[str, tuple[NodeReason, ...]] = field(default_factory=dict)
    base: str = NO_NODES

    def text(self) -> str:
        reasons = sorted(f"{count} {reason}" for reason, count in self.counts.items())
        return self.base + (": " + ". \n".join(reasons) + "." if reasons else "")

    def detailed(self, alone: bool) -> str:
        """A line for each node; `alone`: the gang has no other pod."""
        told = {node: ", ".join(reason.told(alone) for reason in reasons) for node, reasons in self.by_node.items()}
        return f"\n{self.base}." + "".join(sorted(f"\n{node}: {reasons}." for node, reasons in told.items()))


@dataclass(frozen=True)
class GangError:
    """One reason why a gang waits; `capacity` carries the figures of a queue that is full."""

    reason: str
    message: str
    capacity: OverCapacity | None = None
    node_group: str = ""


@dataclass
class Reasons:
    """What this cycle has to say about pods and gangs that stay pending."""

    pods: dict[int, str] = field(default_factory=dict)
    gangs: dict[int, list[GangError]] = field(default_factory=dict)

    def gang(self, gang: int, *errors: GangError) -> None:
        """Note why a gang waits; what is known already is not repeated."""
        if errors:
            known = self.gangs.setdefault(gang, [])
            seen = set(known)
            known.extend(error for error in dict.fromkeys(errors) if error not in seen)

    def forget(self, gang: int) -> None:
        self.gangs.pop(gang, None)


def about_pod(title: str, text: str) -> str:
    """What a gang is told when one of its pods found no place."""
    return f"Resources were not found for pod {title} due to: {text}"


def gang_text(errors: list[GangError]) -> str:
    """One line per distinct message, repeated ones counted."""
    if len(errors) == 1:
        return f"{errors[0].reason}: {errors[0].message}."
    counted = Counter(error.message for error in errors)
    lines = sorted(message if n == 1 else f"{n} {message}" for message, n in counted.items())
    return f"{GROUP_BASE}: " + ". \n".join(lines) + "."
