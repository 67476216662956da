"""Wishes that grouping passed over because they cannot be read: said aloud, so that the user can mend them.

A bad label must not keep a pod from running, so no rule fails on one; whoever runs the grouper shows these lines.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykai.controllers.grouping import karta
from pykai.controllers.grouping.default import readable_seconds
from pykai.controllers.grouping.fields import Object, annotations_of, full_name, group_version_kind, labels_of, text_at
from pykai.controllers.grouping.kinds import known
from pykai.controllers.grouping.priority import PREEMPTIBILITIES, UnreadableDefaultsError, read_kind_defaults
from pykai.controllers.grouping.workload import Workload
from pykai.objects import names


def ignored_wishes(work: Workload) -> list[str]:
    """One line per label, annotation or setting that had no effect, naming it and what was expected."""
    wishes = [line for obj in (*work.chain, work.pod) for line in _on_object(obj)]
    return [*wishes, *_settings(work), *_kartas(work)]


def _on_object(obj: Object) -> Iterator[str]:
    where = f"{text_at(obj, 'kind') or 'Pod'} {full_name(obj)}"
    preemptibility = labels_of(obj).get(names.PREEMPTIBILITY_LABEL, "")
    if preemptibility not in PREEMPTIBILITIES:
        yield (
            f"{where}: label {names.PREEMPTIBILITY_LABEL}={preemptibility} ignored: "
            "expected preemptible or non-preemptible"
        )
    for key, may_be_negative in ((names.PREEMPTION_DELAY, False), (names.STALENESS_GRACE_PERIOD, True)):
        text = annotations_of(obj).get(key)
        seconds = None if text is None else readable_seconds(text)
        if text is not None and (seconds is None or (seconds < 0 and not may_be_negative)):
            wanted = "a duration" if may_be_negative else "a duration of at least 0s"
            yield f"{where}: annotation {key}={text} ignored: expected {wanted}, such as 90s or 5m"


def _settings(work: Workload) -> Iterator[str]:
    try:
        if "" in read_kind_defaults(work):
            yield "an entry of the defaults per kind ignored: it has no typeName"
    except UnreadableDefaultsError as error:
        yield f"defaults per kind ignored: {error}"


def _kartas(work: Workload) -> Iterator[str]:
    gvk = group_version_kind(work.top)
    if not work.settings.karta_fallback or known(*gvk):
        return
    found = karta.candidates(work)
    if len(found) > 1:
        several = ", ".join(sorted(text_at(one, "metadata", "name") for one in found))
        yield f"Kartas ignored: {several} all describe {'/'.join(gvk)}, expected one"
