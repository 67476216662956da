"""Wherever the binder is killed or the server fails it, the end is the same.

The same work is done once undisturbed. Then again for every write: the binder dies at it, before or after it is carried
out, another binder takes over, and what users see in the end is compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pykai.kube.api import Deletion, Object, Patch
from pykai.kube.api_resources import BIND_REQUEST, POD
from pykai.kube.errors import ApiError, Conflict, NotFound, Timeout, TooManyRequests, Unavailable
from pykai.objects import names
from tests.virtual_time import settle

from .world import TEAM, World

pytestmark = pytest.mark.virtual_time

Story = Callable[[World], Awaitable[None]]
DEVICE = names.RESERVED_GPU_INDEX


async def arrival(world: World) -> None:
    """Pods of every kind come: sharing a device, sharing several, whole, and one that cannot be served."""
    await world.share("a", ["g"])
    await world.share("b", ["g"])
    await world.share("several", ["h", "i"])
    await world.request(await world.pod("whole"))
    await world.request(await world.pod("hopeless", annotations={names.GPU_FRACTION: "0.5"}), groups=["j"])


async def departure(world: World) -> None:
    """Of three devices, one loses all its pods, one loses one of two, one loses a pod that has finished."""
    for name, groups in {"a": ["g"], "b": ["g"], "c": ["h"], "d": ["i"], "e": ["i"]}.items():
        await world.share(name, groups)
    await world.start_binder()
    await world.stop_binder()
    for name in ("a", "b", "d"):
        await world.remove(name)
    await world.api.patch(POD.ref("c", TEAM).sub("status"), Patch.merge({"status": {"phase": "Succeeded"}}))


async def change_of_mind(world: World) -> None:
    """Requests are taken back half way: their pods were labelled, their reservations made, nothing bound."""
    await world.share("a", ["g"])
    await world.share("b", ["h"])
    world.kubelets.reserves = False
    await world.start_binder()
    await world.stop_binder()
    await world.kubelets.resume()
    for name in ("a", "b"):
        await world.api.patch(POD.ref(name, TEAM), Patch.merge({"metadata": {"labels": {names.GPU_GROUP_LABEL: "g"}}}))
    await world.api.delete(BIND_REQUEST.ref("a", TEAM))


async def check_devices(world: World) -> None:
    """One reservation per shared device, every sharer told its own group's device, nobody else there."""
    held: dict[tuple[str, str], str] = {}
    for pod in await world.reservations():
        key = pod["spec"]["nodeName"], pod["metadata"]["labels"][names.GPU_GROUP_LABEL]
        assert key not in held, f"two reservations for {key}"
        held[key] = pod["metadata"]["annotations"][DEVICE]
    assert not [device for device, count in Counter(held.values()).items() if count > 1]
    used = set()
    for pod in (await world.api.list(POD, Object)).items:
        groups = sorted(v for k, v in (pod["metadata"].get("labels") or {}).items() if k.startswith("runai-gpu-group"))
        if pod["metadata"]["namespace"] != TEAM or not groups or pod["status"]["phase"] in ("Succeeded", "Failed"):
            continue
        keys = [(pod["spec"]["nodeName"], group) for group in groups]
        used |= set(keys)
        told = (await world.told_devices(pod["metadata"]["name"])).split(",")
        assert sorted(told) == sorted(held[key] for key in keys)
    assert used == set(held)


async def undisturbed(story: Story) -> tuple[Object, int]:
    """What users see in the end, and how many writes it took."""
    async with World() as world:
        await story(world)
        api = await world.start_binder()
        await world.settle(300)
        await check_devices(world)
        return await world.picture(), len(api.writes)


async def killed_at(story: Story, last: int, after: bool) -> Object:
    """What users see in the end when the first binder dies at its `last`-th write."""
    async with World() as world:
        await story(world)
        api = await world.start_binder(last, after=after)
        await world.settle(300)
        assert api.dead
        await world.stop_binder()
        await world.start_binder()
        await world.settle(300)
        await check_devices(world)
        return await world.picture()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("story", [arrival, departure, change_of_mind])
async def test_a_binder_killed_at_any_write_is_replaced_without_a_trace(story: Story, after: bool) -> None:
    expected, writes = await undisturbed(story)
    assert writes > 1
    for last in range(1, writes + 1):
        assert await killed_at(story, last, after) == expected, f"killed at write {last} of {writes}"


_ERRORS: Sequence[type[ApiError]] = (Unavailable, Timeout, TooManyRequests, Conflict)
_TROUBLE = st.dictionaries(st.integers(1, 40), st.tuples(st.sampled_from(_ERRORS), st.booleans()), max_size=4)

_FEW = settings(max_examples=40, suppress_health_check=list(HealthCheck))


@_FEW
@given(trouble=_TROUBLE)
async def test_a_server_that_fails_at_random_writes_changes_nothing_in_the_end(
    trouble: dict[int, tuple[type[ApiError], bool]],
) -> None:
    expected, _ = await undisturbed(arrival)
    async with World() as world:
        api = await world.start_binder()
        count = 0

        def before(write: str) -> None:
            nonlocal count
            count += 1
            error, carried_out = trouble.get(count, (None, False))
            if error and not carried_out:
                raise error("trouble")

        def after(write: str) -> None:
            error, carried_out = trouble.get(count, (None, False))
            if error and carried_out:
                raise error("trouble")

        api.refuse, api.lose = before, after
        await arrival(world)
        await world.settle(600)
        await check_devices(world)
        assert await world.picture() == expected


class Days:
    """What may happen to shared devices, one thing after the other, with whatever binder there is at the time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.names: list[str] = []

    async def arrive(self, number: int) -> None:
        name, group = f"p{len(self.names)}", f"g{number % 4}"
        self.names.append(name)
        groups = [group, f"g{(number + 1) % 4}"] if number % 5 == 0 else [group]
        await self.world.share(name, groups)

    async def leave(self, number: int) -> None:
        await self._on_some(number, lambda name: self.world.remove(name))

    async def finish(self, number: int) -> None:
        done = Patch.merge({"status": {"phase": "Failed"}})
        await self._on_some(number, lambda name: self.world.api.patch(POD.ref(name, TEAM).sub("status"), done))

    async def withdraw(self, number: int) -> None:
        await self._on_some(number, lambda name: self.world.api.delete(BIND_REQUEST.ref(name, TEAM)))

    async def lose_reservation(self, number: int) -> None:
        found = await self.world.reservations()
        if found:
            name = found[number % len(found)]["metadata"]["name"]
            await self.world.api.delete(POD.ref(name, names.RESERVATION_NAMESPACE), Deletion(grace_seconds=0))

    async def kill(self, number: int) -> None:
        await self.world.stop_binder()
        await self.world.start_binder(number, after=number % 2 == 0)

    async def slow_down(self, number: int) -> None:
        self.world.seen_by_binder.turns = 2 * number

    async def pass_time(self, number: int) -> None:
        await self.world.settle(float(number))

    async def lag(self, number: int) -> None:
        """One of the binder's watches stops showing news, or shows them again."""
        self.world.seen_by_binder.late ^= {(POD, BIND_REQUEST)[number % 2]}

    async def compact(self, number: int) -> None:
        self.world.api.compact()
        self.world.api.disconnect()

    async def _on_some(self, number: int, act: Callable[[str], Awaitable[object]]) -> None:
        if self.names:
            with suppress(NotFound):
                await act(self.names[number % len(self.names)])


_HAPPENINGS = (Days.arrive, Days.arrive, Days.leave, Days.finish, Days.withdraw, Days.lose_reservation, Days.kill)
_DAYS = st.lists(
    st.tuples(
        st.sampled_from((*_HAPPENINGS, Days.pass_time, Days.compact, Days.lag, Days.slow_down)), st.integers(0, 20)
    ),
    max_size=25,
)


@settings(_FEW, max_examples=80)
@given(days=_DAYS)
@example(days=[(Days.slow_down, 3), (Days.arrive, 3), (Days.lose_reservation, 1)])
async def test_whatever_happens_devices_are_in_order_in_the_end(
    days: list[tuple[Callable[[Days, int], Awaitable[None]], int]],
) -> None:
    async with World({"n1": 4}) as world:
        await world.start_binder()
        story = Days(world)
        for happen, number in days:
            await happen(story, number)
            await settle(10 * number)
        await world.stop_binder()
        await world.start_binder()
        await world.settle(400)
        await check_devices(world)
        phases = {
            (each.get("status") or {}).get("phase") for each in (await world.api.list(BIND_REQUEST, Object)).items
        }
        assert phases <= {"Succeeded", "Failed"}
