"""Shares of devices of any size: a plan with them is one that the judge accepts, or one pod would stop all binds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.engine.decide import decide
from pykai.objects import names
from pykai.verify.judge import verify
from tests import builders
from tests.properties.small_world import NOW, POLICIES, Cluster, Fields, carried_out

DEVICES = (8192, 11441, 15360, 16000, 16160, 23034, 24576, 32510, 40960, 81559, 143771)
"""MiB of GPUs on the market."""
FRACTIONS = st.one_of(
    st.sampled_from(("0.0001", "1e-09")),
    st.integers(1, 99).map(lambda percent: f"{percent / 100:g}"),
    st.floats(1e-9, 0.999999).map(lambda part: f"{part:.9f}").filter(lambda text: float(text) > 0),
)


@st.composite
def shares(draw: st.DrawFn) -> Cluster:
    """One or two nodes, and pods that ask for parts of their devices: in hundredths, other fractions, or memory."""
    sizes = draw(st.lists(st.sampled_from(DEVICES), min_size=1, max_size=2))
    nodes = [builders.node(f"n{at}", 2, {names.GPU_MEMORY_LABEL: str(size)}) for at, size in enumerate(sizes)]
    queue = builders.queue(gpu={"limit": draw(st.sampled_from((-1, 0.55, 1, 2)))})
    groups, pods = list[Fields](), list[Fields]()
    for number in range(draw(st.integers(1, 8))):
        name, of_device = f"g{number}", draw(st.sampled_from(sizes)) // 100
        kind = draw(st.sampled_from((names.GPU_FRACTION, names.GPU_MEMORY)))
        asks = {kind: draw(FRACTIONS) if kind == names.GPU_FRACTION else str(draw(st.integers(1, 100)) * of_device)}
        if draw(st.booleans()):
            asks[names.GPU_FRACTION_DEVICES] = str(draw(st.integers(1, 2)))
        groups.append(builders.pod_group(name, metadata={"creationTimestamp": "2026-01-01T00:00:00Z"}))
        pods.append(builders.pod(f"{name}-0", name, annotations=asks, labels={}))
    return Cluster(nodes, [queue], groups, pods)


@settings(max_examples=25)
@given(shares(), st.sampled_from(sorted(POLICIES)))
def test_the_judge_accepts_plans_with_shares_of_any_size(cluster: Cluster, policy: str) -> None:
    for cycle in range(2):
        snapshot = cluster.snapshot(NOW + cycle)
        plan = decide(snapshot, POLICIES[policy], NOW + cycle)
        assert [str(violation) for violation in verify(snapshot, plan)] == []
        cluster = carried_out(cluster, plan)
