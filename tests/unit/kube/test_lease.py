"""Leader election: who leads when, with short terms."""

from __future__ import annotations

import asyncio
import time

import pytest

from pykai.kube.api import Body, Object, Patch, Ref
from pykai.kube.errors import Unavailable
from pykai.kube.events import EventRecorder
from pykai.kube.lease import Election, LeadershipLost, Term
from pykai.kube.memory import MemoryApi
from pykai.kube.resources import EVENT, LEASE

from .flaky import until

TERM = Term(lease_seconds=1, renew_seconds=0.2, retry_seconds=0.02)
REF = LEASE.ref("leader", "default")


class CutOffApi(MemoryApi):
    """A server whose leases one replica can no longer write."""

    cut_off = False

    async def update(self, ref: Ref, body: Body) -> Object:
        if self.cut_off:
            raise Unavailable("cut off")
        return await super().update(ref, body)


@pytest.fixture
def api() -> CutOffApi:
    return CutOffApi(time.time)


async def forever() -> None:
    await asyncio.sleep(60)


async def test_the_holder_renews_and_the_others_wait(api: CutOffApi) -> None:
    one, two = Election(api, REF, "one", time.time, TERM), Election(api, REF, "two", time.time, TERM)
    leader = asyncio.create_task(one.run(forever))
    await until(lambda: one.leading)
    waiting = asyncio.create_task(two.run(forever))
    first = await api.get(REF, Object)
    await asyncio.sleep(1.3)
    assert (one.leading, two.leading) == (True, False)
    after = await api.get(REF, Object)
    assert after["spec"]["renewTime"] > first["spec"]["renewTime"]
    assert after["spec"]["acquireTime"] == first["spec"]["acquireTime"]
    leader.cancel()
    await until(lambda: two.leading)
    waiting.cancel()


async def test_an_expired_lease_is_taken_over_at_once(api: CutOffApi) -> None:
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "leaseTransitions": 4, "renewTime": None}
    await api.create(LEASE, {"metadata": {"name": "leader"}, "spec": spec}, "default")
    began = time.monotonic()
    one = Election(api, REF, "one", time.time, Term(lease_seconds=1, renew_seconds=0.9, retry_seconds=0.8))
    await asyncio.wait_for(one.acquire(), 3)
    assert 0.9 <= time.monotonic() - began < 1.4, "not only at the next turn to retry"
    after = (await api.get(REF, Object))["spec"]
    assert (after["holderIdentity"], after["leaseTransitions"]) == ("one", 5)


async def test_a_leader_that_cannot_renew_stops_before_its_lease_ends(api: CutOffApi) -> None:
    stopped: list[float] = []

    async def lead() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(time.monotonic())

    one = Election(api, REF, "one", time.time, TERM)
    task = asyncio.create_task(one.run(lead))
    await until(lambda: one.leading)
    api.cut_off = True
    cut = time.monotonic()
    with pytest.raises(LeadershipLost, match="one could not renew"):
        await task
    assert stopped[0] - cut < TERM.lease_seconds
    assert not one.leading


async def test_somebody_elses_write_ends_a_reign(api: CutOffApi) -> None:
    one = Election(api, REF, "one", time.time, TERM)
    task = asyncio.create_task(one.run(forever))
    await until(lambda: one.leading)
    await api.patch(REF, Patch.merge({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 60}}))
    with pytest.raises(LeadershipLost):
        await task
    assert (await api.get(REF, Object))["spec"]["holderIdentity"] == "thief"


async def test_an_error_of_the_work_is_passed_on_and_the_lease_released(api: CutOffApi) -> None:
    async def fail() -> None:
        raise KeyError("work")

    with pytest.raises(KeyError):
        await Election(api, REF, "one", time.time, TERM).run(fail)
    assert (await api.get(REF, Object))["spec"]["holderIdentity"] == ""


async def test_the_new_leader_is_announced(api: CutOffApi) -> None:
    async def work() -> None:
        return

    recorder = EventRecorder(api, "scheduler", time.time)
    await Election(api, REF, "one", time.time, TERM).run(work, recorder)
    await recorder.flush()
    (event,) = (await api.list(EVENT, Object)).items
    assert (event["reason"], event["message"]) == ("LeaderElection", "one became leader")
    assert event["involvedObject"]["kind"] == "Lease"


@pytest.mark.parametrize("times", [(10, 10.0, 2.0), (15, 2.0, 2.0), (15, 10.0, 0.0)])
def test_terms_that_cannot_work_are_refused(times: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match="leader election"):
        Term(*times)
