"""dynamicresources: pods whose resources come as claims on devices.

The session of a cycle puts pods, their claims, the ledger of devices and the allocator together. It is opened once,
before the first action, and only where the cluster has something for it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pykai.cache.claims import claim_gpus
from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import ANY, BindDetails, NodeResourceState, Refusal, Rejection
from pykai.engine.reasons import Token
from pykai.engine.trial import Trial
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, Column, Mask, Rows
from pykai.model.snapshot import NodeTable, Snapshot
from pykai.model.status import IS_ACTIVE_USED, Status
from pykai.objects import names
from pykai.objects.kinds import ResourceClaim
from pykai.plugins.dra.allocator_cache import AllocatorCache, Offer, Refusals
from pykai.plugins.dra.claims import (
    DemandError,
    Demands,
    Key,
    Reference,
    references,
    unavailable,
)
from pykai.plugins.dra.devices import Inventory, TaintRules
from pykai.plugins.dra.extended import ExtendedDemand, extended_demand, served_names, wanted_names
from pykai.plugins.dra.ledger import ClaimState, Ledger, open_ledger
from pykai.plugins.dra.sharing import SharedClaim, Sharing

MOST_CONSUMERS = 256
"""Pods that a claim can be reserved for."""


@dataclass(frozen=True)
class DynamicResources:
    """Gate, filter and node resource for claims."""

    def open(self, cycle: Cycle) -> Session | None:
        return open_session(cycle)

    def concerns(self, pod_class: PodClass) -> bool:
        """Whether the gate may refuse pods of a class."""
        return bool(pod_class.template.claims)

    def refuse(self, cycle: Cycle, pod: int) -> Refusal | None:
        claims = cycle.trial.of_class(pod).template.claims
        if not claims:
            return None
        session = cycle.resources.get(Session)
        if session is None:
            return Refusal(unavailable(cycle.snapshot.pods.title(pod), claims), token=Token.CLAIM)
        reason = session.refuse(pod)
        return None if reason is None else Refusal(reason, token=Token.CLAIM)

    def class_key(self, snapshot: Snapshot, pod_class: PodClass) -> Hashable:
        if pod_class.shared or not pod_class.devices or not snapshot.nodes.derived(_any_dra_gpus):
            return ANY
        return frozenset(wanted_names(pod_class.template))

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]:
        """Nodes whose GPUs are devices of a driver take plain GPU requests only through a device class."""
        nodes = snapshot.nodes
        if pod_class.devices and not pod_class.shared and nodes.derived(_any_dra_gpus):
            served = served_names(snapshot.objects.device_classes)
            unserved = sorted(n for n in wanted_names(pod_class.template) if n.endswith("gpu") and n not in served)
            if unserved:
                bare = (nodes.dra_gpus > 0) & (nodes.allocatable[GPU] - nodes.dra_gpus <= 0)
                yield f"node(s) offer {unserved[0]} neither by a device plugin nor by a device class", bare


@dataclass(frozen=True)
class Gate:
    """What must hold for a pod's claims before any node is looked at."""

    claims: Mapping[Key, ResourceClaim]
    classes: Mapping[str, Any]
    queue_label: str
    demands: Demands
    _problems: dict[Key, str | None] = field(default_factory=dict)
    """Why a claim cannot be allocated at all, once it was asked for."""

    def refuse(self, ledger: Ledger, pod: tuple[str, str, str], reference: Reference) -> str | None:
        """Why a pod (title, uid, queue name) cannot have the claim; None where it can."""
        title, uid, queue = pod
        if reference.key is None:
            namespace = title.split("/", 1)[0]
            return f"failed to get resource claim {namespace}/{reference.name}: the claim has not been created yet"
        claim = self.claims.get(reference.key)
        if claim is None:
            shown = "/".join(reference.key)
            return f'failed to get resource claim {shown}: could not find ResourceClaim "{shown}"'
        state = ledger.state(reference.key)
        many = len(state.users) + len(state.leaving) >= MOST_CONSUMERS
        if many and uid not in state.users and len(state.users | state.leaving) >= MOST_CONSUMERS:
            shown = "/".join(reference.key)
            return f"resource claim {shown} has reached its maximum number of consumers ({MOST_CONSUMERS})"
        wrong = self._wrong_queue(claim, title, queue) if reference.shared else None
        if wrong is not None:
            return wrong
        if reference.key not in self._problems:
            self._problems[reference.key] = self._impossible(reference.key)
        return self._problems[reference.key]

    def _wrong_queue(self, claim: ResourceClaim, title: str, queue: str) -> str | None:
        """A GPU claim that pods share belongs to one queue, which its label names."""
        labels = claim.metadata.labels or {}
        label = labels.get(self.queue_label) or labels.get(names.LEGACY_QUEUE_LABEL)
        if (label and label == queue) or not claim_gpus(claim):
            return None
        start = f"pod {title} cannot be scheduled: DRA claim {claim.metadata.name} is a shared GPU claim"
        if not label:
            return f"{start} but does not have a queue label ({self.queue_label})"
        return f"{start} with wrong queue label (expected queue: {queue}, claim queue label: {label})"

    def _impossible(self, key: Key) -> str | None:
        shown = "/".join(key)
        try:
            demand = self.demands[key]
        except DemandError as error:
            return f"resource claim {shown} cannot be allocated: {error}"
        for request in demand.alternatives():
            if request.device_class not in self.classes:
                return f"device class {request.device_class} does not exist for claim {shown} request {request.name}"
        return None


@dataclass(eq=False)
class Session(NodeResourceState):
    """One instance per cycle; what changes in it is journaled by the ledger and by `sharing`."""

    trial: Trial
    ledger: Ledger
    allocator: AllocatorCache
    gate: Gate
    sharing: Sharing
    refusals: Refusals
    references: Mapping[int, tuple[Reference, ...]]
    """By pod row, of pods with claims."""
    shared: frozenset[Key]
    """Claims that more than one pod names."""
    served: Mapping[str, str]
    """Extended resource -> device class."""
    _pod_of_class: dict[int, int] = field(default_factory=dict)
    _served_rows: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _extended: dict[tuple[int, tuple[str, ...]], ExtendedDemand | None] = field(default_factory=dict)
    _offered_last: tuple[tuple[int, int, int], Offer | str] = ((-1, -1, -1), "")

    # -------------------------------------------------------------------------------------------------- questions
    def concerns(self, pod_class: PodClass) -> bool:
        return bool(pod_class.template.claims) or self.extends(pod_class)

    def refuse(self, pod: int) -> str | None:
        """Why the pod cannot be placed anywhere; None where it can."""
        references = self.references.get(pod)
        if not references:
            return None
        pods, gangs = self.trial.snapshot.pods, self.trial.snapshot.gangs
        gang = self.trial.gang[pod]
        who = (pods.title(pod), pods.uids[pod], gangs.objects[gang].spec.queue if gang >= 0 else "")
        for reference in references:
            reason = self.gate.refuse(self.ledger, who, reference)
            if reason is not None:
                return reason
        return None

    def alike(self, pod: int) -> Hashable | None:
        """Pods that may be placed, with claims of their own that ask for the same."""
        if any(reference.key in self.shared for reference in self.references.get(pod, ())) or self.refuse(pod):
            return None
        return self._shape(pod)

    def offer(self, pod: int, node: int) -> Offer | str:
        """What the pod's claims get on a node, or why they cannot be had there. Asked again as long as no claim
        changes, it is not worked out again: whether a node takes a pod, at once or not, and then with what."""
        asked = (pod, node, self.ledger.version)
        if self._offered_last[0] != asked:
            extended = self.extended(pod, node)
            own = None if extended is None else (own_key(self.trial, pod), extended.demand)
            self._offered_last = asked, self.allocator.offer(self.references.get(pod, ()), node, own)
        return self._offered_last[1]

    def reject(self, pod: int, node: int) -> str | None:
        """Why the pod's claims cannot be had on a node; remembered for pods that ask for the same."""
        offer = self.offer(pod, node)
        if not isinstance(offer, str):
            return None
        key = self._shape(pod)
        if key is not None:
            self.refusals.note(key, offer, node)
        return offer

    def infeasible(self, pod: int) -> Iterable[Rejection]:
        """Nodes known to have nothing for what the pod asks for."""
        key = self._shape(pod)
        return () if key is None else self.refusals.known(key)

    def _shape(self, pod: int) -> Hashable | None:
        """Equal for pods that get the same answer on every node; None where a claim is allocated already."""
        signature, c = self.allocator.signature(self.references.get(pod, ())), self.trial.of_class(pod)
        return None if signature is None else (signature, c.row if self.extends(c) else None)

    def may_wait(self) -> bool:
        return any(self.ledger.leaving.values())

    def must_wait(self, pod: int, nodes: Rows) -> Mask | None:
        """Nodes where something that the pod's claims need is still being released."""
        if len(nodes) == 1:
            return np.array([self._waits_on(pod, int(nodes[0]))])
        if not self.ledger.awaited():
            return None
        near = self.allocator.awaiting(self.references.get(pod, ()))
        return np.array([near(node) and self._waits_on(pod, node) for node in nodes.tolist()], dtype=bool)

    def _waits_on(self, pod: int, node: int) -> bool:
        offer = self.offer(pod, node)
        return not isinstance(offer, str) and any(self.ledger.must_wait(key, chosen) for key, chosen in offer)

    def extends(self, c: PodClass) -> bool:
        """Whether a class asks for resources that device classes serve."""
        return bool(self._served_names(c))

    def _served_names(self, c: PodClass) -> tuple[str, ...]:
        names = self._served_rows.get(c.row)
        if names is None:
            wanted = wanted_names(c.template) if self.served else set()
            names = self._served_rows[c.row] = tuple(sorted(name for name in wanted if name in self.served))
        return names

    def extended(self, pod: int, node: int) -> ExtendedDemand | None:
        """The claim the pod needs on a node for extended resources that the node does not offer itself."""
        c = self.trial.of_class(pod)
        names = tuple(name for name in self._served_names(c) if not self._offered(name, node))
        if not names:
            return None
        key = (c.row, names)
        if key not in self._extended:
            self._extended[key] = extended_demand(c.template, {name: self.served[name] for name in names})
        return self._extended[key]

    def _offered(self, name: str, node: int) -> bool:
        """Whether a node offers a resource by a device plugin."""
        nodes, row = self.trial.snapshot.nodes, self.trial.snapshot.space.rows[name]
        amount = nodes.allocatable[row, node] - (nodes.dra_gpus[node] if row == GPU else 0.0)
        return bool(amount > 0)

    @property
    def relieves(self) -> bool:
        """Whether pods share claims, or ask for resources that device classes serve."""
        rows = self.trial.snapshot.space.rows
        return bool(self.sharing.claims) or any(rows.get(name, GPU) != GPU for name in self.served)

    def spared(self, pod_class: PodClass, nodes: Rows) -> Column | None:
        """[resource, node] amounts a class need not find free: shared devices, and what comes as a claim."""
        c = pod_class
        rows = {self.trial.snapshot.space.rows[name] for name in self._served_names(c)} - {GPU}
        shared = self.sharing.spared(self._pod_of_class[c.row]) if c.row in self._pod_of_class else {}
        if not rows and not shared:
            return None
        spared = np.zeros((self.trial.snapshot.space.size, len(nodes)))
        for row in rows:
            spared[row] = np.where(self.trial.snapshot.nodes.allocatable[row, nodes] > 0, 0.0, c.request[row])
        for node, gpus in shared.items():
            spared[GPU, nodes == node] = gpus
        return spared

    # ---------------------------------------------------------------------------------------------------- changes
    def reserve(self, pod: int, node: int) -> None:
        trial = self.trial
        if trial.status[pod] in (Status.ALLOCATED, Status.PIPELINED):
            self._hold(pod, node)
            # A place of this cycle that was taken back and given again may come with other devices.
            if trial.status[pod] == Status.ALLOCATED and self.ledger.waits(self._uid(pod)):
                trial.wait_instead(pod)
        else:
            self.ledger.stay(self._uid(pod))
        self.sharing.settle(pod)

    def _hold(self, pod: int, node: int) -> None:
        """The pod gets its claims on the node that was found fit for it."""
        offer = self.offer(pod, node)
        if isinstance(offer, str):
            raise RuntimeError(
                f"pod {self.trial.snapshot.pods.title(pod)} was placed where its claims are not: {offer}"
            )
        for key, chosen in offer:
            self.ledger.hold(self._uid(pod), key, chosen)

    def release(self, pod: int) -> None:
        self.ledger.leave(self._uid(pod))
        self.sharing.settle(pod)

    def unchanged(self, pod: int, node: int) -> bool:
        return self.ledger.can_stay(self._uid(pod), lambda key: self.allocator.reachable(key, node))

    def _uid(self, pod: int) -> str:
        return self.trial.snapshot.pods.uids[pod]

    # ---------------------------------------------------------------------------------------------------- results
    def details(self, pod: int) -> BindDetails | None:
        return BindDetails(claims=self.allocations(pod), extended_claim=self.extended_allocation(pod))

    def allocations(self, pod: int) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        found = []
        for reference in self.references.get(pod, ()):
            allocation = self.ledger.state(reference.key).allocation if reference.key else None
            if allocation is not None:
                found.append((reference.name, allocation))
        return tuple(found)

    def extended_allocation(self, pod: int) -> Mapping[str, Any] | None:
        allocation = self.ledger.state(own_key(self.trial, pod)).allocation
        demand = self.extended(pod, self.trial.node[pod]) if allocation is not None else None
        if demand is None:
            return None
        return {"allocation": allocation, "deviceRequests": demand.requests, "containerMappings": demand.mappings}

    def claim_statuses(self) -> dict[Key, dict[str, Any]]:
        status, names = self.trial.status, self.trial.snapshot.pods.names
        placed = {self._uid(pod): names[pod] for pod in self.references if status[pod] != Status.PIPELINED}
        waiting = {self._uid(pod) for pod in self.references if status[pod] == Status.PIPELINED}
        found = {}
        for key, claim in self.trial.snapshot.objects.resource_claims.items():
            state, before = self.ledger.state(key), (claim.status or {}).get("reservedFor") or []
            staying = state.users - waiting
            users = [holder for holder in before if holder.get("uid") in staying]
            new = sorted(staying - {holder.get("uid") for holder in before})
            users += [{"resource": "pods", "name": placed[uid], "uid": uid} for uid in new if uid in placed]
            found[key] = _status(state, users, bool(before))
        return found


def _status(state: ClaimState, users: list[dict[str, Any]], had_users: bool) -> dict[str, Any]:
    """A claim keeps its allocation while it has users; one that never had any keeps what it has."""
    status: dict[str, Any] = {"reservedFor": users} if users else {}
    if state.allocation is not None and (users or (not had_users and not state.fresh)):
        status["allocation"] = state.allocation
    return status


# -------------------------------------------------------------------------------------------------------- initial state
def open_session(cycle: Cycle) -> Session | None:
    """The session of a cycle; None where DRA is off, or where no pod has anything to do with it."""
    snapshot, trial = cycle.snapshot, cycle.trial
    objects = snapshot.objects
    if not snapshot.params.dra_enabled:
        return None
    with_claims = _pods_with_claims(trial)
    served = served_names(objects.device_classes)
    if not with_claims and not objects.resource_claims and not any(name in snapshot.space.rows for name in served):
        return None
    pods = snapshot.pods
    known = {pod: references(pods.objects[pod]) for pod in with_claims}
    rules = TaintRules(objects.device_taint_rules, objects.device_classes)
    inventory = Inventory(objects.resource_slices, snapshot.nodes, rules)
    ledger = open_ledger(trial.journal, inventory, objects.resource_claims, _going(trial))
    _assume_bind_requests(cycle, ledger, known, served)
    shared, allocator = _shared_claims(known, objects.resource_claims), AllocatorCache(snapshot, ledger, inventory)

    def gpus_of(key: Key) -> float:
        return float(claim_gpus(objects.resource_claims[key]))

    return Session(
        trial=trial,
        ledger=ledger,
        allocator=allocator,
        gate=Gate(objects.resource_claims, objects.device_classes, snapshot.params.queue_label_key, allocator.demands),
        sharing=Sharing(
            trial, {key: SharedClaim(users, gpus) for key, users in shared.items() if (gpus := gpus_of(key))}
        ),
        refusals=Refusals(trial, ledger, inventory.wide_pools),
        references=known,
        shared=frozenset(shared),
        served=served,
        _pod_of_class={trial.klass[pod]: pod for pod in with_claims},
    )


def _any_dra_gpus(nodes: NodeTable) -> bool:
    """Whether some node offers GPUs as devices of a driver."""
    return bool(nodes.dra_gpus.any())


def _pods_with_claims(trial: Trial) -> list[int]:
    pods = trial.snapshot.pods
    rows = [c.row for c in pods.classes if c.template.claims]
    found: list[int] = np.flatnonzero(np.isin(pods.klass, rows)).tolist() if rows else []
    return found


def _going(trial: Trial) -> frozenset[str]:
    """Uids of pods that are being released: what they hold can be waited for."""
    pods = trial.snapshot.pods
    return frozenset(pods.uids[pod] for pod in np.flatnonzero(pods.status == Status.RELEASING).tolist())


def _shared_claims(known: Mapping[int, Iterable[Reference]], claims: Mapping[Key, Any]) -> dict[Key, tuple[int, ...]]:
    """Claims that more than one pod names, and the pods."""
    users: dict[Key, list[int]] = {}
    for pod, each in known.items():
        for key in {reference.key for reference in each}:
            if key is not None and key in claims:
                users.setdefault(key, []).append(pod)
    return {key: tuple(pods) for key, pods in users.items() if len(pods) > 1}


def _assume_bind_requests(
    cycle: Cycle, ledger: Ledger, known: Mapping[int, Iterable[Reference]], served: Collection[str]
) -> None:
    """Binds under way or done: their allocations hold as long as the claims do not show them.

    The watch of claims may be later than that of pods: a pod may run before its claims are seen, or leave already.
    """
    trial, pods, requests = cycle.trial, cycle.snapshot.pods, cycle.snapshot.objects.bind_requests
    classes = [
        c.row for c in pods.classes if c.template.claims or (served and not wanted_names(c.template).isdisjoint(served))
    ]
    seated = np.array(IS_ACTIVE_USED)[pods.status] & np.isin(pods.klass, classes)
    for pod in np.flatnonzero(seated).tolist() if requests else ():
        request = requests.get((pods.namespaces[pod], pods.names[pod]))
        if request is None or request.spec.selected_node != cycle.snapshot.nodes.names[pods.node[pod]]:
            continue
        uid = pods.uids[pod]
        shown = set(ledger.held.get(uid, ()))
        named = {reference.name: reference.key for reference in known.get(pod, ()) if reference.key is not None}
        for item in request.spec.resource_claim_allocations or ():
            key = named.get(item.name)
            if key is not None and key not in shown and item.allocation is not None:
                ledger.assume(uid, key, item.allocation)
        extended = (request.spec.extended_resource_claim_allocation or {}).get("allocation")
        if extended and shown <= set(named.values()):
            ledger.assume(uid, own_key(trial, pod), extended)
        if trial.status[pod] == Status.RELEASING:
            ledger.leave(uid)


def own_key(trial: Trial, pod: int) -> Key:
    """The claim that the binder makes for a pod's extended resources; no claim can have this name."""
    pods = trial.snapshot.pods
    return pods.namespaces[pod], f"{pods.names[pod]}/extended-resources"
