"""Labels and fields of the nodes of a snapshot as columns: what selectors over nodes are asked of."""

from __future__ import annotations

from collections.abc import Sequence

from pykai.kernels.selectors import LabelColumns, in_some_term
from pykai.model.resources import Mask
from pykai.model.snapshot import NodeTable, Snapshot
from pykai.objects.pod_template import NodeTerm

NAME_FIELD = "metadata.name"


def labels(nodes: NodeTable) -> LabelColumns:
    """Node labels by key; to be asked for through `nodes.derived`."""
    return LabelColumns(nodes.labels)


def fields(nodes: NodeTable) -> LabelColumns:
    """The one field node selectors may name."""
    return LabelColumns([{NAME_FIELD: name} for name in nodes.names])


def in_terms(snapshot: Snapshot, terms: Sequence[NodeTerm]) -> Mask:
    """The nodes that some node selector term speaks of."""
    return in_some_term(snapshot.nodes.derived(labels), snapshot.nodes.derived(fields), terms)
