"""Validation of PodGroups: the minimum of every level of the sub-group tree must be meaningful.

An invalid tree (two minimums, two sub-groups of one name, an unknown parent, a cycle) is denied at once. Other findings
are collected, and some only warn: for a minimum above the number of children, these may be created later; a minimum of
pods on an inner sub-group is tolerated in existing groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pykai.admission.verdict import AdmissionVerdict, DeniedError, declared, judged
from pykai.objects import crds
from pykai.objects.kinds import PodGroup, PodGroupSpec, SubGroup


class Weight(Enum):
    """When a finding denies the group; otherwise it warns."""

    ALWAYS = "always"
    ON_CREATE = "on create"
    NEVER = "never"


@dataclass(frozen=True)
class Finding:
    """One problem with the minimums of a group."""

    message: str
    weight: Weight = Weight.ALWAYS


@judged
def validate_pod_group(pod_group: object, creating: bool, old: object = None) -> AdmissionVerdict:
    """Admit a group with a valid tree; `creating` is False for an update of `old`, which is checked less strictly."""
    spec = declared(crds.POD_GROUP, PodGroup, "podGroup", pod_group).spec
    findings = examine(spec)
    if isinstance(old, dict) and (old.get("spec") or {}).get("preemptibility") == "semi-preemptible":
        findings += _raised_minimums(declared(crds.POD_GROUP, PodGroup, "oldPodGroup", old).spec, spec)
    refusing = (Weight.ALWAYS, Weight.ON_CREATE) if creating else (Weight.ALWAYS,)
    errors = [finding.message for finding in findings if finding.weight in refusing]
    warnings = tuple(finding.message for finding in findings if finding.weight not in refusing)
    if errors:
        raise DeniedError("\n".join(errors), warnings)
    return AdmissionVerdict(warnings=warnings)


def examine(spec: PodGroupSpec) -> list[Finding]:
    """Return the problems with the minimums, by sub-group name, the group itself last; an invalid tree is denied."""
    if spec.min_member is not None and spec.min_sub_group is not None:
        raise DeniedError(
            f"minMember and minSubGroup are mutually exclusive: set minMember ({spec.min_member}) to schedule a fixed "
            "number of pods, or set minSubGroup to require a minimum number of child SubGroups, but not both"
        )
    sub_groups = sorted(spec.sub_groups or [], key=lambda sub_group: sub_group.name)
    _check_tree(spec.sub_groups or [])
    children = Counter(sub_group.parent or "" for sub_group in sub_groups)
    findings = [finding for each in sub_groups for finding in _examine_sub_group(each, children[each.name])]
    return findings + _examine_count("", spec.min_sub_group, children[""])


def _raised_minimums(old: PodGroupSpec, new: PodGroupSpec) -> list[Finding]:
    """Deny raised minimums of a semi-preemptible group: pods that run as surplus would become non-preemptible."""
    where = "on a semi-preemptible PodGroup: it would reclassify running elastic"
    found = [_raised(old, new, "minMember", f"{where} pods as core")]
    found.append(_raised(old, new, "minSubGroup", f"{where} subgroups as core"))
    before = {sub_group.name: sub_group for sub_group in old.sub_groups or []}
    for sub_group in new.sub_groups or []:
        if sub_group.name in before:
            where = f'on subgroup "{sub_group.name}" of a semi-preemptible PodGroup'
            found += [_raised(before[sub_group.name], sub_group, name, where) for name in ("minMember", "minSubGroup")]
    return [finding for finding in found if finding is not None]


def _raised(old: PodGroupSpec | SubGroup, new: PodGroupSpec | SubGroup, name: str, where: str) -> Finding | None:
    before, after = (
        (part.min_member, part.min_sub_group)[("minMember", "minSubGroup").index(name)] for part in (old, new)
    )
    if after is None or (before is not None and after <= before):
        return None
    return Finding(f"cannot increase {name} ({'unset' if before is None else before} -> {after}) {where}")


def _check_tree(sub_groups: Sequence[SubGroup]) -> None:
    parents: dict[str, str] = {}
    for sub_group in sub_groups:
        if sub_group.name in parents:
            raise DeniedError(f"duplicate subgroup name {sub_group.name}")
        parents[sub_group.name] = sub_group.parent or ""
    for name, parent in parents.items():
        if parent and parent not in parents:
            raise DeniedError(f"parent {parent} of {name} was not found")
    if _has_cycle(parents):
        raise DeniedError("cycle detected in subgroups")


def _has_cycle(parents: Mapping[str, str]) -> bool:
    """Whether the parents (empty: none) form a cycle; each name is visited once."""
    checked: set[str] = {""}
    for start in parents:
        walked: set[str] = set()
        name = start
        while name not in checked:
            if name in walked:
                return True
            walked.add(name)
            name = parents[name]
        checked |= walked
    return False


def _examine_sub_group(sub_group: SubGroup, children: int) -> list[Finding]:
    prefix = f'subgroup "{sub_group.name}": '
    if sub_group.min_member is not None and sub_group.min_sub_group is not None:
        raise DeniedError(f"{prefix}minMember and minSubGroup are mutually exclusive")
    findings = []
    if not children and sub_group.min_sub_group is not None:
        findings.append(Finding(f"{prefix}minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)"))
    if not children and sub_group.min_member is None:
        findings.append(Finding(f"subgroup {sub_group.name}: minMember is required"))
    if children and sub_group.min_member is not None:
        message = "minMember cannot be set on a mid-level SubGroup (has child SubGroups); use minSubGroup instead"
        findings.append(Finding(prefix + message, Weight.ON_CREATE))
    return findings + (_examine_count(prefix, sub_group.min_sub_group, children) if children else [])


def _examine_count(prefix: str, minimum: int | None, children: int) -> list[Finding]:
    if minimum is None or minimum <= children:
        return []
    message = f"{prefix}minSubGroup ({minimum}) exceeds the number of direct child SubGroups ({children})"
    return [Finding(message, Weight.NEVER)]
