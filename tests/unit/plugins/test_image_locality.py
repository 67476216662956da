"""Images that nodes have already: which nodes are preferred, and that the table of nodes keeps up with them."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.cache.cluster import Change, ClusterCache
from pykai.config.scheduler_config import SchedulerConfig, params_for, policy
from pykai.engine.cycle import Cycle
from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.model.params import SchedulerParams
from pykai.objects import kinds
from pykai.plugins.preferences import MEBIBYTE, ImageLocality, images_of
from pykai.plugins.registry import BUILT_IN, make, make_all
from tests import builders
from tests.builders import NOW, Manifest, decoded

SEEING = SchedulerParams(partitioned=False, image_locality=True)
GIB = 1024


def node(name: str, **images: float) -> Manifest:
    """A node with images of so many MiB; `__` stands for the colon before the tag."""
    made = builders.node(name)
    listed = [{"names": [key.replace("__", ":")], "sizeBytes": int(size * MEBIBYTE)} for key, size in images.items()]
    made["status"]["images"] = listed
    return made


def pod(*images: str, init: tuple[str, ...] = ()) -> Manifest:
    made = builders.pod("p", "g")
    made["spec"]["containers"] = [{"name": f"c{at}", "image": image} for at, image in enumerate(images)]
    made["spec"]["initContainers"] = [{"name": f"i{at}", "image": image} for at, image in enumerate(init)]
    return made


def scores(nodes: list[Manifest], wanted: Manifest, params: SchedulerParams = SEEING) -> list[float] | None:
    objects = [*nodes, builders.queue(), builders.pod_group("g"), wanted]
    snapshot = builders.snapshot(map(decoded, objects), params=params)
    cycle = Cycle(snapshot, Policy((ImageLocality(),)), now=NOW)
    (row,) = [at for at, name in enumerate(snapshot.pods.names) if name == "p"]
    if not ImageLocality().concerns(cycle, snapshot.pods.of_class(row)):
        return None
    found = ImageLocality().pod_score(cycle, row)
    return None if found is None else found.tolist()


@pytest.mark.parametrize(
    ("nodes", "wanted", "expected"),
    [
        # half of the nodes have 1,000 MiB: 500 MiB count, of 23 to 1,000
        ([node("a", app__v1=1000), node("b")], pod("app:v1"), [48, 0]),
        ([node("a", app__v1=1000), node("b", app__v1=1000)], pod("app:v1"), None),
        ([node("a", app__v1=1000), node("b")], pod("other:v1"), None),
        ([node("a", app__latest=1000), node("b")], pod("app"), [48, 0]),
        ([node("a", app__v1=40), node("b")], pod("app:v1"), [0, 0]),
        ([node("a", app__v1=9 * GIB), node("b")], pod("app:v1"), [100, 0]),
        ([node("a", app__v1=1000), node("b", tool__v1=500)], pod("app:v1", init=("tool:v1",)), [24, 11]),
        ([node("a"), node("b")], pod("app:v1"), None),
    ],
)
def test_nodes_that_have_the_images_score_by_their_size(
    nodes: list[Manifest], wanted: Manifest, expected: list[float] | None
) -> None:
    assert scores(nodes, wanted) == expected


def test_it_is_off_unless_the_plugin_is_configured() -> None:
    nodes = [node("a"), node("b", app__v1=1000)]
    assert scores(nodes, pod("app:v1"), SchedulerParams(partitioned=False)) is None
    usual = policy(SchedulerConfig(), make, BUILT_IN)
    asked = policy(SchedulerConfig(), make, (*BUILT_IN, "imagelocality"))
    assert [params_for(each, SchedulerParams()).image_locality for each in (usual, asked)] == [False, True]


def test_the_node_with_the_image_is_chosen() -> None:
    objects = [node("a"), node("b", app__v1=1000), builders.queue(), builders.pod_group("g"), pod("app:v1")]
    for names, params, expected in (
        (BUILT_IN, SchedulerParams(partitioned=False), "a"),
        ((*BUILT_IN, "imagelocality"), SEEING, "b"),
    ):
        snapshot = builders.snapshot(map(decoded, objects), params=params)
        plan = decide(snapshot, Policy(make_all([(name, {}) for name in names])), now=NOW)
        assert [bind.node for bind in plan.binds] == [expected]


@pytest.mark.parametrize(("params", "seen"), [(SEEING, True), (SchedulerParams(partitioned=False), False)])
def test_the_table_of_nodes_follows_images_only_where_they_are_read(params: SchedulerParams, seen: bool) -> None:
    cache = ClusterCache(params)
    cache.apply(Change(decoded(node("a"))))
    before = cache.snapshot(NOW).nodes
    cache.apply(Change(decoded(node("a", app__v1=1000))))
    after = cache.snapshot(NOW).nodes
    assert (after is not before) is seen
    assert ("app:v1" in str([bytes(each) for each in after.images])) is seen


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b'[{"image": "app"}]', ("app:latest",)),
        (b'[{"image": "host:5000/app"}]', ("host:5000/app:latest",)),
        (b'[{"image": "host:5000/app:v1"}]', ("host:5000/app:v1",)),
        (b'[{"image": "app@sha256:00"}]', ("app@sha256:00",)),
        (b'[{"image": null}, {}]', ()),
        (b"null", ()),
        (b"", ()),
    ],
)
def test_names_of_images(written: bytes, expected: tuple[str, ...]) -> None:
    assert images_of(b"", written) == expected


def test_a_node_may_list_anything() -> None:
    odd: Any = builders.node("a")
    odd["status"]["images"] = [{"sizeBytes": 1}, {"names": None}, {"names": ["app:v1"]}]
    assert scores([odd, node("b")], pod("app:v1")) == [0, 0]
    assert isinstance(decoded(odd), kinds.Node)
