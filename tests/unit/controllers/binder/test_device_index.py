"""What labels, owners and requests say about pods and shared devices."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.controllers.binder.device_index import group_labels, is_meant_for, labelled_groups
from pykai.objects import names
from pykai.objects.custom_resources import BindRequest
from tests.builders import as_kind, decoded, pod

ONE, MANY = names.GPU_GROUP_LABEL, names.GPU_GROUP_LABEL_PREFIX


@pytest.mark.parametrize(
    ("owners", "meant"),
    [
        (None, True),  # a request that names no owner is for whichever pod has the name
        ([], True),
        ([{"kind": "Pod", "name": "p"}], True),
        ([{"kind": "Job", "name": "j", "uid": "other"}], True),
        ([{"kind": "Pod", "name": "p", "uid": "p"}], True),
        ([{"kind": "Pod", "name": "p", "uid": "earlier"}], False),
        ([{"kind": "Pod", "name": "p", "uid": "earlier"}, {"kind": "Pod", "name": "p", "uid": "p"}], True),
    ],
)
def test_which_pod_of_a_name_a_request_is_meant_for(owners: list[dict[str, Any]] | None, meant: bool) -> None:
    request = as_kind(BindRequest, {"metadata": {"name": "p", "ownerReferences": owners}, "spec": {"podName": "p"}})
    assert is_meant_for(request, decoded(pod("p"))) is meant


@pytest.mark.parametrize(
    ("annotations", "groups", "labels"),
    [
        (None, ["g"], {ONE: "g"}),
        ({names.GPU_FRACTION_DEVICES: "1"}, ["g"], {ONE: "g"}),
        ({names.GPU_FRACTION_DEVICES: "2"}, ["g"], {f"{MANY}g": "g"}),
        ({names.GPU_FRACTION_DEVICES: "2"}, ["g", "h"], {f"{MANY}g": "g", f"{MANY}h": "h"}),
        (None, ["g", "h"], {f"{MANY}g": "g", f"{MANY}h": "h"}),
        (None, [], {}),
    ],
)
def test_a_pod_of_several_devices_has_a_label_for_each(
    annotations: dict[str, str] | None, groups: list[str], labels: dict[str, str]
) -> None:
    assert group_labels(annotations, groups) == labels
    assert labelled_groups(labels) == set(groups)
