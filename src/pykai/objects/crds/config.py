"""Config: how the whole system is deployed. The operator reads the one named kai-config."""

from __future__ import annotations

from pykai.objects import names
from pykai.objects.crds.config_parts import (
    autoscaler,
    client_limits,
    image,
    port,
    replicas,
    resources,
    service,
    service_without_default,
    validation,
    webhook_port,
)
from pykai.objects.crds.definition import Definition
from pykai.objects.crds.shapes import (
    Schema,
    conditions,
    decimal,
    foreign,
    foreign_list,
    labels,
    mapping,
    quantity,
    record,
    switch,
    text,
    whole,
    words,
)

_GLOBAL = record(
    "What holds for all components.",
    {
        "vpa": autoscaler(),
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
        "service": service("podgrouper"),
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
        "k8sClientConfig": client_limits("Limits of its requests to the API server."),
        "maxConcurrentReconciles": whole("How many pods it handles at a time.", minimum=1),
        "replicas": replicas(),
        "vpa": autoscaler(),
    },
)

_RESERVATION = record(
    "The pods that reserve the GPUs which are shared.",
    {
        "image": image("resource-reservation"),
        "allocationTimeout": whole("Seconds to wait for the reserved device; 40 if absent.", minimum=1),
        "namespace": text("Where the reservation pods run.", default=names.RESERVATION_NAMESPACE),
        "serviceAccountName": text("Their service account.", default=names.RESERVATION_APP),
        "appLabel": text("Their `app` label.", default=names.RESERVATION_APP),
        "runtimeClassName": text("Their runtime class; nvidia if absent, an empty string means none."),
        "podResources": resources(),
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
        "service": service("binder"),
        "resourceReservation": _RESERVATION,
        "replicas": replicas(),
        "maxConcurrentReconciles": whole("How many pods it binds at a time; 10 if absent.", minimum=1),
        "volumeBindingTimeoutSeconds": whole("Seconds to wait for volumes; 120 if absent.", minimum=1),
        "probePort": port("The port of its health checks.", 8081),
        "metricsPort": port("The port of its metrics.", 8080),
        "cdiEnabled": switch("Whether devices are named by CDI; found out from the GPU operator if absent."),
        "plugins": mapping("Changes to the binder's plugins, by name.", _PLUGIN),
        "vpa": autoscaler(),
    },
)

_ADMISSION = record(
    "The admission webhook, which completes and checks pods.",
    {
        "service": service("admission"),
        "webhook": record(
            "Its ports.",
            {
                "port": port("The port of the service.", 443),
                "targetPort": port("The port of the container.", 9443),
                "probePort": port("The port of its health checks.", 8081),
                "metricsPort": port("The port of its metrics.", 8080),
            },
        ),
        "replicas": replicas(),
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
        "vpa": autoscaler(),
    },
)

_SCHEDULER = record(
    "The schedulers; what each shard may set is in SchedulingShard.",
    {
        "service": service("scheduler"),
        "GOGC": whole("Accepted for compatibility; without effect here.", default=400),
        "schedulerService": record(
            "The service of its metrics.",
            {
                "type": text("The type of the service.", default="ClusterIP"),
                "port": port("The port of the service.", 8080),
                "targetPort": port("The port of the container.", 8080),
            },
        ),
        "replicas": replicas(),
        "vpa": autoscaler(),
    },
)

_QUEUE_CONTROLLER = record(
    "The queue controller, which writes what queues use.",
    {
        "service": service("queuecontroller"),
        "controllerService": record(
            "Its ports.",
            {
                "metrics": record(
                    "The port of its metrics.",
                    {
                        "port": port("The port of the service.", 8080),
                        "targetPort": port("The port of the container.", 8080),
                        "name": text("The name of the port.", default="metrics"),
                    },
                ),
                "webhook": webhook_port(),
            },
        ),
        "webhooks": validation("kai-queue-validation-"),
        "metricsNamespace": text("The prefix of metric names; kai if absent."),
        "queueLabelToMetricLabel": text("Queue labels to show as metric labels, as label=metric pairs."),
        "queueLabelToDefaultMetricValue": text("Values of those metric labels where a queue has no such label."),
        "replicas": replicas(),
        "vpa": autoscaler(),
    },
)

_POD_GROUP_CONTROLLER = record(
    "The pod group controller, which writes what pod groups use.",
    {
        "service": service("podgroupcontroller"),
        "controllerService": record("Its ports.", {"webhook": webhook_port()}),
        "maxConcurrentReconciles": whole("How many pod groups it handles at a time.", minimum=1),
        "webhooks": validation("kai-podgroup-validation-"),
        "replicas": replicas(),
        "vpa": autoscaler(),
    },
)

_NODE_SCALE_ADJUSTER = record(
    "The node scale adjuster, which makes a cluster autoscaler see pods that wait for a part of a GPU.",
    {
        "service": service("nodescaleadjuster"),
        "args": record(
            "How it works.",
            {
                "scalingPodImage": image("scalingpod"),
                "nodeScaleNamespace": text("Where its scaling pods run.", default=names.SCALING_NAMESPACE),
                "nodeScaleServiceAccount": text("Their service account.", default=names.SCALING_NAMESPACE),
                "gpuMemoryToFractionRatio": decimal(
                    "The part of a GPU that a request for memory counts as; 0.1 if absent."
                ),
            },
        ),
        "vpa": autoscaler(),
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
    "The exporter that tells which NUMA zones pods run on.",
    {
        "service": service_without_default("numa-placement-exporter"),
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

CONFIG = Definition(
    group="kai.scheduler",
    version="v1",
    kind="Config",
    plural="configs",
    namespaced=False,
    doc="How the whole system is deployed and configured. Only the object named kai-config is used.",
    spec=record("One part for every component.", _COMPONENTS),
    status=record(
        "What the operator made of it.", {"conditions": conditions("Whether the system is deployed and works.")}
    ),
)
