"""Random small clusters whose pods care about their neighbours, on top of those that others draw."""

from __future__ import annotations

from hypothesis import strategies as st

from pykai.objects.names import POD_GROUP_ANNOTATION
from tests.properties.small_world import Cluster, Fields
from tests.properties.twin.neighbours import PREFERRED, REQUIRED

KIND = "kind"
PORTS: tuple[Fields, ...] = (
    {"hostPort": 80},
    {"hostPort": 81},
    {"hostPort": 80, "protocol": "UDP"},
    {"hostPort": 80, "hostIP": "10.0.0.1"},
    {"hostPort": 80, "hostIP": "10.0.0.2"},
)


@st.composite
def towns(draw: st.DrawFn, clusters: st.SearchStrategy[Cluster]) -> Cluster:
    """Hosts in racks, few of them in none; pods of a gang are of one kind, and have its manners, or some of them."""
    found = draw(clusters)
    for node in found.nodes:
        node["metadata"]["labels"].update(host=node["metadata"]["name"])
        if draw(st.integers(0, 5)):
            node["metadata"]["labels"].update(rack=draw(st.sampled_from("xy")))
    for group in found.groups:
        kind, wishes, ports = draw(st.sampled_from("ab")), *draw(manners())
        alike = draw(st.integers(0, 3))
        for pod in pods_of(found, group):
            pod["metadata"]["labels"][KIND] = kind
            if alike or draw(st.booleans()):
                pod["spec"].update(wishes)
                pod["spec"]["containers"][0]["ports"] = [{"containerPort": 1, **port} for port in ports]
    return found


def pods_of(found: Cluster, group: Fields) -> list[Fields]:
    name = group["metadata"]["name"]
    return [pod for pod in found.pods if pod["metadata"].get("annotations", {}).get(POD_GROUP_ANNOTATION) == name]


@st.composite
def manners(draw: st.DrawFn) -> tuple[Fields, list[Fields]]:
    """What pods of a gang want of their neighbours, and their ports: some of them nothing."""
    near, apart = "podAffinity", "podAntiAffinity"
    match draw(st.sampled_from(["", "", "ports", "ports", near, apart, apart, "both", "wish", "wish"])):
        case "ports":
            return {}, draw(st.lists(st.sampled_from(PORTS), min_size=1, max_size=2))
        case "podAffinity":
            return {"affinity": {near: {REQUIRED: draw(st.lists(terms(), min_size=1, max_size=2))}}}, []
        case "podAntiAffinity":
            return {"affinity": {apart: {REQUIRED: [draw(terms())]}}}, []
        case "both":
            return {"affinity": {side: {REQUIRED: [draw(terms())]} for side in (near, apart)}}, []
        case "wish":
            wish = [{"weight": draw(st.integers(1, 3)), "podAffinityTerm": draw(terms())}]
            return {"affinity": {draw(st.sampled_from([near, apart])): {PREFERRED: wish}}}, []
    return {}, []


@st.composite
def terms(draw: st.DrawFn) -> Fields:
    selector = {"matchLabels": {KIND: draw(st.sampled_from("ab"))}}
    return {"labelSelector": selector, "topologyKey": draw(st.sampled_from(["host", "host", "rack"]))}
