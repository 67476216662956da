"""Binding a pod when another client was faster, and which of several reservation pods counts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from pykai.controllers.binder.binding import BindAttempt, BindError, bind_pod
from pykai.controllers.binder.device_index import GroupKey
from pykai.controllers.binder.reservations import joinable, reservation_name
from pykai.kube.errors import Conflict
from pykai.kube.memory import MemoryApi
from pykai.objects import kinds, names
from tests import builders


class ConflictingApi(MemoryApi):
    """Refuses every bind with a conflict; a read shows `pod`."""

    def __init__(self, pod: kinds.Pod) -> None:
        super().__init__(lambda: 0.0)
        self.pod = pod

    async def post(self, *_: Any) -> Any:
        raise Conflict("the object has been modified")

    async def get(self, *_: Any) -> Any:
        return self.pod


def attempt() -> BindAttempt:
    pod = builders.decoded(builders.pod("p", "g"))
    request = kinds.BindRequest(pod.metadata, kinds.BindRequestSpec(pod_name="p", selected_node="n"))
    return BindAttempt(request, pod, builders.decoded(builders.node("n")))


async def bound(**changes: Any) -> str:
    """The outcome of a bind that conflicts with a pod of these changes."""
    trying = attempt()
    pod = trying.pod
    meta = structs.replace(pod.metadata, **{key: changes[key] for key in changes if key != "node_name"})
    spec = structs.replace(pod.spec, node_name=changes.get("node_name", ""))
    return await bind_pod(ConflictingApi(structs.replace(pod, metadata=meta, spec=spec)), trying)


async def test_a_pod_that_another_client_bound_is_on_its_node() -> None:
    assert await bound(node_name="elsewhere") == "elsewhere"


async def test_a_conflict_about_a_pod_that_waits_on_is_tried_again() -> None:
    with pytest.raises(Conflict):
        await bound()


@pytest.mark.parametrize("change", [{"deletion_timestamp": datetime(2026, 1, 1, tzinfo=UTC)}, {"uid": "another"}])
async def test_a_pod_that_leaves_or_was_replaced_is_not_bound(change: dict[str, Any]) -> None:
    with pytest.raises(BindError):
        await bound(**change)


@pytest.mark.parametrize("others", [("a",), ("z",), ("a", "z")])
def test_of_several_reservation_pods_the_one_of_our_name_counts(others: tuple[str, ...]) -> None:
    key = GroupKey("n", "device")
    known = {names.RESERVED_GPU_INDEX: "GPU-1"}
    made = [builders.pod(name, node="n", annotations=known) for name in (*others, reservation_name(key))]
    found = joinable(key, tuple(map(builders.decoded, made)))
    assert found is not None
    assert found.metadata.name == reservation_name(key)
