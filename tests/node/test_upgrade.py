"""From the release before to this one on a real node, while workloads run."""

from __future__ import annotations

import pytest

from tests.node import earlier
from tests.node.node import Object, RealNode, pod, until
from tests.node.test_node import HALF, KAI, RESERVED, TEAM, device, install, pods, queue, reservations, running

KINDS = (
    "queues.scheduling.run.ai", "podgroups.scheduling.run.ai", "bindrequests.scheduling.run.ai",
    "configs.kai.scheduler", "schedulingshards.kai.scheduler", "topologies.kai.scheduler",
)  # fmt: skip


def identities(found: list[Object]) -> dict[str, tuple[str, int]]:
    """UID and restarts of pods, by name."""
    return {
        each["metadata"]["name"]: (
            each["metadata"]["uid"],
            sum(status["restartCount"] for status in each["status"].get("containerStatuses") or ()),
        )
        for each in found
    }


@pytest.mark.skipif(not earlier.found(), reason="the history of the project is not here")
def test_an_upgrade_from_the_release_before_keeps_work_running(node: RealNode) -> None:
    node.kubectl("delete", "crd", *KINDS, "--ignore-not-found")
    release = earlier.build(earlier.found())
    node.ctr("images", "import", str(release.images))
    install(node, f"global.registry={earlier.REGISTRY}", chart=release.chart)
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}
    node.apply(team, queue("default"), queue("test", "default"))
    kept = ("whole", "half-1", "half-2")
    node.apply(pod("whole", gpus=1), *(pod(name, annotations=HALF) for name in kept[1:]))
    running(node, *kept)
    node.apply(pod("waiting", annotations=HALF))
    before, reserved = identities(pods(node, TEAM)), identities(reservations(node))

    install(node)
    until("only components of the new release run", lambda: _exchanged(node), 240)
    after = identities(pods(node, TEAM))
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert identities(reservations(node)) == reserved, "what holds a device is not exchanged"

    node.kubectl("delete", "pod", "half-1", "-n", TEAM, "--now")
    running(node, "waiting", seconds=120)
    assert device(node, "waiting") == device(node, "half-2")
    assert len(reservations(node)) == 1
    node.kubectl("delete", "pods", "-n", TEAM, "--all", "--now")
    until("the new binder frees the device", lambda: not pods(node, RESERVED))
    node.helm("uninstall", KAI, "-n", KAI)
    until("the components are gone", lambda: not pods(node, KAI), 120)


def _exchanged(node: RealNode) -> bool:
    """Whether every component runs, and none as the release before."""
    found = pods(node, KAI)
    ready = [
        all(each["ready"] for each in pod["status"].get("containerStatuses") or ({"ready": False},)) for pod in found
    ]
    images = {container["image"] for each in found for container in each["spec"]["containers"]}
    return all(ready) and len(found) > 1 and not [image for image in images if image.endswith(f":{earlier.VERSION}")]
