"""Pods on their own and the kinds of `apps` and of others that differ from the default in a line or two."""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.grouping import default
from pykai.controllers.grouping.fields import GroupingError, Object, count_at, labels_of
from pykai.controllers.grouping.spec import GroupSpec
from pykai.controllers.grouping.workload import Workload

_SPARK_NAME, _SPARK_SELECTOR = "spark-app-name", "spark-app-selector"


def pod(work: Workload) -> GroupSpec:
    """A pod without a workload; driver and executors of one Spark application share a group."""
    spec = default.group(work)
    if not is_spark_pod(work.pod):
        return spec
    return replace(spec, name=labels_of(work.pod)[_SPARK_SELECTOR])


def is_spark_pod(obj: Object) -> bool:
    """Whether Spark made the pod."""
    return {_SPARK_NAME, _SPARK_SELECTOR} <= labels_of(obj).keys()


def deployment(work: Workload) -> GroupSpec:
    """One group per pod: the replicas of a service do not wait for one another."""
    return default.per_pod(work, default.group(work))


def azure_ml(work: Workload) -> GroupSpec:
    """A gang of as many pods as the job has nodes."""
    nodes = count_at(work.top, "spec", "job", "options", "envs", "AZUREML_NODE_COUNT")
    if nodes is None:
        raise GroupingError("azureml envs count not found in spec")
    return replace(default.group(work), min_member=nodes)
