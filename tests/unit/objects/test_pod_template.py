"""The template of a pod's spec."""

from __future__ import annotations

from typing import Any

from pykai.objects.kinds import PodSpec
from pykai.objects.pod_template import template_parts


def test_a_template_is_made_of_all_fields_before_the_node_name() -> None:
    fields = PodSpec.__struct_fields__
    each: dict[str, Any] = {name: object() for name in fields}
    spec = PodSpec(**each)
    assert template_parts(spec) == [each[name] for name in fields[: fields.index("node_name")]]
