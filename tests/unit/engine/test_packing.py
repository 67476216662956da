"""Pods of a gang go to the best node one after the other, also where several nodes are taken in one go."""

from __future__ import annotations

import msgspec
import pytest

from pykai.objects.kinds import PodStatus

from .test_plans import bound, gang, node, plan, pod


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
