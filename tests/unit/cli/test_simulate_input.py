"""What `kai simulate` takes: directories, standard input, snapshots, clusters that run already."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from pykai.cli.simulate import simulate
from tests.unit.simulate.stories import job, node, pod, queue


def run(*arguments: object, text: str | None = None) -> Result:
    return CliRunner().invoke(
        simulate, catch_exceptions=False, args=[str(argument) for argument in arguments], input=text
    )


def document(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def stamped(text: str, **more: Any) -> dict[str, Any]:
    """An object as `kubectl get -o yaml` shows it."""
    obj: dict[str, Any] = yaml.safe_load(text)
    meta = {
        "uid": f"uid-{obj['metadata']['name']}",
        "creationTimestamp": "2026-05-01T12:00:00Z",
        "resourceVersion": "7",
    }
    return {**obj, **more, "metadata": {**obj["metadata"], **meta}}


def running(name: str, group: str, owner: str = "") -> dict[str, Any]:
    """A pod with a GPU that runs on node n."""
    found = stamped(pod(name, "q", 1), status={"phase": "Running"})
    meta = {**found["metadata"], "namespace": "team", "annotations": {"pod-group-name": group}}
    if owner:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"uid-{owner}", "controller": True}
        meta["ownerReferences"] = [reference]
    return {**found, "metadata": meta, "spec": {**found["spec"], "nodeName": "n"}}


def pod_group(name: str) -> dict[str, Any]:
    spec = {"minMember": 1, "queue": "q", "priorityClassName": "train"}
    head = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": name}}
    found = stamped(yaml.safe_dump({**head, "spec": spec}))
    return {**found, "metadata": {**found["metadata"], "namespace": "team"}}


CLUSTER = [
    stamped(node("n", 2)),
    stamped(queue("q", 2, 2)),
    pod_group("pg-old"),
    running("old", "pg-old", owner="train"),
    pod_group("pg-bare"),
    running("bare", "pg-bare"),
]


def test_a_cluster_from_standard_input_goes_on(tmp_path: Path) -> None:
    """Bound pods stay where they are; a pod whose controller stayed behind comes back after its eviction."""
    later = tmp_path / "build.yaml"
    later.write_text(pod("build", "q", 1, "pykai.io/arrives: 10s", "build"))
    listed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": CLUSTER})
    pods = {found["name"]: found for found in document(run("-", later, "-o", "json", text=listed))["pods"]}
    assert [pods[name]["scheduledAt"] for name in ("old", "bare")] == [0.0, 0.0]
    evicted = [name for name, found in pods.items() if found["evictedBy"]]
    assert len(evicted) == 1
    assert pods["build"]["state"] == "Running"
    assert ("old-again-1" in pods) == (evicted == ["old"])


def test_a_snapshot_goes_on(tmp_path: Path) -> None:
    sections = {"Node": "nodes", "Queue": "queues", "PodGroup": "podGroups", "Pod": "pods"}
    raw: dict[str, list[Any]] = {section: [] for section in sections.values()}
    for obj in CLUSTER:
        raw[sections[obj["kind"]]].append(
            {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
        )
    archive = tmp_path / "snapshot.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("snapshot.json", json.dumps({"rawObjects": raw}))
    more = tmp_path / "job.yaml"
    more.write_text(job("new", "q"))
    pods = {found["name"]: found for found in document(run(archive, more, "-o", "json"))["pods"]}
    assert {name: found["state"] for name, found in pods.items()} == {
        "old": "Running",
        "bare": "Running",
        "new-0": "Waiting",
    }


def test_kinds_that_do_not_matter_are_passed_over_with_one_note(tmp_path: Path) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {}\n"
    foreign = "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: m}\n"
    file = tmp_path / "all.yaml"
    file.write_text(
        "---\n".join((node("n"), service, service.replace("s}", "t}"), foreign, pod("p", "default-queue", 1)))
    )
    result = run(file)
    assert result.exit_code == 0, result.output
    (note,) = [line for line in result.stderr.splitlines() if line.startswith("note:")]
    assert note.endswith("passed over, since they do not matter to scheduling: 2 Service, 1 ServiceMonitor")


def test_without_nodes_the_user_learns_what_to_add(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(job("j", "default-queue"))
    result = run(file)
    assert result.exit_code == 2
    assert "no nodes: add a Node to the manifests, or generate some with --nodes" in result.output


def test_directories_in_directories_are_read_when_asked(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "jobs.yaml").write_text(job("j", "default-queue", notes='pykai.io/run-seconds: "5"'))
    assert "-R reads the directories in it, too" in run("--nodes", 1, tmp_path).output
    assert len(document(run("--nodes", 1, "-R", tmp_path, "-o", "json"))["pods"]) == 1


def test_generated_clusters_are_busy() -> None:
    """Jobs wait, are preempted within their queue, and are reclaimed from by other queues."""
    found = document(run("--nodes", 2, "--jobs", 40, "-o", "json"))
    actions = {each["evictedBy"] for each in found["pods"]} - {""}
    assert {"preempt", "reclaim"} <= actions
    assert max(sample["waitingPods"] for sample in found["samples"]) > 5


def test_what_admission_refuses_ends_the_command_in_its_own_words(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("---\n".join((node("n"), pod("a", "default-queue", 1, 'gpu-fraction: "0.5"'))))
    result = run(file)
    assert result.exit_code == 2
    assert f"{file}: document 2 (Pod a): admission webhook denied the request" in result.output
