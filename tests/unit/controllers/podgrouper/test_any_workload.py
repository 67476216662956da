"""Whatever the objects of other projects hold, grouping gives a group or a reason, never another error.

Their definitions are not ours, so an API server may keep any JSON in them. The rows of the integration table are taken
and spoilt at random places; labels and annotations stay texts, as every API server sees to.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.controllers.podgrouper.grouping import pod_patch
from pykai.controllers.podgrouper.podgroup import pod_group_to_write
from pykai.controllers.podgrouper.rules.workload import GroupingError, GroupingSettings
from pykai.objects import names
from tests.hostile_values import anything, texts

from .cluster import Memory, Object, group_pod, obj, pod, ref

ROWS: list[Object] = yaml.safe_load((Path(__file__).parents[3] / "integration" / "workloads.yaml").read_text())
WISHES = [
    *(names.QUEUE_LABEL, names.PRIORITY_CLASS_LABEL, names.PREEMPTIBILITY_LABEL, names.PROJECT_LABEL, names.USER_LABEL),
    *(names.BATCH_MIN_MEMBER, names.PREEMPTION_DELAY, names.STALENESS_GRACE_PERIOD, names.SEGMENT_SIZE, names.TOPOLOGY),
    *(names.TOPOLOGY_REQUIRED, names.SEGMENT_TOPOLOGY_PREFERRED, names.NODE_POOL_LABEL, names.SKIP_PODGROUPER),
]
hostile = anything(["name", "replicas", "template", "metadata", "annotations", "spec", names.SEGMENT_SIZE])


def objects_of(row: Object) -> tuple[list[Object], list[Object]]:
    """The workloads and the pods of a row, in memory."""
    made: dict[str, Object] = {}
    last: Object | None = None
    for item in json.loads(json.dumps(row["objects"]).replace("NAMESPACE", "ns")):
        owner = made[item["under"]] if "under" in item else last
        parts = {key: item[key] for key in ("labels", "annotations", "spec", "status") if key in item}
        parts |= {"owners": [ref(owner)]} if owner else {}
        if "pod" in item:
            made[f"Pod {item['pod']}"] = pod(item["pod"], **parts)
        else:
            api_version, kind = item["kind"].split()
            last = obj(api_version, kind, item.get("name", row["name"]), **parts)
            made[f"{kind} {last['metadata']['name']}"] = last
    pods = [each for key, each in made.items() if key.startswith("Pod ")]
    return [each for each in made.values() if each not in pods], pods


def places(value: Any, path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The path of a value and of everything in it."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, each in inner for found in places(each, (*path, key)))]


def spoilt(item: Object, data: st.DataObject) -> Object:
    """The object with something else in one place of its spec or status, and perhaps another wish."""
    found = copy.deepcopy(item)
    where = [place for part in ("spec", "status") if part in found for place in places(found[part], (part,))]
    if where and data.draw(st.sampled_from([False, True])):
        *way, last = data.draw(st.sampled_from(where))
        holder: Any = found
        for step in way:
            holder = holder[step]
        holder[last] = data.draw(hostile)
    wishes = data.draw(st.dictionaries(st.sampled_from(WISHES), texts, max_size=2))
    for kind in ("labels", "annotations"):
        found["metadata"][kind] = {**found["metadata"].get(kind, {}), **wishes}
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["name"]))
@settings(max_examples=20)
@given(data=st.data())
def test_a_spoilt_workload_is_grouped_or_refused(row: Object, data: st.DataObject) -> None:
    workloads, pods = objects_of(row)
    member = data.draw(st.sampled_from(pods))
    if data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(member["metadata"].get("labels", {"x": ""}))))
        member["metadata"]["labels"] = {**member["metadata"].get("labels", {}), key: data.draw(texts)}
    others = [spoilt(item, data) for item in workloads] + [each for each in pods if each is not member]
    try:
        spec = group_pod(member, Memory(*others, member))
    except GroupingError:
        return
    if spec is not None:
        group = pod_group_to_write(spec, None, GroupingSettings())
        json.dumps([group, pod_patch(spec, member)])
        assert pod_group_to_write(spec, group, GroupingSettings()) is None, "what was written needs no second write"
