"""`kai simulate`"""
from __future__ import annotations
import sys
from pathlib import Path
import msgspec
from pykai.config import scheduler
from pykai.controllers import grouping
from pykai.model.params import SchedulerParams
from pykai.plugins import registry
from pykai.sim import admission, manifests, installed
from pykai.sim.run import Simulation
from pykai.sim.setting import Setting, Grouped
def grouper(settings):
    def group(pod, store):
        spec = grouping.group_pod(pod, store, settings)
        if spec is None: return Grouped(pod, None)
        existing = store.get("scheduling.run.ai/v2alpha2","PodGroup",spec.namespace,spec.name)
        patch = grouping.pod_patch(spec,pod) or {"metadata":{}}
        meta = dict(pod["metadata"])
        for k,v in patch["metadata"].items(): meta[k]={**(meta.get(k) or {}),**v}
        return Grouped({**pod,"metadata":meta}, grouping.pod_group_to_write(spec,existing,settings))
    return group
m=manifests.read([Path(p) for p in sys.argv[1:]])
m=installed.missing(m)+m
s=Simulation(admission.admit(m), scheduler.policy(scheduler.SchedulerConfig(),registry.make,registry.BUILT_IN), SchedulerParams(), Setting(group=grouper(grouping.Settings())))
h=s.run()
for e in h.events:
    if e.kind in ("Started","Gone") : continue
    if e.kind=="Arrived" and not e.about.startswith(("Pod","Job")): continue
    print(f"{e.at:6g} {e.kind:10} {e.about:32} {e.message}")
for l in h.lives.values(): print(l.title, l.state, l.node, l.devices, l.gpus, l.reason)
print(h.cycles, h.ended_at)
for n,d in s.world.devices.nodes.items(): print(n,d)
