"""Pods of a gang go to the best node one after the other, also where several nodes are taken in one go."""

from __future__ import annotations

import msgspec
import pytest

from pykai.objects.kinds import PodStatus

from .clusters import bound, gang, node, plan, pod


@pytest.mark.parametrize(("pods", "expected"), [(1, "a"), (2, "ab"), (3, "abb"), (4, "abbc")])
def test_a_node_for_several_pods_keeps_its_place_among_those_for_one(pods: int, expected: str) -> None:
    """a has one GPU and b two; c has many, but cores for one pod: like a it takes one pod, and is the last to use."""
    nodes = [node("a", gpus=1), node("b", gpus=2), node("c", gpus=8, cpu="1")]
    found = plan(*nodes, gang("g", minMember=pods), *(pod(f"g-{n}", gpus=1, cpu="1") for n in range(pods)))
    assert "".join(sorted(bound(found).values())) == expected


def test_pods_of_a_gang_go_to_the_nodes_they_were_nominated_for() -> None:
    wanted = {f"g-{at}": name for at, name in enumerate("dbca")}
    pods = [
        msgspec.structs.replace(pod(name, gpus=8), status=PodStatus(nominated_node_name=to))
        for name, to in wanted.items()
    ]
    assert bound(plan(*(node(name, gpus=8) for name in "abcdef"), gang("g", minMember=4), *pods)) == wanted


def test_devices_of_pods_that_were_placed_together_are_not_shared() -> None:
    """Each node has one device left, which a share takes on one of them: one more whole device is to be had."""
    nodes = [node(name, gpus=3) for name in "ab"]
    waiting = [gang("first", age=2, minMember=2), pod("first-0", gpus=2), pod("first-1", gpus=2)]
    waiting += [gang("part", age=1), pod("part-0", share="0.5")]
    waiting += [gang("whole", minMember=2), pod("whole-0", gpus=1), pod("whole-1", gpus=1)]
    assert bound(plan(*nodes, *waiting)).keys() == {"first-0", "first-1", "part-0"}


def test_a_gang_that_may_not_start_is_not_placed_together_either() -> None:
    settings = {"name": "init", "envFrom": [{"configMapRef": {"name": "missing"}}]}
    pods = [pod(f"g-{at}", gpus=8, spec={"initContainers": [settings]}) for at in range(2)]
    found = plan(node("a", gpus=8), node("b", gpus=8), gang("g", minMember=2), *pods)
    assert bound(found) == {}
    assert "Missing required configmaps: [missing]" in found.verdicts[0].message
