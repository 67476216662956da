"""Pod grouping: which pods of which workloads form a gang, decided without I/O.

`group_pod(pod, lookup, settings)` gives the group a pod belongs to (in two steps: `workload_of`, `group_of`);
`pod_group_to_write` and `pod_patch` say what to write for it, `ignored_wishes` what to tell the user. The kinds of
workload we know are the table in `kinds`; `default` is what all of them start from.
"""

from pykai.controllers.grouping.assignment import pod_patch
from pykai.controllers.grouping.fields import GroupingError
from pykai.controllers.grouping.group import group_of, group_pod, workload_of
from pykai.controllers.grouping.ignored import ignored_wishes
from pykai.controllers.grouping.lookup import ForbiddenError, Lookup
from pykai.controllers.grouping.pod_group import pod_group_to_write
from pykai.controllers.grouping.spec import GroupSpec, SubGroup, Topology
from pykai.controllers.grouping.workload import Settings, Workload

__all__ = [
    "ForbiddenError",
    "GroupSpec",
    "GroupingError",
    "Lookup",
    "Settings",
    "SubGroup",
    "Topology",
    "Workload",
    "group_of",
    "group_pod",
    "ignored_wishes",
    "pod_group_to_write",
    "pod_patch",
    "workload_of",
]
