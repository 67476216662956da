"""Validation of Topologies: a level may be called by its label or its alias, so no name may mean two levels."""

from __future__ import annotations

from collections import Counter

from pykai.admission.verdict import RefusedError, Verdict, declared, judged
from pykai.objects import crds
from pykai.objects.kinds import Topology


@judged
def validate_topology(topology: object) -> Verdict:
    """Admit a topology whose aliases are unique and differ from every level's node label."""
    levels = declared(crds.TOPOLOGY, Topology, "topology", topology).spec.levels
    aliases = Counter(level.alias for level in levels if level.alias)
    labels = {level.node_label for level in levels}
    repeated = sorted(alias for alias, count in aliases.items() if count > 1)
    conflicting = sorted(alias for alias in aliases if alias in labels)
    problems = []
    if repeated:
        problems.append(f"aliases must be unique within the topology; duplicated: [{' '.join(repeated)}]")
    if conflicting:
        problems.append(f"an alias must not equal a nodeLabel; conflicting: [{' '.join(conflicting)}]")
    if problems:
        raise RefusedError("invalid topology aliases: " + "; ".join(problems))
    return Verdict()
