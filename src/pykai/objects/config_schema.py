"""The schema of Config's spec: how the whole system is deployed, one part for every component."""

from __future__ import annotations

from typing import Final

from pykai.objects import names
from pykai.objects.schema import (
    Schema,
    choice,
    decimal,
    foreign,
    foreign_list,
    labels,
    mapping,
    quantities,
    quantity,
    record,
    switch,
    text,
    whole,
    words,
)


def _image(name: str) -> Schema:
    """A container image."""
    return record(
        "The container image, as repository/name:tag.",
        {
            "repository": text("The registry and path; the operator's own if absent."),
            "name": text("The name of the image.", default=name),
            "tag": text("The tag; the operator's own if absent."),
            "pullPolicy": choice("When to pull it.", "Always", "IfNotPresent", "Never", default="IfNotPresent"),
        },
    )


def _resources() -> Schema:
    """Requests and limits of a container."""
    return record(
        "What the container asks for.",
        {
            "requests": quantities("What is set aside for it."),
            "limits": quantities("What it may not exceed."),
            "claims": foreign_list("Resource claims it uses."),
        },
    )


def _client_limits(doc: str) -> Schema:
    """Limits of a component's requests to the API server."""
    return record(
        doc, {"qps": whole("Requests per second.", minimum=0), "burst": whole("Requests at once.", minimum=0)}
    )


def _service(name: str, **enabled: bool) -> Schema:
    """A component's deployment; `enabled` may carry another default than true."""
    rules = enabled or {"default": True}
    return record(
        "How the component is deployed.",
        {
            "enabled": switch("Whether the component is deployed.", **rules),
            "image": _image(name),
            "resources": _resources(),
            "k8sClientConfig": _client_limits("Limits of its requests to the API server; 20 and 100 if absent."),
            "affinity": foreign("Where its pods run (Affinity); goes before the global one."),
            "podDisruptionBudget": record(
                "How many of its pods may be taken down at a time; only with more than one replica.",
                {
                    "enabled": switch("Whether there is a budget.", default=False),
                    "maxUnavailable": {
                        "description": "How many pods, or which part of them, may be missing.",
                        "anyOf": [{"type": "integer"}, {"type": "string"}],
                        "x-kubernetes-int-or-string": True,
                        "default": 1,
                    },
                },
            ),
        },
    )


def _service_without_default(name: str) -> Schema:
    """A component's deployment that the operator turns on and off by itself unless told."""
    part = _service(name)
    del part["properties"]["enabled"]["default"]
    return part


def _autoscaler() -> Schema:
    """Vertical autoscaling of a component."""
    return record(
        "Vertical autoscaling.",
        {
            "enabled": switch("Whether there is an autoscaler.", default=False),
            "updatePolicy": foreign("How it acts (PodUpdatePolicy)."),
            "resourcePolicy": foreign("What it may set (PodResourcePolicy)."),
        },
    )


def _replicas() -> Schema:
    """How many copies of a component run."""
    return whole("How many copies run; global.replicaCount if absent.", minimum=0)


def _port(doc: str, default: int) -> Schema:
    """A port number."""
    return whole(doc, minimum=1, maximum=65535, default=default)


def _webhook_port() -> Schema:
    """The service port of a validating webhook."""
    return record(
        "The port of the webhook.",
        {
            "port": _port("The port of the service.", 443),
            "targetPort": _port("The port of the container.", 9443),
            "name": text("The name of the port.", default="webhook"),
        },
    )


def _validation(prefix: str) -> Schema:
    """Whether objects are checked when they are written."""
    return record(
        "Checks of objects when they are written.",
        {
            "enableValidation": switch("Whether objects are checked.", default=True),
            "webhookConfigurationNamePrefix": text("How the webhook configuration's name begins.", default=prefix),
        },
    )


_GLOBAL = record(
    "What holds for all components.",
    {
        "vpa": _autoscaler(),
        "openshift": switch("Whether the cluster is OpenShift, which sets security contexts by itself.", default=False),
        "affinity": foreign("Where all pods run (Affinity)."),
        "requireDefaultPodAntiAffinityTerm": switch(
            "Whether copies of a component must, not only should, run on different nodes.", default=False
        ),
        "securityContext": foreign(
            "The security context of all containers (SecurityContext); a restricted one if absent."
        ),
        "imagesPullSecret": text("Deprecated: use additionalImagePullSecrets."),
        "additionalImagePullSecrets": words("Secrets to pull images with."),
        "nodeSelector": labels("Labels of the nodes all deployments run on."),
        "tolerations": foreign_list("Taints that all deployments tolerate (Toleration)."),
        "daemonsetsTolerations": foreign_list("Taints that all daemon sets tolerate (Toleration)."),
        "priorityClassName": text("The PriorityClass of all pods."),
        "replicaCount": whole("How many copies of every component run; 1 if absent.", minimum=0),
        "queueLabelKey": text("The label by which workloads name their queue.", default=names.QUEUE_LABEL),
        "schedulerName": text(
            "The schedulerName of the pods this system is responsible for.", default=names.SCHEDULER_NAME
        ),
        "nodePoolLabelKey": text("The label that divides nodes into pools.", default=names.NODE_POOL_LABEL),
        "namespaceLabelSelector": labels("Only namespaces with these labels are looked at."),
        "podLabelSelector": labels("Only pods with these labels are looked at."),
        "jsonLog": switch("Whether logs are written as JSON.", default=False),
    },
)

_POD_GROUPER = record(
    "The pod grouper, which finds the pods that belong together.",
    {
        "service": _service("podgrouper"),
        "args": record(
            "How it groups.",
            {
                "gangScheduleKnative": switch(
                    "Whether the pods of a Knative revision are started together; true if absent."
                ),
                "genericKartaFallback": switch(
                    "Whether kinds without a grouper of their own use a Karta.", default=True
                ),
                "defaultPrioritiesConfigMapName": text("A ConfigMap with default priorities for kinds of workloads."),
                "defaultPrioritiesConfigMapNamespace": text("The namespace of that ConfigMap."),
            },
        ),
        "k8sClientConfig": _client_limits("Limits of its requests to the API server."),
        "maxConcurrentReconciles": whole("How many pods it handles at a time.", minimum=1),
        "replicas": _replicas(),
        "vpa": _autoscaler(),
    },
)

_RESERVATION = record(
    "The pods that reserve the GPUs which are shared.",
    {
        "image": _image("resource-reservation"),
        "allocationTimeout": whole("Seconds to wait for the reserved device; 40 if absent.", minimum=1),
        "namespace": text("Where the reservation pods run.", default=names.RESERVATION_NAMESPACE),
        "serviceAccountName": text("Their service account.", default=names.RESERVATION_APP),
        "appLabel": text("Their `app` label.", default=names.RESERVATION_APP),
        "runtimeClassName": text("Their runtime class; nvidia if absent, an empty string means none."),
        "podResources": _resources(),
        "reservationPodSecurityContext": foreign("Their security context (PodSecurityContext)."),
        "reservationContainerSecurityContext": foreign("Their container's security context (SecurityContext)."),
    },
)

_PLUGIN = record(
    "What to change about one plugin.",
    {
        "enabled": switch("Whether it runs; absent leaves it as it is."),
        "priority": whole("Its place in the order, higher first; absent leaves it as it is."),
        "arguments": labels("Its arguments; they replace all default ones."),
    },
)

_BINDER = record(
    "The binder, which carries out the scheduler's decisions.",
    {
        "service": _service("binder"),
        "resourceReservation": _RESERVATION,
        "replicas": _replicas(),
        "maxConcurrentReconciles": whole("How many pods it binds at a time; 10 if absent.", minimum=1),
        "volumeBindingTimeoutSeconds": whole("Seconds to wait for volumes; 120 if absent.", minimum=1),
        "probePort": _port("The port of its health checks.", 8081),
        "metricsPort": _port("The port of its metrics.", 8080),
        "cdiEnabled": switch("Whether devices are named by CDI; found out from the GPU operator if absent."),
        "plugins": mapping("Changes to the binder's plugins, by name.", _PLUGIN),
        "vpa": _autoscaler(),
    },
)

_ADMISSION = record(
    "The admission webhook, which completes and checks pods.",
    {
        "service": _service("admission"),
        "webhook": record(
            "Its ports.",
            {
                "port": _port("The port of the service.", 443),
                "targetPort": _port("The port of the container.", 9443),
                "probePort": _port("The port of its health checks.", 8081),
                "metricsPort": _port("The port of its metrics.", 8080),
            },
        ),
        "replicas": _replicas(),
        "gpuSharing": switch("Whether pods may ask for a part of a GPU.", default=False),
        "blockNvidiaVisibleDevices": switch("Whether pods that set NVIDIA_VISIBLE_DEVICES are refused.", default=False),
        "queueLabelSelector": switch("Whether only namespaces with the queue label are looked at.", default=False),
        "validatingWebhookConfigurationName": text(
            "The name of the validating webhook configuration.", default="validating-kai-admission"
        ),
        "mutatingWebhookConfigurationName": text(
            "The name of the mutating webhook configuration.", default="mutating-kai-admission"
        ),
        "gpuPodRuntimeClassName": text("Deprecated: use gpuFractionRuntimeClassName."),
        "gpuFractionRuntimeClassName": text(
            "The runtime class of pods that share a GPU; nvidia if absent, empty for none."
        ),
        "vpa": _autoscaler(),
    },
)

_SCHEDULER = record(
    "The schedulers; what each shard may set is in SchedulingShard.",
    {
        "service": _service("scheduler"),
        "GOGC": whole("Accepted for compatibility; without effect here.", default=400),
        "schedulerService": record(
            "The service of its metrics.",
            {
                "type": text("The type of the service.", default="ClusterIP"),
                "port": _port("The port of the service.", 8080),
                "targetPort": _port("The port of the container.", 8080),
            },
        ),
        "replicas": _replicas(),
        "vpa": _autoscaler(),
    },
)

_QUEUE_CONTROLLER = record(
    "The queue controller, which writes what queues use.",
    {
        "service": _service("queuecontroller"),
        "controllerService": record(
            "Its ports.",
            {
                "metrics": record(
                    "The port of its metrics.",
                    {
                        "port": _port("The port of the service.", 8080),
                        "targetPort": _port("The port of the container.", 8080),
                        "name": text("The name of the port.", default="metrics"),
                    },
                ),
                "webhook": _webhook_port(),
            },
        ),
        "webhooks": _validation("kai-queue-validation-"),
        "metricsNamespace": text("The prefix of metric names; kai if absent."),
        "queueLabelToMetricLabel": text("Queue labels to show as metric labels, as label=metric pairs."),
        "queueLabelToDefaultMetricValue": text("Values of those metric labels where a queue has no such label."),
        "replicas": _replicas(),
        "vpa": _autoscaler(),
    },
)

_POD_GROUP_CONTROLLER = record(
    "The pod group controller, which writes what pod groups use.",
    {
        "service": _service("podgroupcontroller"),
        "controllerService": record("Its ports.", {"webhook": _webhook_port()}),
        "maxConcurrentReconciles": whole("How many pod groups it handles at a time.", minimum=1),
        "webhooks": _validation("kai-podgroup-validation-"),
        "replicas": _replicas(),
        "vpa": _autoscaler(),
    },
)

_NODE_SCALE_ADJUSTER = record(
    "The node scale adjuster, which makes a cluster autoscaler see pods that wait for a part of a GPU.",
    {
        "service": _service("nodescaleadjuster"),
        "args": record(
            "How it works.",
            {
                "scalingPodImage": _image("scalingpod"),
                "nodeScaleNamespace": text("Where its scaling pods run.", default=names.SCALING_NAMESPACE),
                "nodeScaleServiceAccount": text("Their service account.", default=names.SCALING_NAMESPACE),
                "gpuMemoryToFractionRatio": decimal(
                    "The part of a GPU that a request for memory counts as; 0.1 if absent."
                ),
            },
        ),
        "vpa": _autoscaler(),
    },
)

_SERVICE_MONITOR = record(
    "How metrics are collected.",
    {
        "enabled": switch("Whether there are service monitors.", default=True),
        "interval": text("How often.", default="30s"),
        "scrapeTimeout": text("How long a collection may take.", default="10s"),
        "bearerTokenFile": text(
            "The token to collect with.", default="/var/run/secrets/kubernetes.io/serviceaccount/token"
        ),
    },
)

_PROMETHEUS = record(
    "The database of past use, for fair shares over time.",
    {
        "enabled": switch("Whether one is deployed or used.", default=False),
        "instanceName": text("Its name.", default="prometheus"),
        "retentionPeriod": text("How long use is kept.", default="2w"),
        "sampleInterval": text("How often use is recorded.", default="1m"),
        "enablePersistentStorage": switch("Whether it keeps its data on a volume; true if absent."),
        "storageSize": quantity("The size of that volume; 50Gi if absent."),
        "storageClassName": text("The storage class of that volume.", default="standard"),
        "serviceMonitor": _SERVICE_MONITOR,
        "externalPrometheusUrl": text("The address of one that exists already; none is deployed then."),
        "externalPrometheusHealthProbe": record(
            "How that one is watched.",
            {
                "interval": whole("Seconds between two looks.", minimum=1, default=30),
                "timeout": whole("Seconds to wait for an answer.", minimum=1, default=10),
                "maxRetries": whole("Tries before it counts as lost.", minimum=0, default=5),
            },
        ),
        "accountingLabelKey": text("The label of the service monitors it reads.", default="kai.scheduler/accounting"),
        "accountingLabelValue": text("The value of that label.", default="true"),
    },
)

_NUMA_EXPORTER = record(
    "The exporter of the NUMA zones that pods run on.",
    {
        "service": _service_without_default("numa-placement-exporter"),
        "nodeSelector": labels("Labels of the nodes it runs on."),
        "tolerations": foreign_list("Taints that it tolerates (Toleration)."),
        "pollInterval": text("How often it looks; 1s if absent."),
        "driftResyncInterval": text("How often it checks everything again; 60s if absent, 0 never."),
        "podResourcesHostPath": text("The folder of the kubelet's pod resources socket."),
        "podResourcesSocket": text("The kubelet's pod resources socket."),
        "sysfsHostPath": text("The folder of the node's sysfs."),
    },
)

_COMPONENTS: dict[str, Schema] = {
    "namespace": text("Where the components run.", default=names.SYSTEM_NAMESPACE),
    "global": _GLOBAL,
    "podGrouper": _POD_GROUPER,
    "binder": _BINDER,
    "admission": _ADMISSION,
    "scheduler": _SCHEDULER,
    "queueController": _QUEUE_CONTROLLER,
    "podGroupController": _POD_GROUP_CONTROLLER,
    "nodeScaleAdjuster": _NODE_SCALE_ADJUSTER,
    "prometheus": _PROMETHEUS,
    "numaPlacementExporter": _NUMA_EXPORTER,
}

SPEC: Final = record("One part for every component.", _COMPONENTS)
