"""The table of workload kinds and their grouping rules, one row per kind.

A row matches by group, version and kind; `*` matches any version. A kind without a row is grouped by a `Karta` of the
cluster that describes it, else by default. Kinds that wrap another workload are grouped by the rule of the workload
inside; labels and annotations of the wrapper apply where the inner object has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pykai.controllers.podgrouper.rules import defaults, grove, karta, kubeflow, leaderworkerset, ray, replicated
from pykai.controllers.podgrouper.rules.defaults import default_for, kind_defaults
from pykai.controllers.podgrouper.rules.workload import (
    BUILD,
    INFERENCE,
    TRAIN,
    GroupingError,
    GroupSpec,
    Rule,
    Workload,
    annotations_of,
    group_version_kind,
    labels_of,
    name_of,
    namespace_of,
    text_at,
)
from pykai.objects import names


def group_wrapped(work: Workload, group_inner: Callable[[Workload], GroupSpec]) -> GroupSpec:
    """Return the group of the workload below the top owner, or of the pod itself if there is none.

    Labels of the inner object take precedence, then the administrator's defaults for the kind of the wrapper, then the
    labels of the wrapper.
    """
    below = work.owners[:-1]
    inner = work.pod
    if below:
        owner = below[-1]
        home = namespace_of(owner) or namespace_of(work.pod)
        found = work.lookup.get(text_at(owner, "apiVersion"), text_at(owner, "kind"), home, name_of(owner))
        if found is None:
            raise GroupingError(f"{text_at(owner, 'kind')} {home}/{name_of(owner)} does not exist")
        inner = found
    configured = default_for(work.top, kind_defaults(work))
    inherited = dict(labels_of(work.top))
    if work.has_priority_class(configured.priority_class):
        inherited[names.PRIORITY_CLASS_LABEL] = configured.priority_class
    if configured.preemptibility:
        inherited[names.PREEMPTIBILITY_LABEL] = configured.preemptibility
    metadata = {
        **(inner.get("metadata") or {}),
        "labels": {**inherited, **labels_of(inner)},
        "annotations": {**annotations_of(work.top), **annotations_of(inner)},
    }
    inner = {**inner, "metadata": metadata}
    return group_inner(replace(work, top=inner, owners=(*below[:-1], inner) if below else ()))


ANY_VERSION = "*"
ONE_GROUP = "One group."
_BATCH = "One group, or a gang of the minimum in annotation `kai.scheduler/batch-min-member`."
_INNER = "Like the workload that it wraps."
_KUBEFLOW = "A gang of all replicas, or of `spec.runPolicy.schedulingPolicy.minAvailable`."
_RAY = "A gang of the head and the minimum number of workers of each worker group."
_GROVE = "The gangs that Grove's own PodGangs describe."


@dataclass(frozen=True)
class WorkloadKind:
    """The row of one kind.

    `starts`: which pods start together, for the reference documentation. `all_owners`: labels and annotations of every
    owner apply, not only those of the top owner.
    """

    group: str
    version: str
    kind: str
    rule: Rule
    priority: str = TRAIN
    all_owners: bool = False
    starts: str = ONE_GROUP

    def apply(self, work: Workload) -> GroupSpec:
        """Return the group of a pod whose top owner is of this kind."""
        owners = work.owners if self.all_owners else ()
        return self.rule(replace(work, owners=owners, default_priority=self.priority))


def wrapped(work: Workload) -> GroupSpec:
    """Return the group of a wrapped workload, by the row of its kind."""
    return group_wrapped(work, lambda inner: (known(*group_version_kind(inner.top)) or DEFAULT).apply(inner))


DEFAULT = WorkloadKind("*", ANY_VERSION, "*", defaults.with_batch_minimum, all_owners=True)
KARTA = WorkloadKind("*", ANY_VERSION, "*", karta.by_karta, all_owners=True)

TABLE: Mapping[tuple[str, str, str], WorkloadKind] = {
    (row.group, row.version, row.kind): row
    for row in (
        WorkloadKind(
            "",
            "v1",
            "Pod",
            replicated.pod,
            starts="A group of its own; driver and executors of one Spark application share one.",
        ),
        WorkloadKind("apps", "v1", "Deployment", replicated.deployment, INFERENCE, starts=_BATCH),
        WorkloadKind("apps", "v1", "ReplicaSet", defaults.with_batch_minimum, all_owners=True, starts=_BATCH),
        WorkloadKind("apps", "v1", "StatefulSet", replicated.stateful_set, all_owners=True, starts=_BATCH),
        WorkloadKind(
            "batch",
            "v1",
            "Job",
            replicated.job,
            starts=_BATCH,
        ),
        WorkloadKind("batch", "v1", "CronJob", replicated.cron_job, starts="One group for each run."),
        WorkloadKind("run.ai", "v1", "RunaiJob", replicated.runai_job, starts="One group for each index."),
        WorkloadKind("kubeflow.org", "v1", "TFJob", kubeflow.gang("tfReplicaSpecs"), starts=_KUBEFLOW),
        WorkloadKind(
            "kubeflow.org", "v1", "XGBoostJob", kubeflow.gang("xgbReplicaSpecs", "Master", "Worker"), starts=_KUBEFLOW
        ),
        WorkloadKind("kubeflow.org", "v1", "JAXJob", kubeflow.gang("jaxReplicaSpecs", "Worker"), starts=_KUBEFLOW),
        WorkloadKind(
            "kubeflow.org",
            "v1",
            "MPIJob",
            kubeflow.mpi,
            starts=f"{_KUBEFLOW} A launcher that is made once the workers are ready is not waited for.",
        ),
        WorkloadKind(
            "kubeflow.org",
            "v2beta1",
            "MPIJob",
            kubeflow.mpi,
            starts=f"{_KUBEFLOW} A launcher that is made once the workers are ready is not waited for.",
        ),
        WorkloadKind(
            "kubeflow.org",
            "v1",
            "PyTorchJob",
            kubeflow.pytorch_job,
            starts=f"{_KUBEFLOW} With an elastic policy: of its `minReplicas`.",
        ),
        WorkloadKind("kubeflow.org", "v1beta1", "Notebook", defaults.group, BUILD),
        WorkloadKind("kubeflow.org", "v1alpha1", "ScheduledWorkflow", defaults.group, all_owners=True),
        WorkloadKind("trainer.kubeflow.org", "v1alpha1", "TrainJob", wrapped, all_owners=True, starts=_INNER),
        WorkloadKind("ray.io", "v1", "RayCluster", ray.cluster, starts=_RAY),
        WorkloadKind("ray.io", "v1alpha1", "RayCluster", ray.cluster, starts=_RAY),
        WorkloadKind("ray.io", "v1", "RayJob", ray.on_cluster(*ray.CLUSTER_NAME_OF_JOB), starts=_RAY),
        WorkloadKind("ray.io", "v1alpha1", "RayJob", ray.on_cluster(*ray.CLUSTER_NAME_OF_JOB), starts=_RAY),
        WorkloadKind("ray.io", "v1", "RayService", ray.on_cluster(*ray.CLUSTER_NAME_OF_SERVICE), starts=_RAY),
        WorkloadKind("ray.io", "v1alpha1", "RayService", ray.on_cluster(*ray.CLUSTER_NAME_OF_SERVICE), starts=_RAY),
        WorkloadKind(
            "jobset.x-k8s.io",
            "v1alpha2",
            "JobSet",
            replicated.job_set,
            starts="A gang of all replicated jobs; where they start in order, one is enough.",
        ),
        WorkloadKind(
            "leaderworkerset.x-k8s.io",
            "v1",
            "LeaderWorkerSet",
            leaderworkerset.leader_worker_set,
            starts="A gang for each leader and its workers; with `LeaderReady` the leader goes ahead.",
        ),
        WorkloadKind("grove.io", "v1alpha1", "PodCliqueSet", grove.pod_gang, starts=_GROVE),
        WorkloadKind("grove.io", "v1alpha1", "PodGangSet", grove.pod_gang, starts=_GROVE),
        WorkloadKind("nvidia.com", ANY_VERSION, "DynamoGraphDeployment", wrapped, all_owners=True, starts=_INNER),
        WorkloadKind(
            "serving.knative.dev",
            "v1",
            "Service",
            replicated.knative_service,
            INFERENCE,
            starts="A gang of the revision's `autoscaling.knative.dev/min-scale` pods.",
        ),
        WorkloadKind("machinelearning.seldon.io", "v1", "SeldonDeployment", defaults.group, all_owners=True),
        WorkloadKind("machinelearning.seldon.io", "v1alpha2", "SeldonDeployment", defaults.group, all_owners=True),
        WorkloadKind("egx.nvidia.io", "v1", "SPOTRequest", defaults.group, INFERENCE),
        WorkloadKind(
            "amlarc.azureml.com",
            "v1alpha1",
            "AmlJob",
            replicated.aml_job,
            starts="A gang of `AZUREML_NODE_COUNT` pods.",
        ),
        WorkloadKind("kubevirt.io", "v1", "VirtualMachineInstance", defaults.group, all_owners=True),
        WorkloadKind("workspace.devfile.io", "v1alpha2", "DevWorkspace", defaults.group, all_owners=True),
        WorkloadKind("tekton.dev", "v1", "PipelineRun", defaults.group, all_owners=True),
        WorkloadKind("tekton.dev", "v1", "TaskRun", defaults.group, all_owners=True),
        WorkloadKind("argoproj.io", "v1alpha1", "Workflow", wrapped, all_owners=True, starts=_INNER),
        WorkloadKind("run.ai", ANY_VERSION, "TrainingWorkload", wrapped, all_owners=True, starts=_INNER),
        WorkloadKind("run.ai", ANY_VERSION, "InteractiveWorkload", wrapped, all_owners=True, starts=_INNER),
        WorkloadKind("run.ai", ANY_VERSION, "DistributedWorkload", wrapped, all_owners=True, starts=_INNER),
        WorkloadKind("run.ai", ANY_VERSION, "InferenceWorkload", wrapped, all_owners=True, starts=_INNER),
        WorkloadKind("run.ai", ANY_VERSION, "DistributedInferenceWorkload", wrapped, all_owners=True, starts=_INNER),
        WorkloadKind("run.ai", ANY_VERSION, "WorkloadRunner", wrapped, all_owners=True, starts=_INNER),
    )
}


def known(group: str, version: str, kind: str) -> WorkloadKind | None:
    """Return the row of a kind; None if the table has none."""
    return TABLE.get((group, version, kind)) or TABLE.get((group, ANY_VERSION, kind))


def choose(group: str, version: str, kind: str, karta_fallback: bool) -> WorkloadKind:
    """Return the row of a kind, or the fallback."""
    return known(group, version, kind) or (KARTA if karta_fallback else DEFAULT)


def group_workload(work: Workload) -> GroupSpec:
    """Return the group of a pod, by the kind of its top owner."""
    return choose(*group_version_kind(work.top), work.settings.karta_fallback).apply(work)
