"""Shrinking: finds a minimal history of a seed with the same violation, and formats it as a timeline.

Faults and objects are removed in ever smaller parts while the same invariant is violated. Removing a fault moves no
other one (see `api`), so that most of them can be removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pykai.simulate.faults.run import Outcome, Reduction
from pykai.simulate.faults.worlds import world

MOST_RUNS = 150
_SHOWN = ("Requested", "Scheduled", "Started", "Evicted", "Gone", "Finished", "Failed", "Deleted")
Play = Callable[[Reduction], Outcome]


def shrunk(outcome: Outcome, again: Play, most_runs: int = MOST_RUNS) -> Outcome:
    """Return the shortest history found that violates the same invariant, at worst the given one."""
    rule = outcome.violations[0].check
    best, shape, runs = outcome, Reduction(), 0

    def still_fails(tried: Reduction) -> bool:
        nonlocal best, shape, runs
        runs += 1
        found = again(tried)
        failing = any(violation.check == rule for violation in found.violations)
        if failing:
            best, shape = found, tried
        return failing

    work = sorted({arrival.source for arrival in world(outcome.seed).work})
    for part in _parts(work, lambda: runs < most_runs):
        still_fails(Reduction(shape.without_faults, shape.without_work | frozenset(part)))
    points = [fault.point for fault in best.faults]
    for part in _parts(points, lambda: runs < most_runs):
        if not shape.without_faults.issuperset(part):
            still_fails(Reduction(shape.without_faults | frozenset(part), shape.without_work))
    return best


def _parts(items: Sequence[str], goes_on: Callable[[], bool]) -> Iterator[Sequence[str]]:
    """Yield all items, then halves, quarters and so on down to single ones."""
    size = len(items)
    while size >= 1:
        for start in range(0, len(items), size):
            if not goes_on():
                return
            yield items[start : start + size]
        size = size // 2


def story(short: Outcome, whole: Outcome) -> str:
    """Format a history as a timeline of faults, events and violations."""
    lines = [(fault.at, f"FAULT  {fault}") for fault in short.faults]
    lines += [
        (event.at, f"       {event.kind} {event.about} {event.message}".rstrip())
        for event in short.events
        if event.kind in _SHOWN
    ]
    lines += [(violation.at, f"WRONG  {violation}") for violation in short.violations]
    head = (
        f"seed {short.seed} ({short.title}), shrunk from {len(whole.faults)} faults and {whole.pods} pods "
        f"to {len(short.faults)} faults and {short.pods} pods:"
    )
    return "\n".join([head, *(f"{at:8.1f} s  {text}" for at, text in sorted(lines, key=lambda line: line[0]))])
