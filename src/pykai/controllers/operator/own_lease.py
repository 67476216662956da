"""The lease by which operators are elected: it goes with their Deployment.

A Config cannot own it as it owns the leases of components: operators are elected whether or not there is one.
"""

from __future__ import annotations

from pykai.kube.api import Api, Object, Patch, Ref
from pykai.kube.errors import NotFound
from pykai.kube.resources import DEPLOYMENT, LEASE
from pykai.objects import names


async def claim(api: Api, namespace: str) -> None:
    """Make the operator's Deployment the owner of its lease; nothing to do where operators are not elected.

    Outside a cluster there is no Deployment, and the lease stays as the election made it.
    """
    ref = LEASE.ref(names.OPERATOR_LEASE, namespace)
    lease = await _found(api, ref)
    deployment = await _found(api, DEPLOYMENT.ref(names.OPERATOR, namespace))
    if lease is None or deployment is None:
        return
    uid = deployment["metadata"]["uid"]
    if uid in (each["uid"] for each in lease["metadata"].get("ownerReferences") or ()):
        return
    owner = {"apiVersion": DEPLOYMENT.api_version, "kind": DEPLOYMENT.kind, "name": names.OPERATOR, "uid": uid}
    await api.patch(ref, Patch.apply({"metadata": {"name": ref.name, "ownerReferences": [owner]}}, names.OPERATOR))


async def _found(api: Api, ref: Ref) -> Object | None:
    try:
        return await api.get(ref, Object)
    except NotFound:
        return None
