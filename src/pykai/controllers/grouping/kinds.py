"""Every workload kind we know and how its pods are grouped: one row per kind, the rules beside it by family.

A row is found by group, version and kind; `*` stands for any version. A kind without a row is grouped as a `Karta` in
the cluster describes it, or by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pykai.controllers.grouping import (
    azureml,
    batch,
    default,
    grove,
    jobset,
    karta,
    knative,
    kubeflow,
    lws,
    pods,
    pytorch,
    ray,
    skip_owner,
)
from pykai.controllers.grouping.fields import group_version_kind
from pykai.controllers.grouping.spec import GroupSpec
from pykai.controllers.grouping.workload import BUILD, INFERENCE, TRAIN, Rule, Workload

ANY_VERSION = "*"


@dataclass(frozen=True)
class Kind:
    """How one kind is grouped; `all_owners`: labels and annotations count on every owner, not on the top one alone."""

    group: str
    version: str
    kind: str
    rule: Rule
    priority: str = TRAIN
    all_owners: bool = False

    def apply(self, work: Workload) -> GroupSpec:
        """The group of a pod whose top owner is of this kind."""
        owners = work.owners if self.all_owners else ()
        return self.rule(replace(work, owners=owners, default_priority=self.priority))


def _inner(work: Workload) -> GroupSpec:
    """Kinds that wrap another workload: the inner one is grouped by the row of its exact kind."""
    return skip_owner.group(work, lambda inner: TABLE.get(group_version_kind(inner.top), DEFAULT).apply(inner))


def _all(rows: Iterable[Kind]) -> Mapping[tuple[str, str, str], Kind]:
    return {(row.group, row.version, row.kind): row for row in rows}


DEFAULT = Kind("*", ANY_VERSION, "*", default.group, all_owners=True)
KARTA = Kind("*", ANY_VERSION, "*", karta.group, all_owners=True)

TABLE: Mapping[tuple[str, str, str], Kind] = _all(
    (
        Kind("", "v1", "Pod", pods.pod),
        Kind("apps", "v1", "Deployment", pods.deployment, INFERENCE),
        Kind("apps", "v1", "ReplicaSet", default.group, all_owners=True),
        Kind("apps", "v1", "StatefulSet", default.group, all_owners=True),
        Kind("batch", "v1", "Job", batch.job),
        Kind("batch", "v1", "CronJob", batch.cron_job),
        Kind("run.ai", "v1", "RunaiJob", batch.runai_job),
        Kind("kubeflow.org", "v1", "TFJob", kubeflow.gang("tfReplicaSpecs")),
        Kind("kubeflow.org", "v1", "XGBoostJob", kubeflow.gang("xgbReplicaSpecs", "Master", "Worker")),
        Kind("kubeflow.org", "v1", "JAXJob", kubeflow.gang("jaxReplicaSpecs", "Worker")),
        Kind("kubeflow.org", "v1", "MPIJob", kubeflow.mpi),
        Kind("kubeflow.org", "v2beta1", "MPIJob", kubeflow.mpi),
        Kind("kubeflow.org", "v1", "PyTorchJob", pytorch.group),
        Kind("kubeflow.org", "v1beta1", "Notebook", default.group, BUILD),
        Kind("kubeflow.org", "v1alpha1", "ScheduledWorkflow", default.group, all_owners=True),
        Kind("trainer.kubeflow.org", "v1alpha1", "TrainJob", _inner, all_owners=True),
        Kind("ray.io", "v1", "RayCluster", ray.cluster),
        Kind("ray.io", "v1alpha1", "RayCluster", ray.cluster),
        Kind("ray.io", "v1", "RayJob", ray.on_cluster(*ray.CLUSTER_NAME_OF_JOB)),
        Kind("ray.io", "v1alpha1", "RayJob", ray.on_cluster(*ray.CLUSTER_NAME_OF_JOB)),
        Kind("ray.io", "v1", "RayService", ray.on_cluster(*ray.CLUSTER_NAME_OF_SERVICE)),
        Kind("ray.io", "v1alpha1", "RayService", ray.on_cluster(*ray.CLUSTER_NAME_OF_SERVICE)),
        Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", jobset.group),
        Kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", lws.group),
        Kind("grove.io", "v1alpha1", "PodCliqueSet", grove.group),
        Kind("grove.io", "v1alpha1", "PodGangSet", grove.group),
        Kind("nvidia.com", ANY_VERSION, "DynamoGraphDeployment", _inner, all_owners=True),
        Kind("serving.knative.dev", "v1", "Service", knative.group, INFERENCE),
        Kind("machinelearning.seldon.io", "v1", "SeldonDeployment", default.group, all_owners=True),
        Kind("machinelearning.seldon.io", "v1alpha2", "SeldonDeployment", default.group, all_owners=True),
        Kind("egx.nvidia.io", "v1", "SPOTRequest", default.group, INFERENCE),
        Kind("amlarc.azureml.com", "v1alpha1", "AmlJob", azureml.group),
        Kind("kubevirt.io", "v1", "VirtualMachineInstance", default.group, all_owners=True),
        Kind("workspace.devfile.io", "v1alpha2", "DevWorkspace", default.group, all_owners=True),
        Kind("tekton.dev", "v1", "PipelineRun", default.group, all_owners=True),
        Kind("tekton.dev", "v1", "TaskRun", default.group, all_owners=True),
        Kind("argoproj.io", "v1alpha1", "Workflow", _inner, all_owners=True),
        Kind("run.ai", ANY_VERSION, "TrainingWorkload", _inner, all_owners=True),
        Kind("run.ai", ANY_VERSION, "InteractiveWorkload", _inner, all_owners=True),
        Kind("run.ai", ANY_VERSION, "DistributedWorkload", _inner, all_owners=True),
        Kind("run.ai", ANY_VERSION, "InferenceWorkload", _inner, all_owners=True),
        Kind("run.ai", ANY_VERSION, "DistributedInferenceWorkload", _inner, all_owners=True),
    )
)


def known(group: str, version: str, kind: str) -> Kind | None:
    """The row of a kind; None where the table has none."""
    return TABLE.get((group, version, kind)) or TABLE.get((group, ANY_VERSION, kind))


def choose(group: str, version: str, kind: str, karta_fallback: bool) -> Kind:
    """How a kind is grouped, known or not."""
    return known(group, version, kind) or (KARTA if karta_fallback else DEFAULT)


def group_workload(work: Workload) -> GroupSpec:
    """The group of a pod, by the kind of its top owner."""
    return choose(*group_version_kind(work.top), work.settings.karta_fallback).apply(work)
