"""Where pods of components run: affinity, and the security context they run with."""

from __future__ import annotations

from typing import Any, Final

from pykai.controllers.operator.installation import Installation
from pykai.objects import names

Object = dict[str, Any]

USER: Final = 10000
_PARTS = ("nodeAffinity", "podAffinity", "podAntiAffinity")
_WEIGHT = 100


def affinity(installation: Installation, own: Object, labels: dict[str, str]) -> Object:
    """Each part of the component's own affinity, else of the global one; copies keep apart unless either says how."""
    general = installation.config.shared.affinity
    merged = {part: own.get(part) or general.get(part) for part in _PARTS}
    if not merged["podAntiAffinity"]:
        merged["podAntiAffinity"] = _apart(labels, installation.config.shared.require_default_pod_anti_affinity_term)
    return {part: value for part, value in merged.items() if value}


def _apart(labels: dict[str, str], required: bool) -> Object:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": names.HOSTNAME_LABEL}
    preferred = [{"weight": _WEIGHT, "podAffinityTerm": term}]
    apart: Object = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    return {**apart, "requiredDuringSchedulingIgnoredDuringExecution": [term]} if required else apart


def container_security(installation: Installation) -> Object:
    """The security context of containers: the one Config gives, else one that the restricted profile admits.

    OpenShift chooses the user of a namespace's pods by itself and refuses any other.
    """
    shared = installation.config.shared
    if shared.security_context:
        return shared.security_context
    user = {} if shared.openshift else {"runAsUser": USER}
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        **user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
