"""A pod's claims: which ResourceClaims it means, and whether it may be placed at all (spec/scheduling.md §14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pykai.cache.requests import claim_gpus
from pykai.objects import names
from pykai.objects.kinds import Pod, ResourceClaim
from pykai.objects.pod_template import PodClaim
from pykai.plugins.dra.demand import ClaimDemand, DemandError, claim_demand
from pykai.plugins.dra.ledger import Key, Ledger

MOST_CONSUMERS = 256


@dataclass(frozen=True)
class Reference:
    """A claim of a pod: its name in the pod, the ResourceClaim (None: not made yet), and whether others may use it."""

    name: str
    key: Key | None
    shared: bool


def references(pod: Pod, claims: Sequence[PodClaim]) -> tuple[Reference, ...]:
    """The pod's claims in order; a generated claim that turned out not to be needed is left out."""
    generated = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses or ()}
    namespace, found = pod.metadata.namespace, []
    for claim in claims:
        own = claim.resource_claim_name
        name = own or generated.get(claim.name)
        if name != "":
            found.append(Reference(claim.name, None if name is None else (namespace, name), bool(own)))
    return tuple(found)


def unavailable(title: str, claims: Sequence[PodClaim]) -> str:
    """Why a pod with claims cannot be placed in a cluster without DRA."""
    listed = ", ".join(claim.name for claim in claims)
    return (
        f"pod {title} cannot be scheduled, it references resource claims <{listed}> "
        "while dynamic resource allocation is not available in the cluster"
    )


@dataclass(frozen=True)
class Gate:
    """What must hold for a pod's claims before any node is looked at."""

    claims: Mapping[Key, ResourceClaim]
    classes: Mapping[str, Any]
    queue_label: str
    _problems: dict[Key, str | None] = field(default_factory=dict)
    """Why a claim can be allocated to nobody, once it was asked for."""

    def refuse(self, ledger: Ledger, pod: tuple[str, str, str], reference: Reference) -> str | None:
        """Why a pod (title, uid, queue name) cannot have the claim; None where it can."""
        title, uid, queue = pod
        if reference.key is None:
            namespace = title.split("/", 1)[0]
            return f"failed to get resource claim {namespace}/{reference.name}: the claim has not been created yet"
        shown = "/".join(reference.key)
        claim = self.claims.get(reference.key)
        if claim is None:
            return f'failed to get resource claim {shown}: could not find ResourceClaim "{shown}"'
        state = ledger.state(reference.key)
        if uid not in state.users and len(state.users | state.leaving) >= MOST_CONSUMERS:
            return f"resource claim {shown} has reached its maximum number of consumers ({MOST_CONSUMERS})"
        if reference.shared and claim_gpus(claim):
            wrong = self._wrong_queue(claim, title, queue)
            if wrong is not None:
                return wrong
        if reference.key not in self._problems:
            self._problems[reference.key] = self._impossible(claim, shown)
        return self._problems[reference.key]

    def _wrong_queue(self, claim: ResourceClaim, title: str, queue: str) -> str | None:
        """A GPU claim that pods share belongs to one queue, which its label names."""
        labels = claim.metadata.labels or {}
        label = labels.get(self.queue_label) or labels.get(names.LEGACY_QUEUE_LABEL)
        start = f"pod {title} cannot be scheduled: DRA claim {claim.metadata.name} is a shared GPU claim"
        if not label:
            return f"{start} but does not have a queue label ({self.queue_label})"
        if label != queue:
            return f"{start} with wrong queue label (expected queue: {queue}, claim queue label: {label})"
        return None

    def _impossible(self, claim: ResourceClaim, shown: str) -> str | None:
        try:
            demand: ClaimDemand = claim_demand(claim.spec)
        except DemandError as error:
            return f"resource claim {shown} cannot be allocated: {error}"
        for request in demand.alternatives():
            if request.device_class not in self.classes:
                return f"device class {request.device_class} does not exist for claim {shown} request {request.name}"
        return None
