"""The only door from the grouping rules to the rest of the cluster.

Rules ask for other objects (the RayCluster behind a RayJob, a PriorityClass, an older PodGroup) through this Protocol
and never wait: whoever calls them answers from memory. An answer that is not in memory is the caller's affair; an
exception of its own, raised here, passes through every rule untouched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pykai.controllers.grouping.fields import Object


class ForbiddenError(Exception):
    """The grouper may not read objects of that kind."""


class Lookup(Protocol):
    """Reads of the cluster. Returned objects carry `apiVersion` and `kind`, also where a list would omit them."""

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        """The object, None where it does not exist; the namespace is ignored for cluster-wide kinds.

        Raises ForbiddenError where the grouper lacks the right to read the kind.
        """

    def list(self, api_version: str, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Object]:
        """Objects with all these labels; none where the kind itself is not installed."""
