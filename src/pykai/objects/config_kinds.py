"""The spec of Config, which the operator deploys: one part per component.

The operator applies the defaults of the schema, which `schema.py` generates from these structs, and then decodes them.
An optional field is None if absent, or empty where absent and empty mean the same. Images default to the operator's
repository and tag; `enabled` None lets the operator decide.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

from msgspec import Struct, field

from pykai.objects import names
from pykai.objects.schema import Amounts, Doc, IntOrString, Quantity, keyed_by_type

Object = dict[str, Any]
Labels = dict[str, str]


class ConfigPart(Struct, rename="camel", frozen=True):
    """Base of all parts of the spec: immutable, camelCase on the wire."""


def _port(default: int) -> dict[str, Any]:
    return {"minimum": 1, "maximum": 65535, "default": default}


class ImageSpec(ConfigPart):
    """The container image, as repository/name:tag."""

    name: Annotated[str, Doc("The name of the image.", default="{image}")]
    pull_policy: Annotated[
        str, Doc("When to pull it.", enum=["Always", "IfNotPresent", "Never"], default="IfNotPresent")
    ]
    repository: Annotated[str, Doc("The registry and path; the operator's own if absent.")] = ""
    tag: Annotated[str, Doc("The tag; the operator's own if absent.")] = ""


class ClientLimits(ConfigPart):
    """Rate limits of requests to the API server."""

    qps: Annotated[int | None, Doc("Average requests per second.", minimum=0)] = None
    burst: Annotated[int | None, Doc("Maximum burst of requests.", minimum=0)] = None


class DisruptionBudgetSpec(ConfigPart):
    """The PodDisruptionBudget; only with more than one replica."""

    enabled: Annotated[bool, Doc("Whether there is a budget.", default=False)]
    max_unavailable: Annotated[
        IntOrString, Doc("How many pods may be unavailable, as a number or a percentage.", default=1)
    ]


class ResourcesSpec(ConfigPart):
    """Resource requests and limits of the container."""

    requests: Annotated[Amounts, Doc("Resource requests.")]
    limits: Annotated[Amounts, Doc("Resource limits.")]
    claims: Annotated[list[Object], Doc("Resource claims of the container.")]


class ServiceSpec(ConfigPart):
    """How the component is deployed."""

    image: Annotated[ImageSpec, Doc()]
    pod_disruption_budget: Annotated[DisruptionBudgetSpec, Doc()]
    k8s_client_config: Annotated[
        ClientLimits, Doc("Rate limits of its requests to the API server; 20 and 100 if absent.")
    ]
    resources: Annotated[Object, Doc("Resource requests and limits of the container.", shape=ResourcesSpec)]
    enabled: Annotated[bool | None, Doc("Whether the component is deployed.", default=True)] = None
    affinity: Annotated[Object, Doc("Affinity of its pods; overrides the global one.")] = {}


class OptionalService(ServiceSpec):
    """How the component is deployed."""

    enabled: Annotated[bool | None, Doc("Whether the component is deployed.")] = None


class Autoscaler(ConfigPart):
    """Vertical autoscaling."""

    enabled: Annotated[bool, Doc("Whether there is an autoscaler.", default=False)]
    update_policy: Annotated[Object, Doc("How it applies recommendations (PodUpdatePolicy).")] = {}
    resource_policy: Annotated[Object, Doc("Which resources it may set (PodResourcePolicy).")] = {}


Vpa = Annotated[Autoscaler, Doc()]
Replicas = Annotated[int | None, Doc("Number of replicas; global.replicaCount if absent.", minimum=0)]


class Global(ConfigPart):
    """Settings of all components."""

    vpa: Vpa
    openshift: Annotated[
        bool, Doc("Whether the cluster is OpenShift, which sets security contexts itself.", default=False)
    ]
    require_default_pod_anti_affinity_term: Annotated[
        bool, Doc("Whether replicas of a component must, not only should, run on different nodes.", default=False)
    ]
    queue_label_key: Annotated[str, Doc("The label that names the queue of a workload.", default=names.QUEUE_LABEL)]
    scheduler_name: Annotated[
        str, Doc("The schedulerName of the pods that the components handle.", default=names.SCHEDULER_NAME)
    ]
    node_pool_label_key: Annotated[str, Doc("The label that names the node pool.", default=names.NODE_POOL_LABEL)]
    json_log: Annotated[bool, Doc("Whether logs are written as JSON.", default=False)]
    affinity: Annotated[Object, Doc("Affinity of all pods.")] = {}
    security_context: Annotated[
        Object, Doc("The security context of all containers (SecurityContext); a restricted one if absent.")
    ] = {}
    images_pull_secret: Annotated[str, Doc("Deprecated: use additionalImagePullSecrets.")] = ""
    additional_image_pull_secrets: Annotated[list[str], Doc("Image pull secrets.")] = []
    node_selector: Annotated[Labels, Doc("Node selector of all deployments.")] = {}
    tolerations: Annotated[list[Object], Doc("Tolerations of all deployments.")] = []
    daemonsets_tolerations: Annotated[list[Object], Doc("Tolerations of all daemon sets.")] = []
    priority_class_name: Annotated[str, Doc("The PriorityClass of all pods.")] = ""
    replica_count: Annotated[int | None, Doc("Number of replicas of each component; 1 if absent.", minimum=0)] = None
    namespace_label_selector: Annotated[Labels, Doc("Only handle namespaces with these labels.")] = {}
    pod_label_selector: Annotated[Labels, Doc("Only handle pods with these labels.")] = {}
    gpu_sharing_mode: Annotated[
        str,
        Doc(
            "How pods share GPUs. If absent: HamiCore if the binder's plugin hamicore is enabled, NonMemoryEnforced if "
            "admission.gpuSharing is true, else Disabled.",
            enum=list(names.SHARING_MODES),
        ),
    ] = ""
    fips_only: Annotated[
        bool, Doc("Whether to use only FIPS cryptography; rejected if true, because the images have none.")
    ] = False


class PortSpec(ConfigPart):
    """A port of a Service and its target port."""

    port: int
    target_port: int
    name: str = ""


class MetricsPort(PortSpec):
    """The metrics port."""

    port: Annotated[int, Doc("The port of the service.", **_port(8080))]
    target_port: Annotated[int, Doc("The port of the container.", **_port(8080))]
    name: Annotated[str, Doc("The name of the port.", default="metrics")] = ""


class WebhookPort(PortSpec):
    """The webhook port."""

    port: Annotated[int, Doc("The port of the service.", **_port(443))]
    target_port: Annotated[int, Doc("The port of the container.", **_port(9443))]
    name: Annotated[str, Doc("The name of the port.", default="webhook")] = ""


class PodGrouperArgs(ConfigPart):
    """Settings of the grouping."""

    generic_karta_fallback: Annotated[
        bool, Doc("Whether kinds without a grouping rule are grouped by a Karta.", default=True)
    ]
    gang_schedule_knative: Annotated[
        bool | None, Doc("Whether the pods of a Knative revision form a gang; true if absent.")
    ] = None
    gang_schedule_deployment: Annotated[
        bool | None, Doc("Whether the pods of a Deployment share one PodGroup; true if absent.")
    ] = None
    default_priorities_config_map_name: Annotated[
        str, Doc("A ConfigMap with default priorities per kind of workload.")
    ] = ""
    default_priorities_config_map_namespace: Annotated[str, Doc("The namespace of that ConfigMap.")] = ""


class PodGrouperSpec(ConfigPart):
    """The pod grouper, which creates PodGroups for the pods of workloads."""

    service: Annotated[ServiceSpec, Doc(words={"image": "podgrouper"})]
    args: Annotated[PodGrouperArgs, Doc()]
    vpa: Vpa
    k8s_client_config: Annotated[ClientLimits, Doc("Rate limits of its requests to the API server.")]
    replicas: Replicas = None
    max_concurrent_reconciles: Annotated[int | None, Doc("Maximum number of concurrent reconciles.", minimum=1)] = None


class ReservationSpec(ConfigPart):
    """The reservation pods, which hold the GPUs that other pods share."""

    image: Annotated[ImageSpec, Doc(words={"image": "resource-reservation"})]
    namespace: Annotated[str, Doc("The namespace of reservation pods.", default=names.RESERVATION_NAMESPACE)]
    service_account_name: Annotated[str, Doc("Their service account.", default=names.RESERVATION_APP)]
    app_label: Annotated[str, Doc("Their `app` label.", default=names.RESERVATION_APP)]
    pod_resources: Annotated[Object, Doc("Resource requests and limits of the container.", shape=ResourcesSpec)]
    runtime_class_name: Annotated[str | None, Doc("Their runtime class; nvidia if absent, none if empty.")] = None
    allocation_timeout: Annotated[
        int | None, Doc("Seconds to wait until a reservation pod reports its device; 40 if absent.", minimum=1)
    ] = None
    reservation_pod_security_context: Annotated[Object, Doc("Their security context (PodSecurityContext).")] = {}
    reservation_container_security_context: Annotated[
        Object, Doc("Their container's security context (SecurityContext).")
    ] = {}


class ActionOverride(ConfigPart):
    """Overrides of an action."""

    enabled: Annotated[bool | None, Doc("Whether it runs; unchanged if absent.")] = None
    priority: Annotated[int | None, Doc("Its position in the order, higher first; unchanged if absent.")] = None


class Override(ActionOverride):
    """Overrides of a plugin."""

    arguments: Annotated[Labels | None, Doc("Its arguments; they replace all default arguments.")] = None


class BinderSpec(ConfigPart):
    """The binder, which binds pods as the scheduler decided."""

    service: Annotated[ServiceSpec, Doc(words={"image": "binder"})]
    resource_reservation: Annotated[ReservationSpec, Doc()]
    vpa: Vpa
    probe_port: Annotated[int, Doc("The port of its health checks.", **_port(8081))]
    metrics_port: Annotated[int, Doc("The port of its metrics.", **_port(8080))]
    plugins: Annotated[dict[str, Override], Doc("Overrides of the binder's plugins, by name.")] = {}
    replicas: Replicas = None
    max_concurrent_reconciles: Annotated[
        int | None, Doc("Maximum number of concurrent reconciles; 10 if absent.", minimum=1)
    ] = None
    volume_binding_timeout_seconds: Annotated[
        int | None, Doc("Seconds to wait until volumes are bound; 120 if absent.", minimum=1)
    ] = None
    cdi_enabled: Annotated[
        bool | None, Doc("Whether devices have CDI names; detected from the GPU operator if absent.")
    ] = None


class WebhookPorts(ConfigPart):
    """Its ports."""

    port: Annotated[int, Doc("The port of the service.", **_port(443))]
    target_port: Annotated[int, Doc("The port of the container.", **_port(9443))]
    probe_port: Annotated[int, Doc("The port of its health checks.", **_port(8081))]
    metrics_port: Annotated[int, Doc("The port of its metrics.", **_port(8080))]


class InPlacePodResize(ConfigPart):
    """Validation of in-place resizes of running pods."""

    validate_quota: Annotated[
        bool,
        Doc("Whether additional CPU or memory must fit the limits and quotas of the pod's queues.", default=True),
    ]
    block_upsize_on_bounded_queues: Annotated[
        bool,
        Doc(
            "Whether to reject every upsize in queues with a finite limit, or quota for non-preemptible pods; no "
            "effect if validateQuota is false.",
            default=False,
        ),
    ]


class AdmissionSpec(ConfigPart):
    """The admission webhook, which mutates and validates pods."""

    service: Annotated[ServiceSpec, Doc(words={"image": "admission"})]
    webhook: Annotated[WebhookPorts, Doc()]
    vpa: Vpa
    gpu_sharing: Annotated[
        bool,
        Doc("Whether pods may request fractions of a GPU; see also global.gpuSharingMode.", default=False),
    ]
    block_nvidia_visible_devices: Annotated[
        bool, Doc("Whether to reject pods that set NVIDIA_VISIBLE_DEVICES.", default=False)
    ]
    queue_label_selector: Annotated[bool, Doc("Whether to handle only namespaces with the queue label.", default=False)]
    validating_webhook_configuration_name: Annotated[
        str, Doc("The name of the validating webhook configuration.", default="validating-kai-admission")
    ]
    mutating_webhook_configuration_name: Annotated[
        str, Doc("The name of the mutating webhook configuration.", default="mutating-kai-admission")
    ]
    in_place_pod_resize: Annotated[InPlacePodResize, Doc()]
    service_name: Annotated[
        str, Doc("The name of its Service, used in webhooks and serving certificate.", default="admission")
    ]
    replicas: Replicas = None
    gpu_pod_runtime_class_name: Annotated[str | None, Doc("Deprecated: use gpuFractionRuntimeClassName.")] = None
    gpu_fraction_runtime_class_name: Annotated[
        str | None, Doc("The runtime class of pods that share a GPU; nvidia if absent, none if empty.")
    ] = None


class MetricsService(ConfigPart):
    """The metrics service."""

    type: Annotated[str, Doc("The type of the service.", default="ClusterIP")]
    port: Annotated[int, Doc("The port of the service.", **_port(8080))]
    target_port: Annotated[int, Doc("The port of the container.", **_port(8080))]


class SchedulerSpec(ConfigPart):
    """The schedulers; SchedulingShard has the settings of each."""

    service: Annotated[ServiceSpec, Doc(words={"image": "scheduler"})]
    scheduler_service: Annotated[MetricsService, Doc()]
    vpa: Vpa
    replicas: Replicas = None
    gogc: ClassVar[Annotated[int, Doc("Accepted for compatibility; no effect.", name="GOGC", default=400)]]


class Validation(ConfigPart):
    """The validating webhook."""

    enable_validation: Annotated[bool, Doc("Whether objects are validated.", default=True)]
    webhook_configuration_name_prefix: Annotated[
        str, Doc("The name prefix of the webhook configuration.", default="{prefix}")
    ]


class QueuePorts(ConfigPart):
    """Its ports."""

    metrics: Annotated[MetricsPort, Doc()]
    webhook: Annotated[WebhookPort, Doc()]


class QueueControllerSpec(ConfigPart):
    """The queue controller, which updates the status of queues."""

    service: Annotated[ServiceSpec, Doc(words={"image": "queuecontroller"})]
    controller_service: Annotated[QueuePorts, Doc()]
    webhooks: Annotated[Validation, Doc(words={"prefix": "kai-queue-validation-"})]
    vpa: Vpa
    metrics_namespace: Annotated[str, Doc("The prefix of metric names; kai if absent.")] = ""
    enforce_quota_violation: Annotated[
        str,
        Doc(
            "The response to reducing a limit or quota of a queue below its allocation; None if absent.",
            enum=["None", "Warning", "Block"],
        ),
    ] = ""
    queue_label_to_metric_label: Annotated[
        str, Doc("Queue labels to expose as metric labels, as label=metric pairs.")
    ] = ""
    queue_label_to_default_metric_value: Annotated[
        str, Doc("Values of those metric labels for queues without the label.")
    ] = ""
    replicas: Replicas = None


class PodGroupPorts(ConfigPart):
    """Its ports."""

    webhook: Annotated[WebhookPort, Doc()]


class PodGroupControllerSpec(ConfigPart):
    """The pod group controller, which updates the status of pod groups."""

    service: Annotated[ServiceSpec, Doc(words={"image": "podgroupcontroller"})]
    controller_service: Annotated[PodGroupPorts, Doc()]
    webhooks: Annotated[Validation, Doc(words={"prefix": "kai-podgroup-validation-"})]
    vpa: Vpa
    replicas: Replicas = None
    max_concurrent_reconciles: Annotated[int | None, Doc("Maximum number of concurrent reconciles.", minimum=1)] = None


class ScalingArgs(ConfigPart):
    """Settings of scaling pods."""

    scaling_pod_image: Annotated[ImageSpec, Doc(words={"image": "scalingpod"})]
    node_scale_namespace: Annotated[str, Doc("The namespace of scaling pods.", default=names.SCALING_NAMESPACE)]
    node_scale_service_account: Annotated[str, Doc("Their service account.", default=names.SCALING_NAMESPACE)]
    gpu_memory_to_fraction_ratio: Annotated[
        float | None, Doc("The GPU fraction assumed for a request for GPU memory; 0.1 if absent.")
    ] = None


class NodeScaleAdjusterSpec(ConfigPart):
    """The node scale adjuster, which makes pods that wait for a GPU fraction visible to a cluster autoscaler."""

    service: Annotated[ServiceSpec, Doc(words={"image": "nodescaleadjuster"})]
    args: Annotated[ScalingArgs, Doc()]
    vpa: Vpa

    @property
    def replicas(self) -> int | None:
        """None, which stands for `global.replicaCount`: the component has no field of its own."""
        return None


class Monitors(ConfigPart):
    """The service monitors, by which Prometheus scrapes the components."""

    enabled: Annotated[bool, Doc("Whether to create service monitors.", default=True)]
    interval: Annotated[str, Doc("The scrape interval.", default="30s")]
    scrape_timeout: Annotated[str, Doc("The scrape timeout.", default="10s")]
    bearer_token_file: Annotated[
        str, Doc("The bearer token file for scraping.", default="/var/run/secrets/kubernetes.io/serviceaccount/token")
    ]


class HealthProbe(ConfigPart):
    """The health probe of an external Prometheus."""

    interval: Annotated[int, Doc("Seconds between two probes.", minimum=1, default=30)]
    timeout: Annotated[int, Doc("Timeout of a probe in seconds.", minimum=1, default=10)]
    max_retries: Annotated[int, Doc("Failed probes until it counts as unavailable.", minimum=0, default=5)]


class PrometheusSpec(ConfigPart):
    """The Prometheus with past use, for time-based fair share."""

    enabled: Annotated[bool, Doc("Whether a Prometheus is deployed or used.", default=False)]
    instance_name: Annotated[str, Doc("The name of the deployed instance.", default="prometheus")]
    retention_period: Annotated[str, Doc("How long samples are kept.", default="2w")]
    sample_interval: Annotated[str, Doc("The interval of samples.", default="1m")]
    storage_class_name: Annotated[str, Doc("The storage class of its volume.", default="standard")]
    service_monitor: Annotated[Monitors, Doc()]
    accounting_label_key: Annotated[
        str, Doc("The label of the service monitors that it selects.", default="kai.scheduler/accounting")
    ]
    accounting_label_value: Annotated[str, Doc("The value of that label.", default="true")]
    external_prometheus_health_probe: Annotated[HealthProbe, Doc("The health probe of an external Prometheus.")]
    external_prometheus_url: Annotated[str, Doc("The URL of an external Prometheus; then none is deployed.")] = ""
    enable_persistent_storage: Annotated[bool, Doc("Whether it stores its data on a volume; true if absent.")] = True
    storage_size: Annotated[Quantity, Doc("The size of its volume; 50Gi if absent.")] = "50Gi"


class NumaExporter(ConfigPart):
    """The exporter of the NUMA zones that pods run on."""

    service: Annotated[OptionalService, Doc(words={"image": "numa-placement-exporter"})]
    node_selector: Annotated[Labels, Doc("Node selector of its pods.")] = {}
    tolerations: Annotated[list[Object], Doc("Tolerations of its pods.")] = []
    poll_interval: Annotated[str, Doc("The interval of queries to the kubelet; 1s if absent.")] = ""
    drift_resync_interval: Annotated[
        str, Doc("The interval of comparing all annotations with the API server's; 60s if absent, 0: never.")
    ] = ""
    pod_resources_host_path: Annotated[str, Doc("The directory of the kubelet's pod resources socket.")] = (
        "/var/lib/kubelet/pod-resources"
    )
    pod_resources_socket: Annotated[str, Doc("The kubelet's pod resources socket.")] = ""
    sysfs_host_path: Annotated[str, Doc("The directory of the node's sysfs.")] = "/sys"


class Config(ConfigPart):
    """The spec of `kai-config`; `shared` is the field `global`."""

    namespace: Annotated[str, Doc("The namespace of the components.", default=names.SYSTEM_NAMESPACE)]
    pod_grouper: Annotated[PodGrouperSpec, Doc()]
    binder: Annotated[BinderSpec, Doc()]
    admission: Annotated[AdmissionSpec, Doc()]
    scheduler: Annotated[SchedulerSpec, Doc()]
    queue_controller: Annotated[QueueControllerSpec, Doc()]
    pod_group_controller: Annotated[PodGroupControllerSpec, Doc()]
    node_scale_adjuster: Annotated[NodeScaleAdjusterSpec, Doc()]
    prometheus: Annotated[PrometheusSpec, Doc()]
    numa_placement_exporter: Annotated[NumaExporter, Doc()]
    shared: Annotated[Global, Doc()] = field(name="global")


class StandardCondition(ConfigPart):
    """One condition."""

    type: Annotated[str, Doc("The type of the condition.", required=True, maxLength=316)]
    status: Annotated[str, Doc("True, False or Unknown.", required=True, enum=["True", "False", "Unknown"])]
    last_transition_time: Annotated[datetime, Doc("When the status last changed.", required=True)]
    reason: Annotated[str, Doc("The reason as a CamelCase identifier.", required=True, maxLength=1024)]
    message: Annotated[str, Doc("The reason as text.", required=True, maxLength=32768)]
    observed_generation: Annotated[
        int, Doc("The generation of the spec that the condition is about.", format="int64", minimum=0)
    ] = 0


class OperatorStatus(ConfigPart):
    """The status written by the operator."""

    conditions: Annotated[
        list[StandardCondition], keyed_by_type("Conditions: whether the {what} is deployed and available.")
    ] = []
