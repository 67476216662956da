"""reference/workloads.md: the kinds of workload the pod grouper knows, and which of their pods start together."""

from __future__ import annotations

from docs.generate import markdown
from pykai.controllers.podgrouper.rules import defaults
from pykai.controllers.podgrouper.rules.kinds import ANY_VERSION, TABLE, Kind

HEAD = """# Workloads

Generated from the code by `make docs`. The pod grouper puts the pods of a workload in PodGroups, by the kind of their
topmost owner. A gang starts whole or not at all; the pods of "one group" start one by one. *Priority* is the priority
class where none is named (label `priorityClassName`, or the pods' own); other defaults can be given in a ConfigMap
(`--default-priorities-configmap-name` of the [pod grouper](flags.md#kai-podgrouper)).
"""
TAIL = """Any other kind is grouped as a `Karta` object in the cluster describes it, else as one group. Pods with
annotation `pod-group-name` or `kai.scheduler/skip-podgrouper` are left alone ([labels and annotations](objects.md)).
"""
ONE_GROUP = "One group."
INNER = "As the workload inside of it."
KUBEFLOW = "A gang of all replicas, or of `spec.runPolicy.schedulingPolicy.minAvailable`."
RAY = "A gang of the head and the least number of workers of each worker group."
GROVE = "The gangs that Grove's own PodGangs describe."
GANGS = {
    "Pod": "A group of its own; driver and executors of one Spark application share one.",
    "Deployment": "A group for each pod.",
    "Job": "One group, or a gang of as many as annotation `kai.scheduler/batch-min-member` says.",
    "CronJob": "One group for each run.",
    "RunaiJob": "One group for each index.",
    "TFJob": KUBEFLOW,
    "XGBoostJob": KUBEFLOW,
    "JAXJob": KUBEFLOW,
    "MPIJob": f"{KUBEFLOW} A launcher that is made once the workers are ready is not waited for.",
    "PyTorchJob": f"{KUBEFLOW} With an elastic policy: of its `minReplicas`.",
    "RayCluster": RAY,
    "RayJob": RAY,
    "RayService": RAY,
    "JobSet": "A gang of all replicated jobs; where they start in order, one is enough.",
    "LeaderWorkerSet": "A gang for each leader and its workers; with `LeaderReady` the leader goes ahead.",
    "PodCliqueSet": GROVE,
    "PodGangSet": GROVE,
    "Service": "A gang of the revision's `autoscaling.knative.dev/min-scale` pods.",
    "AmlJob": "A gang of `AZUREML_NODE_COUNT` pods.",
}
"""By kind; one that is not here is grouped by default, or as what it wraps."""


def page() -> str:
    """The text of the page."""
    kinds = dict.fromkeys((row.group, row.kind) for row in TABLE.values())
    rows = [[row for row in TABLE.values() if (row.group, row.kind) == kind] for kind in kinds]
    return "\n".join([HEAD, markdown.table(("kind", "API", "priority", "what starts together"), map(_row, rows)), TAIL])


def _row(versions: list[Kind]) -> tuple[str, str, str, str]:
    first, meant = versions[0], meaning(versions[0])
    served = "any version" if first.version == ANY_VERSION else ", ".join(f"`{row.version}`" for row in versions)
    priority = "" if meant == INNER else f"`{first.priority}`"
    return f"`{first.kind}`", f"`{first.group}` {served}" if first.group else served, priority, meant


def meaning(row: Kind) -> str:
    """What starts together; empty where it is not written yet."""
    if row.rule is defaults.group:
        return ONE_GROUP
    return GANGS.get(row.kind, INNER if row.all_owners else "")
