"""A report: plots as images, and one page that shows them with the figures behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from statistics import median

from pykai.model.resources import GPU
from pykai.simulate import plots
from pykai.simulate.history import Outcome, PodLife
from pykai.simulate.summary import headline, waited
from pykai.simulate.timeline import clock, workload_title

PAGE = "index.html"
MOST_ROWS = 200
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2937; max-width: 68rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
img { max-width: 100%; height: auto }
table { border-collapse: collapse; width: 100%; font-size: 14px }
th { text-align: left; border-bottom: 2px solid #d1d5db } td { border-bottom: 1px solid #e5e7eb; vertical-align: top }
th, td { padding: .3rem .8rem .3rem 0 } .figure { text-align: right; white-space: nowrap }
"""
_QUEUE_COLUMNS = ("queue", "GPU quota", "pods", "started", "evicted", "median wait", "longest wait")
Cell = str | float | int


def write(outcome: Outcome, folder: Path) -> Path:
    """Write images and page into a folder, which is made if it does not exist; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    images = plots.write(outcome, folder)
    page = folder / PAGE
    page.write_text("\n".join(_page(outcome, images)) + "\n", encoding="utf-8")
    return page


def _page(outcome: Outcome, images: Sequence[tuple[str, str]]) -> Iterator[str]:
    title = "Simulation report"
    yield f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE}</style>\n<h1>{title}</h1>\n<p>{escape(headline(outcome))}.</p>"
    for name, heading in images:
        yield f'<h2>{escape(heading)}</h2>\n<img src="{escape(name)}" alt="{escape(heading)}">'
    yield from _table("Queues", _QUEUE_COLUMNS, _queues(outcome))
    yield from _table("Evicted pods", ("at", "action", "pod", "why"), _evicted(outcome))
    yield from _table("Pods that still wait", ("since", "workload", "pod", "why"), _waiting(outcome))


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    if not rows:
        return
    yield f"<h2>{escape(title)}</h2>\n<table>\n<tr>{''.join(f'<th>{escape(c)}</th>' for c in columns)}</tr>"
    for row in rows[:MOST_ROWS]:
        yield f"<tr>{''.join(map(_cell, row))}</tr>"
    yield "</table>"
    if len(rows) > MOST_ROWS:
        yield f"<p>and {len(rows) - MOST_ROWS} more</p>"


def _cell(value: Cell) -> str:
    return f"<td>{escape(value)}</td>" if isinstance(value, str) else f'<td class="figure">{value:g}</td>'


def _queues(outcome: Outcome) -> list[tuple[Cell, ...]]:
    by_queue: dict[str, list[PodLife]] = {}
    for life in outcome.history.lives:
        by_queue.setdefault(life.queue, []).append(life)
    return [_queue(outcome, name, by_queue.get(name, [])) for name in plots.leaves(outcome)]


def _queue(outcome: Outcome, name: str, lives: Sequence[PodLife]) -> tuple[Cell, ...]:
    quota = float(outcome.queues.deserved[GPU, outcome.queues.rows[name]])
    times = [waited(life, outcome.history.ended_at) for life in lives]
    return (
        name,
        "∞" if quota < 0 else quota,
        len(lives),
        sum(life.scheduled_at is not None for life in lives),
        sum(life.evicted_at is not None for life in lives),
        clock(median(times)) if times else "-",
        clock(max(times)) if times else "-",
    )


def _evicted(outcome: Outcome) -> list[tuple[Cell, ...]]:
    found = [life for life in outcome.history.lives if life.evicted_at is not None]
    found.sort(key=lambda life: life.evicted_at or 0.0)
    return [(clock(life.evicted_at or 0.0), life.evicted_by, life.title, life.reason) for life in found]


def _waiting(outcome: Outcome) -> list[tuple[Cell, ...]]:
    found = [life for life in outcome.history.lives if life.state == "Waiting"]
    return [(clock(life.arrived_at), workload_title(life), life.title, life.reason) for life in found]
