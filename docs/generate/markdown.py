"""Tables in Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; an empty cell is a dash."""
    lines = [_line(heads), "|" + "---|" * len(heads)]
    return "\n".join([*lines, *(_line([_cell(each) for each in row]) for row in rows)]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|") or "-"


def code(value: Any) -> str:
    """A value as one would write it; nothing for None and what is empty."""
    if value in (None, "", {}, []):
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}`"
