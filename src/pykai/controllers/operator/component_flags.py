"""The flags of every component. Flags without a setting are omitted, so that the component's default applies.

`changed` merges overrides into tables of plugins and actions of scheduler and binder: `enabled` and `priority` field by
field, `arguments` as a whole. An override of an unknown name adds it with priority 0, enabled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec.structs import asdict

from pykai.controllers.operator.deployments import container_security
from pykai.controllers.operator.installation import Facts, Installation, image_reference
from pykai.kube.api import Fields, Object
from pykai.objects import names
from pykai.objects.config_kinds import ClientLimits, Config, Override


@dataclass(frozen=True)
class PolicyRow:
    """The complete settings of a plugin or action."""

    enabled: bool
    priority: int
    arguments: Mapping[str, str]


UNKNOWN = PolicyRow(True, 0, {})


def changed(usual: Mapping[str, PolicyRow], changes: Mapping[str, Override]) -> dict[str, PolicyRow]:
    """Return the table with the overrides applied."""
    rows = dict(usual)
    for name, change in changes.items():
        given = {field: value for field, value in asdict(change).items() if value is not None}
        rows[name] = replace(usual.get(name, UNKNOWN), **given)
    return rows


def in_order(rows: Mapping[str, PolicyRow]) -> list[tuple[str, PolicyRow]]:
    """Return the enabled rows: higher priority first, then by name."""
    return sorted(
        ((name, row) for name, row in rows.items() if row.enabled), key=lambda item: (-item[1].priority, item[0])
    )


HAMI_CORE: Final = "hamicore"
BIND_SECONDS: Final = 120


def sharing_mode(config: Config) -> str:
    """Return how pods share GPUs; if no mode is set, the HAMi-core plugin or the older admission setting decide."""
    if config.shared.gpu_sharing_mode:
        return config.shared.gpu_sharing_mode
    hami = config.binder.plugins.get(HAMI_CORE)
    if hami is not None and hami.enabled:
        return names.HAMI_CORE
    return names.NON_MEMORY_ENFORCED if config.admission.gpu_sharing else names.SHARING_DISABLED


def shares_by_config_map(config: Config) -> bool:
    """Whether admission and binder connect pods that share GPUs to ConfigMaps; the older setting takes precedence."""
    return config.admission.gpu_sharing or sharing_mode(config) in (names.NON_MEMORY_ENFORCED, names.HAMI_CORE)


def binder_plugins(config: Config, facts: Facts) -> dict[str, Object]:
    """Return every plugin with `enabled`, `priority` and `arguments`, in the format of the binder's flag."""
    binder, mode = config.binder, sharing_mode(config)
    seconds = str(binder.volume_binding_timeout_seconds or BIND_SECONDS)
    cdi = facts.cdi if binder.cdi_enabled is None else binder.cdi_enabled
    waits, by_cdi = {"bindTimeoutSeconds": seconds}, {"cdiEnabled": "true" if cdi else "false"}
    usual = {
        "volumebinding": PolicyRow(True, 300, waits),
        "dynamicresources": PolicyRow(True, 200, waits),
        "gpusharing": PolicyRow(shares_by_config_map(config), 100, by_cdi),
        "nvfractions": PolicyRow(mode == names.NVFRACTIONS, 90, by_cdi),
        HAMI_CORE: PolicyRow(mode == names.HAMI_CORE, 50, {}),
    }
    rows = sorted(changed(usual, binder.plugins).items())
    return {
        name: {"enabled": row.enabled, "priority": row.priority, "arguments": dict(row.arguments)} for name, row in rows
    }


Given = Fields
RUNTIME_CLASS = "nvidia"


def flags(given: Given) -> list[str]:
    """Return `--name=value` for every flag that is not None, in order; maps become JSON."""
    return [f"--{name}={_text(value)}" for name, value in given.items() if value is not None]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, sort_keys=True, separators=(",", ":")) if isinstance(value, Mapping) else str(value)


def _limits(own: ClientLimits) -> Given:
    return {"qps": 20 if own.qps is None else own.qps, "burst": 100 if own.burst is None else own.burst}


def _shared(installation: Installation) -> Given:
    return {"zap-devel": False if installation.config.shared.json_log else None}


def _elected(installation: Installation, own: int | None) -> Given:
    return {"leader-elect": True if installation.replicas(own) > 1 else None}


def _pairs(labels: Mapping[str, str]) -> str | None:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or None


def pod_grouper(installation: Installation) -> list[str]:
    """Return the flags of `kai podgrouper`."""
    own, shared = installation.config.pod_grouper, installation.config.shared
    name, namespace = own.args.default_priorities_config_map_name, own.args.default_priorities_config_map_namespace
    both = bool(name and namespace)
    return flags(
        {
            "scheduler-name": shared.scheduler_name,
            "queue-label-key": shared.queue_label_key,
            "nodepool-label-key": shared.node_pool_label_key,
            "knative-gang-schedule": own.args.gang_schedule_knative,
            "deployment-gang-schedule": own.args.gang_schedule_deployment,
            "generic-karta-fallback": own.args.generic_karta_fallback,
            "qps": own.k8s_client_config.qps,
            "burst": own.k8s_client_config.burst,
            "max-concurrent-reconciles": own.max_concurrent_reconciles,
            **_elected(installation, own.replicas),
            "default-priorities-configmap-name": name if both else None,
            "default-priorities-configmap-namespace": namespace if both else None,
            "namespace-label-selector": _pairs(shared.namespace_label_selector),
            "pod-label-selector": _pairs(shared.pod_label_selector),
            **_shared(installation),
        }
    )


def binder(installation: Installation) -> list[str]:
    """Return the flags of `kai binder`; they state all plugin settings, so that the flags show what runs."""
    own, shared = installation.config.binder, installation.config.shared
    reservation = own.resource_reservation
    security = reservation.reservation_container_security_context or container_security(installation)
    chosen = reservation.runtime_class_name
    return flags(
        {
            "scheduler-name": shared.scheduler_name,
            "resource-reservation-namespace": reservation.namespace,
            "resource-reservation-service-account": reservation.service_account_name,
            "resource-reservation-app-label": reservation.app_label,
            "resource-reservation-pod-image": image_reference(reservation.image, installation.environment),
            "scale-adjust-namespace": installation.config.node_scale_adjuster.args.node_scale_namespace,
            "health-probe-bind-address": f":{own.probe_port}",
            "metrics-bind-address": f":{own.metrics_port}",
            "max-concurrent-reconciles": own.max_concurrent_reconciles,
            "resource-reservation-allocation-timeout": reservation.allocation_timeout,
            "plugins": binder_plugins(installation.config, installation.facts),
            "fake-gpu-nodes": True if installation.facts.fake_gpu_nodes else None,
            **_elected(installation, own.replicas),
            **_limits(own.service.k8s_client_config),
            "runtime-class-name": RUNTIME_CLASS if chosen is None else chosen,
            "resource-reservation-pod-resources": reservation.pod_resources or None,
            "resource-reservation-pod-security-context": reservation.reservation_pod_security_context or None,
            "resource-reservation-container-security-context": security,
            **_shared(installation),
        }
    )


def admission(installation: Installation) -> list[str]:
    """Return the flags of `kai admission`."""
    own = installation.config.admission
    older, fraction = own.gpu_pod_runtime_class_name, own.gpu_fraction_runtime_class_name
    if installation.facts.nri:  # containers get their devices whatever their runtime class
        older, fraction = None, ""
    hami = binder_plugins(installation.config, installation.facts)[HAMI_CORE]["enabled"]
    nvfractions = sharing_mode(installation.config) == names.NVFRACTIONS
    binder_account = f"system:serviceaccount:{installation.config.namespace}:binder"
    return flags(
        {
            "scheduler-name": installation.config.shared.scheduler_name,
            "webhook-addr": own.webhook.target_port,
            "health-probe-bind-address": f":{own.webhook.probe_port}",
            "metrics-bind-address": f":{own.webhook.metrics_port}",
            "gpu-sharing-enabled": shares_by_config_map(installation.config) or None,
            "gpu-sharing-mode": names.NVFRACTIONS if nvfractions else None,
            "binder-service-account-username": binder_account if nvfractions else None,
            "hami-core-enabled": hami or None,
            "block-nvidia-visible-devices": own.block_nvidia_visible_devices or None,
            "validate-resize-quota": None if own.in_place_pod_resize.validate_quota else False,
            "block-upsize-on-bounded-queues": own.in_place_pod_resize.block_upsize_on_bounded_queues or None,
            "gpu-fraction-runtime-class-name": RUNTIME_CLASS if older is None and fraction is None else fraction,
            "gpu-pod-runtime-class-name": older,
            **_limits(own.service.k8s_client_config),
            **_shared(installation),
        }
    )


def queue_controller(installation: Installation) -> list[str]:
    """Return the flags of `kai queue-controller`."""
    own = installation.config.queue_controller
    return flags(
        {
            "metrics-listen-address": f":{own.controller_service.metrics.target_port}",
            "webhook-addr": own.controller_service.webhook.target_port,
            "enable-webhook": None if own.webhooks.enable_validation else False,
            "enforce-quota-violation": own.enforce_quota_violation or None,
            **_elected(installation, own.replicas),
            "metrics-namespace": own.metrics_namespace or None,
            "queue-label-to-metric-label": own.queue_label_to_metric_label or None,
            "queue-label-to-default-metric-value": own.queue_label_to_default_metric_value or None,
            **_limits(own.service.k8s_client_config),
            **_shared(installation),
        }
    )


def pod_group_controller(installation: Installation) -> list[str]:
    """Return the flags of `kai podgroup-controller`."""
    own = installation.config.pod_group_controller
    return flags(
        {
            "scheduler-name": installation.config.shared.scheduler_name,
            "webhook-addr": own.controller_service.webhook.target_port,
            "enable-podgroup-webhook": None if own.webhooks.enable_validation else False,
            **_limits(own.service.k8s_client_config),
            "max-concurrent-reconciles": own.max_concurrent_reconciles,
            **_elected(installation, own.replicas),
            **_shared(installation),
        }
    )


def node_scale_adjuster(installation: Installation) -> list[str]:
    """Return the flags of `kai node-scale-adjuster`."""
    own = installation.config.node_scale_adjuster
    return flags(
        {
            "scheduler-name": installation.config.shared.scheduler_name,
            "scaling-pod-service-account": own.args.node_scale_service_account,
            "scaling-pod-image": image_reference(own.args.scaling_pod_image, installation.environment),
            "scale-adjust-namespace": own.args.node_scale_namespace,
            "gpu-memory-to-fraction-ratio": own.args.gpu_memory_to_fraction_ratio,
            **_elected(installation, own.replicas),
            **_limits(own.service.k8s_client_config),
            **_shared(installation),
        }
    )
