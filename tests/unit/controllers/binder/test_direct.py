"""Which pods are bound without a request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pykai.controllers.binder.binder import needs_only_bind
from pykai.objects.kinds import BindRequest, Pod

TOKEN = {"name": "kube-api-access", "projected": {"sources": []}}
DATA = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
SCRATCH = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}


@pytest.mark.parametrize(
    ("pod", "order", "plain"),
    [
        ({}, {}, True),
        ({"volumes": [TOKEN]}, {}, True),
        ({"volumes": [TOKEN, DATA]}, {}, False),
        ({"volumes": [SCRATCH]}, {}, False),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}, {}, False),
        ({}, {"receivedResourceType": "Fraction"}, False),
        ({}, {"selectedGPUGroups": ["g"]}, False),
        ({}, {"resourceClaimAllocations": [{"name": "gpu"}]}, False),
        ({}, {"extendedResourceClaimAllocation": {"a": 1}}, False),
        ({}, {"predictedNUMAZones": [{"zone": "0", "amount": {}}]}, False),
    ],
)
def test_what_is_plain(pod: dict[str, Any], order: dict[str, Any], plain: bool) -> None:
    spec = {"receivedResourceType": "Regular", **order}
    metadata = {"name": "p", "namespace": "team"}
    request = msgspec.convert({"metadata": metadata, "spec": spec}, BindRequest)
    body = {"metadata": metadata, "spec": {"containers": [{"name": "main"}], **pod}}
    assert needs_only_bind(request, msgspec.json.decode(msgspec.json.encode(body), type=Pod)) is plain


def test_labels_of_an_earlier_attempt_have_to_go_first() -> None:
    metadata = {"name": "p", "namespace": "team", "labels": {"runai-gpu-group": "left-over"}}
    pod = msgspec.json.decode(msgspec.json.encode({"metadata": metadata, "spec": {"containers": []}}), type=Pod)
    assert not needs_only_bind(msgspec.convert({"metadata": {"name": "p", "namespace": "team"}}, BindRequest), pod)
