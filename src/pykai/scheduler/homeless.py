"""Bind requests whose node is not there any more: nobody can carry them out, their pods wait for another place."""

from __future__ import annotations

from pykai.cache.cluster import ClusterCache
from pykai.objects.kinds import BindRequest, Node


def is_homeless(request: BindRequest, cache: ClusterCache) -> bool:
    """Whether a request of this partition is for a node that does not exist; other partitions know their own nodes."""
    if ("", request.spec.selected_node) in cache.of(Node):
        return False
    params = cache.params
    pool = (request.metadata.labels or {}).get(params.node_pool_key)
    return not params.partitioned or pool == (params.node_pool or None)
