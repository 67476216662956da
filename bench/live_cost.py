"""What a stretch of time cost: writes that the API server took, by kind, and processor time of every part."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bench.live_cluster import LiveCluster
from bench.measure import BenchError

WRITES = {"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}
NOT_COUNTED = {"leases", "subjectaccessreviews", "tokenreviews"}
"""Heartbeats, and questions that change nothing."""
QUIET_SECONDS = 2.0
MOST_LOOKS = 30
_LINE = re.compile(r"^apiserver_request_total\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Write = tuple[str, str]
"""(verb, resource or resource/subresource)."""


@dataclass(frozen=True)
class Meter:
    """The readings at one moment."""

    writes: Counter[Write]
    cpu: dict[str, float]


def read(cluster: LiveCluster) -> Meter:
    """The readings now."""
    return Meter(count_writes(_metrics(cluster.kubeconfig)), cluster.cpu())


async def read_when_quiet(cluster: LiveCluster) -> Meter:
    """The readings once nothing is written any more: status and events come seconds after what they are about."""
    meter = read(cluster)
    for _ in range(MOST_LOOKS):
        await asyncio.sleep(QUIET_SECONDS)
        before, meter = meter, read(cluster)
        if meter.writes == before.writes:
            return meter
    raise BenchError("the cluster does not come to rest: somebody else writes to it")


def count_writes(metrics: str) -> Counter[Write]:
    """Requests that write, from the API server's metrics in Prometheus' text format."""
    found: Counter[Write] = Counter()
    for labels, value in _LINE.findall(metrics):
        of = dict(_LABEL.findall(labels))
        if of["verb"] in WRITES and of["resource"] not in NOT_COUNTED:
            place = f"{of['resource']}/{of['subresource']}" if of["subresource"] else of["resource"]
            found[of["verb"], place] += int(float(value))
    return found


def _metrics(kubeconfig: Path) -> str:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    command = ["kubectl", "get", "--raw", "/metrics"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@dataclass(frozen=True)
class Cost:
    """The difference of two readings."""

    writes: Counter[Write]
    cpu: dict[str, float]

    @classmethod
    def between(cls, before: Meter, after: Meter, own: Counter[Write]) -> Cost:
        """What happened from one reading to the other, without the writes of the benchmark itself (`own`)."""
        cpu = {part: after.cpu[part] - before.cpu.get(part, 0.0) for part in after.cpu}
        return cls(after.writes - before.writes - own, cpu)

    @property
    def total_writes(self) -> int:
        """All writes."""
        return sum(self.writes.values())

    @property
    def total_cpu(self) -> float:
        """Seconds of all parts."""
        return sum(self.cpu.values())
