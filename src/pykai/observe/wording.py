"""Reasons as terminal and dashboard show them: KAI's texts from conditions and events, shortened to one line.

Repeated amounts and resources without a shortage are left out. JSON output and the cluster keep the original texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from pykai.engine.reasons import AT_FAIR_SHARE, NO_NODES, POD_ERRORS, described
from pykai.model.plan import Verdict
from pykai.model.snapshot import Snapshot

AT_FAIR_SHARE_TEXT = " Queue {} is at its fair share and may not reclaim from other queues."
NOT_FEASIBLE = "no node is feasible"
_QUEUE_USE = re.compile(r"(\S+) uses <GPU: ([^,]+),.*? quota of <GPU: ([^,]+),.*? fair-share of <GPU: ([^,]+),")
_BY_PRIORITY = re.compile(r"was preempted by higher priority workload \S+")
_GROUP = re.compile(r"pg-(.+?)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHORTAGE = "enough"
"""Occurs in every reason of a node that lacks a resource."""


def many(count: float, thing: str) -> str:
    """Return a count with its noun, such as `1 pod` or `2 pods`."""
    return f"{count:g} {thing}{'' if count == 1 else 's'}"


def short_name(name: str) -> str:
    """Return the name of a PodGroup, also `namespace/name`, without the affixes of the pod grouper: its workload's."""
    namespace, slash, own = name.rpartition("/")
    found = _GROUP.fullmatch(own)
    return f"{namespace}{slash}{found[1]}" if found else name


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `: did you mean 'x'?` with the most similar known name, else the first of the known ones."""
    names = sorted(known)
    if close := get_close_matches(name, names, n=1):
        return f": did you mean {close[0]!r}?"
    return f"; there are {', '.join(names[:10])}{' ...' if len(names) > 10 else ''}" if names else ""


def line(message: str) -> str:
    """Return the message on one line."""
    return " ".join(message.split())


def reason_line(message: str) -> str:
    """Return the reason of a waiting workload or pod on one line."""
    text = line(message).replace("..", ".").removeprefix(f"{POD_ERRORS}: ").removeprefix(f"{POD_ERRORS}. ")
    before, found, nodes = text.partition(NO_NODES)
    return f"{before}{NOT_FEASIBLE}{nodes}" if found and _SHORTAGE not in nodes else text


def without_figures(reason: str) -> str:
    """Return the reason without the pod's name and amounts, to group workloads that wait for the same reason."""
    return re.sub(r"\d+(\.\d+)?", "#", re.sub(r"for pod \S+", "for a pod", reason))


def fairness(snapshot: Snapshot, gang: int, verdict: Verdict) -> str:
    """Return a sentence for the reasons of a gang that waits because its queue is at its fair share; else empty."""
    if verdict.dominant is None or verdict.dominant.token != AT_FAIR_SHARE:
        return ""
    return AT_FAIR_SHARE_TEXT.format(snapshot.queues.titles[snapshot.gangs.queue[gang]])


def shared_reason(verdict: Verdict) -> tuple[str, str]:
    """Why a workload waits: the dominant token, and a text, if possible one that does not name the workload."""
    token = "" if verdict.dominant is None else verdict.dominant.token
    if token == AT_FAIR_SHARE:
        return token, described(token)
    texts = set(verdict.pods.values())
    return token, reason_line(texts.pop() if len(texts) == 1 else verdict.message)


def eviction_reason(message: str, pod: str) -> str:
    """Why a pod is evicted, without the names of the pod (`namespace/name`) and the evictor; for a reclaim, the use and
    fair share of the pod's queue."""
    text = line(message)
    if found := _QUEUE_USE.search(text):
        queue, used, quota, fair = found.groups()
        return f"{queue} used {used} GPUs with a quota of {quota} and a fair share of {fair}"
    return _BY_PRIORITY.sub("its priority is lower", text.removeprefix(f"Pod {pod} "))


def age(seconds: float) -> str:
    """Format a duration as kubectl does, with two units at most."""
    whole = max(int(seconds), 0)
    for size, unit, smaller, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= 2 * size or (whole >= size and size > 60):
            rest = whole % size // smaller
            return f"{whole // size}{unit}{f'{rest}{below}' if rest and whole < 10 * size else ''}"
    return f"{whole}s"
