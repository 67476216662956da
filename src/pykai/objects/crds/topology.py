"""Topology: which node labels say how close nodes are to one another."""

from __future__ import annotations

from pykai.objects.crds.definition import Definition
from pykai.objects.crds.shapes import array, record, text

_LABEL_PATTERN = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
_LABEL = {"minLength": 1, "maxLength": 316, "pattern": _LABEL_PATTERN}

_RULES = [
    {
        "rule": "self.map(level, level.nodeLabel) == oldSelf.map(level, level.nodeLabel)",
        "message": "nodeLabel structure is immutable; only aliases may be edited",
    },
    {
        "rule": "self.all(level, self.exists_one(other, other.nodeLabel == level.nodeLabel))",
        "message": "nodeLabel must be unique",
    },
    {
        "rule": "!self.exists(level, level.nodeLabel == 'kubernetes.io/hostname') || "
        "self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
        "message": "the kubernetes.io/hostname label can only be used at the lowest level of topology",
    },
]

_SPEC = record(
    "The levels of the topology.",
    {
        "levels": array(
            "The levels from the widest (such as a zone) to the narrowest (such as a rack or a node). "
            "Their node labels cannot be changed later.",
            record(
                "One level: nodes with the same value of its label are in one domain.",
                {
                    "nodeLabel": text("The node label whose value names the domain.", **_LABEL),
                    "alias": text("A short name that workloads may use instead of the label.", **_LABEL),
                },
                required=["nodeLabel"],
            ),
            minItems=1,
            maxItems=16,
            **{"x-kubernetes-list-type": "atomic", "x-kubernetes-validations": _RULES},
        ),
    },
    required=["levels"],
)

TOPOLOGY = Definition(
    group="kai.scheduler",
    version="v1alpha1",
    kind="Topology",
    plural="topologies",
    namespaced=False,
    doc="How the nodes of the cluster are arranged, so that workloads can ask to run close together.",
    spec=_SPEC,
    status=None,
    spec_required=True,
)
