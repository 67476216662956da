"""What plugins of third parties import: the extension points and the types in their signatures.

**Stability.** Names in `__all__`, the methods of the Protocols and the meaning of their arguments follow semantic
versioning: from 1.0 on they change only with a major version, and a name that goes is deprecated for one minor version
first. Before 1.0 a change is in the changelog under "Plugins". Everything else below `pykai` is internal and may change
at any time, attributes of `Cycle` and `Trial` included, except those that docs/plugins.md lists.
"""

from __future__ import annotations

from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import (
    ANY,
    BindDetails,
    Companions,
    DeviceScore,
    GangOrder,
    MemberOrder,
    NodeFilter,
    NodeLook,
    NodeResource,
    NodeResourceState,
    NodeScore,
    NodeSets,
    NodeSubsets,
    PodGate,
    PodOrder,
    PodScore,
    QuotaPolicy,
    Refusal,
    Rejection,
    RelativeScore,
    RunTimes,
    ScenarioValidator,
    SortKey,
    VictimBlockers,
    VictimChoice,
    VictimColumn,
    VictimFilter,
)
from pykai.engine.pod_locations import PodCounts, PodLocations
from pykai.engine.trial import Trial
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Mask, Rows
from pykai.model.snapshot import Snapshot

__all__ = [
    "ANY",
    "BindDetails",
    "Column",
    "Companions",
    "Cycle",
    "DeviceScore",
    "GangOrder",
    "Mask",
    "MemberOrder",
    "NodeFilter",
    "NodeLook",
    "NodeResource",
    "NodeResourceState",
    "NodeScore",
    "NodeSets",
    "NodeSubsets",
    "PodClass",
    "PodCounts",
    "PodGate",
    "PodLocations",
    "PodOrder",
    "PodScore",
    "QuotaPolicy",
    "Refusal",
    "Rejection",
    "RelativeScore",
    "Rows",
    "RunTimes",
    "ScenarioValidator",
    "Snapshot",
    "SortKey",
    "Trial",
    "VictimBlockers",
    "VictimChoice",
    "VictimColumn",
    "VictimFilter",
]
