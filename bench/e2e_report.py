"""What the end-to-end benchmark found, as tables on a terminal and as a section of docs/performance.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import click

from bench import machine
from bench.live_cluster import KAI, KUBELETS
from bench.live_cost import Cost
from bench.machine import Moment
from bench.page import markdown
from pykai.local import parts
from pykai.observe import tables

OURS, YARDSTICK = "pykai", "kube-scheduler"
SINGLES, GANG, ALONE = "single pods", "gang", "one by one"
PEER_CPU_MS = 167.0
PARTS = {
    parts.ETCD: "etcd",
    parts.APISERVER: "API server",
    parts.CONTROLLER_MANAGER: "controllers",
    parts.SCHEDULER: "kube-scheduler",
    KUBELETS: "kubelets",
    KAI: "pykai",
}
"""Processes and what they are called in the table."""
TEXT = """## End to end

A real control plane (etcd, kube-apiserver, kube-controller-manager) with {nodes:,} hollow nodes; pykai is `kai all`,
admission webhook included. kube-scheduler runs the same loads in the same run, in turns with pykai, its client limits
lifted; it knows no gangs, and for it the gang is a Job whose pods start one by one. Neither runs while the other is
measured. Everything shares the cores below: compare the two of one run, not absolute figures. Each row is the round
with the median time of {rounds}.

{figures}
*One by one* are pods on an idle cluster, each created when the one before has its node. *Last bind* counts from the
first create, *latency* is a pod's time from its creation to its node, the median. *CPU* is that of all parts, until
nothing is written any more: status and events come seconds after the last bind.

{targets}
KAI needed {peer:.0f} ms of CPU a pod for 1,000 pods on 500 nodes, 84 of them in the API server, bound 12 pods a second
and a gang of 256 in 39 s (client limits lifted, webhook off; taken beforehand on 2 shared cores), with about 25 writes
a pod. One write of every pod is the kubelet's.

Writes a pod, leases not counted:

{writes}
CPU seconds:

{cpu}
Measured {when:%Y-%m-%d} on {machine}; load {before:.1f} before and {after:.1f} after.
"""


@dataclass(frozen=True)
class Outcome:
    """One load on one scheduler: `seconds` from the first pod to the last binding, `latency` the median of pods."""

    scheduler: str
    load: str
    pods: int
    seconds: float
    latency: float
    cost: Cost

    @property
    def rate(self) -> float:
        """Pods bound a second."""
        return self.pods / self.seconds

    @property
    def writes(self) -> float:
        """Writes a pod."""
        return self.cost.total_writes / self.pods

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of CPU a pod, of all parts."""
        return 1000 * self.cost.total_cpu / self.pods


Found = Mapping[tuple[str, str], Outcome]
"""By load and scheduler."""


def middle(found: Sequence[Outcome]) -> dict[tuple[str, str], Outcome]:
    """By load and scheduler, the round with the median time; load by load, in the order they came."""
    by: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in found:
        by.setdefault((outcome.load, outcome.scheduler), []).append(outcome)
    loads = list(dict.fromkeys(load for load, _ in by))
    ordered = sorted(by, key=lambda key: (loads.index(key[0]), key[1] != OURS))
    return {key: sorted(by[key], key=lambda each: each.seconds)[(len(by[key]) - 1) // 2] for key in ordered}


@dataclass(frozen=True)
class Target:
    """What this project set out to reach on a load, at most or at least; `reached` is told ours and the yardstick's."""

    what: str
    load: str
    asked: float
    reached: Callable[[Outcome, Outcome], float]
    least: bool = False

    def row(self, found: Found) -> list[str]:
        """What was asked and what was reached."""
        value = self.reached(found[self.load, OURS], found[self.load, YARDSTICK])
        met = value >= self.asked if self.least else value <= self.asked
        return [self.what, f"{'≥' if self.least else '≤'} {self.asked:g}", f"{value:.2f}", "yes" if met else "no"]


TARGETS = (
    Target("single pods a second, part of kube-scheduler's", SINGLES, 1, lambda we, it: we.rate / it.rate, least=True),
    Target("median latency of single pods, times kube-scheduler's", SINGLES, 2, lambda we, it: we.latency / it.latency),
    Target(
        *("time to the last bind of the gang, times kube-scheduler's Job", GANG, 1.5),
        lambda we, it: we.seconds / it.seconds,
    ),
    Target("CPU a single pod, part of KAI's", SINGLES, 0.33, lambda we, _: we.cpu_ms / PEER_CPU_MS),
    Target("writes a single pod without the kubelet's, to a tenth", SINGLES, 5, lambda we, _: round(we.writes - 1, 1)),
    Target("seconds to bind a pod on an idle cluster", ALONE, 0.3, lambda we, _: we.latency),
)
FIGURES = ("load", "scheduler", "pods", "pods/s", "last bind", "latency", "CPU ms a pod", "writes a pod")


@dataclass(frozen=True)
class Report:
    """The figures, and the moments between which they were taken."""

    found: Found
    began: Moment
    ended: Moment

    def show(self) -> None:
        """Print everything."""
        rows = {
            ("End to end", FIGURES): self._figures(),
            ("What was asked for", ("", "asked", "reached", "")): self._targets(),
            ("Writes a pod", ("", *self._columns())): self._writes(),
            ("CPU seconds", ("", *self._columns())): self._cpu(),
        }
        tables.show([tables.table(title, _right(head), cells) for (title, head), cells in rows.items()])
        click.echo(f"{machine.title()}; load before {self.began.load:.1f}, after {self.ended.load:.1f}")

    def page(self, nodes: int, rounds: int) -> str:
        """The section of the page."""
        return TEXT.format(
            nodes=nodes,
            rounds=rounds,
            peer=PEER_CPU_MS,
            figures=markdown(FIGURES, self._figures()),
            targets=markdown(("", "asked", "reached", "met"), self._targets()),
            writes=markdown(("", *self._columns()), self._writes()),
            cpu=markdown(("", *self._columns()), self._cpu()),
            when=self.began.at,
            machine=machine.title(),
            before=self.began.load,
            after=self.ended.load,
        )

    def _columns(self) -> list[str]:
        return [f"{load}, {scheduler.removesuffix('-scheduler')}" for load, scheduler in self.found]

    def _figures(self) -> list[list[str]]:
        return [
            [
                *(load, scheduler, f"{of.pods:,}", f"{of.rate:.0f}", f"{of.seconds:.2f} s"),
                *(f"{1000 * of.latency:.0f} ms", f"{of.cpu_ms:.1f}", f"{of.writes:.1f}"),
            ]
            for (load, scheduler), of in self.found.items()
        ]

    def _targets(self) -> list[list[str]]:
        loads = {load for load, _ in self.found}
        return [target.row(self.found) for target in TARGETS if target.load in loads]

    def _writes(self) -> list[list[str]]:
        counts = {
            write: sum(of.cost.writes[write] for of in self.found.values())
            for of in self.found.values()
            for write in of.cost.writes
        }
        ordered = sorted(counts, key=lambda write: -counts[write])
        rows = [
            [" ".join(write), *(_each(of.cost.writes[write] / of.pods) for of in self.found.values())]
            for write in ordered
        ]
        return [row for row in rows if any(row[1:])]

    def _cpu(self) -> list[list[str]]:
        shown = {part: name for part, name in PARTS.items() if any(part in of.cost.cpu for of in self.found.values())}
        return [
            [name, *(f"{of.cost.cpu[part]:.1f}" if part in of.cost.cpu else "" for of in self.found.values())]
            for part, name in shown.items()
        ]


def _each(count: float) -> str:
    return f"{count:.2f}" if count >= 0.005 else ""


def _right(head: Sequence[str]) -> list[tables.Column | str]:
    """Headings with figures on the right below all but the first."""
    return [head[0], *(tables.Column(title, right=True) for title in head[1:])]
