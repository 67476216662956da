"""Random storage for clusters that others draw."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.properties.small_world import OURS, Cluster, Fields
from tests.properties.twin.storage import POOLED, SELECTED, WAIT, Storage

NEARBY = [{"matchLabelExpressions": [{"key": "zone", "values": ["x"]}]}]
CLASSES: dict[str, Fields] = {
    "local": {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": WAIT},
    "made": {"provisioner": "example.com/disk", "volumeBindingMode": WAIT},
    "near": {"provisioner": "example.com/disk", "volumeBindingMode": WAIT, "allowedTopologies": NEARBY},
    "pooled": {"provisioner": POOLED, "volumeBindingMode": WAIT},
    "early": {"provisioner": "example.com/disk", "volumeBindingMode": "Immediate"},
}
OFFERED = [["local"], ["local", "made"], ["pooled", "near"], ["local", "near", "early"]]


@st.composite
def warehouses(draw: st.DrawFn, clusters: st.SearchStrategy[Cluster], by_pools: bool) -> Storage:
    """Few volumes and pools, and a claim or two for most pods."""
    found, kinds = Storage(draw(clusters), by_pools), ["pooled"] if by_pools else draw(st.sampled_from(OFFERED))
    found.classes = {name: {"metadata": {"name": name}, **fields} for name, fields in CLASSES.items()}
    for node in found.cluster.nodes:
        node["metadata"]["labels"].update(host=node["metadata"]["name"], zone=draw(st.sampled_from("xy")))
    for number in range(draw(st.integers(0, 4))):
        _volume(draw, found, f"v{number}", {"storageClassName": draw(st.sampled_from(kinds)), **_where(draw, found)})
    for number in range(draw(st.integers(0, 4)) if "pooled" in kinds else 0):
        _pool(draw, found, f"pool{number}")
    for pod in found.cluster.pods:
        if pod["metadata"]["namespace"] == OURS and draw(st.integers(0, 3)):
            _furnish(draw, found, pod, kinds)
    return found


def _some_label(draw: st.DrawFn, found: Storage) -> tuple[str, str]:
    if draw(st.integers(0, 2)) == 0:
        return "zone", draw(st.sampled_from("xy"))
    return "host", _some_node(draw, found)


def _some_node(draw: st.DrawFn, found: Storage) -> str:
    name: str = draw(st.sampled_from(found.cluster.nodes))["metadata"]["name"]
    return name


def _reach(key: str, value: str) -> Fields:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


def _where(draw: st.DrawFn, found: Storage) -> Fields:
    return _reach(*_some_label(draw, found)) if draw(st.integers(0, 3)) else {}


def _volume(draw: st.DrawFn, found: Storage, name: str, spec: Fields) -> None:
    fields = {"capacity": {"storage": str(draw(st.integers(1, 3)))}, **spec}
    phase = "Bound" if "claimRef" in spec else "Available"
    found.volumes[name] = {"metadata": {"name": name}, "spec": fields, "status": {"phase": phase}}


def _pool(draw: st.DrawFn, found: Storage, name: str) -> None:
    key, value = _some_label(draw, found)
    fields: Fields = {"capacity": str(draw(st.integers(1, 5))), "nodeTopology": {"matchLabels": {key: value}}}
    if draw(st.integers(0, 4)) == 0:
        fields["maximumVolumeSize"] = str(draw(st.integers(1, 3)))
    found.pools[name] = {"metadata": {"name": name}, "storageClassName": "pooled", **fields}


# --------------------------------------------------------------------------------------------------------------- claims
def _furnish(draw: st.DrawFn, found: Storage, pod: Fields, kinds: list[str]) -> None:
    """Claims of its own for the most part; some are those of another pod, some named twice, a few do not exist."""
    names = []
    for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
        if found.claims and draw(st.integers(0, 5)) == 0:
            names.append(draw(st.sampled_from(sorted(found.claims))))
        else:
            names.append(f"c{len(found.claims)}")
            found.claims[names[-1]] = _claim(draw, found, pod, (names[-1], draw(st.sampled_from(kinds))))
    if draw(st.integers(0, 5)) == 0:
        names.append(names[-1])
    if not pod["spec"].get("nodeName") and draw(st.integers(0, 30)) == 0:
        names.append("missing")
    pod["spec"]["volumes"] = [
        {"name": f"d{number}", "persistentVolumeClaim": {"claimName": name}} for number, name in enumerate(names)
    ]


def _claim(draw: st.DrawFn, found: Storage, pod: Fields, who: tuple[str, str]) -> Fields:
    (name, kind), at = who, pod["spec"].get("nodeName")
    meta: Fields = {"name": name, "namespace": OURS}
    spec: Fields = {"storageClassName": kind, "resources": {"requests": {"storage": str(draw(st.integers(1, 3)))}}}
    if draw(st.booleans()):
        owner = {"kind": "Pod", "uid": pod["metadata"]["uid"], "name": pod["metadata"]["name"]}
        meta["ownerReferences"] = [owner]
    if draw(st.integers(0, 5)) > 0 if at else draw(st.integers(0, 3)) == 0:
        spec["volumeName"] = f"v-{name}"
        where = _reach("host", at) if at and draw(st.booleans()) else {} if at else _where(draw, found)
        of = {"storageClassName": kind, "claimRef": {"namespace": OURS, "name": name}}
        _volume(draw, found, spec["volumeName"], {**of, "capacity": {"storage": "3"}, **where})
    elif draw(st.integers(0, 9)) == 0:
        meta["annotations"] = {SELECTED: _some_node(draw, found)}
    elif draw(st.integers(0, 9)) == 0:
        _set_aside(draw, found.volumes, name)
    return {"metadata": meta, "spec": spec, "status": {"phase": "Bound" if "volumeName" in spec else "Pending"}}


def _set_aside(draw: st.DrawFn, volumes: dict[str, Any], claim: str) -> None:
    free = sorted(name for name, volume in volumes.items() if "claimRef" not in volume["spec"])
    if free:
        volumes[draw(st.sampled_from(free))]["spec"]["claimRef"] = {"namespace": OURS, "name": claim}
