"""Small clusters and workloads for the simulator's tests, written as YAML."""

from __future__ import annotations

from pykai.cli.simulated_product import SimulatedProduct
from pykai.config.scheduler_config import SchedulerConfig
from pykai.simulate import generate, manifest_validation, manifests
from pykai.simulate.history import PodLife, SimulationResult
from pykai.simulate.simulation import Setting, Simulation


def node(name: str, gpus: int = 4) -> str:
    return f"""
apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}, nvidia.com/gpu.memory: "80000"}}}}
status: {{allocatable: {{cpu: "64", memory: 256Gi, pods: "110", nvidia.com/gpu: "{gpus}"}}}}
"""


def queue(name: str, quota: float = -1, limit: float = -1, parent: str = "", more: str = "") -> str:
    free = "{quota: -1, limit: -1, overQuotaWeight: 1}"
    above = f"parentQueue: {parent}, " if parent else ""
    return f"""
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {{name: {name}{more}}}
spec: {{{above}resources: {{cpu: {free}, memory: {free}, gpu: {{quota: {quota}, limit: {limit}, overQuotaWeight: 1}}}}}}
"""


def pod(name: str, owner: str, gpus: int = 0, notes: str = "", priority: str = "train") -> str:
    limits = f'{{cpu: "1", nvidia.com/gpu: "{gpus}"}}' if gpus else '{cpu: "1"}'
    return f"""
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{kai.scheduler/queue: {owner}, priorityClassName: {priority}}}
  annotations: {{{notes}}}
spec:
  schedulerName: kai-scheduler
  containers: [{{name: main, image: train, resources: {{limits: {limits}}}}}]
"""


def job(name: str, owner: str, gpus: int = 1, pods: int = 1, notes: str = "") -> str:
    return f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, labels: {{kai.scheduler/queue: {owner}}}, annotations: {{{notes}}}}}
spec:
  parallelism: {pods}
  template:
    spec:
      schedulerName: kai-scheduler
      containers: [{{name: main, image: train, resources: {{limits: {{cpu: "1", nvidia.com/gpu: "{gpus}"}}}}}}]
"""


def simulation(*documents: str, setting: Setting | None = None, config: SchedulerConfig | None = None) -> Simulation:
    found = manifests.parse("\n---\n".join(documents), "story.yaml")
    chosen = setting or Setting()
    arrivals = [one.arrival(chosen.seed) for one in manifest_validation.admit(generate.with_defaults(found))]
    return Simulation(SimulatedProduct(config or SchedulerConfig()), arrivals, chosen)


def play(
    *documents: str,
    until: float | None = None,
    setting: Setting | None = None,
    config: SchedulerConfig | None = None,
) -> SimulationResult:
    return simulation(*documents, setting=setting, config=config).play(until)


def life(outcome: SimulationResult, name: str) -> PodLife:
    return next(found for found in outcome.history.lives if found.name == name)


def events(outcome: SimulationResult, kind: str) -> list[tuple[float, str]]:
    return [(event.at, event.about) for event in outcome.history.events if event.kind == kind]
