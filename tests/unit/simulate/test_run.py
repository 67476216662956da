"""Stories: what a user sees happen when the scheduler of the product runs a small cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykai.cli.simulated_product import SimulatedProduct
from pykai.config.scheduler_config import SchedulerConfig
from pykai.model.resources import GPU
from pykai.simulate.history import document
from pykai.simulate.simulation import BrokenError, Setting, Simulation
from tests.unit.simulate.stories import events, job, life, node, play, pod, queue, simulation

FOREVER = "pykai.io/run-seconds: forever"


def test_a_pod_waits_starts_runs_and_finishes() -> None:
    outcome = play(node("n"), queue("q"), pod("p", "q", 1, 'pykai.io/arrives: 30s, pykai.io/run-seconds: "60"'))
    found = life(outcome, "p")
    times = (found.arrived_at, found.scheduled_at, found.started_at, found.ended_at)
    assert times == pytest.approx((30.0, 30.0, 32.0, 92.0), abs=0.1)
    assert (found.state, found.node, found.devices, found.queue) == ("Finished", "n", (0,), "q")
    told = [event.kind for event in outcome.history.events if event.about == "Pod default/p" and event.kind != "Event"]
    assert told == [
        "Arrived",
        "Scheduled",
        "Started",
        "Finished",
    ]


def test_a_job_makes_its_pods_anew_until_enough_have_finished() -> None:
    outcome = play(node("n", 2), queue("q"), job("j", "q", pods=2, notes='pykai.io/run-seconds: "10"'))
    ((at, about),) = events(outcome, "Completed")
    assert (round(at), about) == (12, "Job default/j")
    assert [found.name for found in outcome.history.lives] == ["j-0", "j-1"]


def test_shares_of_one_device_go_together_and_the_next_snapshot_knows_it() -> None:
    half, quarter, memory = ('gpu-fraction: "0.5"', 'gpu-fraction: "0.25"', 'gpu-memory: "16000"')
    outcome = play(
        node("n", 2),
        queue("q"),
        pod("a", "q", notes=half),
        pod("b", "q", notes=f"{quarter}, pykai.io/arrives: 10s"),
        pod("c", "q", notes=f"{memory}, pykai.io/arrives: 20s"),
        pod("d", "q", notes=f"{half}, pykai.io/arrives: 30s"),
    )
    assert [life(outcome, name).devices for name in "abcd"] == [(0,), (0,), (0,), (1,)]
    assert [(found.name, part) for found, part in outcome.devices["n"][0]] == [("a", 0.5), ("b", 0.25), ("c", 0.2)]
    assert [found.name for found, _ in outcome.devices["n"][1]] == ["d"]


def test_a_share_of_several_devices() -> None:
    notes = 'gpu-fraction: "0.5", gpu-fraction-num-devices: "2"'
    outcome = play(node("n", 2), queue("q"), pod("a", "q", notes=notes), pod("b", "q", notes=notes), pod("c", "q", 1))
    assert life(outcome, "a").devices == life(outcome, "b").devices == (0, 1)
    assert life(outcome, "c").state == "Waiting"


def test_a_gang_waits_whole_and_starts_whole() -> None:
    outcome = play(
        node("n", 4),
        queue("q"),
        job("first", "q", pods=2, notes='pykai.io/run-seconds: "50"'),
        job("gang", "q", pods=3, notes='pykai.io/arrives: 10s, kai.scheduler/batch-min-member: "3"'),
    )
    members = [life(outcome, f"gang-{number}") for number in range(3)]
    assert {(member.arrived_at, round(member.scheduled_at or 0.0)) for member in members} == {(10.0, 52)}
    assert "Resources were found for 2 pods while 3 are required" in members[0].waited_for


def test_build_preempts_train_in_a_queue_limited_to_one_gpu() -> None:
    outcome = play(
        node("n", 4),
        queue("q", quota=1, limit=1),
        job("train", "q", notes=FOREVER),
        pod("build", "q", 1, "pykai.io/arrives: 30s", "build"),
    )
    first, again = life(outcome, "train-0"), life(outcome, "train-1")
    assert (first.state, round(first.evicted_at or 0.0), first.evicted_by) == ("Evicted", 30, "preempt")
    assert "preempted by higher priority workload" in first.reason
    assert life(outcome, "build").state == "Running"
    assert again.state == "Waiting"
    assert "Limit is 1 GPUs" in again.reason


def test_a_queue_reclaims_its_quota() -> None:
    outcome = play(
        node("n", 4),
        queue("dept"),
        queue("rich", 2, parent="dept"),
        queue("poor", 2, parent="dept"),
        job("many", "rich", pods=4, notes=FOREVER),
        job("own", "poor", pods=2, notes=f'pykai.io/arrives: 20s, kai.scheduler/batch-min-member: "2", {FOREVER}'),
    )
    gone = [found for found in outcome.history.lives if found.state == "Evicted"]
    assert {(found.job, found.evicted_by, found.evicted_for) for found in gone} == {
        ("many", "reclaim", f"default/{life(outcome, 'own-0').group}")
    }
    assert len(gone) == 2
    assert {life(outcome, "own-0").state, life(outcome, "own-1").state} == {"Running"}
    waiting = [found for found in outcome.history.lives if found.state == "Waiting"]
    assert [found.job for found in waiting] == ["many", "many"]


def test_consolidation_moves_a_pod_and_gives_it_back_its_place() -> None:
    short = 'pykai.io/run-seconds: "20"'
    outcome = play(
        node("a", 2),
        node("b", 2),
        queue("q"),
        job("brief", "q", notes=short),
        job("long", "q", notes=FOREVER),
        job("brief2", "q", notes=f"{short}, pykai.io/arrives: 1s"),
        job("long2", "q", notes=f"{FOREVER}, pykai.io/arrives: 1s"),
        job("wide", "q", gpus=2, notes=f"{FOREVER}, pykai.io/arrives: 40s"),
    )
    moved = [found for found in outcome.history.lives if found.evicted_by]
    assert [found.evicted_by for found in moved] == ["consolidation"]
    assert moved[0].moves_to in ("a", "b")
    replacement = life(outcome, f"{moved[0].job}-1")
    assert (replacement.state, replacement.node) == ("Running", moved[0].moves_to)
    assert life(outcome, "wide-0").state == "Running"


def test_an_evicted_bare_pod_is_gone_for_good() -> None:
    outcome = play(
        node("n", 1),
        queue("q", 1, 1),
        pod("train", "q", 1),
        pod("build", "q", 1, "pykai.io/arrives: 5s", "build"),
    )
    assert life(outcome, "train").state == "Evicted"
    assert [found.name for found, _ in outcome.devices["n"][0]] == ["build"]


def test_a_queue_that_is_applied_again_lets_waiting_work_go_on() -> None:
    later = ', annotations: {pykai.io/arrives: "60s"}'
    outcome = play(node("n", 2), queue("q", 1, 1), job("j", "q", pods=2, notes=FOREVER), queue("q", more=later))
    assert sorted(round(found.scheduled_at or 0.0) for found in outcome.history.lives) == [0, 60]
    assert events(outcome, "Changed") == [(60.0, "Queue q")]


REASONS = [
    (pod("p", "nowhere", 1), "Queue 'nowhere' does not exist"),
    (pod("p", "q", notes='gpu-memory: "90000"'), "GPU memory"),
    (pod("p", "q", notes="pod-group-name: nobody"), "there is no PodGroup 'nobody'"),
    (pod("p", "q").replace("kai-scheduler\n", "default-scheduler\n"), "only 'kai-scheduler' runs here"),
    (job("p", "q", notes='kai.scheduler/batch-min-member: "2"'), "waiting for 2 pods, 1 exist"),
    (job("p", "q", notes='kai.scheduler/batch-min-member: "none"'), "cannot be grouped"),
]


@pytest.mark.parametrize(("document_", "reason"), REASONS)
def test_every_pod_that_waits_knows_why(document_: str, reason: str) -> None:
    outcome = play(node("n"), queue("q"), document_)
    (found,) = outcome.history.lives
    assert found.state == "Waiting"
    assert reason in found.reason


def test_a_pod_that_is_on_a_node_already_holds_its_place() -> None:
    settled = pod("old", "q", 1).replace("spec:\n", "spec:\n  nodeName: n\n", 1) + "status: {phase: Running}\n"
    outcome = play(node("n", 1), queue("q"), settled, pod("new", "q", 1, "pykai.io/arrives: 5s"))
    assert (life(outcome, "old").state, life(outcome, "new").state) == ("Running", "Waiting")


def test_a_run_says_when_time_alone_may_change_a_decision() -> None:
    protected = queue("team", quota=0, parent="all").replace("spec: {", "spec: {reclaimMinRuntime: 1h, ")
    jobs = (pod("holds", "team", gpus=1), pod("waits", "other", gpus=1, notes="pykai.io/arrives: 10s"))
    outcome = play(node("n", gpus=1), queue("all"), protected, queue("other", quota=1, parent="all"), *jobs)
    assert life(outcome, "waits").scheduled_at is None
    started = life(outcome, "holds").scheduled_at
    assert started is not None
    assert document(outcome, 0)["nextDeadline"] == pytest.approx(started + 3600.0, abs=1.0)


def test_until_stops_the_clock() -> None:
    outcome = play(node("n"), queue("q"), pod("p", "q", 1), until=1.0)
    assert (outcome.history.ended_at, life(outcome, "p").state) == (1.0, "Starting")


STORY = (node("n", 2), queue("q"), job("j", "q", pods=2, notes='pykai.io/run-seconds: "10-500"'))


def test_the_same_seed_gives_the_same_history_and_another_one_another() -> None:
    setting = Setting()
    first, again = (document(play(*STORY, setting=setting), 0) for _ in range(2))
    assert first == again
    other = document(play(*STORY, setting=replace(setting, seed=1)), 0)
    assert other["simulatedSeconds"] != first["simulatedSeconds"]


def test_ranges_are_drawn_per_job_so_that_its_pods_end_together() -> None:
    outcome = play(*STORY)
    ends = {found.ended_at for found in outcome.history.lives}
    assert len(ends) == 1


class _Broken(SimulatedProduct):
    """A product in which something fails at once."""

    def faults(self) -> list[str]:
        return ["plan refused: too good to be true"]


def test_a_failure_of_the_product_stops_the_run() -> None:
    run = simulation(node("n"), queue("q"), pod("p", "q", 1, "pykai.io/arrives: 7s"))
    with pytest.raises(BrokenError, match="at 0 s the product failed: plan refused: too good to be true"):
        Simulation(_Broken(SchedulerConfig()), run.arrivals).play()


def test_the_observer_of_its_progress_may_end_a_run() -> None:
    run = simulation(node("n"), queue("q"), pod("p", "q", 1, FOREVER))
    assert run.play(500.0, lambda at, *_: at >= 30.0).history.ended_at == 30.0


def test_a_history_keeps_one_sample_of_a_queue_until_it_changes() -> None:
    """A queue's status counts its pods, but no sample has it."""
    job_of_b = job("j", "b", notes='pykai.io/arrives: 20s, pykai.io/run-seconds: "5"')
    outcome = play(node("n", 2), queue("a"), queue("b"), pod("p", "a", 1, FOREVER), job_of_b)
    samples = [sample for sample in outcome.history.samples if sample.at > 19.0]
    assert len({id(sample.queues["a"]) for sample in samples}) == 1
    assert len({id(sample.queues["b"]) for sample in samples}) > 2
    assert {round(sample.at) for sample in samples} <= {20, 22, 27, 28, *range(80, 400)}


def test_what_is_finished_does_not_stay_in_the_cluster() -> None:
    outcome = play(node("n"), queue("q"), *(job(f"j{n}", "q", notes='pykai.io/run-seconds: "5"') for n in range(6)))
    assert {found.state for found in outcome.history.lives} == {"Finished"}
    assert outcome.left_pods == 0


def test_what_admission_refuses_is_told_and_the_run_goes_on() -> None:
    wrong = pod("wrong", "q", 1, 'gpu-fraction: "0.5", pykai.io/arrives: 5s')
    outcome = play(node("n"), queue("q"), wrong, pod("p", "q", 1))
    assert events(outcome, "Refused") == [(5.0, "Pod default/wrong")]
    assert [text for text in outcome.history.remarks if "admission webhook denied the request" in text]
    assert life(outcome, "p").state == "Running"


def test_claimed_gpus_are_offered_requested_and_used() -> None:
    claiming = pod("claims", "team").replace("limits: {", "claims: [{name: gpu}], limits: {")
    outcome = play(
        node("n", gpus=0),
        queue("team"),
        """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n}
spec:
  driver: gpu.example.com
  nodeName: n
  pool: {name: n, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}, {name: gpu-2}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two, namespace: default}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com, count: 2}}]}}}
""",
        claiming + "  resourceClaims: [{name: gpu, resourceClaimTemplateName: two}]\n",
    )
    last = outcome.history.samples[-1]
    assert (last.capacity[GPU], last.gpus_used) == (3.0, 2.0)
    assert last.queues["team"].requested[GPU] == 2.0
    assert life(outcome, "claims").requests == "2 GPU"


def test_a_kubelet_takes_a_pod_whose_extended_resource_a_claim_serves() -> None:
    outcome = play(
        node("n", gpus=0),
        queue("team"),
        """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nic.example.com}
spec: {extendedResourceName: example.com/nic}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n}
spec:
  driver: nic.example.com
  nodeName: n
  pool: {name: n, generation: 1, resourceSliceCount: 1}
  devices: [{name: nic-0}]
""",
        *(pod(name, "team").replace('cpu: "1"', 'cpu: "1", example.com/nic: "1"') for name in ("first", "second")),
    )
    assert [life(outcome, name).state for name in ("first", "second")] == ["Running", "Waiting"]
