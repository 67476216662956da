"""The chart's values as a tree of fields, from which its schema is made: an unknown or misspelt value is refused.

What ends up in a Config, a SchedulingShard or a Queue has the shape that the definition of that kind gives it. The
names are those users of KAI have in their value files.
"""

from __future__ import annotations

import copy
from typing import Any

from charts.shapes import array, choice, foreign, labels, record, switch, text, whole
from pykai.objects import names
from pykai.objects.crds import CONFIG, QUEUE, SHARD
from pykai.objects.schema import DURATION_PATTERN, DURATION_RULES, Schema

DRAFT = "http://json-schema.org/draft-07/schema#"
_POLICIES = ("Always", "IfNotPresent", "Never")


def _at(root: Schema, path: str) -> Schema:
    """The part of a definition's spec at a dotted path."""
    part = root
    for name in path.split("."):
        part = part["properties"][name]
    return copy.deepcopy(part)


def _config(path: str) -> Schema:
    return _at(CONFIG.spec, path)


def _shard(path: str) -> Schema:
    return _at(SHARD.spec, path)


def _without_effect(schema: Schema, why: str) -> Schema:
    return {**schema, "description": f"Accepted for compatibility, without effect: {why}", "deprecated": True}


def _image(**more: Schema) -> Schema:
    fields = {
        "name": text("The name of the image; empty, or the name KAI gives it, for the one image of all components."),
        "pullPolicy": choice("When to pull it; global.imagePullPolicy if absent.", *_POLICIES),
        "tag": text("The tag; global.tag if absent."),
    }
    return record("The container image.", {**fields, **more})


def _budget() -> Schema:
    return _config("binder.service.podDisruptionBudget")


def _component(part: str, **own: Schema) -> Schema:
    """A component that Config deploys."""
    fields = {
        "enabled": switch("Whether the component is deployed."),
        "image": _image(),
        "resources": _config(f"{part}.service.resources"),
        "affinity": _config(f"{part}.service.affinity"),
    }
    return record(_config(part)["description"], {**fields, **own})


_RESERVATION = record(
    "The pods that reserve GPUs which are shared.",
    {
        "namespace": _config("binder.resourceReservation.namespace"),
        "serviceAccount": _config("binder.resourceReservation.serviceAccountName"),
        "appLabel": _config("binder.resourceReservation.appLabel"),
        "namespaceLabels": labels("Labels of that namespace."),
        "createNamespace": switch("Whether the chart makes the namespace, unless it is there already."),
        "createServiceAccount": switch("Whether the chart makes the service account, unless it is there already."),
    },
)

_GLOBAL = record(
    "What holds for all components.",
    {
        "registry": text("Where images come from."),
        "imageName": text("The name of the one image of all components."),
        "tag": text("The tag of images; the version of the chart if empty."),
        "fipsMode": choice(
            "Whether to use images with FIPS cryptography: there are none, so only off is accepted.", "off"
        ),
        "imagePullPolicy": choice("When to pull images.", *_POLICIES),
        "imagePullSecrets": array(
            "Secrets to pull images with.", record("One secret.", {"name": text("Its name.")}, required=["name"])
        ),
        "securityContext": foreign("The security context of all containers; a restricted one if empty."),
        "podSecurityContext": foreign("The security context of the operator's pod and of hooks."),
        "leaderElection": switch("Whether the operator is elected even if there is only one."),
        "gpuSharing": {
            **_config("admission.gpuSharing"),
            "description": "Deprecated, while gpuSharingMode is empty: "
            "true stands for NonMemoryEnforced, false for Disabled.",
        },
        "gpuSharingMode": {**choice("How pods share GPUs; as gpuSharing says if empty.", "", *names.SHARING_MODES)},
        "nvFractions": record(
            "Shares of GPUs by annotations of containers.",
            {"set": switch("Whether the mode is NvFractions. The software on the nodes is not part of this chart.")},
        ),
        "blockNvidiaVisibleDevices": _config("admission.blockNvidiaVisibleDevices"),
        "clusterAutoscaling": switch("Whether the node scale adjuster is deployed, for clusters with an autoscaler."),
        "nodeSelector": _config("global.nodeSelector"),
        "affinity": _config("global.affinity"),
        "tolerations": _config("global.tolerations"),
        "daemonsetsTolerations": _config("global.daemonsetsTolerations"),
        "requireDefaultPodAntiAffinityTerm": _config("global.requireDefaultPodAntiAffinityTerm"),
        "priorityClassName": _config("global.priorityClassName"),
        "namespaceLabelSelector": _config("global.namespaceLabelSelector"),
        "podLabelSelector": _config("global.podLabelSelector"),
        "nodePoolLabelKey": _config("global.nodePoolLabelKey"),
        "jsonLog": _config("global.jsonLog"),
        "vpa": _config("global.vpa"),
        "resourceReservation": _RESERVATION,
    },
)

_OPERATOR = record(
    "The operator, which deploys everything else.",
    {
        "image": _image(),
        "replicaCount": whole("How many copies run, of the operator and of every component.", minimum=0),
        "metricsBindAddress": text("Where its metrics are served."),
        "probeBindAddress": text("Where its health is served."),
        "qps": whole("Requests to the API server per second.", minimum=0),
        "burst": whole("Requests to the API server at once.", minimum=0),
        "logLevel": choice("How much it logs; the usual if empty.", "", "debug", "info", "error", "panic"),
        "resources": _config("binder.service.resources"),
        "podDisruptionBudget": _budget(),
    },
)

_BINDER = _component(
    "binder",
    name=_without_effect(text(""), "objects of the binder are called binder."),
    resourceReservationImage=_image(),
    resourceReservationPodResources=_config("binder.resourceReservation.podResources"),
    resourceReservation=record(
        "The pods that reserve GPUs which are shared.",
        {"runtimeClassName": _config("binder.resourceReservation.runtimeClassName")},
    ),
    runtimeClassName=text("The same as binder.resourceReservation.runtimeClassName, which goes before it."),
    cdiEnabled=_config("binder.cdiEnabled"),
    ports=record("Its ports.", {"metricsPort": _config("binder.metricsPort")}),
    plugins=_config("binder.plugins"),
    podDisruptionBudget=_budget(),
)

_SCHEDULER = _component(
    "scheduler",
    disruptionBudgets=choice("Whether evictions keep PodDisruptionBudgets.", "ignore", "prefer", "respect"),
    placementStrategy=choice("Whether the default shard packs or spreads work.", "binpack", "spread"),
    ports=record("Its ports.", {"metricsPort": _config("scheduler.schedulerService.port")}),
    args=_shard("args"),
    goMemLimitRatio=_shard("goMemLimitRatio"),
    goMemLimit=_shard("goMemLimit"),
    plugins=_shard("plugins"),
    actions=_shard("actions"),
    scenarioSearchBudgets=_shard("scenarioSearchBudgets"),
    podDisruptionBudget=_budget(),
)

_ADMISSION = _component(
    "admission",
    name=_without_effect(text(""), "objects of the webhook are called admission."),
    cdi=_without_effect(switch(""), "use binder.cdiEnabled."),
    ports=record(
        "Its ports.",
        {
            "webhookPort": _config("admission.webhook.targetPort"),
            "metricsPort": _config("admission.webhook.metricsPort"),
            "probePort": _config("admission.webhook.probePort"),
        },
    ),
    serviceName=_config("admission.serviceName"),
    inPlacePodResize=_config("admission.inPlacePodResize"),
    gpuFractionRuntimeClassName=_config("admission.gpuFractionRuntimeClassName"),
    gpuPodRuntimeClassName=_config("admission.gpuPodRuntimeClassName"),
    podDisruptionBudget=_budget(),
)

_NUMA_EXPORTER = _component(
    "numaPlacementExporter",
    **{
        name: _config(f"numaPlacementExporter.{name}")
        for name in (
            "nodeSelector",
            "tolerations",
            "pollInterval",
            "driftResyncInterval",
            "podResourcesHostPath",
            "podResourcesSocket",
            "sysfsHostPath",
        )
    },
)

_SCALING = _component(
    "nodeScaleAdjuster",
    scalingPodImage=_image(),
    scalingPodNamespace=_config("nodeScaleAdjuster.args.nodeScaleNamespace"),
    labels=labels("Labels of the namespace of scaling pods."),
)
del _SCALING["properties"]["enabled"]


def _hook(doc: str, **own: Schema) -> Schema:
    """A job of KAI's chart, of which only `own` means something here."""
    idle = "there is no such job here."
    fields = {"image": _without_effect(foreign(""), idle), "resources": _without_effect(foreign(""), idle)}
    return record(doc, {**fields, **own})


_AMOUNTS = QUEUE.spec["properties"]["resources"]

VALUES: dict[str, Schema] = {
    "openshift": switch("Whether the cluster is OpenShift; found out from the cluster if false."),
    "global": _GLOBAL,
    "operator": _OPERATOR,
    "podgrouper": _component(
        "podGrouper",
        queueLabelKey=_config("global.queueLabelKey"),
        genericKartaFallback=_config("podGrouper.args.genericKartaFallback"),
        args=_config("podGrouper.args"),
        podDisruptionBudget=_budget(),
    ),
    "podgroupcontroller": _component("podGroupController"),
    "binder": _BINDER,
    "scheduler": _SCHEDULER,
    "defaultShard": record(
        "The SchedulingShard `default`.", {"enabled": switch("Whether the chart makes it, from the values above.")}
    ),
    "numaPlacementExporter": _NUMA_EXPORTER,
    "queuecontroller": _component(
        "queueController",
        podDisruptionBudget=_budget(),
        enforceQuotaViolation=_config("queueController.enforceQuotaViolation"),
    ),
    "admission": _ADMISSION,
    "nodescaleadjuster": _SCALING,
    "dashboard": record(
        "The dashboard: queues, devices, what waits and why. Users sign in with a token and see what they may list.",
        {
            "enabled": switch("Whether it is deployed."),
            "image": _image(),
            "resources": _config("binder.service.resources"),
            "port": whole("The port of its Service.", minimum=1, maximum=65535),
            "shard": text("The SchedulingShard that it shows."),
            "tlsSecretName": text("A Secret of type kubernetes.io/tls to serve HTTPS with; HTTP if empty."),
        },
    ),
    "crdupgrader": record(
        "The job that applies definitions before an installation or an upgrade.",
        {
            "enabled": switch("Whether it runs."),
            "image": _image(registry=text("Where its image comes from; global.registry if absent.")),
            "resources": _config("binder.service.resources"),
        },
    ),
    "kaiConfig": record(
        "The Config `kai-config`.",
        {"render": switch("Whether the chart has it; also if kaiConfigDeployer.enabled says so.")},
    ),
    "kaiConfigDeployer": _hook(
        "The Config `kai-config`.",
        enabled=switch("Whether the chart has it, unless kaiConfig.render does; both false: it is yours to make."),
    ),
    "topologyMigration": _hook(
        "Topologies of Kueue.", enabled=switch("Whether they are copied, by the job that applies definitions.")
    ),
    "postCleanup": _hook(
        "What an uninstallation cleans up.",
        enabled=_without_effect(switch(""), "what the operator made goes with kai-config."),
        serviceAccountName=_without_effect(text(""), "what the operator made goes with kai-config."),
    ),
    "gpu-fractioning": _without_effect(foreign(""), "the software on the nodes is not part of this chart."),
    "defaultPriorityClasses": record(
        "The priority classes train, build-preemptible, build and inference.",
        {"enabled": switch("Whether the chart makes them.")},
    ),
    "prometheus": record(
        "The database of past use, for fair shares over time.",
        {
            "enabled": _config("prometheus.enabled"),
            "externalPrometheusUrl": _config("prometheus.externalPrometheusUrl"),
        },
    ),
    "serviceMonitors": record(
        "Service monitors of all components, for an existing Prometheus operator.",
        {
            "enabled": switch("Whether there are some."),
            "labels": labels("Labels by which that Prometheus finds them."),
            "interval": text("How often metrics are collected."),
        },
    ),
    "defaultQueue": record(
        "The first two queues, made on installation and yours from then on.",
        {
            "createDefaultQueue": switch("Whether the chart makes them."),
            "parentName": text("The name of the upper one."),
            "childName": text("The name of the lower one."),
            "parentResources": copy.deepcopy(_AMOUNTS),
            "childResources": copy.deepcopy(_AMOUNTS),
        },
    ),
}


def schema() -> Schema:
    """The JSON schema of all values."""
    return {"$schema": DRAFT, **_closed(record("Values of the chart kai-scheduler.", VALUES))}


def _closed(part: Schema) -> Schema:
    """A part of a definition as JSON schema: no unknown fields, no keywords of Kubernetes' own."""
    made = {key: value for key, value in part.items() if not key.startswith("x-kubernetes") and key not in _DROPPED}
    if part.get("x-kubernetes-validations") == DURATION_RULES["x-kubernetes-validations"]:
        made["pattern"] = DURATION_PATTERN
    if part.get("exclusiveMinimum") is True:
        made["exclusiveMinimum"] = made.pop("minimum")
    if part.get("properties"):
        made["properties"] = {name: _closed(field) for name, field in part["properties"].items()}
        made["additionalProperties"] = False
    elif isinstance(part.get("additionalProperties"), dict):
        made["additionalProperties"] = _closed(part["additionalProperties"])
    if isinstance(part.get("items"), dict):
        made["items"] = _closed(part["items"])
    return made


_DROPPED = frozenset({"nullable", "default", "exclusiveMinimum", "format"})


def paths(part: Schema | None = None, above: str = "") -> dict[str, Any]:
    """Every value by its dotted path, with its description."""
    found: dict[str, Any] = {}
    for name, field in (VALUES if part is None else part.get("properties") or {}).items():
        path = f"{above}.{name}" if above else name
        found[path] = field.get("description", "")
        found |= paths(field, path)
    return found
