"""What `make bench-start` makes of the starts of a component."""

from __future__ import annotations

from bench import start

from pykai.cli.main import COMMANDS


def test_a_row_has_the_median_the_least_and_the_most() -> None:
    assert start.rows({"kai binder": [0.3, 0.5, 0.31]}) == [["kai binder", "0.31", "0.30", "0.50"]]


def test_every_component_that_stays_is_measured() -> None:
    components = {name for name, row in COMMANDS.items() if row.help.startswith("Component:")}
    measured = {command.removeprefix("kai ") for command in start.COMPONENTS}
    assert components - measured == {"numa-placement-exporter"}, "that one needs the state of a kubelet"
