"""Azure ML jobs: a gang of as many pods as the job has nodes."""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.grouping import default
from pykai.controllers.grouping.fields import GroupingError, count_at
from pykai.controllers.grouping.spec import GroupSpec
from pykai.controllers.grouping.workload import Workload


def group(work: Workload) -> GroupSpec:
    """One group for the job; without a node count there is no telling when it may start."""
    nodes = count_at(work.top, "spec", "job", "options", "envs", "AZUREML_NODE_COUNT")
    if nodes is None:
        raise GroupingError("azureml envs count not found in spec")
    return replace(default.group(work), min_member=nodes)
