"""The installation as users do it: `helm` and `kubectl` on a cluster whose nodes run the component pods for real.

The cluster is a bare `kai local up` with Kubernetes' own scheduler for the component pods, which the hollow kubelets
run as processes, with the rights and the files that the chart and the operator give them. Lines are typed as they stand
in the documents. The tests share the release; each brings it into the state it needs, which is quick in their order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from .mission_cluster import ROOT, local_up

INSTALL = "helm upgrade -i kai-scheduler charts/kai-scheduler -n kai-scheduler --create-namespace"
READY = "kubectl wait --for=condition=Ready config/kai-config --timeout=180s"
COMPONENTS = {
    "admission",
    "binder",
    "kai-operator",
    "kai-scheduler-default",
    "pod-grouper",
    "podgroup-controller",
    "queue-controller",
}
QUEUE = "--labels=kai.scheduler/queue=default-queue"
OPERATOR_LEASE = "41fce092.run.ai"
TWO_OF_EACH = ("operator.replicaCount=2", "global.gpuSharing=true", "binder.resourceReservation.runtimeClassName=")
OURS = '--overrides=\'{"spec": {"schedulerName": "kai-scheduler"}}\''


@dataclass(frozen=True)
class Shell:
    """A user at a shell in the project's directory."""

    kubeconfig: Path
    installed: list[tuple[str, ...]] = field(default_factory=list)

    def types(self, line: str, expect: int = 0) -> str:
        """What a line prints, errors included; it fails the test unless it exits as expected."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path}
        done = subprocess.run(line, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
        printed = done.stdout + done.stderr
        assert done.returncode == expect, f"$ {line}\n{printed}"
        return printed

    def asks(self, what: str) -> Any:
        """What `kubectl get ... -o json` finds."""
        return json.loads(self.types(f"kubectl get {what} -o json"))

    def installs(self, *values: str) -> None:
        """Install or upgrade, unless these very values are, and wait until what they ask for runs, and nothing else."""
        if self.installed[-1:] == [values]:
            return
        self.types(" ".join([INSTALL, *(f"--set {value}" for value in values)]))
        self.installed.append(values)
        self.types(READY)
        self.types("kubectl rollout status deployment -n kai-scheduler --timeout=180s")

    def sees(self, check: Callable[[], object], seconds: float = 180) -> None:
        """Wait until a check holds; starting two of each component takes a minute of CPU on a slow machine."""
        deadline = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < deadline, "still not so"
            time.sleep(0.2)


@pytest.fixture(scope="module")
def shell(control_plane_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A cluster with the runtime class that the GPU operator brings, the product, and a namespace for pods."""
    options = ("--bare", "--kube-scheduler", "--nodes=2", "--gpus=4")
    with local_up(tmp_path_factory.mktemp("install"), *options) as kubeconfig:
        user = Shell(kubeconfig)
        user.types("kubectl apply -f examples/runtime-class.yaml")
        user.installs()
        user.types("kubectl create namespace team && kubectl wait --for=create -n team sa/default --timeout=50s")
        yield user


def args(shell: Shell, deployment: str) -> list[str]:
    """The arguments of the one container of a Deployment's pods."""
    found = shell.asks(f"deployment {deployment} -n kai-scheduler")
    return list(found["spec"]["template"]["spec"]["containers"][0]["args"])


def test_everything_is_there_and_ready(shell: Shell) -> None:
    deployments = {item["metadata"]["name"]: item["status"] for item in shell.asks("deploy -n kai-scheduler")["items"]}
    assert deployments.keys() == COMPONENTS
    assert {status["readyReplicas"] for status in deployments.values()} == {1}
    for app in ("binder", "kai-scheduler"):
        assert "1/1     Running" in shell.types(f"kubectl get pods -n kai-scheduler -l app={app}")
    restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}"
    assert set(shell.types(f"kubectl get pods -n kai-scheduler -o '{restarts}'").split()) == {"0"}
    assert "train" in shell.types("kubectl get priorityclass")
    assert "default-queue" in shell.types("kubectl get queues")
    assert len(shell.types("kubectl get crd -o name | grep 'kai.scheduler$\\|scheduling.run.ai$'").split()) == 6
    conditions = {row["type"]: row["status"] for row in shell.asks("config kai-config")["status"]["conditions"]}
    assert conditions.pop("Reconciling") == "False"
    assert set(conditions.values()) == {"True"}


def test_a_pod_is_scheduled_and_the_logs_tell(shell: Shell) -> None:
    shell.types("kubectl apply -f examples/queues/queues.yaml")
    shell.types("kubectl apply -n team -f examples/pods/gpu-pod.yaml")
    shell.types("kubectl wait -n team --for=condition=Ready pod/gpu-pod --timeout=50s")
    said = shell.types("kubectl logs -n kai-scheduler -l app=kai-scheduler --tail=100 | grep -i gpu")
    assert "pod=team/gpu-pod" in said
    said = shell.types('kubectl logs -n kai-scheduler -l app=binder --tail=100 | grep -i "gpu\\|reservation"')
    assert "pod=team/gpu-pod" in said
    shell.types("kubectl wait --for=jsonpath='{.status.allocated.nvidia\\.com/gpu}'=1 queue/test --timeout=50s")
    metrics = "/api/v1/namespaces/kai-scheduler/services/queue-controller:metrics/proxy/metrics"
    assert 'queue_name="test"' in shell.types(f"kubectl get --raw {metrics}")
    shell.types("kubectl delete pod -n team gpu-pod")


def test_bad_queues_and_unknown_values_are_refused(shell: Shell) -> None:
    queue = '{"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}, "spec": {}}'
    assert "resources must be specified" in shell.types(f"echo '{queue}' | kubectl apply -f -", expect=1)
    assert "gpuSharin" in shell.types(f"{INSTALL} --set global.gpuSharin=true", expect=1)


def test_sharing_is_switched_on_by_an_upgrade(shell: Shell) -> None:
    shell.installs()
    sharing = "kubectl get config -n kai-scheduler kai-config -o jsonpath='{.spec.admission.gpuSharing}'"
    assert shell.types(sharing) == "false"
    half = f"-n team --image=ubuntu --annotations=gpu-fraction=0.5 {QUEUE} {OURS}"
    refused = shell.types(f"kubectl run refused {half}", expect=1)
    assert "global.gpuSharing=true" in refused
    shell.types(f"kubectl run kept -n team --image=ubuntu {QUEUE} {OURS}")
    shell.types("kubectl wait -n team --for=condition=Ready pod/kept --timeout=50s")
    running = shell.types("kubectl get pods -n kai-scheduler -l app=kai-scheduler -o name")
    workload = shell.asks("pod kept -n team")["status"]

    shell.installs("global.gpuSharing=true")
    assert shell.asks("pod kept -n team")["status"] == workload, "an upgrade leaves workloads alone"
    assert shell.types(sharing) == "true"
    assert shell.types("kubectl get pods -n kai-scheduler -l app=kai-scheduler -o name") == running, (
        "only admission and binder depend on the mode of sharing"
    )
    shell.types(f"kubectl run one {half} && kubectl run two {half}")
    shell.types("kubectl wait -n team --for=condition=Ready pod/one pod/two --timeout=50s")
    (reservation,) = shell.asks("pods -n kai-resource-reservation")["items"]
    assert reservation["spec"]["runtimeClassName"] == "nvidia"
    as_its_account = "--as=system:serviceaccount:kai-resource-reservation:kai-resource-reservation"
    shell.types(f"kubectl auth can-i patch pods -n kai-resource-reservation {as_its_account}")
    shell.types(f"kubectl auth can-i patch pods -n team {as_its_account}", expect=1)
    name = reservation["metadata"]["name"]
    assert "GPU GPU-" in shell.types(f"kubectl logs -n kai-resource-reservation {name}")
    said = shell.types('kubectl logs -n kai-scheduler -l app=binder --tail=100 | grep -i "gpu\\|reservation"')
    assert f"reservation=kai-resource-reservation/{name}" in said
    shell.types("kubectl delete pod -n team one two kept")
    shell.sees(lambda: not shell.asks("pods -n kai-resource-reservation")["items"])


def test_changed_objects_roll_out(shell: Shell) -> None:
    shell.installs("global.gpuSharing=true")
    change = '{"spec": {"podGrouper": {"maxConcurrentReconciles": 7}}}'
    shell.types(f"kubectl patch config kai-config --type=merge -p '{change}'")
    change = '{"spec": {"args": {"v": "5"}, "placementStrategy": {"gpu": "spread"}}}'
    shell.types(f"kubectl patch schedulingshard default --type=merge -p '{change}'")
    shell.sees(lambda: "--max-concurrent-reconciles=7" in args(shell, "pod-grouper"))
    shell.sees(lambda: "--v=5" in args(shell, "kai-scheduler-default"))
    shell.types("kubectl rollout status deployment -n kai-scheduler --timeout=180s")
    assert 'FLAG: --v="5"' in shell.types("kubectl logs -n kai-scheduler deployment/kai-scheduler-default")
    line = f"kubectl run spread -n team --image=ubuntu {QUEUE} {OURS}"
    shell.types(f"{line} && kubectl wait -n team --for=condition=Ready pod/spread --timeout=50s")
    shell.types("kubectl delete pod -n team spread")

    change = '{"spec": {"args": {"fly": "high"}}}'
    shell.types(f"kubectl patch schedulingshard default --type=merge -p '{change}'")
    told = "kubectl wait --for=condition=Ready=false schedulingshard/default --timeout=50s"
    shell.types(told)
    (row,) = [
        row for row in shell.asks("schedulingshard default")["status"]["conditions"] if row["type"] == "Available"
    ]
    assert "spec.args.fly" in row["message"]
    assert shell.asks("deployment kai-scheduler-default -n kai-scheduler")["status"]["readyReplicas"] == 1
    shell.types("""kubectl patch schedulingshard default --type=json -p '[{"op": "remove", "path": "/spec/args"}]'""")


def test_two_of_each_under_the_restricted_profile_without_a_runtime_class(shell: Shell) -> None:
    spaces = "namespace kai-scheduler kai-resource-reservation"
    shell.types(f"kubectl label {spaces} pod-security.kubernetes.io/enforce=restricted")
    shell.installs(*TWO_OF_EACH)
    found = {item["metadata"]["name"]: item["status"] for item in shell.asks("deploy -n kai-scheduler")["items"]}
    assert {name: status["readyReplicas"] for name, status in found.items()} == dict.fromkeys(COMPONENTS, 2)
    holder = shell.types("kubectl get lease -n kai-scheduler kai-scheduler -o jsonpath={.spec.holderIdentity}")
    leader = holder.partition("_")[0]
    assert f"pod/{leader}" in shell.types("kubectl get pods -n kai-scheduler -l app=kai-scheduler -o name")
    shell.types(f"kubectl delete pod -n kai-scheduler {leader} --wait=false")
    line = f"kubectl run after -n team --image=ubuntu --annotations=gpu-fraction=0.5 {QUEUE} {OURS}"
    shell.types(f"{line} && kubectl wait -n team --for=condition=Ready pod/after --timeout=50s")
    (reservation,) = shell.asks("pods -n kai-resource-reservation")["items"]
    assert "runtimeClassName" not in reservation["spec"]
    shell.types("kubectl delete pod -n team after")


@dataclass(frozen=True)
class Lease:
    """Who holds a lease (empty: nobody), and the kinds of its owners."""

    holder: str
    owners: tuple[str, ...]


def leases(shell: Shell) -> dict[str, Lease]:
    """The leases of the system by name."""
    return {
        item["metadata"]["name"]: Lease(
            item["spec"].get("holderIdentity", ""),
            tuple(owner["kind"] for owner in item["metadata"].get("ownerReferences", ())),
        )
        for item in shell.asks("leases -n kai-scheduler")["items"]
    }


def elected(shell: Shell) -> bool:
    """Whether every component that elects a leader has one, and its lease an owner."""
    found = leases(shell)
    return len(found) == len(COMPONENTS - {"admission"}) and all(each.holder and each.owners for each in found.values())


def test_leases_come_and_go_with_the_second_replica(shell: Shell) -> None:
    shell.installs(*TWO_OF_EACH)
    shell.sees(lambda: elected(shell))
    owned = {name: lease.owners for name, lease in leases(shell).items()}
    assert owned == {name: ("Deployment" if name == OPERATOR_LEASE else "Config",) for name in owned}
    shell.types("kubectl delete lease -n kai-scheduler kai-scheduler")
    shell.sees(lambda: elected(shell))
    assert leases(shell)["kai-scheduler"].owners == ("Config",)
    change = """kubectl patch config kai-config --type=merge -p '{"spec": {"global": {"replicaCount": %d}}}'"""
    shell.types(change % 1)
    shell.sees(lambda: leases(shell).keys() == {OPERATOR_LEASE})
    shell.types(change % 2)
    shell.sees(lambda: elected(shell))


def test_an_uninstalled_release_leaves_what_is_the_users(shell: Shell) -> None:
    shell.installs(*TWO_OF_EACH)
    shell.sees(lambda: elected(shell))
    line = f"kubectl run stays -n team --image=ubuntu {QUEUE} {OURS}"
    shell.types(f"{line} && kubectl wait -n team --for=condition=Ready pod/stays --timeout=50s")
    shell.types("helm uninstall kai-scheduler -n kai-scheduler --wait")
    shell.installed.clear()
    shell.sees(lambda: not shell.asks("pods,deployments,services,secrets,pdb,leases -n kai-scheduler")["items"])
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations,configs.kai.scheduler"
    assert not shell.asks(kinds)["items"]
    assert "kai" not in shell.types("kubectl get clusterroles,clusterrolebindings -o name")
    shell.types("kubectl get queue/default-queue queue/default-parent-queue schedulingshard/default")
    shell.types("kubectl get namespace kai-resource-reservation")
    assert shell.asks("pod stays -n team")["status"]["phase"] == "Running"
    assert shell.asks("podgroups -n team")["items"]
    shell.types("kubectl delete pod -n team stays")
