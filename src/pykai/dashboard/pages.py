"""What the templates get: the variables of each page, computed from a `RedactedView`, and the filters.

Pages are HTML rendered by the server; the script replaces changed parts and draws only the map of large clusters. So
every page can be read, linked to and searched without the script.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from pykai.dashboard import drawing
from pykai.dashboard.redaction import OTHERS, RedactedView
from pykai.explain.device_map import NodeView
from pykai.explain.views import WorkloadView
from pykai.model.plan import Key
from pykai.model.resources import UNLIMITED
from pykai.model.status import Status
from pykai.observe.wording import age, reason_line, short_name

Query = Mapping[str, str]
"""The parameters of a request, in its path and its query."""
Variables = dict[str, Any]
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
ROWS = 100
CARDS = 256
"""The most nodes drawn individually; larger clusters are drawn as a map."""


class PageNotFoundError(LookupError):
    """The queue, node or workload does not exist, or the viewer may not see it."""


def queues(view: RedactedView, query: Query) -> Variables:
    """Return the tree of queues."""
    found, totals = view.queues, view.devices.totals
    styles = drawing.colours(found)
    named = [queue.name for queue in found if queue.leaf and queue.name != OTHERS]
    shown, hidden = view.waiting
    return {
        "queues": found,
        "bars": drawing.bars(found, float(totals.gpus)),
        "styles": styles,
        "chart": drawing.stacked(view.samples(), named, styles),
        "totals": totals,
        "waiting": len(shown) + hidden.workloads,
        "running": sum(queue.running for queue in found if not queue.depth),
        "evicted": len(view.evictions[0]) + view.evictions[1].pods,
    }


def queue(view: RedactedView, query: Query) -> Variables:
    """Return one queue: its amounts, its order of service and its running workloads."""
    name = query["name"]
    found = view.queue(name)
    if found is None:
        raise PageNotFoundError(f"There is no queue {name}.")
    styles = drawing.colours(view.queues)
    overview = view.moment.overview
    waiting, hidden = view.split(overview.queue_order(name))
    running, hidden_running = view.split(overview.running(name))
    style = styles.get(name, drawing.OTHER)
    parents, path = {each.name: each.parent for each in view.queues}, list[str]()
    while above := parents.get(path[0] if path else name, ""):
        path.insert(0, above)
    return {
        "queue": found,
        "path": path,
        "children": [each for each in view.queues if each.parent == name],
        "styles": styles,
        "style": "q0" if style == drawing.OTHER else style,
        "bar": drawing.bars([found], float(view.devices.totals.gpus))[name],
        "chart": drawing.figures(view.samples(), name, style),
        "waiting": waiting[:ROWS],
        "more_waiting": max(len(waiting) - ROWS, 0),
        "hidden": hidden,
        "running": running[:ROWS],
        "more_running": max(len(running) - ROWS, 0),
        "hidden_running": hidden_running,
    }


# -------------------------------------------------------------------------------------------------------------- devices
def devices(view: RedactedView, query: Query) -> Variables:
    """Return the nodes and their GPUs: all, or those that match a search text."""
    found = view.devices
    styles = drawing.colours(view.queues)
    text = query.get("q", "").strip().lower()
    chosen = [node for node in found.nodes if _matches(node, text)] if text else list(found.nodes)
    page, pages = _page(query, len(chosen))
    as_map = len(chosen) > CARDS
    start = page * ROWS
    return {
        "totals": found.totals,
        "styles": styles,
        "legend": drawing.legend(view.queues),
        "q": query.get("q", ""),
        "count": len(chosen),
        "as_map": as_map,
        "nodes": chosen[start : start + ROWS] if as_map else chosen,
        "groups": [] if as_map else _domains(chosen),
        "page": page,
        "pages": pages if as_map else 1,
        "may_see_nodes": view.viewer.nodes,
    }


def _matches(node: NodeView, text: str) -> bool:
    if text in node.name.lower() or any(text in part.lower() for part in node.domain):
        return True
    holders = (holder for device in node.devices for holder in device.holders)
    return any(text in part.lower() for each in holders for part in (each.queue, each.workload, each.pod))


def _domains(nodes: Sequence[NodeView]) -> list[tuple[str, list[NodeView]]]:
    """Return the nodes by topology domain; one unnamed group if domains are unknown."""
    found: dict[str, list[NodeView]] = {}
    for node in nodes:
        found.setdefault(" / ".join(node.domain[:-1] if len(node.domain) > 1 else node.domain), []).append(node)
    alone = len(nodes) > 1 and len(found) == len(nodes)
    return [("", list(nodes))] if alone else sorted(found.items())


def device_columns(view: RedactedView) -> dict[str, Any]:
    """Return all nodes for the map as columns, which are compact: names, and per device a colour number and a mark."""
    styles = drawing.colours(view.queues)
    names, cells, marks = [], [], []
    for node in view.devices.nodes:
        names.append(node.name)
        row, flags = [], []
        for device in node.devices:
            holders = device.holders
            style = styles.get(holders[0].queue, drawing.OTHER) if holders else ""
            row.append(-1 if not holders else int(style[1:]) if style[1:].isdigit() else drawing.COLOURS)
            flags.append("s" if device.group else "l" if holders and holders[0].leaving else ".")
        cells.append(row)
        marks.append("".join(flags) if set(flags) - {"."} else "")
    down = [at for at, node in enumerate(view.devices.nodes) if node.conditions]
    return {"names": names, "cells": cells, "marks": marks, "down": down}


def node(view: RedactedView, query: Query) -> Variables:
    """Return one node, with the pods on each of its GPUs."""
    found = view.node(query["name"])
    if found is None:
        raise PageNotFoundError(f"There is no node {query['name']}.")
    return {"node": found, "styles": drawing.colours(view.queues)}


# -------------------------------------------------------------------------------------------------------------- waiting
def waiting(view: RedactedView, query: Query) -> Variables:
    """Return pending workloads, by reason and queue."""
    shown, hidden = view.waiting
    reason, queue, text = query.get("reason", ""), query.get("queue", ""), query.get("q", "").strip().lower()
    reasons = Counter(each.reason or each.state for each in shown)
    chosen = [each for each in shown if _matches_filter(each, reason, queue, text)]
    page, pages = _page(query, len(chosen))
    return {
        "workloads": chosen[page * ROWS : (page + 1) * ROWS],
        "count": len(chosen),
        "reasons": reasons.most_common(12),
        "reason": reason,
        "queue": queue,
        "q": query.get("q", ""),
        "waiting_queues": sorted({each.queue for each in shown}),
        "styles": drawing.colours(view.queues),
        "hidden": hidden,
        "page": page,
        "pages": pages,
        "total": len(shown),
    }


def _matches_filter(each: WorkloadView, reason: str, queue: str, text: str) -> bool:
    if reason and (each.reason or each.state) != reason:
        return False
    if queue and each.queue != queue:
        return False
    return not text or any(text in part.lower() for part in (each.name, each.namespace, each.workload, each.message))


def _page(query: Query, count: int) -> tuple[int, int]:
    """Return the number of the requested page, from 0, and the number of pages."""
    pages = max((count + ROWS - 1) // ROWS, 1)
    asked = query.get("page", "")
    return min(int(asked), pages - 1) if asked.isdecimal() and len(asked) < 10 else 0, pages


# ------------------------------------------------------------------------------------------------- evictions, workloads
def evictions(view: RedactedView, query: Query) -> Variables:
    """Return evictions: pods, evictors and reasons."""
    shown, hidden = view.evictions
    instants = [each.at for each in shown]
    samples = view.samples()
    first = min([*instants[-1:], *(sample.at for sample in samples[:1]), view.at])
    last = max([*instants[:1], view.at])
    lost = [each.lost_gpu_hours for each in shown if each.lost_gpu_hours is not None]
    page, pages = _page(query, len(shown))
    return {
        "evictions": shown[page * ROWS : (page + 1) * ROWS],
        "count": len(shown),
        "lost": sum(lost),
        "by_action": Counter(each.action for each in shown).most_common(),
        "lanes": drawing.lanes(shown, first, last) if last > first else [],
        "axis": [drawing.clock(first + (last - first) * part / 4, last - first) for part in range(5)],
        "hidden": hidden,
        "styles": drawing.colours(view.queues),
        "page": page,
        "pages": pages,
        "planned": view.board.title.kind == "snapshot",
    }


def workload(view: RedactedView, query: Query) -> Variables:
    """Return one workload: its pods and its history."""
    gang = query["namespace"], query["name"]
    found = view.workload(gang)
    if found is None:
        raise PageNotFoundError(f"There is no workload {gang[0]}/{gang[1]}.")
    return {
        "workload": found,
        "pods": _pods(view, gang),
        "history": view.history(gang)[::-1],
        "styles": drawing.colours(view.queues),
        "evictions": [each for each in view.evictions[0] if (each.namespace, each.workload) == gang][:ROWS],
    }


def _pods(view: RedactedView, gang: Key) -> list[Variables]:
    snapshot, plan = view.moment.decided.snapshot, view.moment.decided.plan
    verdict = view.moment.decided.waiting.get(gang)
    binds = {bind.pod: bind.node for bind in plan.binds}
    promised = {each.pod: each.node for each in plan.nominations}
    found = []
    for row in snapshot.gangs.pods(snapshot.gangs.rows_of([gang])[gang]):
        meta = snapshot.pods.objects[row].metadata
        key = meta.key
        at = int(snapshot.pods.node[row])
        why = verdict.pods.get(key, "") if verdict else ""
        found.append(
            {
                "name": meta.name,
                "status": Status(int(snapshot.pods.status[row])).title,
                "node": snapshot.nodes.names[at] if at >= 0 else "",
                "next": binds.get(key, ""),
                "promised": promised.get(key, ""),
                "gpus": float(snapshot.pods.of_class(row).request[2]),
                "why": view.text(" ".join(why.split())),
            }
        )
    return sorted(found, key=lambda pod: _natural_order(pod["name"]))[: 5 * ROWS]


def _natural_order(name: str) -> list[tuple[int, int, str]]:
    """Return the sort key in which worker-10 follows worker-9."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in name.replace("-", " - ").split(" ")]


# -------------------------------------------------------------------------------------------------------------- filters
def figure(value: float | None) -> str:
    """Format a number with at most two decimals; ∞ for -1 (unlimited), a dash for None."""
    if value is None:
        return "–"
    if value == UNLIMITED:
        return "∞"
    text = f"{value:,.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:,.0f}"
    return text.replace(",", " ")


def size(value: float | None) -> str:
    """Format bytes with a unit."""
    if value is None or value == UNLIMITED:
        return figure(value)
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            return f"{figure(round(value, 1))} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def percent(value: float) -> str:
    """Format a fraction of one as a percentage."""
    return f"{100 * value:.0f} %"


def instant(value: float | None) -> str:
    """Format date and time in UTC."""
    return "–" if value is None else datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")


def machine_instant(value: float) -> str:
    """Format a time for the `datetime` attribute."""
    return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def span(value: float | None) -> str:
    """Format a duration in seconds."""
    return "–" if value is None else age(value)


def segment(value: str) -> str:
    """Quote a path segment."""
    return quote(value, safe="")


def many(count: float, thing: str) -> str:
    """Format a count with its noun."""
    return f"{figure(count)} {thing}{'' if count == 1 else 's'}"


def words(value: str) -> str:
    """Split a token such as ReclaimQueueAtFairShare into words."""
    if any(not (letter.isalnum()) for letter in value):
        return value
    spaced = "".join(f" {letter.lower()}" if letter.isupper() and at else letter for at, letter in enumerate(value))
    return spaced.replace("g p u", "GPU").replace("c p u", "CPU")


def compact(value: Any) -> str:
    """Encode JSON for a data block of a page; no `<` can end the block."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")


FILTERS = {
    "figure": figure,
    "size": size,
    "percent": percent,
    "instant": instant,
    "machine_instant": machine_instant,
    "span": span,
    "segment": segment,
    "many": many,
    "words": words,
    "short": short_name,
    "compact": compact,
    "reason": reason_line,
}
