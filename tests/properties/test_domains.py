"""The domain kernels agree with their slow twins, and figures that follow a trial are those of a fresh look."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.kernels import domains as kernel
from pykai.kernels import reference
from pykai.kernels.domains import DomainTree

Values = list[list[str | None]]
RESOURCES = 3

labels = st.sampled_from(["a", "b", "c", "b-1", "c.x", "10", "9"])
amounts = st.one_of(st.integers(-2, 20), st.sampled_from([0.25, 0.5, 7.5]))
needs = st.lists(st.sampled_from([1.0, 2.0, 3.0, 0.5]), min_size=RESOURCES, max_size=RESOURCES)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Values, np.ndarray]:
    """Labels `[level][node]`, some missing, and free amounts `[resource, node]`."""
    nodes, levels = draw(st.integers(0, 12)), draw(st.integers(1, 3))
    value = st.one_of(labels, st.none()) if draw(st.booleans()) else labels
    values = [draw(st.lists(value, min_size=nodes, max_size=nodes)) for _ in range(levels)]
    free = [draw(st.lists(amounts, min_size=nodes, max_size=nodes)) for _ in range(RESOURCES)]
    return values, np.array(free, dtype=np.float64).reshape(RESOURCES, nodes)


def paths(tree: DomainTree, values: Values, depth: int) -> list[reference.Path]:
    """The domains of a depth, in the kernel's numbering."""
    if depth == 0:
        return [()]
    first = tree.order[tree.starts[depth]].tolist()
    return [tuple(str(column[node]) for column in values[:depth]) for node in first]


@settings(max_examples=300)
@given(clusters())
def test_every_domain_is_a_slice_with_the_nodes_of_the_twin(cluster: tuple[Values, np.ndarray]) -> None:
    values, free = cluster
    tree = kernel.domain_tree(values)
    expected = reference.domain_nodes(values, range(free.shape[1]))
    found = {
        path: sorted(tree.members(depth, domain).tolist())
        for depth in range(len(values) + 1)
        for domain, path in enumerate(paths(tree, values, depth))
    }
    assert found == expected


@settings(max_examples=300)
@given(clusters(), needs, needs)
def test_figures_order_and_scores_are_those_of_the_twin(
    cluster: tuple[Values, np.ndarray], need: list[float], total: list[float]
) -> None:
    values, free = cluster
    deepest = len(values)
    tree = kernel.domain_tree(values)
    members = reference.domain_nodes(values, range(free.shape[1]))
    room = kernel.pods_per_node(free[:, tree.order], np.array(need))
    sums = kernel.sums_by_depth(tree, deepest, np.concatenate((room[None], free[:, tree.order])))
    tight = {
        path: reference.domain_tightness(total, free[:, nodes].sum(axis=1).tolist()) for path, nodes in members.items()
    }
    ratios = [kernel.tightness(np.array(total), np.array(figures[1:])) for figures in sums]
    for depth in range(deepest + 1):
        for at, path in enumerate(paths(tree, values, depth)):
            expected = sum(reference.pods_on_node(free[:, node].tolist(), need) for node in members[path])
            assert sums[depth][0][at] == expected
            assert ratios[depth][at] == tight[path]
            assert kernel.tightness_of(total, [column[at] for column in sums[depth][1:]]) == tight[path]
    in_order = kernel.TreeOrder(tree, [column.tolist() for column in ratios])
    for depth in range(1, deepest + 1):
        order, numbered = in_order.level(depth), paths(tree, values, depth)
        expected_order = reference.domains_in_order(tight, depth)
        assert [numbered[domain] for domain in order] == expected_order
        scores = reference.domain_scores(expected_order)
        by_position = kernel.position_scores(tree, depth, order).tolist()
        by_node = dict(zip(tree.order.tolist(), by_position, strict=True))
        assert by_node == {node: score for path, score in scores.items() for node in members[path]}


@settings(max_examples=200)
@given(clusters(), needs, st.data())
def test_what_changes_is_added_up_and_put_in_order_as_if_from_scratch(
    cluster: tuple[Values, np.ndarray], total: list[float], data: st.DataObject
) -> None:
    values, free = cluster
    tree, deepest = kernel.domain_tree(values), data.draw(st.integers(1, len(values)))
    figures = free[:, tree.order]
    sums = kernel.sums_by_depth(tree, deepest, figures)

    def tight() -> list[list[float]]:
        return [kernel.tightness(np.array(total), np.array(block)).tolist() for block in sums]

    order = kernel.TreeOrder(tree, tight())
    for _ in range(3):
        before = order.level(deepest)
        changed = data.draw(st.sets(st.sampled_from(range(len(tree.order))))) if len(tree.order) else set()
        for position in changed:
            figures[0, position] = float(data.draw(amounts))
        kernel.sum_again(tree, figures, sums, {tree.around[deepest][position] for position in changed})
        assert sums == kernel.sums_by_depth(tree, deepest, figures)
        for depth, ratios in enumerate(tight()):
            for domain, ratio in enumerate(ratios):
                order.put(depth, domain, ratio)
        assert order.level(deepest) == kernel.TreeOrder(tree, tight()).level(deepest)
        assert changed or order.level(deepest) == before


@settings(max_examples=200)
@given(clusters(), st.data())
def test_a_part_of_a_tree_is_the_tree_of_the_part(cluster: tuple[Values, np.ndarray], data: st.DataObject) -> None:
    values, _ = cluster
    whole = kernel.domain_tree(values)
    kept = sorted(data.draw(st.sets(st.sampled_from(range(len(whole.order))))) if len(whole.order) else [])
    part = kernel.within(whole, kept)
    rows = set(whole.order[kept].tolist())
    alone = kernel.domain_tree([[v if at in rows else None for at, v in enumerate(column)] for column in values])
    assert part.order.tolist() == alone.order.tolist()
    for ours, theirs in ((part.starts, alone.starts), (part.parents, alone.parents), (part.children, alone.children)):
        assert [a.tolist() for a in ours] == [b.tolist() for b in theirs]


@settings(max_examples=200)
@given(clusters(), st.integers(0, 3))
def test_one_domain_holds_all_nodes_down_to_the_common_depth(cluster: tuple[Values, np.ndarray], most: int) -> None:
    values, free = cluster
    deepest = min(most, len(values))
    members = reference.domain_nodes(values, range(free.shape[1]))
    single = [sum(len(path) == depth for path in members) == 1 for depth in range(deepest + 1)]
    expected = next((depth - 1 for depth, alone in enumerate(single) if not alone), deepest)
    assert kernel.common_depth(kernel.domain_tree(values), deepest) == expected
