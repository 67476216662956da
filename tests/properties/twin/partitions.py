"""§2.2, §2.3, §6.2.2: which nodes suit a request for GPUs; and random small clusters with MIG nodes of all strategies,
on which instances are as few as what queues deserve, so that both run out.
"""

from __future__ import annotations

from hypothesis import strategies as st

from pykai.objects import names
from tests.properties.clusters import Ask, Lodging
from tests.properties.contended import OFFERED, deep_forests, gang_of, let_run
from tests.properties.small_world import Cluster, Fields

SMALL, LARGE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
INSTANCES: dict[str, Ask] = {
    "small": ({"cpu": "1", SMALL: "1"}, {}),
    "large": ({"cpu": "1", LARGE: "1"}, {}),
    "several": ({"cpu": "1", SMALL: "2", LARGE: "1"}, {}),
    "legacy": ({"cpu": "1"}, {SMALL: "1"}),
}
ASKED = (
    ("small", "large"),
    ("small", "several", "gpu"),
    ("large", "gpu", "half"),
    ("small", "cpu"),
    ("small", "gpu", "legacy"),
)
KINDS = ("plain", "mixed", "mixed", "single", "unsaid", "switched off", "cpu")
"""Of nodes: "unsaid" has instances and no strategy, "switched off" has them and a label that says no."""


# ------------------------------------------------------------------------------------------------------------- the rule
def is_mig(node: Fields) -> bool:
    said = node["metadata"]["labels"].get(names.MIG_WORKER_LABEL)
    offer = node["status"]["allocatable"].items()
    return said == "true" if said else any(name.startswith(names.MIG_PREFIX) and value != "0" for name, value in offer)


def asks_for_instances(pod: Fields) -> bool:
    return any(name.startswith(names.MIG_PREFIX) for name in pod["spec"]["containers"][0]["resources"]["requests"])


def is_legacy(pod: Fields) -> bool:
    """By annotation; who asks for instances in the ordinary way as well is an ordinary one."""
    noted = any(name.startswith(names.MIG_PREFIX) for name in pod["metadata"].get("annotations", ()))
    return noted and not asks_for_instances(pod)


def suits(node: Fields, pod: Fields, beside_legacy: bool) -> bool:
    mig, notes = asks_for_instances(pod), pod["metadata"]["annotations"]
    shared = names.GPU_FRACTION in notes
    if is_legacy(pod):
        return False
    if not (mig or shared or names.NVIDIA_GPU in pod["spec"]["containers"][0]["resources"]["requests"]):
        return True
    if not is_mig(node):
        return not mig
    strategy = node["metadata"]["labels"].get(names.MIG_STRATEGY_LABEL)
    return not (beside_legacy or (strategy == "single" and (mig or shared)) or (strategy == "mixed" and not mig))


# ------------------------------------------------------------------------------------------------------------- clusters
@st.composite
def partitioned(draw: st.DrawFn) -> Cluster:
    found, asks = Cluster(queues=draw(deep_forests())), draw(st.sampled_from(ASKED))
    found.nodes = [_node(draw, f"n{number}") for number in range(draw(st.integers(1, 4)))]
    lodgings = [Lodging.of(item) for item in found.nodes]
    waiting = draw(st.integers(1, 3))
    for number in range(draw(st.integers(waiting + 1, 8))):
        pods = gang_of(draw, found, f"g{number}", asks, {**OFFERED, **INSTANCES})
        if number >= waiting:
            let_run(draw, found, pods, lodgings)
        if draw(st.integers(0, 4)):
            found.groups[-1]["spec"]["preemptibility"] = "preemptible"
        found.pods.extend(pods)
    return found


def _node(draw: st.DrawFn, name: str) -> Fields:
    kind = draw(st.sampled_from(KINDS))
    labels = {names.GPU_MEMORY_LABEL: "16384"}
    offer = {"cpu": draw(st.sampled_from(["2", "8", "64"])), "memory": "64Gi", "pods": "110"}
    if kind in ("plain", "single") or (kind != "cpu" and draw(st.integers(0, 3)) == 0):
        offer[names.NVIDIA_GPU] = str(draw(st.integers(1, 3)))
    if kind in ("mixed", "unsaid", "switched off"):
        offer |= {SMALL: str(draw(st.integers(0, 3))), LARGE: str(draw(st.integers(0, 2)))}
    if kind in ("mixed", "single"):
        labels[names.MIG_STRATEGY_LABEL] = kind
    if kind in ("single", "switched off"):
        labels[names.MIG_WORKER_LABEL] = "true" if kind == "single" else "false"
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"allocatable": offer}}
