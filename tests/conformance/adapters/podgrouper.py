"""Pod grouping: workload objects to pod groups, the table of kinds, PodGroup objects, owners and assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pykai.controllers.podgrouper import podgroup
from pykai.controllers.podgrouper.grouping import has_labels, ownership, pod_patch, skips_grouping, with_node_pool
from pykai.controllers.podgrouper.grouping import workload_of as grouping_of
from pykai.controllers.podgrouper.rules import defaults, grove, kubeflow, leaderworkerset, replicated, workload_kinds
from pykai.controllers.podgrouper.rules import karta as kartas
from pykai.controllers.podgrouper.rules.workload import (
    GroupingError,
    GroupingSettings,
    GroupSpec,
    GroupTopology,
    SubGroupSpec,
    Workload,
    group_version_kind,
)
from pykai.controllers.podgrouper.rules.workload_kinds import (
    DEFAULT,
    KARTA,
    TABLE,
    WorkloadKind,
    choose,
    group_workload,
    known,
)
from tests.conformance.cases import Record
from tests.conformance.cases import choose as pick

Case = dict[str, Any]


# ------------------------------------------------------------------------------------------------ the cluster of a case
class Cluster:
    """A Lookup over the objects a case lists; they may lack kind and apiVersion, so the resource name tells."""

    def __init__(self, entries: Sequence[Case]) -> None:
        self.objects = [(entry["resource"].rpartition("/"), entry["object"]) for entry in entries]

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Case | None:
        found = [obj for obj in self._of(api_version, kind, namespace) if obj["metadata"]["name"] == name]
        return found[0] if found else None

    def list(self, api_version: str, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Case]:
        return [o for o in self._of(api_version, kind, namespace) if has_labels(o["metadata"].get("labels"), labels)]

    def _of(self, api_version: str, kind: str, namespace: str) -> Sequence[Case]:
        return [
            Record({**obj, "apiVersion": api_version, "kind": kind})
            for (api, _, plural), obj in self.objects
            if api == api_version
            and plural in (kind.lower() + "s", kind.lower() + "es", kind.lower()[:-1] + "ies")
            and obj["metadata"].get("namespace", "") == namespace
        ]


def settings_of(config: Case) -> GroupingSettings:
    inner = config.get("default_grouper") or config.get("default_plugin") or config
    defaults = inner.get("default_config_per_type_config_map_name")
    return GroupingSettings(
        queue_label=inner.get("queue_label_key", GroupingSettings.queue_label),
        node_pool_label=inner.get("node_pool_label_key", GroupingSettings.node_pool_label),
        search_legacy_groups=config.get("search_for_legacy_pod_groups", False),
        knative_gang=config.get("gang_schedule", False),
        deployment_gang=False,  # the cases describe v0.17
        kind_defaults=(inner["default_config_per_type_config_map_namespace"], defaults) if defaults else None,
    )


def workload_of(given: Case) -> Workload:
    owners = tuple(given.get("all_owners") or [])
    top = given.get("top_owner") or (owners[-1] if owners else {})
    others = given.get("cluster_objects") or []
    return Workload(
        top=without_autoscaling(top),
        pod=given.get("pod") or {},
        owners=owners,
        settings=settings_of(given.get("config") or {}),
        lookup=Cluster([Record({**entry, "object": without_autoscaling(entry["object"])}) for entry in others]),
    )


def without_autoscaling(obj: Case) -> Case:
    """A RayCluster as v0.17 reads it, which the cases describe: the field does not change its minimum."""
    if "enableInTreeAutoscaling" not in obj.get("spec", {}):
        return obj
    return Record({**obj, "spec": Record({k: v for k, v in obj["spec"].items() if k != "enableInTreeAutoscaling"})})


# ------------------------------------------------------------------------------------ specs as the cases write them
def rendered(spec: GroupSpec) -> Case:
    topology = spec.topology
    found: Case = pruned(
        {
            "name": spec.name,
            "namespace": spec.namespace,
            "owner": spec.owner,
            "queue": spec.queue,
            "priority_class_name": spec.priority_class,
            "preemptibility": spec.preemptibility,
            "preemption_delay": spec.preemption_delay,
            "staleness_grace_period": spec.staleness_grace_period,
            "min_available": spec.min_member or None,
            "min_sub_group": spec.min_sub_group,
            "sub_groups": [rendered_sub_group(sub_group) for sub_group in spec.sub_groups],
            "topology": topology.name,
            "required_topology_level": topology.required,
            "preferred_topology_level": topology.preferred,
            "labels": dict(spec.labels),
            "annotations": dict(spec.annotations),
        }
    )
    return found


def rendered_sub_group(sub_group: SubGroupSpec) -> Case:
    topology = sub_group.topology or GroupTopology()
    return {
        "name": sub_group.name,
        "parent": sub_group.parent,
        "min_available": sub_group.min_member or None,
        "min_sub_group": sub_group.min_sub_group,
        "pods_references": list(sub_group.pods),
        "topology_constraints": {
            "topology": topology.name,
            "required_topology_level": topology.required,
            "preferred_topology_level": topology.preferred,
        },
    }


def spec_of(metadata: Case) -> GroupSpec:
    return GroupSpec(
        name=metadata.get("name", ""),
        namespace=metadata.get("namespace", ""),
        owner=metadata.get("owner") or {},
        queue=metadata.get("queue", ""),
        priority_class=metadata.get("priority_class_name", ""),
        preemptibility=metadata.get("preemptibility", ""),
        preemption_delay=metadata.get("preemption_delay"),
        staleness_grace_period=metadata.get("staleness_grace_period"),
        min_member=metadata.get("min_available", 0),
        min_sub_group=metadata.get("min_sub_group"),
        sub_groups=tuple(map(sub_group_of, metadata.get("sub_groups") or [])),
        topology=topology_of(metadata),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
    )


def sub_group_of(given: Case) -> SubGroupSpec:
    constraint = given.get("topology_constraints")
    return SubGroupSpec(
        given["name"],
        given.get("min_available", 0),
        given.get("min_sub_group"),
        given.get("parent") or "",
        tuple(given.get("pods_references") or []),
        topology_of(constraint) if constraint else None,
    )


def topology_of(given: Case) -> GroupTopology:
    levels = (given.get("required_topology_level", ""), given.get("preferred_topology_level", ""))
    return GroupTopology(given.get("topology", ""), *levels)


# ----------------------------------------------------------------------------------------------------------- comparison
def pruned(value: Any) -> Any:
    """The value without what stands for nothing: null, empty text, empty collections (a missing key is a zero)."""
    if isinstance(value, dict):
        items = {key: pruned(item) for key, item in value.items()}
        return {key: item for key, item in items.items() if item not in (None, "", {}, [])}
    return [pruned(item) for item in value] if isinstance(value, list) else value


def differences(actual: Any, expected: Any, where: str = "") -> list[str]:
    actual, expected = pruned(actual), pruned(expected)
    if isinstance(actual, dict) and isinstance(expected, dict):
        keys = sorted({*actual, *expected})
        return [line for key in keys for line in differences(actual.get(key), expected.get(key), f"{where}.{key}")]
    return [] if actual == expected else [f"{where}: got {actual!r}, expected {expected!r}"]


def compared(compute: Callable[[], Any], expected: Case, key: str) -> list[str]:
    """The result under a key of `expected`, or an error where one is expected (the wording is ours)."""
    try:
        actual = compute()
    except GroupingError as error:
        return [] if "error" in expected else [f"refused: {error}"]
    if "error" in expected:
        return [f"got {actual!r}, expected the error {expected['error']!r}"]
    return differences(actual, expected.get(key), key)


# ------------------------------------------------------------------------------------------------------------- grouping
def row(group: str, version: str, kind: str) -> Callable[[Case, Workload], GroupSpec]:
    return lambda given, work: TABLE[group, version, kind].apply(work)


def kubeflow_gang(given: Case, work: Workload) -> GroupSpec:
    return kubeflow.gang(given["replica_spec_name"], *given.get("mandatory_spec_names") or [])(work)


def described_by_karta(given: Case, work: Workload) -> GroupSpec:
    return kartas.described(work, given["config"]["karta"])


def skipping_top_owner(given: Case, work: Workload) -> GroupSpec:
    """The case brings its own table of kinds: `group/version/kind -> plugin` lines."""
    rows = {}
    for line in given["config"]["supported_types"]:
        key, _, plugin = line.partition(" -> ")
        group, version, kind = key.split("/")
        rows[group, version, kind] = DEFAULT if plugin == "Default Grouper" else choose(group, version, kind, False)
    return workload_kinds.group_wrapped(
        work, lambda inner: rows.get(group_version_kind(inner.top), DEFAULT).apply(inner)
    )


GROUPERS: dict[str, Callable[[Case, Workload], GroupSpec]] = {
    "aml.AmlGrouper": row("amlarc.azureml.com", "v1alpha1", "AmlJob"),
    "cronjobs.CronJobGrouper": row("batch", "v1", "CronJob"),
    "defaultgrouper.DefaultGrouper": lambda given, work: replace(DEFAULT, rule=defaults.group).apply(work),
    "deployment.DeploymentGrouper": row("apps", "v1", "Deployment"),
    "grove.GroveGrouper": row("grove.io", "v1alpha1", "PodCliqueSet"),
    "jax.JaxGrouper": row("kubeflow.org", "v1", "JAXJob"),
    "job.K8sJobGrouper": row("batch", "v1", "Job"),
    "jobset.JobSetGrouper": row("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    "karta.KartaGrouper": described_by_karta,
    "knative.KnativeGrouper": row("serving.knative.dev", "v1", "Service"),
    "kubeflow.KubeflowDistributedGrouper": kubeflow_gang,
    "leaderworkerset.LwsGrouper": row("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    "mpi.MpiGrouper": row("kubeflow.org", "v1", "MPIJob"),
    "notebook.NotebookGrouper": row("kubeflow.org", "v1beta1", "Notebook"),
    "podjob.PodJobGrouper": row("", "v1", "Pod"),
    "pytorch.PyTorchGrouper": row("kubeflow.org", "v1", "PyTorchJob"),
    "ray.RayClusterGrouper": row("ray.io", "v1", "RayCluster"),
    "ray.RayJobGrouper": row("ray.io", "v1", "RayJob"),
    "ray.RayServiceGrouper": row("ray.io", "v1", "RayService"),
    "runaijob.RunaiJobGrouper": row("run.ai", "v1", "RunaiJob"),
    "skiptopowner.skipTopOwnerGrouper": skipping_top_owner,
    "spark.SparkGrouper": row("", "v1", "Pod"),
    "spotrequest.SpotRequestGrouper": row("egx.nvidia.io", "v1", "SPOTRequest"),
    "tensorflow.TensorFlowGrouper": row("kubeflow.org", "v1", "TFJob"),
    "xgboost.XGBoostGrouper": row("kubeflow.org", "v1", "XGBoostJob"),
}


def grouping(case: Case, document: Case) -> list[str]:
    given, expected, work = case["input"], case["expected"], workload_of(case["input"])
    grouper, _, function = case["function"].rpartition(".")
    if function == "CalcPodGroupPriorityClass":
        work = replace(work, default_priority=given["default_priority_class_for_job"])
        return compared(lambda: defaults.priority_class(work), expected, "priority_class_name")
    if function == "buildSubGroups":
        return compared(
            lambda: [rendered_sub_group(group) for group in leaderworkerset.sub_groups(work, given["replicas_size"])],
            expected,
            "sub_groups",
        )
    group = pick(GROUPERS, grouper)
    return compared(lambda: rendered(group(given, work)), expected, "metadata")


# ------------------------------------------------------------------------------------------------------------------ hub
PLUGIN_NAMES = {
    "AmlJob": "AML Grouper",
    "Deployment": "Deployment Grouper",
    "CronJob": "CronJob Grouper",
    "Job": "BatchJob Grouper",
    "PodCliqueSet": "Grove Grouper",
    "PodGangSet": "Grove Grouper",
    "JobSet": "JobSet Grouper",
    "JAXJob": "JAX Grouper",
    "MPIJob": "MPI Grouper",
    "Notebook": "Kubeflow Notebook Grouper",
    "PyTorchJob": "PyTorchJob Grouper",
    "TFJob": "TensorFlow Grouper",
    "XGBoostJob": "XGBoost Grouper",
    "LeaderWorkerSet": "LWS Grouper",
    "Service": "KNative Grouper",
}
SKIPPING = TABLE["argoproj.io", "v1alpha1", "Workflow"].rule


def plugin_name(chosen: WorkloadKind) -> str:
    if chosen is KARTA:
        return "Karta Grouper"
    return "SkipTopOwner Grouper" if chosen.rule is SKIPPING else PLUGIN_NAMES.get(chosen.kind, "Default Grouper")


NEWER_KINDS = {("run.ai", "*", "WorkloadRunner")}
"""Kinds that KAI 0.18 added: the cases describe v0.17."""


def hub(case: Case, document: Case) -> list[str]:
    listed = {(k["group"], k["version"], k["kind"]): k["plugin_name"] for k in document["supported_kinds"]}
    table = differences(
        {"/".join(key): plugin_name(chosen) for key, chosen in TABLE.items() if key not in NEWER_KINDS},
        {"/".join(key): plugin for key, plugin in listed.items()},
        "supported_kinds",
    )
    group, version, kind = (case["input"]["gvk"].get(part, "") for part in ("group", "version", "kind"))
    if "has_dedicated_plugin" in case["expected"]:
        return table + differences(
            known(group, version, kind) is not None, case["expected"]["has_dedicated_plugin"], "known"
        )
    chosen = choose(group, version, kind, case["input"]["karta_fallback_enabled"])
    return table + differences(plugin_name(chosen), case["expected"]["plugin_name"], "plugin_name")


# --------------------------------------------------------------------------------------------------------- pod_group_cr
def pod_group_cr(case: Case, document: Case) -> list[str]:
    given, expected = case["input"], case["expected"]
    if given["operation"] == "metadata_to_pod_group":
        made = podgroup.pod_group(spec_of(given["pod_group_metadata"]))
        wrong = [] if "topologyConstraint" in made["spec"] else ["spec.topologyConstraint is missing"]
        return wrong + differences({"metadata": made["metadata"], "spec": made["spec"]}, expected["pod_group"])
    new, old = given["new_pod_group"], given["old_pod_group"]
    if given["operation"] == "merge_with_existing":
        return differences(podgroup.keeping_decisions(new, old, GroupingSettings()), expected["pod_group"])
    return differences(podgroup.is_same(old, new), expected["result"], "same")


# -------------------------------------------------------------------------------------------------------------- helpers
def walk_owners(given: Case, expected: Case) -> list[str]:
    def walked() -> list[Any]:
        found = ownership(given["pod"], Cluster(given["cluster_objects"]))
        return [found.top, [{key: o[key] for key in ("apiVersion", "kind", "metadata")} for o in found.owners]]

    return compared(walked, expected, "results")


def group_by_kind(given: Case, expected: Case) -> list[str]:
    return compared(lambda: rendered(group_workload(workload_of(given))), expected, "result")


def add_node_pool(given: Case, expected: Case) -> list[str]:
    settings = GroupingSettings(node_pool_label=given["node_pool_key"])
    after = with_node_pool(spec_of(given["metadata"]), given["pod"], settings)
    wanted = expected.get("arguments_after", {}).get("metadata", given["metadata"])
    return differences(dict(after.labels), wanted.get("labels"), "labels")


def assign(given: Case, expected: Case) -> list[str]:
    patch = pod_patch(spec_of(given["metadata"]), given["pod"]) or {"metadata": {}}
    metadata = {**given["pod"]["metadata"]}
    for part, entries in patch["metadata"].items():
        metadata[part] = {**(metadata.get(part) or {}), **entries}
    wanted = expected.get("cluster_objects_after") or given["cluster_objects"]
    return differences({**given["pod"], "metadata": metadata}, [*wanted, Record()][0]["object"], "pod")


def find_sub_group(given: Case, expected: Case) -> list[str]:
    found = spec_of(given["metadata"]).sub_group_of(given["pod_namespace"], given["pod_name"])
    return differences(rendered_sub_group(found) if found else None, expected["result"], "result")


def update(given: Case, expected: Case) -> list[str]:
    old = given["old_pod_group"]
    wanted = expected.get("arguments_after", {}).get("old_pod_group", old)
    return differences(podgroup.merged(old, given["new_pod_group"]), wanted)


def preemptibility(given: Case, expected: Case) -> list[str]:
    by_kind = {
        key: defaults.KindDefault(entry.get("priority_name", ""), entry.get("preemptibility", "").lower())
        for key, entry in (given.get("defaults") or {}).items()
    }
    work = workload_of(given)
    return compared(lambda: defaults.preemptibility(work, by_kind or defaults.kind_defaults(work)), expected, "result")


def preemption_delay(given: Case, expected: Case) -> list[str]:
    return compared(lambda: defaults.preemption_delay(workload_of(given)), expected, "result")


def staleness_grace_period(given: Case, expected: Case) -> list[str]:
    return compared(lambda: defaults.staleness_grace_period(workload_of(given)), expected, "result")


def is_left_alone(given: Case) -> bool:
    """Whether a user put the pod in a group; one whose owners are missing is not left alone."""
    settings = GroupingSettings()
    pod = {**given["pod"], "spec": {**given["pod"]["spec"], "schedulerName": settings.scheduler_name}}
    try:
        return grouping_of(pod, Cluster([]), settings) is None
    except GroupingError:
        return False


def grove_member(given: Case, expected: Case) -> list[str]:
    where = f"{given['namespace']}/{given['pod_gang_name']} podgroups[{given['pg_index']}]"
    return compared(
        lambda: rendered_sub_group(grove.member(given["pg"], given["namespace"], given["topology"], where)),
        expected,
        "result",
    )


def delayed_launcher(given: Case, expected: Case) -> list[str]:
    wanted = expected.get("arguments_after", {}).get("gp", given["gp"])
    return compared(
        lambda: given["gp"]["min_available"] - kubeflow.missing_launchers(workload_of(given)),
        {**wanted, **expected},
        "min_available",
    )


def result(compute: Callable[[Case], Any]) -> Callable[[Case, Case], list[str]]:
    return lambda given, expected: compared(lambda: compute(given), expected, "result")


HELPERS: dict[str, Callable[[Case, Case], list[str]]] = {
    "defaultgrouper.DefaultGrouper.calcPodGroupPreemptibilityWithDefaults": preemptibility,
    "defaultgrouper.DefaultGrouper.calcPodGroupPreemptionDelay": preemption_delay,
    "defaultgrouper.DefaultGrouper.calcStalenessGracePeriod": staleness_grace_period,
    "grove.parseGroveSubGroup": grove_member,
    "mpi.MpiGrouper.handleDelayedLauncherPolicy": delayed_launcher,
    "mpi.MpiGrouper.launcherPodExists": result(lambda given: kubeflow.has_launcher(workload_of(given))),
    "podgroup.Metadata.FindSubGroupForPod": find_sub_group,
    "podgroup.updatePodGroup": update,
    "podgrouper.PodReconciler.assignPodToGroupAndSubGroup": assign,
    "podgrouper.addNodePoolLabel": add_node_pool,
    "podgrouper.isOrphanPodWithPodGroup": result(is_left_alone),
    "podgrouper.labelsMatch": result(lambda given: has_labels(given["labels"], given["selector"])),
    "podgrouper.podGrouper.GetPGMetadata": group_by_kind,
    "podgrouper.podGrouper.GetPodOwners": walk_owners,
    "podgrouper.shouldSkipAnyOwner": result(lambda given: any(map(skips_grouping, given["owners"]))),
    "podgrouper.shouldSkipPodGrouper": result(lambda given: skips_grouping(given["obj"])),
    "spark.IsSparkPod": result(lambda given: replicated.is_spark_pod(given["pod"])),
}


def helpers(case: Case, document: Case) -> list[str]:
    return pick(HELPERS, case["input"]["operation"])(case["input"], case["expected"])


SUITES = {
    "podgrouper/grouping": grouping,
    "podgrouper/hub": hub,
    "podgrouper/pod_group_cr": pod_group_cr,
    "podgrouper/helpers": helpers,
}
