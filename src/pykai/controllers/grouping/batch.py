"""Jobs: one group per Job, in which one pod is enough unless the Job says otherwise."""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.grouping import default
from pykai.controllers.grouping.fields import (
    GroupingError,
    annotations_of,
    count_at,
    name_of,
    owner_references,
    positive,
    text_at,
    uid_of,
)
from pykai.controllers.grouping.spec import GroupSpec
from pykai.controllers.grouping.workload import Workload
from pykai.objects import names


def job(work: Workload) -> GroupSpec:
    """One group for the Job; a group per pod, as older releases made it, is kept where it exists."""
    spec = default.group(work)
    older = f"pg-{work.pod_name}-{uid_of(work.top)}"
    if _keeps(work, older):
        return replace(spec, name=older)
    return replace(spec, min_member=_min_member(work))


def _min_member(work: Workload) -> int:
    wanted = annotations_of(work.top).get(names.BATCH_MIN_MEMBER)
    return 1 if wanted is None else positive(wanted, "invalid min-member annotation value")


def cron_job(work: Workload) -> GroupSpec:
    """Each run is a group of its own: that of the Job the pod belongs to."""
    owner = next((ref for ref in owner_references(work.pod) if ref.get("kind") == "Job"), None)
    if owner is None:
        raise GroupingError("no owner reference of type 'Job'")
    name = text_at(owner, "name")
    run = work.lookup.get("batch/v1", "Job", work.home, name)
    if run is None:
        raise GroupingError(f'jobs.batch "{name}" not found')
    return default.group(work.seen_from(run))


def runai_job(work: Workload) -> GroupSpec:
    """One group per index of the job: the pod's name without its last part names it."""
    spec = default.group(work)
    parallel = (count_at(work.top, "spec", "parallelism") or 1) > 1
    older = f"pg-{work.pod_name if parallel else name_of(work.top)}-{uid_of(work.top)}"
    if _keeps(work, older):
        return replace(spec, name=older)
    index = work.pod_name.rpartition("-")[0] or work.pod_name
    return replace(spec, name=f"pg-{index}-{uid_of(work.top)}")


def _keeps(work: Workload, older: str) -> bool:
    return work.settings.search_legacy_groups and work.existing_group(older) is not None
