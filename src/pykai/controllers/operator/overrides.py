"""Tables of plugins and actions, and what users change about them: one rule for the scheduler's and the binder's.

`enabled` and `priority` of a change go before the table one by one, `arguments` replace all default ones. A name that
no table knows is on, with priority 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pykai.objects.config_kinds import Override


@dataclass(frozen=True)
class Row:
    """A plugin or an action, complete."""

    enabled: bool
    priority: int
    arguments: Mapping[str, str]


UNKNOWN = Row(True, 0, {})


def changed(usual: Mapping[str, Row], changes: Mapping[str, Override]) -> dict[str, Row]:
    """The table after the changes."""
    return {**usual, **{name: _row(usual.get(name, UNKNOWN), change) for name, change in changes.items()}}


def _row(row: Row, change: Override) -> Row:
    return Row(
        row.enabled if change.enabled is None else change.enabled,
        row.priority if change.priority is None else change.priority,
        row.arguments if change.arguments is None else change.arguments,
    )


def in_order(rows: Mapping[str, Row]) -> list[tuple[str, Row]]:
    """Those that are on: higher priority first, then by name."""
    return sorted(
        ((name, row) for name, row in rows.items() if row.enabled), key=lambda item: (-item[1].priority, item[0])
    )
