"""numa: pods whose CPUs, memory and devices should sit together in NUMA zones (spec/scheduling.md §13). Opt-in.

Two accounts are kept per zone: what will be available once everybody who leaves is gone, by which nodes are judged,
and what is available now, by which a pod starts at once or waits. Records of where pods sit come from the node; what
this cycle chooses is a prediction that goes into the bind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.points import Rejection
from pykai.model.pods import PodClass
from pykai.model.resources import CPU, Column, Mask
from pykai.model.resources import scale as unit_scale
from pykai.model.status import Status
from pykai.objects.units import render_quantity
from pykai.plugins.numa_accounts import Accounts, open_accounts

MISALIGNED = "node cannot NUMA-align the pod's resources under its Topology Manager policy"
_ACCOUNTS = "numa"
_FRESH = (Status.ALLOCATED, Status.PIPELINED)


def accounts_of(cycle: Cycle) -> Accounts | None:
    """The zone accounts of the cycle; None where no node reports zones."""
    accounts: Accounts | None = cycle.memo.get(_ACCOUNTS)
    return accounts


@dataclass(frozen=True)
class Numa:
    """`ignored` resources do not count; `reconstruct`: what is free follows from who sits where, not from reports."""

    ignored: frozenset[str] = frozenset()
    reconstruct: bool = True

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, str]) -> Numa:
        """The plugin of the configured `ignoreList` (comma separated) and `reconstructAvailable` (true or false)."""
        flag = str(arguments.get("reconstructAvailable", "true")).lower()
        if flag not in ("true", "false"):
            raise ValueError(f"arguments.reconstructAvailable: {flag!r} is neither true nor false")
        ignored = (name.strip() for name in arguments.get("ignoreList", "").split(","))
        return cls(frozenset(name for name in ignored if name), flag == "true")

    def start(self, cycle: Cycle) -> None:
        accounts = open_accounts(cycle, self.ignored, self.reconstruct)
        if accounts is not None:
            cycle.memo[_ACCOUNTS] = accounts

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        accounts = accounts_of(cycle)
        return accounts is not None and accounts.concerned(pod_class)

    def closed(self, cycle: Cycle, pod: int) -> Iterable[Rejection]:
        accounts = accounts_of(cycle)
        if accounts is not None:
            yield MISALIGNED, accounts.misaligned(cycle.trial.of_class(pod))

    def must_wait(self, cycle: Cycle, pod: int, node: int) -> bool:
        accounts = accounts_of(cycle)
        return accounts is not None and accounts.choose(pod, node, now=True) is None

    def late(self, cycle: Cycle, pod: int) -> Mask | None:
        """Nodes where the pod's zones are still being released."""
        accounts = accounts_of(cycle)
        return None if accounts is None else accounts.late(pod)

    def pod_score(self, cycle: Cycle, pod: int) -> Column | None:
        accounts = accounts_of(cycle)
        return None if accounts is None else accounts.scores(cycle.trial.of_class(pod))

    def placed(self, cycle: Cycle, pod: int, node: int) -> None:
        accounts = accounts_of(cycle)
        if accounts is None:
            return
        status = cycle.trial.status[pod]
        if status not in _FRESH:
            accounts.stay(pod)
            return
        accounts.take(pod, node, now=status == Status.ALLOCATED)
        # A place of this cycle that was taken back and given again may come with other zones.
        if status == Status.ALLOCATED and accounts.waits(pod):
            cycle.trial.wait_instead(pod)

    def evicted(self, cycle: Cycle, pod: int) -> None:
        accounts = accounts_of(cycle)
        if accounts is not None:
            accounts.leave(pod)

    def unchanged(self, cycle: Cycle, pod: int, node: int) -> bool:
        accounts = accounts_of(cycle)
        return accounts is None or accounts.can_stay(pod)

    def claims(self, cycle: Cycle, pod: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        return ()

    def zones(self, cycle: Cycle, pod: int) -> Sequence[tuple[str, Mapping[str, str]]]:
        return zones(cycle, pod)

    def extended_claim(self, cycle: Cycle, pod: int) -> Mapping[str, Any] | None:
        return None


def zones(cycle: Cycle, pod: int) -> tuple[tuple[str, Mapping[str, str]], ...]:
    """(zone name, quantities by resource name) of where a pod sits or is predicted to; CPU in millicores."""
    accounts = accounts_of(cycle)
    held = accounts.held.get(pod) if accounts else None
    if accounts is None or held is None:
        return ()
    block, rows = accounts.zones, accounts.zones.rows
    return tuple(
        (
            name,
            {block.reported[held.at][i]: _quantity(block.reported[held.at][i], rows[i], v) for i, v in _positive(row)},
        )
        for name, row in zip(block.names[held.at], held.amounts, strict=False)
        if row.any()
    )


def _positive(row: Column) -> Iterable[tuple[int, float]]:
    return ((i, float(value)) for i, value in enumerate(row) if value > 0)


def _quantity(name: str, row: int, value: float) -> str:
    return f"{round(value)}m" if row == CPU else render_quantity(value / unit_scale(name))


def zone_rows(cycle: Cycle, pod: int) -> tuple[int, ...]:
    """Indices of the zones a pod sits in or is predicted to."""
    accounts = accounts_of(cycle)
    held = accounts.held.get(pod) if accounts else None
    return () if held is None else tuple(np.flatnonzero(held.amounts.any(axis=1)).tolist())


def zone_available(cycle: Cycle, node: int, zone: int) -> dict[str, float]:
    """What a zone will have available, by resource name in row units; empty where the node reports no zones."""
    accounts = accounts_of(cycle)
    at = accounts.zones.position.get(node) if accounts else None
    if accounts is None or at is None:
        return {}
    return {name: float(accounts.later[zone, i, at]) for i, name in accounts.zones.reported[at].items()}
