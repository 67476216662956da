"""The order of a leaf queue after a gang was served equals the order made anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykai.engine.pending import LeafOrder
from pykai.engine.queues import Triple

AMOUNTS = st.integers(0, 3).map(float)


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS, AMOUNTS), min_size=1, max_size=8), st.data())
def test_served_gangs_leave_the_order_as_if_it_were_made_anew(requests: list[Triple], data: st.DataObject) -> None:
    gangs = list(range(len(requests)))
    order = LeafOrder.of(gangs, [(gang,) for gang in gangs], requests)
    for served in data.draw(st.permutations(gangs)):
        order = order.without(served)
        assert order == LeafOrder.of(order.gangs, order.keys, order.requests)
        assert served not in order.gangs
        assert order.requests == [requests[gang] for gang in order.gangs]
