"""The webhooks without HTTP: what the in-memory API server asks before it stores an object."""

from __future__ import annotations

from collections.abc import Callable

from pykai.admission import review
from pykai.kube import resources
from pykai.kube.api import Object, Resource
from pykai.kube.errors import Forbidden
from pykai.kube.memory import Admission
from pykai.kube.memory.patches import json_patch

PATHS: dict[Resource, tuple[str, ...]] = {
    resources.POD: (review.MUTATE_POD, review.VALIDATE_POD),
    resources.QUEUE: (review.VALIDATE_QUEUE,),
    resources.POD_GROUP: (review.VALIDATE_POD_GROUP,),
    resources.TOPOLOGY: (review.VALIDATE_TOPOLOGY,),
}


def webhooks(rules: review.Admission, warn: Callable[[str], None]) -> Admission:
    """Admission by our rules; `warn` takes the warnings that kubectl would show."""

    def admit(resource: Resource, new: Object, old: Object | None) -> Object:
        for path in PATHS.get(resource, ()):
            new = _reviewed(path, new, old)
        return new

    def _reviewed(path: str, new: Object, old: Object | None) -> Object:
        meta = new["metadata"]
        request = review.Request(
            uid=meta["uid"],
            operation="CREATE" if old is None else "UPDATE",
            namespace=meta.get("namespace", ""),
            object=new,
            old_object=old,
        )
        verdict = review.judge(path, request, rules)
        for warning in (*verdict.warnings, *verdict.advice):
            warn(f"{new.get('kind', '')} {meta.get('name', '')}: {warning}".strip())
        if not verdict.allowed:
            raise Forbidden(f"admission webhook denied the request: {verdict.message}")
        patched: Object = json_patch(new, verdict.patch) if verdict.patch else new
        return patched

    return admit
