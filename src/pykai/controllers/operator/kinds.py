"""The kinds the operator makes, in the order in which they are written, and the kinds it only reads.

Trust comes before certificates, and configuration and leases before the pods that read them, so that no step leaves
behind a state that does not work.
"""

from __future__ import annotations

from typing import Final

from pykai.controllers.operator.installation import MONITOR_KIND, PROMETHEUS_KIND, VPA_KIND
from pykai.kube.api import Resource
from pykai.kube.resources import (
    CONFIG_MAP,
    DAEMON_SET,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    ENDPOINT_SLICE,
    LEASE,
    MUTATING_WEBHOOK,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    VALIDATING_WEBHOOK,
)

VPA: Final = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler")
PROMETHEUS: Final = Resource("monitoring.coreos.com", "v1", "prometheuses", "Prometheus")
MONITOR: Final = Resource("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor")
CLUSTER_POLICY: Final = Resource("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy", False)

OPTIONAL: Final = (VPA, PROMETHEUS, MONITOR)
WEBHOOKS: Final = (MUTATING_WEBHOOK, VALIDATING_WEBHOOK)
WORKLOADS: Final = (DEPLOYMENT, DAEMON_SET)
MADE: Final = (
    SERVICE_ACCOUNT,
    CONFIG_MAP,
    SERVICE,
    *WEBHOOKS,
    SECRET,
    LEASE,
    *WORKLOADS,
    DISRUPTION_BUDGET,
    ENDPOINT_SLICE,
    *OPTIONAL,
)
BY_KIND: Final = {resource.kind: resource for resource in MADE}

assert {resource.qualified for resource in OPTIONAL} == {VPA_KIND, PROMETHEUS_KIND, MONITOR_KIND}
