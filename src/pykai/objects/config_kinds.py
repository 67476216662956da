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
    """Requests to the API server per second and at once; None: not said."""

    qps: Annotated[int | None, Doc("Requests per second.", minimum=0)] = None
    burst: Annotated[int | None, Doc("Requests at once.", minimum=0)] = None


class DisruptionBudgetSpec(ConfigPart):
    """How many of its pods may be taken down at a time; only with more than one replica."""

    enabled: Annotated[bool, Doc("Whether there is a budget.", default=False)]
    max_unavailable: Annotated[IntOrString, Doc("How many pods, or which part of them, may be missing.", default=1)]


class ResourcesSpec(ConfigPart):
    """Resource requests and limits of the container."""

    requests: Annotated[Amounts, Doc("Resource requests.")]
    limits: Annotated[Amounts, Doc("Resource limits.")]
    claims: Annotated[list[Object], Doc("Resource claims it uses.")]


class ServiceSpec(ConfigPart):
    """How the component is deployed."""

    image: Annotated[ImageSpec, Doc()]
    pod_disruption_budget: Annotated[DisruptionBudgetSpec, Doc()]
    k8s_client_config: Annotated[ClientLimits, Doc("Limits of its requests to the API server; 20 and 100 if absent.")]
    resources: Annotated[Object, Doc("Resource requests and limits of the container.", shape=ResourcesSpec)]
    enabled: Annotated[bool | None, Doc("Whether the component is deployed.", default=True)] = None
    affinity: Annotated[Object, Doc("Where its pods run (Affinity); goes before the global one.")] = {}


class OptionalService(ServiceSpec):
    """How the component is deployed."""

    enabled: Annotated[bool | None, Doc("Whether the component is deployed.")] = None


class Autoscaler(ConfigPart):
    """Vertical autoscaling."""

    enabled: Annotated[bool, Doc("Whether there is an autoscaler.", default=False)]
    update_policy: Annotated[Object, Doc("How it acts (PodUpdatePolicy).")] = {}
    resource_policy: Annotated[Object, Doc("What it may set (PodResourcePolicy).")] = {}


Vpa = Annotated[Autoscaler, Doc()]
Replicas = Annotated[int | None, Doc("How many copies run; global.replicaCount if absent.", minimum=0)]


class Global(ConfigPart):
    """Settings of all components."""

    vpa: Vpa
    openshift: Annotated[
        bool, Doc("Whether the cluster is OpenShift, which sets security contexts by itself.", default=False)
    ]
    require_default_pod_anti_affinity_term: Annotated[
        bool, Doc("Whether copies of a component must, not only should, run on different nodes.", default=False)
    ]
    queue_label_key: Annotated[str, Doc("The label by which workloads name their queue.", default=names.QUEUE_LABEL)]
    scheduler_name: Annotated[
        str, Doc("The schedulerName of the pods this system is responsible for.", default=names.SCHEDULER_NAME)
    ]
    node_pool_label_key: Annotated[str, Doc("The label that divides nodes into pools.", default=names.NODE_POOL_LABEL)]
    json_log: Annotated[bool, Doc("Whether logs are written as JSON.", default=False)]
    affinity: Annotated[Object, Doc("Where all pods run (Affinity).")] = {}
    security_context: Annotated[
        Object, Doc("The security context of all containers (SecurityContext); a restricted one if absent.")
    ] = {}
    images_pull_secret: Annotated[str, Doc("Deprecated: use additionalImagePullSecrets.")] = ""
    additional_image_pull_secrets: Annotated[list[str], Doc("Secrets to pull images with.")] = []
    node_selector: Annotated[Labels, Doc("Labels of the nodes all deployments run on.")] = {}
    tolerations: Annotated[list[Object], Doc("Taints that all deployments tolerate (Toleration).")] = []
    daemonsets_tolerations: Annotated[list[Object], Doc("Taints that all daemon sets tolerate (Toleration).")] = []
    priority_class_name: Annotated[str, Doc("The PriorityClass of all pods.")] = ""
    replica_count: Annotated[int | None, Doc("How many copies of every component run; 1 if absent.", minimum=0)] = None
    namespace_label_selector: Annotated[Labels, Doc("Only namespaces with these labels are looked at.")] = {}
    pod_label_selector: Annotated[Labels, Doc("Only pods with these labels are looked at.")] = {}
    gpu_sharing_mode: Annotated[
        str,
        Doc(
            "How pods share GPUs. If absent: HamiCore where the binder's plugin hamicore is on, NonMemoryEnforced "
            "where admission.gpuSharing is true, else Disabled.",
            enum=list(names.SHARING_MODES),
        ),
    ] = ""
    fips_only: Annotated[
        bool, Doc("Whether only FIPS cryptography may be used; refused, because the images have none.")
    ] = False


class PortSpec(ConfigPart):
    """A port of a Service and the container's port behind it."""

    port: int
    target_port: int
    name: str = ""


class MetricsPort(PortSpec):
    """The port of its metrics."""

    port: Annotated[int, Doc("The port of the service.", **_port(8080))]
    target_port: Annotated[int, Doc("The port of the container.", **_port(8080))]
    name: Annotated[str, Doc("The name of the port.", default="metrics")] = ""


class WebhookPort(PortSpec):
    """The port of the webhook."""

    port: Annotated[int, Doc("The port of the service.", **_port(443))]
    target_port: Annotated[int, Doc("The port of the container.", **_port(9443))]
    name: Annotated[str, Doc("The name of the port.", default="webhook")] = ""


class PodGrouperArgs(ConfigPart):
    """How it groups."""

    generic_karta_fallback: Annotated[
        bool, Doc("Whether kinds without a grouper of their own use a Karta.", default=True)
    ]
    gang_schedule_knative: Annotated[
        bool | None, Doc("Whether the pods of a Knative revision are started together; true if absent.")
    ] = None
    gang_schedule_deployment: Annotated[
        bool | None, Doc("Whether the pods of a Deployment share one PodGroup; true if absent.")
    ] = None
    default_priorities_config_map_name: Annotated[
        str, Doc("A ConfigMap with default priorities for kinds of workloads.")
    ] = ""
    default_priorities_config_map_namespace: Annotated[str, Doc("The namespace of that ConfigMap.")] = ""


class PodGrouperSpec(ConfigPart):
    """The pod grouper, which finds the pods of a gang."""

    service: Annotated[ServiceSpec, Doc(words={"image": "podgrouper"})]
    args: Annotated[PodGrouperArgs, Doc()]
    vpa: Vpa
    k8s_client_config: Annotated[ClientLimits, Doc("Limits of its requests to the API server.")]
    replicas: Replicas = None
    max_concurrent_reconciles: Annotated[int | None, Doc("How many pods it handles at a time.", minimum=1)] = None


class ReservationSpec(ConfigPart):
    """The pods that reserve the GPUs which are shared."""

    image: Annotated[ImageSpec, Doc(words={"image": "resource-reservation"})]
    namespace: Annotated[str, Doc("Where the reservation pods run.", default=names.RESERVATION_NAMESPACE)]
    service_account_name: Annotated[str, Doc("Their service account.", default=names.RESERVATION_APP)]
    app_label: Annotated[str, Doc("Their `app` label.", default=names.RESERVATION_APP)]
    pod_resources: Annotated[Object, Doc("Resource requests and limits of the container.", shape=ResourcesSpec)]
    runtime_class_name: Annotated[
        str | None, Doc("Their runtime class; nvidia if absent, an empty string means none.")
    ] = None
    allocation_timeout: Annotated[
        int | None, Doc("Seconds to wait for the reserved device; 40 if absent.", minimum=1)
    ] = None
    reservation_pod_security_context: Annotated[Object, Doc("Their security context (PodSecurityContext).")] = {}
    reservation_container_security_context: Annotated[
        Object, Doc("Their container's security context (SecurityContext).")
    ] = {}


class ActionOverride(ConfigPart):
    """What to change about one action."""

    enabled: Annotated[bool | None, Doc("Whether it runs; absent leaves it as it is.")] = None
    priority: Annotated[int | None, Doc("Its place in the order, higher first; absent leaves it as it is.")] = None


class Override(ActionOverride):
    """What to change about one plugin."""

    arguments: Annotated[Labels | None, Doc("Its arguments; they replace all default ones.")] = None


class BinderSpec(ConfigPart):
    """The binder, which carries out the scheduler's decisions."""

    service: Annotated[ServiceSpec, Doc(words={"image": "binder"})]
    resource_reservation: Annotated[ReservationSpec, Doc()]
    vpa: Vpa
    probe_port: Annotated[int, Doc("The port of its health checks.", **_port(8081))]
    metrics_port: Annotated[int, Doc("The port of its metrics.", **_port(8080))]
    plugins: Annotated[dict[str, Override], Doc("Changes to the binder's plugins, by name.")] = {}
    replicas: Replicas = None
    max_concurrent_reconciles: Annotated[
        int | None, Doc("How many pods it binds at a time; 10 if absent.", minimum=1)
    ] = None
    volume_binding_timeout_seconds: Annotated[
        int | None, Doc("Seconds to wait for volumes; 120 if absent.", minimum=1)
    ] = None
    cdi_enabled: Annotated[
        bool | None, Doc("Whether devices are named by CDI; found out from the GPU operator if absent.")
    ] = None


class WebhookPorts(ConfigPart):
    """Its ports."""

    port: Annotated[int, Doc("The port of the service.", **_port(443))]
    target_port: Annotated[int, Doc("The port of the container.", **_port(9443))]
    probe_port: Annotated[int, Doc("The port of its health checks.", **_port(8081))]
    metrics_port: Annotated[int, Doc("The port of its metrics.", **_port(8080))]


class InPlacePodResize(ConfigPart):
    """Checks of resizes of running pods."""

    validate_quota: Annotated[
        bool, Doc("Whether more CPU or memory must fit the limits and quotas of the pod's queues.", default=True)
    ]
    block_upsize_on_bounded_queues: Annotated[
        bool,
        Doc(
            "Whether queues with a finite limit, or quota for non-preemptible pods, take no upsize at all; without "
            "effect where validateQuota is false.",
            default=False,
        ),
    ]


class AdmissionSpec(ConfigPart):
    """The admission webhook, which completes and checks pods."""

    service: Annotated[ServiceSpec, Doc(words={"image": "admission"})]
    webhook: Annotated[WebhookPorts, Doc()]
    vpa: Vpa
    gpu_sharing: Annotated[
        bool,
        Doc("Whether pods may ask for a part of a GPU; global.gpuSharingMode says so as well.", default=False),
    ]
    block_nvidia_visible_devices: Annotated[
        bool, Doc("Whether pods that set NVIDIA_VISIBLE_DEVICES are refused.", default=False)
    ]
    queue_label_selector: Annotated[
        bool, Doc("Whether only namespaces with the queue label are looked at.", default=False)
    ]
    validating_webhook_configuration_name: Annotated[
        str, Doc("The name of the validating webhook configuration.", default="validating-kai-admission")
    ]
    mutating_webhook_configuration_name: Annotated[
        str, Doc("The name of the mutating webhook configuration.", default="mutating-kai-admission")
    ]
    in_place_pod_resize: Annotated[InPlacePodResize, Doc()]
    service_name: Annotated[
        str, Doc("The name of its Service, which webhooks and serving certificate carry.", default="admission")
    ]
    replicas: Replicas = None
    gpu_pod_runtime_class_name: Annotated[str | None, Doc("Deprecated: use gpuFractionRuntimeClassName.")] = None
    gpu_fraction_runtime_class_name: Annotated[
        str | None, Doc("The runtime class of pods that share a GPU; nvidia if absent, empty for none.")
    ] = None


class MetricsService(ConfigPart):
    """The service of its metrics."""

    type: Annotated[str, Doc("The type of the service.", default="ClusterIP")]
    port: Annotated[int, Doc("The port of the service.", **_port(8080))]
    target_port: Annotated[int, Doc("The port of the container.", **_port(8080))]


class SchedulerSpec(ConfigPart):
    """The schedulers; what each shard may set is in SchedulingShard."""

    service: Annotated[ServiceSpec, Doc(words={"image": "scheduler"})]
    scheduler_service: Annotated[MetricsService, Doc()]
    vpa: Vpa
    replicas: Replicas = None
    gogc: ClassVar[Annotated[int, Doc("Accepted for compatibility; without effect here.", name="GOGC", default=400)]]


class Validation(ConfigPart):
    """Checks of objects when they are written."""

    enable_validation: Annotated[bool, Doc("Whether objects are checked.", default=True)]
    webhook_configuration_name_prefix: Annotated[
        str, Doc("How the webhook configuration's name begins.", default="{prefix}")
    ]


class QueuePorts(ConfigPart):
    """Its ports."""

    metrics: Annotated[MetricsPort, Doc()]
    webhook: Annotated[WebhookPort, Doc()]


class QueueControllerSpec(ConfigPart):
    """The queue controller, which writes what queues use."""

    service: Annotated[ServiceSpec, Doc(words={"image": "queuecontroller"})]
    controller_service: Annotated[QueuePorts, Doc()]
    webhooks: Annotated[Validation, Doc(words={"prefix": "kai-queue-validation-"})]
    vpa: Vpa
    metrics_namespace: Annotated[str, Doc("The prefix of metric names; kai if absent.")] = ""
    enforce_quota_violation: Annotated[
        str,
        Doc(
            "What happens when a limit or quota of a queue is reduced below what it holds; None if absent.",
            enum=["None", "Warning", "Block"],
        ),
    ] = ""
    queue_label_to_metric_label: Annotated[
        str, Doc("Queue labels to show as metric labels, as label=metric pairs.")
    ] = ""
    queue_label_to_default_metric_value: Annotated[
        str, Doc("Values of those metric labels where a queue has no such label.")
    ] = ""
    replicas: Replicas = None


class PodGroupPorts(ConfigPart):
    """Its ports."""

    webhook: Annotated[WebhookPort, Doc()]


class PodGroupControllerSpec(ConfigPart):
    """The pod group controller, which writes what pod groups use."""

    service: Annotated[ServiceSpec, Doc(words={"image": "podgroupcontroller"})]
    controller_service: Annotated[PodGroupPorts, Doc()]
    webhooks: Annotated[Validation, Doc(words={"prefix": "kai-podgroup-validation-"})]
    vpa: Vpa
    replicas: Replicas = None
    max_concurrent_reconciles: Annotated[int | None, Doc("How many pod groups it handles at a time.", minimum=1)] = None


class ScalingArgs(ConfigPart):
    """How it works."""

    scaling_pod_image: Annotated[ImageSpec, Doc(words={"image": "scalingpod"})]
    node_scale_namespace: Annotated[str, Doc("Where its scaling pods run.", default=names.SCALING_NAMESPACE)]
    node_scale_service_account: Annotated[str, Doc("Their service account.", default=names.SCALING_NAMESPACE)]
    gpu_memory_to_fraction_ratio: Annotated[
        float | None, Doc("The part of a GPU that a request for memory counts as; 0.1 if absent.")
    ] = None


class NodeScaleAdjusterSpec(ConfigPart):
    """The node scale adjuster, which makes a cluster autoscaler see pods that wait for a part of a GPU."""

    service: Annotated[ServiceSpec, Doc(words={"image": "nodescaleadjuster"})]
    args: Annotated[ScalingArgs, Doc()]
    vpa: Vpa

    @property
    def replicas(self) -> int | None:
        """None, which stands for `global.replicaCount`: the component has no field of its own."""
        return None


class Monitors(ConfigPart):
    """How metrics are collected."""

    enabled: Annotated[bool, Doc("Whether there are service monitors.", default=True)]
    interval: Annotated[str, Doc("How often.", default="30s")]
    scrape_timeout: Annotated[str, Doc("How long a collection may take.", default="10s")]
    bearer_token_file: Annotated[
        str, Doc("The token to collect with.", default="/var/run/secrets/kubernetes.io/serviceaccount/token")
    ]


class HealthProbe(ConfigPart):
    """Seconds between two looks, seconds to wait for an answer, and how often to try again."""

    interval: Annotated[int, Doc("Seconds between two looks.", minimum=1, default=30)]
    timeout: Annotated[int, Doc("Seconds to wait for an answer.", minimum=1, default=10)]
    max_retries: Annotated[int, Doc("Tries before it counts as lost.", minimum=0, default=5)]


class PrometheusSpec(ConfigPart):
    """The database of past use, for fair shares over time."""

    enabled: Annotated[bool, Doc("Whether one is deployed or used.", default=False)]
    instance_name: Annotated[str, Doc("Its name.", default="prometheus")]
    retention_period: Annotated[str, Doc("How long use is kept.", default="2w")]
    sample_interval: Annotated[str, Doc("How often use is recorded.", default="1m")]
    storage_class_name: Annotated[str, Doc("The storage class of that volume.", default="standard")]
    service_monitor: Annotated[Monitors, Doc()]
    accounting_label_key: Annotated[
        str, Doc("The label of the service monitors it reads.", default="kai.scheduler/accounting")
    ]
    accounting_label_value: Annotated[str, Doc("The value of that label.", default="true")]
    external_prometheus_health_probe: Annotated[HealthProbe, Doc("How that one is watched.")]
    external_prometheus_url: Annotated[str, Doc("The address of one that exists already; none is deployed then.")] = ""
    enable_persistent_storage: Annotated[bool, Doc("Whether it keeps its data on a volume; true if absent.")] = True
    storage_size: Annotated[Quantity, Doc("The size of that volume; 50Gi if absent.")] = "50Gi"


class NumaExporter(ConfigPart):
    """The exporter of the NUMA zones that pods run on."""

    service: Annotated[OptionalService, Doc(words={"image": "numa-placement-exporter"})]
    node_selector: Annotated[Labels, Doc("Labels of the nodes it runs on.")] = {}
    tolerations: Annotated[list[Object], Doc("Taints that it tolerates (Toleration).")] = []
    poll_interval: Annotated[str, Doc("How often it looks; 1s if absent.")] = ""
    drift_resync_interval: Annotated[str, Doc("How often it checks everything again; 60s if absent, 0 never.")] = ""
    pod_resources_host_path: Annotated[str, Doc("The folder of the kubelet's pod resources socket.")] = (
        "/var/lib/kubelet/pod-resources"
    )
    pod_resources_socket: Annotated[str, Doc("The kubelet's pod resources socket.")] = ""
    sysfs_host_path: Annotated[str, Doc("The folder of the node's sysfs.")] = "/sys"


class Config(ConfigPart):
    """The spec of `kai-config`; `shared` is the field `global`."""

    namespace: Annotated[str, Doc("Where the components run.", default=names.SYSTEM_NAMESPACE)]
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
    status: Annotated[str, Doc("Whether it holds.", required=True, enum=["True", "False", "Unknown"])]
    last_transition_time: Annotated[datetime, Doc("When the status last changed.", required=True)]
    reason: Annotated[str, Doc("The reason as a CamelCase identifier.", required=True, maxLength=1024)]
    message: Annotated[str, Doc("The reason as text.", required=True, maxLength=32768)]
    observed_generation: Annotated[
        int, Doc("The generation of the spec this was said of.", format="int64", minimum=0)
    ] = 0


class OperatorStatus(ConfigPart):
    """The status written by the operator."""

    conditions: Annotated[list[StandardCondition], keyed_by_type("Whether the {what} is deployed and works.")] = []
