"""Addresses of every kind that pykai reads or writes."""

from __future__ import annotations

from typing import Final

from pykai.kube.api import Resource
from pykai.objects.kinds import DRA_VERSIONS

POD: Final = Resource("", "v1", "pods", "Pod")
NODE: Final = Resource("", "v1", "nodes", "Node", False)
NAMESPACE: Final = Resource("", "v1", "namespaces", "Namespace", False)
CONFIG_MAP: Final = Resource("", "v1", "configmaps", "ConfigMap")
SECRET: Final = Resource("", "v1", "secrets", "Secret")
SERVICE: Final = Resource("", "v1", "services", "Service")
SERVICE_ACCOUNT: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
EVENT: Final = Resource("", "v1", "events", "Event")
PERSISTENT_VOLUME: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", False)
PERSISTENT_VOLUME_CLAIM: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
REPLICATION_CONTROLLER: Final = Resource("", "v1", "replicationcontrollers", "ReplicationController")

DEPLOYMENT: Final = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SET: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SET: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SET: Final = Resource("apps", "v1", "daemonsets", "DaemonSet")
JOB: Final = Resource("batch", "v1", "jobs", "Job")
CRON_JOB: Final = Resource("batch", "v1", "cronjobs", "CronJob")

LEASE: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PRIORITY_CLASS: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False)
WORKLOAD: Final = Resource("scheduling.k8s.io", "v1alpha1", "workloads", "Workload")
SCHEDULING_GROUP: Final = Resource(
    "scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", older=("v1alpha3", "v1alpha2")
)
COMPOSITE_GROUP: Final = Resource(
    "scheduling.k8s.io", "v1alpha3", "compositepodgroups", "CompositePodGroup", older=("v1beta1",)
)
RUNTIME_CLASS: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
DISRUPTION_BUDGET: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
ENDPOINT_SLICE: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")

STORAGE_CLASS: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)
CSI_NODE: Final = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", False)
CSI_DRIVER: Final = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False)
CSI_CAPACITY: Final = Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity")


def _dra(plural: str, kind: str, namespaced: bool = True) -> Resource:
    return Resource("resource.k8s.io", "v1", plural, kind, namespaced, DRA_VERSIONS)


RESOURCE_CLAIM: Final = _dra("resourceclaims", "ResourceClaim")
RESOURCE_CLAIM_TEMPLATE: Final = _dra("resourceclaimtemplates", "ResourceClaimTemplate")
RESOURCE_SLICE: Final = _dra("resourceslices", "ResourceSlice", False)
DEVICE_CLASS: Final = _dra("deviceclasses", "DeviceClass", False)
DEVICE_TAINT_RULE: Final = Resource(
    "resource.k8s.io", "v1alpha3", "devicetaintrules", "DeviceTaintRule", False, ("v1beta2",)
)
"""The alpha version first: a server may serve v1beta2 of the group without this kind."""

CRD: Final = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
MUTATING_WEBHOOK: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)
VALIDATING_WEBHOOK: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False
)
CLUSTER_ROLE: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
CLUSTER_ROLE_BINDING: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False
)
ROLE: Final = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDING: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")

QUEUE: Final = Resource("scheduling.run.ai", "v2", "queues", "Queue", False)
POD_GROUP: Final = Resource("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup")
BIND_REQUEST: Final = Resource("scheduling.run.ai", "v1alpha2", "bindrequests", "BindRequest")
CONFIG: Final = Resource("kai.scheduler", "v1", "configs", "Config", False)
SHARD: Final = Resource("kai.scheduler", "v1", "schedulingshards", "SchedulingShard", False)
TOPOLOGY: Final = Resource("kai.scheduler", "v1alpha1", "topologies", "Topology", False)
NODE_TOPOLOGY: Final = Resource(
    "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", "NodeResourceTopology", False
)

PRODUCT: Final = (QUEUE, POD_GROUP, BIND_REQUEST, CONFIG, SHARD, TOPOLOGY)
BUILT_IN: Final = tuple(
    value
    for value in list(globals().values())
    if isinstance(value, Resource) and value not in PRODUCT and value is not NODE_TOPOLOGY
)
