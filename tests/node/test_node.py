"""What only a real node shows: what containers see, and what becomes of them when parts of the node fail."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.layout import GPUS, NO_NVML, PROJECT
from tests.node.node import DRA_DRIVER, GPU_MEMORY_MIB, Object, RealNode, patience, pod, until

KAI, TEAM, RESERVED = "kai-scheduler", "team", "kai-resource-reservation"
CHART = PROJECT / "charts/kai-scheduler"
HALF = {"gpu-fraction": "0.5"}
ENDED = ("Succeeded", "Failed")


def queue(name: str, parent: str = "", gpus: int = -1) -> Object:
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": unlimited, "memory": unlimited, "gpu": {**unlimited, "limit": gpus}}
    spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def phase(node: RealNode, name: str) -> str:
    return str(node.get(f"pod/{name}", TEAM)["status"].get("phase"))


def running(node: RealNode, *names: str, seconds: float = 90.0) -> None:
    until(f"{', '.join(names)} run", lambda: {phase(node, name) for name in names} == {"Running"}, seconds)


def device(node: RealNode, name: str) -> str:
    return node.environment(name, TEAM)["NVIDIA_VISIBLE_DEVICES"]


def pods(node: RealNode, namespace: str) -> list[Object]:
    return list(node.get("pods", namespace)["items"])


def reservations(node: RealNode) -> list[Object]:
    return pods(node, RESERVED)


def install(node: RealNode, *values: str, chart: Path = CHART) -> None:
    """Install or upgrade; returns when the operator says that the installation is ready."""
    chosen = (word for value in ("global.gpuSharing=true", *values) for word in ("--set", value))
    node.helm("upgrade", "-i", KAI, str(chart), "-n", KAI, "--create-namespace", *chosen)
    until("the installation is ready", lambda: "Ready" in node.conditions("config/kai-config", KAI), 180)


@pytest.fixture(autouse=True)
def empty(node: RealNode) -> Iterator[None]:
    """Afterwards no test pod is left, and no GPU stays reserved."""
    yield
    if any(each["metadata"]["name"] == TEAM for each in node.get("namespaces")["items"]):
        node.kubectl("delete", "pods", "-n", TEAM, "--all", "--now", f"--timeout={60 * patience():.0f}s")
        until("no GPU is reserved", lambda: not reservations(node))


def test_helm_installs_components_that_run_as_nobody_in_particular(node: RealNode) -> None:
    install(node)
    node.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}},
        queue("default"),
        queue("test", "default"),
    )
    for each in until("components run", lambda: pods(node, KAI)):
        context = each["spec"]["containers"][0]["securityContext"]
        assert (context["runAsNonRoot"], context["allowPrivilegeEscalation"]) == (True, False), each["metadata"]["name"]
        assert each["status"]["containerStatuses"][0]["restartCount"] == 0, each["metadata"]["name"]
    apps = {each["metadata"]["labels"].get("app") for each in pods(node, KAI)}
    assert {"binder", "kai-scheduler", "admission", "pod-grouper"} <= apps


def test_a_ready_installation_answers_at_once(node: RealNode) -> None:
    """No webhook refuses a pod that is created right after the Config became ready."""
    node.apply(*(pod(f"first-{number}", annotations=HALF) for number in range(2)))
    running(node, "first-0", "first-1")


def test_containers_see_their_devices_and_no_others(node: RealNode) -> None:
    node.apply(pod("whole", gpus=1), pod("half-1", annotations=HALF), pod("half-2", annotations=HALF))
    running(node, "whole", "half-1", "half-2")
    seen = {name: node.environment(name, TEAM) for name in ("whole", "half-1", "half-2")}
    assert {each["NVIDIA_VISIBLE_DEVICES"] for each in seen.values()} == set(GPUS)
    assert seen["half-1"]["NVIDIA_VISIBLE_DEVICES"] == seen["half-2"]["NVIDIA_VISIBLE_DEVICES"]
    assert [seen[name]["GPU_PORTION"] for name in ("half-1", "half-2")] == ["0.50", "0.50"]
    (reservation,) = reservations(node)
    assert reservation["status"]["qosClass"] == "Burstable"
    assert device(node, "half-1") in node.kubectl("logs", "-n", RESERVED, reservation["metadata"]["name"])
    maps = {each["metadata"]["name"] for each in node.get("configmaps", TEAM)["items"]} - {"kube-root-ca.crt"}
    assert len(maps) == 4  # two for each share
    node.kubectl("delete", "pods", "-n", TEAM, "--all", "--now")
    until("the reservation is gone", lambda: not reservations(node))


def _shares(node: RealNode) -> list[tuple[str, float, str, str]]:
    """Device, portion, start and end of every test container that has ended."""
    found = []
    for each in pods(node, TEAM):
        for status in each["status"].get("containerStatuses") or ():
            if ended := status["state"].get("terminated"):
                seen = node.environment(each["metadata"]["name"], TEAM)
                portion = float(seen.get("GPU_PORTION") or 1)
                found.append((seen["NVIDIA_VISIBLE_DEVICES"], portion, ended["startedAt"], ended["finishedAt"]))
    return found


def test_pods_that_come_and_go_never_share_more_than_a_device(node: RealNode) -> None:
    chance = random.Random(7)
    kinds: list[dict[str, Any]] = [
        {"gpus": 1}, {"annotations": HALF}, {"annotations": {"gpu-fraction": "0.3"}},
        {"annotations": {"gpu-memory": str(GPU_MEMORY_MIB // 3)}},
    ]  # fmt: skip
    names = [f"churn-{number}" for number in range(40)]
    node.apply(*(pod(name, ("for", f"{chance.uniform(0.3, 3):.1f}"), **chance.choice(kinds)) for name in names))
    for name in chance.sample(names, 6):
        node.kubectl("delete", "pod", "-n", TEAM, name, "--wait=false")
    until("all have ended", lambda: all(each["status"]["phase"] in ENDED for each in pods(node, TEAM)), 240)
    trouble = [each["status"] for each in pods(node, TEAM) if each["status"]["phase"] == "Failed"]
    assert not trouble
    shares = _shares(node)
    for gpu, _, start, _ in shares:
        together = [portion for other, portion, since, end in shares if other == gpu and since <= start < end]
        assert sum(together) <= 1.001, (gpu, start, together)
    assert Counter(gpu for gpu, *_ in shares).keys() == set(GPUS)


def test_a_preempted_pod_that_ignores_sigterm_keeps_its_device_until_it_is_gone(node: RealNode) -> None:
    node.apply(queue("test", "default", gpus=len(GPUS)))
    try:
        node.apply(pod("train", ("stubborn",), gpus=len(GPUS), priority="train", grace=6))
        running(node, "train")
        node.apply(pod("build", gpus=1, priority="build"))
        until("train is terminating", lambda: node.get("pod/train", TEAM)["metadata"].get("deletionTimestamp"))
        assert phase(node, "build") == "Pending"
        running(node, "build")
        assert "train" not in {each["metadata"]["name"] for each in pods(node, TEAM)}
        assert device(node, "build") in GPUS
    finally:
        node.apply(queue("test", "default"))


def test_a_killed_reservation_container_starts_again_with_the_same_device(node: RealNode) -> None:
    node.apply(pod("half", annotations=HALF))
    running(node, "half")
    (reservation,) = reservations(node)
    node.kill_container(reservation)
    until(
        "the reservation runs again",
        lambda: [each["status"]["containerStatuses"][0]["restartCount"] for each in reservations(node)] == [1],
    )
    node.apply(pod("other", annotations=HALF))
    running(node, "half", "other")
    assert device(node, "half") == device(node, "other")


def test_pods_whose_reservation_is_deleted_do_not_keep_a_device_nobody_holds(node: RealNode) -> None:
    node.apply(pod("half", annotations=HALF))
    running(node, "half")
    node.kubectl("delete", "pods", "-n", RESERVED, "--all", "--now")
    until("the pod is deleted", lambda: not pods(node, TEAM))
    assert "ReservationLost" in node.kubectl("get", "events", "-n", TEAM)


def test_a_restarted_kubelet_changes_nothing(node: RealNode) -> None:
    node.apply(pod("half", annotations=HALF), pod("whole", gpus=1))
    running(node, "half", "whole")
    node.stop("device-plugin")
    node.stop("kubelet")
    node.start_kubelet()
    node.start_device_plugin()
    node.apply(pod("other", annotations=HALF))
    running(node, "half", "whole", "other")
    restarts = [each["status"]["containerStatuses"][0]["restartCount"] for each in pods(node, TEAM)]
    assert restarts == [0, 0, 0]


def test_after_a_reboot_shares_are_whole_again(node: RealNode) -> None:
    """Containers die with the node and its device plugin comes late: the system recovers, and serves shares again."""
    node.apply(pod("before", annotations=HALF))
    running(node, "before")
    node.stop("device-plugin")
    node.stop("kubelet")
    node.kill_everything()
    node.start_kubelet()
    node.start_device_plugin()
    after = (pod("after", annotations=HALF), pod("whole", gpus=1))
    until("the webhooks answer again", lambda: node.try_to_apply(*after), 180)
    running(node, "after", "whole", seconds=180)
    assert {device(node, "after"), device(node, "whole")} == set(GPUS)


def test_without_nvml_the_pod_says_why_it_waits(node: RealNode) -> None:
    NO_NVML.touch()
    try:
        node.apply(pod("half", annotations=HALF))
        events = until(
            "the bind fails with a reason",
            lambda: [
                each["message"] for each in node.get("events", TEAM)["items"]
                if each["involvedObject"]["name"] == "half" and "container resource-reservation" in each["message"]
            ],
            120,
        )  # fmt: skip
        assert any("NVML" in each for each in events), events
    finally:
        NO_NVML.unlink()
    running(node, "half", seconds=180)


def test_claims_of_a_dra_driver(node: RealNode) -> None:
    node.start_dra_driver()
    node.apply(
        {
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DRA_DRIVER},
            "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRA_DRIVER}'"}}]},
        },
        {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one", "namespace": TEAM},
            "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRA_DRIVER}}]}}},
        },
    )  # fmt: skip
    asks = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    claims = {"resources": {"claims": [{"name": "gpu"}]}, "spec": asks}
    node.apply(*(pod(f"claim-{number}", ("for", "4"), **claims) for number in range(3)))
    until("all have ended", lambda: [each["status"]["phase"] for each in pods(node, TEAM)] == ["Succeeded"] * 3, 120)
    node.kubectl("delete", "pods", "-n", TEAM, "--all", "--now")
    until("no claim is left", lambda: not node.get("resourceclaims", TEAM)["items"])
    node.stop_dra_driver()


def test_a_resized_pod_counts_with_what_it_has(node: RealNode) -> None:
    node.apply(pod("growing", resources={"requests": {"cpu": "50m", "memory": "16Mi"}}))
    running(node, "growing")
    patch = '{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"120m"}}}]}}'
    node.kubectl("patch", "pod", "-n", TEAM, "growing", "--subresource", "resize", "--patch", patch)

    def has() -> str:
        status = node.get("pod/growing", TEAM)["status"]["containerStatuses"][0]
        return str(status["resources"]["requests"]["cpu"])

    until("the kubelet has resized it", lambda: has() == "120m")
    until("the queue counts it", lambda: node.get("queue/test")["status"].get("allocated", {}).get("cpu") == "120m")


def test_an_upgrade_to_two_replicas_keeps_work_running(node: RealNode) -> None:
    node.apply(pod("steady", annotations=HALF))
    running(node, "steady")
    install(node, "operator.replicaCount=2")
    until("two binders run", lambda: node.get("deployment/binder", KAI)["status"].get("readyReplicas") == 2, 180)
    node.apply(pod("later", annotations=HALF))
    running(node, "steady", "later", seconds=120)
    assert node.get("pod/steady", TEAM)["status"]["containerStatuses"][0]["restartCount"] == 0


def test_uninstall_leaves_workloads_and_nothing_else(node: RealNode) -> None:
    node.apply(pod("survivor", gpus=1))
    running(node, "survivor")
    node.helm("uninstall", KAI, "-n", KAI)
    until("the components are gone", lambda: not pods(node, KAI), 120)
    assert phase(node, "survivor") == "Running"
    for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        assert not [each for each in node.get(kind)["items"] if "kai" in each["metadata"]["name"]]
    assert node.allocatable()["nvidia.com/gpu"] == str(len(GPUS))
