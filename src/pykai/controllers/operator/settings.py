"""Config as a typed value, complete with its defaults.

Only the fields the operator reads. Defaults are those of the schema (`objects/config_schema.py`); a field that may be
absent has None, or an empty value where the two mean the same. A component without `vpa` has the global one.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from pykai.config.fields import FieldError, converted
from pykai.controllers.operator.defaults import filled
from pykai.objects.crds import CONFIG
from pykai.objects.names import is_subdomain

Object = dict[str, Any]
Labels = dict[str, str]


class Image(Struct, rename="camel", frozen=True):
    """Empty `repository` and `tag` mean the operator's own."""

    name: str
    pull_policy: str
    repository: str = ""
    tag: str = ""


class ClientLimits(Struct, frozen=True):
    """Requests to the API server per second and at once; None: not said."""

    qps: int | None = None
    burst: int | None = None


class Budget(Struct, rename="camel", frozen=True):
    """A disruption budget; `max_unavailable` is a number or a percentage."""

    enabled: bool
    max_unavailable: int | str


class Service(Struct, rename="camel", frozen=True):
    """How a component is deployed; `enabled` None: the operator decides."""

    image: Image
    pod_disruption_budget: Budget
    k8s_client_config: ClientLimits
    resources: Object
    enabled: bool | None = None
    affinity: Object = {}


class Autoscaler(Struct, rename="camel", frozen=True):
    """A vertical autoscaler; its policies are the autoscaler's own."""

    enabled: bool
    update_policy: Object = {}
    resource_policy: Object = {}


class Global(Struct, rename="camel", frozen=True):
    """What holds for all components."""

    vpa: Autoscaler
    openshift: bool
    require_default_pod_anti_affinity_term: bool
    queue_label_key: str
    scheduler_name: str
    node_pool_label_key: str
    json_log: bool
    affinity: Object = {}
    security_context: Object = {}
    images_pull_secret: str = ""
    additional_image_pull_secrets: list[str] = []
    node_selector: Labels = {}
    tolerations: list[Object] = []
    daemonsets_tolerations: list[Object] = []
    priority_class_name: str = ""
    replica_count: int | None = None
    namespace_label_selector: Labels = {}
    pod_label_selector: Labels = {}


class Port(Struct, rename="camel", frozen=True):
    """A port of a Service and the container's port behind it."""

    port: int
    target_port: int
    name: str = ""


class PodGrouperArgs(Struct, rename="camel", frozen=True):
    generic_karta_fallback: bool
    gang_schedule_knative: bool | None = None
    default_priorities_config_map_name: str = ""
    default_priorities_config_map_namespace: str = ""


class PodGrouper(Struct, rename="camel", frozen=True):
    service: Service
    args: PodGrouperArgs
    vpa: Autoscaler
    k8s_client_config: ClientLimits
    replicas: int | None = None
    max_concurrent_reconciles: int | None = None


class Reservation(Struct, rename="camel", frozen=True):
    """Reservation pods; `runtime_class_name` None: nvidia, empty: none."""

    image: Image
    namespace: str
    service_account_name: str
    app_label: str
    pod_resources: Object
    runtime_class_name: str | None = None
    allocation_timeout: int | None = None
    reservation_pod_security_context: Object = {}
    reservation_container_security_context: Object = {}


class Override(Struct, frozen=True):
    """What a user changes about a plugin or an action; None leaves it as it is."""

    enabled: bool | None = None
    priority: int | None = None
    arguments: Labels | None = None


class Binder(Struct, rename="camel", frozen=True):
    service: Service
    resource_reservation: Reservation
    vpa: Autoscaler
    probe_port: int
    metrics_port: int
    plugins: dict[str, Override] = {}
    replicas: int | None = None
    max_concurrent_reconciles: int | None = None
    volume_binding_timeout_seconds: int | None = None
    cdi_enabled: bool | None = None


class WebhookPorts(Struct, rename="camel", frozen=True):
    port: int
    target_port: int
    probe_port: int
    metrics_port: int


class Admission(Struct, rename="camel", frozen=True):
    service: Service
    webhook: WebhookPorts
    vpa: Autoscaler
    gpu_sharing: bool
    block_nvidia_visible_devices: bool
    queue_label_selector: bool
    validating_webhook_configuration_name: str
    mutating_webhook_configuration_name: str
    replicas: int | None = None
    gpu_pod_runtime_class_name: str | None = None
    gpu_fraction_runtime_class_name: str | None = None


class MetricsService(Struct, rename="camel", frozen=True):
    type: str
    port: int
    target_port: int


class Scheduler(Struct, rename="camel", frozen=True):
    service: Service
    scheduler_service: MetricsService
    vpa: Autoscaler
    replicas: int | None = None


class Validation(Struct, rename="camel", frozen=True):
    enable_validation: bool
    webhook_configuration_name_prefix: str


class QueuePorts(Struct, frozen=True):
    metrics: Port
    webhook: Port


class QueueController(Struct, rename="camel", frozen=True):
    service: Service
    controller_service: QueuePorts
    webhooks: Validation
    vpa: Autoscaler
    metrics_namespace: str = ""
    queue_label_to_metric_label: str = ""
    queue_label_to_default_metric_value: str = ""
    replicas: int | None = None


class PodGroupPorts(Struct, frozen=True):
    webhook: Port


class PodGroupController(Struct, rename="camel", frozen=True):
    service: Service
    controller_service: PodGroupPorts
    webhooks: Validation
    vpa: Autoscaler
    replicas: int | None = None
    max_concurrent_reconciles: int | None = None


class ScalingArgs(Struct, rename="camel", frozen=True):
    scaling_pod_image: Image
    node_scale_namespace: str
    node_scale_service_account: str
    gpu_memory_to_fraction_ratio: float | None = None


class NodeScaleAdjuster(Struct, frozen=True):
    service: Service
    args: ScalingArgs
    vpa: Autoscaler
    replicas: int | None = None


class Monitors(Struct, rename="camel", frozen=True):
    enabled: bool
    interval: str
    scrape_timeout: str
    bearer_token_file: str


class HealthProbe(Struct, rename="camel", frozen=True):
    """Seconds between two looks, seconds to wait for an answer, and how often to try again."""

    interval: int
    timeout: int
    max_retries: int


class Prometheus(Struct, rename="camel", frozen=True):
    enabled: bool
    instance_name: str
    retention_period: str
    sample_interval: str
    storage_class_name: str
    service_monitor: Monitors
    accounting_label_key: str
    accounting_label_value: str
    external_prometheus_health_probe: HealthProbe
    external_prometheus_url: str = ""
    enable_persistent_storage: bool = True
    storage_size: str | int = "50Gi"


class NumaExporter(Struct, rename="camel", frozen=True):
    service: Service
    node_selector: Labels = {}
    tolerations: list[Object] = []
    poll_interval: str = ""
    drift_resync_interval: str = ""
    pod_resources_host_path: str = "/var/lib/kubelet/pod-resources"
    pod_resources_socket: str = ""
    sysfs_host_path: str = "/sys"


class Config(Struct, rename="camel", frozen=True):
    """The spec of `kai-config`; `shared` is its part `global`."""

    namespace: str
    pod_grouper: PodGrouper
    binder: Binder
    admission: Admission
    scheduler: Scheduler
    queue_controller: QueueController
    pod_group_controller: PodGroupController
    node_scale_adjuster: NodeScaleAdjuster
    prometheus: Prometheus
    numa_placement_exporter: NumaExporter
    shared: Global = field(name="global")


_WITH_AUTOSCALER = tuple(
    name for name, part in CONFIG.spec["properties"].items() if "vpa" in part.get("properties", {}) and name != "global"
)


def read_config(spec: Object) -> Config:
    """A Config's spec with all defaults; FieldError names the field that is wrong."""
    config = converted(filled(_with_global_autoscaler(spec), CONFIG.spec), Config, "spec")
    name = config.shared.scheduler_name
    if not is_subdomain(name):
        raise FieldError("spec.global.schedulerName", f"{name!r} cannot be part of names")
    return config


def _with_global_autoscaler(spec: Object) -> Object:
    autoscaler = (spec.get("global") or {}).get("vpa")
    if not autoscaler:
        return spec
    parts = {name: {"vpa": autoscaler, **(spec.get(name) or {})} for name in _WITH_AUTOSCALER}
    return {**spec, **parts}
