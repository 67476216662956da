"""Pods without a workload, and workloads whose pods stand alone."""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.grouping import default
from pykai.controllers.grouping.fields import Object, labels_of
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
