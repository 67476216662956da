"""The template of a pod's spec."""

from __future__ import annotations

from pykai.objects.kinds import PodSpec
from pykai.objects.pod_template import template_parts


def test_a_template_is_made_of_all_fields_before_the_node_name() -> None:
    fields = PodSpec.__struct_fields__
    spec = PodSpec(**{name: object() for name in fields})
    assert template_parts(spec) == [getattr(spec, name) for name in fields[: fields.index("node_name")]]
