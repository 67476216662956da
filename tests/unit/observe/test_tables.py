"""Tables keep what they say at any width: the longest texts wrap, figures and drawings stay whole."""

from __future__ import annotations

from collections import Counter
from io import StringIO

import pytest
from rich.console import Console

from pykai.observe.tables import Column, table

NAME = "default/pg-train-b42d9ce5-a3a2-4515-bab4-dcb5bafe2a53"
WHY = "ReclaimQueueAtFairShare: queue team-a uses 5 of its fair share of 5 GPUs and the workload requests 1"
BAR = "█▇█████▇█▇▇█"
FIGURES = ("12345", "1 of 16")


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_nothing_is_cut_off(width: int) -> None:
    out = Console(width=width, file=StringIO())
    columns: list[Column | str] = [
        Column("position", right=True),
        Column("pods", right=True),
        Column("use", drawn=True),
    ]
    columns += ["workload", "why"]
    out.print(table("Order of service", columns, [(FIGURES[0], FIGURES[1], BAR, NAME, WHY)]))
    assert isinstance(out.file, StringIO)
    lines = out.file.getvalue().splitlines()
    assert all(any(whole in line for line in lines) for whole in (*FIGURES, BAR, "position"))
    body = Counter("".join(lines[3:])) - Counter(" " * width * len(lines))
    assert body == Counter("".join((NAME, WHY, BAR, *FIGURES)).replace(" ", ""))
