"""What `kai local status` shows of local clusters: as a table for people, as a document for programs."""

from __future__ import annotations

import time
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from pykai.local import clusters
from pykai.local.process import resident_bytes

_MIB = 1024 * 1024


def summary(record: clusters.Record) -> dict[str, Any]:
    """A cluster as `-o json` shows it; memory in MiB."""
    fields = ("name", "version", "url", "kubeconfig", "nodes", "components", "failure")
    return {
        **{field: getattr(record, field) for field in fields},
        "state": record.state(),
        "ageSeconds": round(time.time() - record.created),
        "parts": _part_states(record),
    }


def show(found: list[clusters.Record]) -> None:
    """Print a table of clusters and their processes, and how each is used or why it failed."""
    if not found:
        click.echo("no local cluster; `kai local up` starts one")
        return
    table = Table("cluster", "state", "nodes", "part", "pid", "MiB", box=SIMPLE_HEAD)
    for record in found:
        for number, row in enumerate(_part_states(record)):
            own = ("", "", "") if number else (record.name, record.state(), str(record.nodes))
            memory = str(row["memoryMiB"]) if row["alive"] else "ended"
            table.add_row(*own, row["name"], str(row["pid"]), memory)
    Console().print(table)
    for record in found:
        click.echo(f"{record.name}: {record.failure or f'export KUBECONFIG={record.kubeconfig}'}")


def _part_states(record: clusters.Record) -> list[dict[str, Any]]:
    rows = {"kai": record.owner, **record.parts}
    return [
        {"name": name, "pid": process.pid, "alive": process.alive(), "memoryMiB": resident_bytes(process.pid) // _MIB}
        for name, process in rows.items()
    ]
