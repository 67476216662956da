"""Tables of queues, order of service, devices and evictions for terminals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pykai.explain.device_map import DeviceMap, DeviceTotals, NodeView
from pykai.explain.views import Amount, EvictionView, QueueView, WorkloadView
from pykai.model.resources import UNLIMITED
from pykai.objects.units import rfc3339
from pykai.observe import tables
from pykai.observe.tables import FAINT, Column, first, table
from pykai.observe.wording import age, short_name

COLOURS = ("cyan", "magenta", "green", "blue", "yellow", "bright_red", "bright_green", "bright_blue", "bright_magenta")
WHOLE, SHARED, FREE, LEAVING = "■", "◧", "□", "▒"
_GIB = 2**30
Row = Sequence[RenderableType]
Columns = list[Column | str]


class Unit(NamedTuple):
    """The format of an amount of one resource."""

    resource: str
    title: str
    scale: float

    def text(self, amount: Amount) -> str:
        value: float = getattr(amount, self.resource)
        return tables.amount(value if value == UNLIMITED else value / self.scale)


UNITS = {
    "gpu": Unit("gpu", "GPUs", 1.0),
    "cpu": Unit("cpu", "CPU cores", 1.0),
    "memory": Unit("memory", "GiB of memory", _GIB),
}


def queue_table(queues: Sequence[QueueView], unit: Unit) -> Table:
    """Return the tree of queues: entitlements, allocations and pending workloads."""
    columns: Columns = [
        "queue",
        *(Column(title, right=True) for title in ("quota", "fair share", "limit", "allocated")),
    ]
    columns += [Column("requested", right=True), Column("waiting", right=True), "may reclaim from"]
    return table(f"Queues ({unit.title})", columns, [_queue(queue, unit) for queue in queues])


def _queue(queue: QueueView, unit: Unit) -> Row:
    allocated = Text(unit.text(queue.allocated))
    if unit.resource == "gpu" and queue.borrowed:
        allocated.append(f" (+{tables.amount(queue.borrowed)})", style=FAINT)
    return (
        "  " * queue.depth + queue.name,
        unit.text(queue.quota),
        unit.text(queue.fair_share),
        unit.text(queue.limit),
        allocated,
        unit.text(queue.requested),
        str(queue.waiting or "-"),
        ", ".join(queue.may_reclaim_from) or "-",
    )


def order_table(title: str, workloads: Sequence[WorkloadView], now: float, rows: int) -> Table:
    """Return pending workloads in their order of service, each with its reason."""
    columns: Columns = [Column("position", right=True), Column("overall", right=True), "workload, and why it waits"]
    columns += ["queue", *(Column(name, right=True) for name in ("priority", "GPUs", "pods", "age"))]
    return table(title, columns, first([_workload(view, now) for view in workloads], rows))


def _workload(view: WorkloadView, now: float) -> Row:
    why = f"{view.reason}: {view.message}" if view.message else view.state
    return (
        str(view.position or "-"),
        str(view.overall or "-"),
        Text(f"{view.namespace}/{short_name(view.name)}").append(f"\n{why}", style=FAINT),
        view.queue,
        str(view.priority),
        tables.amount(view.requested.gpu),
        f"{view.waiting} of {view.pods}",
        age(now - view.created),
    )


def running_table(title: str, workloads: Sequence[WorkloadView], now: float, rows: int) -> Table:
    """Return running workloads."""
    columns: Columns = [
        "workload",
        "queue",
        *(Column(name, right=True) for name in ("priority", "GPUs", "pods", "running for")),
    ]
    body: list[Row] = [
        (
            f"{view.namespace}/{short_name(view.name)}",
            view.queue,
            str(view.priority),
            tables.amount(view.allocated.gpu),
            f"{view.running} of {view.pods}",
            age(now - (view.last_start or view.created)),
        )
        for view in workloads
    ]
    return table(title, columns, first(body, rows))


def node_tables(devices: DeviceMap, rows: int) -> Iterator[RenderableType]:
    """Yield the nodes with their GPUs, one colour per queue, and the free totals."""
    queues = dict.fromkeys(h.queue for node in devices.nodes for gpu in node.devices for h in gpu.holders if h.queue)
    colours = {queue: COLOURS[at % len(COLOURS)] for at, queue in enumerate(sorted(queues))}
    columns: Columns = ["node", "GPUs", *(Column(name, right=True) for name in ("allocated", "free"))]
    columns += ["free parts", "shared by", "state"]
    yield table(f"Nodes: {len(devices.nodes)}", columns, first([_node(node, colours) for node in devices.nodes], rows))
    legend = Text(f"{WHOLE} held  {SHARED} shared  {FREE} free  {LEAVING} being released", style=FAINT)
    for queue, colour in list(colours.items())[: 2 * len(COLOURS)]:
        legend.append(f"  {WHOLE} {queue}", style=colour)
    yield legend
    yield Text(totals_line(devices.totals))


def _node(node: NodeView, colours: dict[str, str]) -> Row:
    picture, shared = Text(), []
    for device in node.devices:
        holders = device.holders
        colour = colours.get(holders[0].queue, FAINT) if holders else FAINT
        mark = FREE if not holders else SHARED if device.group else WHOLE
        picture.append(LEAVING if holders and all(each.leaving for each in holders) else mark, style=colour)
        if device.group:
            shared.append(" + ".join(f"{each.namespace}/{each.pod} {each.share:g}" for each in holders))
    for mig in node.mig:
        shared.append(f"{mig.used} of {mig.total} {mig.profile}")
    parts = ", ".join(f"{part:g}" for part in node.segments)
    return (
        node.name,
        picture,
        tables.amount(node.allocated),
        str(node.free),
        parts or "-",
        "; ".join(shared) or "-",
        ", ".join(node.conditions) or "ready",
    )


def totals_line(totals: DeviceTotals) -> str:
    """Return the free devices as a sentence."""
    fits = ", ".join(f"{count} of {size} GPU{'s' if size > 1 else ''}" for size, count in totals.fits.items())
    line = (
        f"{tables.amount(totals.allocated)} of {totals.gpus} GPUs allocated, {totals.free} free, "
        f"{tables.amount(totals.free_parts)} in parts of {totals.shared} shared (largest {totals.largest_part:g}); "
        f"fragmentation {totals.fragmentation:.0%}"
    )
    if totals.unavailable:
        line += f"; {totals.unavailable} on nodes that take no pods"
    return f"{line}. Room for pods on one node: {fits or 'none'}."


def eviction_table(title: str, evictions: Sequence[EvictionView], rows: int) -> Table:
    """Return evicted pods, the workload they are evicted for, the reason and the GPU hours lost."""
    columns: Columns = [
        Column("at", drawn=True),
        "pod",
        "queue",
        "action",
        "for",
        Column("GPUs", right=True),
        Column("lost GPU hours", right=True),
        "why",
    ]
    return table(title, columns, first([_eviction(view) for view in evictions], rows))


def _eviction(view: EvictionView) -> Row:
    evictor = f"{view.evictor_namespace}/{short_name(view.evictor)}" if view.evictor else "-"
    if view.evictor_queue:
        evictor += f" ({view.evictor_queue})"
    lost = view.lost_gpu_hours
    moves = f" Moves to {view.moves_to}." if view.moves_to else ""
    return (
        rfc3339(view.at),
        f"{view.namespace}/{view.pod}",
        view.queue,
        view.action,
        evictor,
        tables.amount(view.gpus),
        "-" if lost is None else f"{lost:.2f}",
        view.gist + moves,
    )
