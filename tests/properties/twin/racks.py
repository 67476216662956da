"""Random devices for clusters that others draw: their GPUs become devices of a driver, asked for by claims; network
cards, some of them within reach of all nodes, are asked for by pods alone or by a gang together.
"""

from __future__ import annotations

from hypothesis import strategies as st

from pykai.objects import names
from tests.properties.dra_twin import Meanings, attribute
from tests.properties.small_world import OURS, Cluster, Fields
from tests.properties.twin.claims import Devices
from tests.properties.twin.towns import pods_of

GPUS, CARDS = "gpu.example.com", "card.example.com"
ARE_GPUS, ARE_CARDS = (f"device.driver == '{driver}'" for driver in (GPUS, CARDS))
ARE_NEW = f"device.attributes['{GPUS}'].model == 'new'"
MEANINGS: Meanings = {
    ARE_GPUS: lambda driver, device: driver == GPUS,
    ARE_CARDS: lambda driver, device: driver == CARDS,
    ARE_NEW: lambda driver, device: attribute(driver, device, f"{GPUS}/model") == ("string", "new"),
}
CLASSES = {"gpu": [ARE_GPUS], "new-gpu": [ARE_GPUS, ARE_NEW], "card": [ARE_CARDS]}
Lot = list[tuple[str, str, str, str]]
"""Driver, pool, name and model of devices."""
Free = dict[str, Lot]
"""By node; "": within reach of all."""


@st.composite
def racks(draw: st.DrawFn, clusters: st.SearchStrategy[Cluster]) -> Devices:
    found, free = Devices(draw(clusters)), Free()
    cluster = found.cluster
    cluster.pods = [pod for pod in cluster.pods if pod["metadata"]["namespace"] == OURS]
    for name, texts in CLASSES.items():
        selectors = [{"cel": {"expression": text}} for text in texts]
        found.classes[name] = {"metadata": {"name": name}, "spec": {"selectors": selectors}}
    for node in cluster.nodes:
        name, gpus = node["metadata"]["name"], int(node["status"]["allocatable"].pop(names.NVIDIA_GPU, 0))
        free[name] = _publish(draw, found, (name, GPUS), gpus)
        free[name] += _publish(draw, found, (name, CARDS), draw(st.integers(0, 2)))
    free[""] = _publish(draw, found, ("", CARDS), draw(st.sampled_from([0, 0, 1, 2])))
    for group in cluster.groups:
        _claim_for(draw, found, pods_of(cluster, group), free)
    return found


def _publish(draw: st.DrawFn, found: Devices, pool: tuple[str, str], count: int) -> Lot:
    (node, driver), name = pool, f"{pool[0]}-{pool[1]}"
    models = [draw(st.sampled_from(["new", "new", "old"])) for _ in range(count)]
    if models:
        devices = [{"name": f"d{n}", "attributes": {"model": {"string": model}}} for n, model in enumerate(models)]
        stated = {"name": name, "generation": 1, "resourceSliceCount": 1}
        where = {"nodeName": node} if node else {"allNodes": True}
        spec = {"driver": driver, "pool": stated, "devices": devices, **where}
        found.slices[name] = {"metadata": {"name": name}, "spec": spec}
    return [(driver, name, f"d{n}", model) for n, model in enumerate(models)]


# --------------------------------------------------------------------------------------------------------------- claims
def _claim_for(draw: st.DrawFn, found: Devices, pods: list[Fields], free: Free) -> None:
    """Claims for the pods of a gang."""
    kind, card = draw(st.sampled_from(["gpu", "gpu", "new-gpu"])), draw(st.sampled_from(["", "", "", "own", "common"]))
    for pod in pods:
        name, gpus = pod["metadata"]["name"], _take_gpus(pod)
        asks = {"gpu": (kind, gpus)} if gpus else {}
        asks |= {"card": ("card", 1)} if card == "own" else {}
        for key, ask in asks.items():
            found.claims[f"{name}-{key}"] = _claim(f"{name}-{key}", ask)
        if not all(_serve(found.claims[f"{name}-{key}"], pod, ask, free) for key, ask in asks.items()):
            _stop(pod, [found.claims[f"{name}-{key}"] for key in asks])
        pod["spec"]["resourceClaims"] = [{"name": key, "resourceClaimTemplateName": key} for key in asks]
        made = [{"name": key, "resourceClaimName": f"{name}-{key}"} for key in asks]
        pod["status"] = {**pod["status"], "resourceClaimStatuses": made}
        if card == "common":
            _share(found, pod, f"{name.split('-')[0]}-card", free)


def _take_gpus(pod: Fields) -> int:
    """How many GPUs the pod asked for, or shares of them; it does so no more."""
    meta, requests = pod["metadata"], pod["spec"]["containers"][0]["resources"]["requests"]
    shares = [meta["annotations"].pop(key, "") for key in (names.GPU_FRACTION, names.GPU_MEMORY)]
    meta["annotations"].pop(names.GPU_FRACTION_DEVICES, "")
    meta["labels"] = {key: v for key, v in meta["labels"].items() if not key.startswith(names.GPU_GROUP_LABEL)}
    return int(requests.pop(names.NVIDIA_GPU, "0")) or int(any(shares))


def _claim(name: str, ask: tuple[str, int]) -> Fields:
    exactly = {"deviceClassName": ask[0], "allocationMode": "ExactCount", "count": ask[1]}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return {"metadata": {"name": name, "namespace": OURS}, "spec": spec, "status": {}}


def _serve(claim: Fields, pod: Fields, ask: tuple[str, int], free: Free) -> bool:
    """Give a pod that runs its devices; False: there are too few."""
    (kind, count), at = ask, pod["spec"].get("nodeName")
    if not at:
        return True
    driver = CARDS if kind == "card" else GPUS
    fitting = [d for d in free[at] + free[""] if d[0] == driver and (kind != "new-gpu" or d[3] == "new")][:count]
    if len(fitting) < count:
        return False
    results = [{"request": "r", "driver": d[0], "pool": d[1], "device": d[2]} for d in fitting]
    allocation: Fields = {"devices": {"results": results}}
    if any(device in free[at] for device in fitting):
        only = {"key": "metadata.name", "operator": "In", "values": [at]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [only]}]}
    claim["status"] = {"allocation": allocation, "reservedFor": [_user(pod)]}
    for lot in free.values():
        lot[:] = [device for device in lot if device not in fitting]
    return True


def _user(pod: Fields) -> Fields:
    return {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}


def _stop(pod: Fields, claims: list[Fields]) -> None:
    """The pod waits instead."""
    pod["spec"].pop("nodeName")
    pod["metadata"].pop("deletionTimestamp", None)
    pod["status"] = {"phase": "Pending"}
    for claim in claims:
        claim["status"] = {}


def _share(found: Devices, pod: Fields, name: str, free: Free) -> None:
    """One card for all pods of a gang that can reach it."""
    claim, at = found.claims.setdefault(name, _claim(name, ("card", 1))), pod["spec"].get("nodeName")
    selector = claim["status"].get("allocation", {}).get("nodeSelector")
    if at and claim["status"]:
        if selector and selector["nodeSelectorTerms"][0]["matchFields"][0]["values"] != [at]:
            return
        claim["status"]["reservedFor"].append(_user(pod))
    elif not _serve(claim, pod, ("card", 1), free):
        return
    pod["spec"]["resourceClaims"].append({"name": "common", "resourceClaimName": name})
