"""The fields of Kubernetes' own kinds (1.35), so that an unknown name is an error and not passed over.

One row for each type: its fields by name, `!` for those that must be there, then `:T` or `:[T]` for the type of the
field or of its items, or `=a|b` where it has few values. A field without more is not looked into.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

Schema = dict[str, Any]

_IGNORED: Final = "IgnoredDuringExecution"
_OPERATORS: Final = "In|NotIn|Exists|DoesNotExist"
_EFFECTS: Final = "NoSchedule|PreferNoSchedule|NoExecute"
_OBJECT: Final = "apiVersion kind metadata:Metadata"
ROWS: Final = {
    "Pod": f"{_OBJECT} spec:PodSpec status",
    "Job": f"{_OBJECT} spec:JobSpec status",
    "Node": f"{_OBJECT} spec:NodeSpec status:NodeStatus",
    "PriorityClass": f"{_OBJECT} value! globalDefault description preemptionPolicy=PreemptLowerPriority|Never",
    "ConfigMap": f"{_OBJECT} data binaryData immutable",
    "Namespace": f"{_OBJECT} spec status",
    "Metadata": (
        "name generateName:Text namespace:Text labels:Map annotations:Map ownerReferences:[Owner] finalizers uid "
        "resourceVersion generation creationTimestamp deletionTimestamp deletionGracePeriodSeconds managedFields "
        "selfLink"
    ),
    "Owner": "apiVersion! kind! name! uid! controller blockOwnerDeletion",
    "JobSpec": (
        "parallelism:Whole completions:Whole completionMode=NonIndexed|Indexed template!:Template suspend:Switch "
        "backoffLimit:Whole backoffLimitPerIndex maxFailedIndexes activeDeadlineSeconds ttlSecondsAfterFinished "
        "podFailurePolicy successPolicy podReplacementPolicy=TerminatingOrFailed|Failed selector manualSelector "
        "managedBy"
    ),
    "Template": "metadata:Metadata spec:PodSpec",
    "PodSpec": (
        "schedulerName:Text containers:[Container] initContainers:[Container] ephemeralContainers "
        "resources:Resources priorityClassName:Text priority:Whole preemptionPolicy=PreemptLowerPriority|Never "
        "nodeName:Text nodeSelector:Map affinity:Affinity tolerations:[Toleration] "
        "topologySpreadConstraints:[Spread] schedulingGates:[Named] resourceClaims:[Claim] volumes:[Volume] "
        "overhead:Map runtimeClassName:Text restartPolicy=Always|OnFailure|Never "
        "terminationGracePeriodSeconds:Whole activeDeadlineSeconds:Whole serviceAccountName serviceAccount "
        "automountServiceAccountToken imagePullSecrets securityContext hostNetwork hostPID hostIPC hostUsers "
        "shareProcessNamespace hostname hostnameOverride subdomain setHostnameAsFQDN hostAliases "
        "dnsPolicy=ClusterFirst|ClusterFirstWithHostNet|Default|None dnsConfig readinessGates enableServiceLinks "
        "os workloadRef schedulingGroup"
    ),
    "Container": (
        "name! image command args workingDir ports:[Port] env:[Variable] envFrom resources:Resources "
        "resizePolicy restartPolicy restartPolicyRules volumeMounts:[Mount] volumeDevices livenessProbe "
        "readinessProbe startupProbe lifecycle terminationMessagePath "
        "terminationMessagePolicy=File|FallbackToLogsOnError imagePullPolicy=Always|IfNotPresent|Never "
        "securityContext stdin stdinOnce tty"
    ),
    "Resources": "requests:Map limits:Map claims:[Map]",
    "Port": "name:Text containerPort!:Whole hostPort:Whole hostIP:Text protocol=TCP|UDP|SCTP",
    "Variable": "name!:Text value:Text valueFrom:Map",
    "Mount": "name! mountPath! readOnly recursiveReadOnly subPath subPathExpr mountPropagation",
    "Toleration": f"key:Text operator=|Exists|Equal|Lt|Gt value:Text effect=|{_EFFECTS} tolerationSeconds:Whole",
    "Named": "name!:Text",
    "Claim": "name!:Text resourceClaimName:Text resourceClaimTemplateName:Text",
    "Affinity": "nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAffinity",
    "NodeAffinity": (
        f"requiredDuringScheduling{_IGNORED}:NodeSelector preferredDuringScheduling{_IGNORED}:[NodePreference]"
    ),
    "NodeSelector": "nodeSelectorTerms!:[NodeTerm]",
    "NodeTerm": "matchExpressions:[NodeDemand] matchFields:[NodeDemand]",
    "NodePreference": "weight!:Whole preference!:NodeTerm",
    "NodeDemand": f"key!:Text operator!={_OPERATORS}|Gt|Lt values:[Text]",
    "PodAffinity": f"requiredDuringScheduling{_IGNORED}:[PodTerm] preferredDuringScheduling{_IGNORED}:[PodPreference]",
    "PodTerm": (
        "topologyKey!:Text labelSelector:Selector namespaceSelector:Selector namespaces:[Text] "
        "matchLabelKeys:[Text] mismatchLabelKeys:[Text]"
    ),
    "PodPreference": "weight!:Whole podAffinityTerm!:PodTerm",
    "Selector": "matchLabels:Map matchExpressions:[Demand]",
    "Demand": f"key!:Text operator!={_OPERATORS} values:[Text]",
    "Spread": (
        "maxSkew!:Whole topologyKey!:Text whenUnsatisfiable!=DoNotSchedule|ScheduleAnyway labelSelector:Selector "
        "minDomains:Whole matchLabelKeys:[Text] nodeAffinityPolicy=Honor|Ignore nodeTaintsPolicy=Honor|Ignore"
    ),
    "Volume": (
        "name!:Text configMap:Map secret:Map emptyDir:Map hostPath:Map persistentVolumeClaim:ClaimSource "
        "projected:Map downwardAPI:Map ephemeral:Ephemeral csi:Map nfs:Map image:Map awsElasticBlockStore "
        "azureDisk azureFile cephfs cinder fc flexVolume flocker gcePersistentDisk gitRepo glusterfs iscsi "
        "photonPersistentDisk portworxVolume quobyte rbd scaleIO storageos vsphereVolume"
    ),
    "ClaimSource": "claimName!:Text readOnly:Switch",
    "Ephemeral": "volumeClaimTemplate!:Map",
    "NodeSpec": "taints:[Taint] unschedulable:Switch providerID podCIDR podCIDRs externalID configSource",
    "Taint": f"key!:Text value:Text effect!={_EFFECTS} timeAdded",
    "NodeStatus": (
        "allocatable:Map capacity:Map conditions:[Map] addresses nodeInfo daemonEndpoints images phase "
        "volumesInUse volumesAttached config runtimeHandlers features declaredFeatures"
    ),
}
PLAIN: Final = {"Text": "string", "Whole": "integer", "Switch": "boolean", "Map": "object"}
_FIELD = re.compile(r"(?P<name>\w+)(?P<needed>!?)(?::(?P<list>\[?)(?P<type>\w+)\]?|=(?P<values>\S*))?")


@cache
def schema_of(name: str) -> Schema:
    """A type as a schema: which fields there are, which must be there, which values they have."""
    if name in PLAIN:
        return {"type": PLAIN[name], "nullable": True}
    fields = [match for match in map(_FIELD.fullmatch, ROWS[name].split()) if match is not None]
    return {
        "type": "object",
        "nullable": True,
        "properties": {field["name"]: _of_field(field) for field in fields},
        "required": [field["name"] for field in fields if field["needed"]],
    }


def _of_field(field: re.Match[str]) -> Schema:
    if field["type"]:
        inner = schema_of(field["type"])
        return {"type": "array", "nullable": True, "items": inner} if field["list"] else inner
    return {"nullable": True, **({"enum": field["values"].split("|")} if field["values"] is not None else {})}
