"""Leader election: who leads when."""

from __future__ import annotations

import asyncio
import time

import pytest

from pykai.kube.api import Body, Object, Patch, Ref
from pykai.kube.api_resources import LEASE, SERVICE_ACCOUNT
from pykai.kube.errors import NotFound, Unavailable
from pykai.kube.lease import LEASE_SECONDS, RENEW_SECONDS, Election, LeadershipLost, scheduler_lease
from pykai.kube.memory import MemoryApi
from pykai.objects.names import is_subdomain

from .flaky import until

pytestmark = pytest.mark.virtual_time

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
    await asyncio.sleep(600)


async def test_the_holder_renews_and_the_others_wait(api: CutOffApi) -> None:
    one, two = Election(api, REF, "one"), Election(api, REF, "two")
    leader = asyncio.create_task(one.run(forever))
    await until(lambda: one.leading)
    waiting = asyncio.create_task(two.run(forever))
    first = await api.get(REF, Object)
    await asyncio.sleep(2 * LEASE_SECONDS)
    assert (one.leading, two.leading) == (True, False)
    after = await api.get(REF, Object)
    assert after["spec"]["renewTime"] > first["spec"]["renewTime"]
    assert after["spec"]["acquireTime"] == first["spec"]["acquireTime"]
    leader.cancel()
    await until(lambda: two.leading)
    waiting.cancel()


def test_each_node_pool_has_a_lease_of_its_own() -> None:
    """Also where its label value is no valid name of an object."""
    found = [scheduler_lease("kai-scheduler", pool) for pool in ("", "a100", "A100")]
    assert found[:2] == ["kai-scheduler", "kai-scheduler-a100"]
    assert is_subdomain(found[2])
    assert len(set(found)) == 3


async def test_an_expired_lease_is_taken_over_at_once(api: CutOffApi) -> None:
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 5, "leaseTransitions": 4, "renewTime": None}
    await api.create(LEASE, {"metadata": {"name": "leader"}, "spec": spec}, "default")
    began = asyncio.get_running_loop().time()
    one = Election(api, REF, "one")
    await one.acquire()
    waited = asyncio.get_running_loop().time() - began
    assert waited == pytest.approx(5), "not only at the next turn to retry, after 6"
    after = (await api.get(REF, Object))["spec"]
    assert (after["holderIdentity"], after["leaseTransitions"]) == ("one", 5)


async def owned(api: CutOffApi) -> None:
    """Make the lease as an operator does: with an owner, and without a word on who holds it."""
    made = await api.patch(SERVICE_ACCOUNT.ref("owner", "default"), Patch.apply({"metadata": {"name": "owner"}}, "op"))
    owner = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "owner", "uid": made["metadata"]["uid"]}
    metadata = {"name": "leader", "labels": {"app": "x"}, "ownerReferences": [owner]}
    await api.patch(REF, Patch.apply({"metadata": metadata}, "op"))


async def gone(api: CutOffApi) -> bool:
    try:
        await api.get(REF, Object)
    except NotFound:
        return True
    return False


async def test_a_lease_made_for_replicas_is_taken_as_it_is(api: CutOffApi) -> None:
    await owned(api)
    before = (await api.get(REF, Object))["metadata"]
    one = Election(api, REF, "one")
    task = asyncio.create_task(one.run(forever))
    await until(lambda: one.leading)
    await asyncio.sleep(0.1)
    await owned(api)  # whoever made it may say so again
    held = await api.get(REF, Object)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    after = await api.get(REF, Object)
    for lease in (held, after):
        assert [lease["metadata"][name] for name in ("uid", "labels", "ownerReferences")] == [
            before[name] for name in ("uid", "labels", "ownerReferences")
        ]
    spec = held["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"], after["spec"]["holderIdentity"]) == ("one", 0, "")


async def test_nobody_makes_a_lease_anew_whose_owner_is_gone(api: CutOffApi) -> None:
    await owned(api)
    one, two = (Election(api, REF, name) for name in ("one", "two"))
    leader, waiting = asyncio.create_task(one.run(forever)), asyncio.create_task(two.run(forever))
    await until(lambda: one.leading or two.leading)
    await asyncio.sleep(0.1)
    await api.delete(SERVICE_ACCOUNT.ref("owner", "default"))
    with pytest.raises(LeadershipLost):
        await (leader if one.leading else waiting)
    assert await gone(api)
    await owned(api)
    await until(lambda: one.leading or two.leading)
    leader.cancel()
    waiting.cancel()


async def test_a_leader_makes_a_lost_lease_of_its_own_again(api: CutOffApi) -> None:
    one = Election(api, REF, "one")
    task = asyncio.create_task(one.run(forever))
    await until(lambda: one.leading)
    await api.delete(REF)
    await asyncio.sleep(2 * RENEW_SECONDS)
    assert one.leading
    assert (await api.get(REF, Object))["spec"]["holderIdentity"] == "one"
    task.cancel()


async def test_a_leader_that_cannot_renew_stops_before_its_lease_ends(api: CutOffApi) -> None:
    stopped: list[float] = []

    async def lead() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            stopped.append(asyncio.get_running_loop().time())

    one = Election(api, REF, "one")
    task = asyncio.create_task(one.run(lead))
    await until(lambda: one.leading)
    api.cut_off = True
    cut = asyncio.get_running_loop().time()
    with pytest.raises(LeadershipLost, match="one could not renew"):
        await task
    assert stopped[0] - cut < LEASE_SECONDS
    assert not one.leading


async def test_somebody_elses_write_ends_a_reign(api: CutOffApi) -> None:
    one = Election(api, REF, "one")
    task = asyncio.create_task(one.run(forever))
    await until(lambda: one.leading)
    await api.patch(REF, Patch.merge({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 60}}))
    stolen = asyncio.get_running_loop().time()
    with pytest.raises(LeadershipLost):
        await task
    assert asyncio.get_running_loop().time() - stolen < RENEW_SECONDS / 2, "at once, not when its own time is up"
    assert (await api.get(REF, Object))["spec"]["holderIdentity"] == "thief"


class SlowApi(MemoryApi):
    """A server whose answers take so long that a replica is stopped before it hears that it wrote a lease."""

    silent = False

    async def update(self, ref: Ref, body: Body) -> Object:
        written = await super().update(ref, body)
        while self.silent:
            await asyncio.sleep(0.01)
        return written


class LateApi(MemoryApi):
    """A server that writes the lease for a replica once and answers `late` seconds later; then it refuses it."""

    def __init__(self, replica: str, late: float) -> None:
        super().__init__(time.time)
        self.replica = replica
        self.late = [late]

    async def update(self, ref: Ref, body: Body) -> Object:
        assert isinstance(body, dict)
        if body["spec"]["holderIdentity"] != self.replica:
            return await super().update(ref, body)
        if not self.late:
            raise Unavailable("cut off")
        late, written = self.late.pop(), await super().update(ref, body)
        await asyncio.sleep(late)
        return written


async def test_a_renewal_counts_from_when_it_was_sent() -> None:
    api, ended = LateApi("one", 9.0), []
    clock = asyncio.get_running_loop().time

    async def lead() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(clock())

    spec = {"holderIdentity": "", "leaseDurationSeconds": 1}
    await api.create(LEASE, {"metadata": {"name": "leader"}, "spec": spec}, "default")
    one, two = (Election(api, REF, name) for name in ("one", "two"))
    leader = asyncio.create_task(one.run(lead))
    await asyncio.sleep(1)
    await two.acquire()
    began = clock()
    with pytest.raises(LeadershipLost):
        await leader
    assert ended[0] < began


async def test_who_hears_too_late_that_it_holds_the_lease_does_not_lead() -> None:
    api = LateApi("one", 40.0)
    spec = {"holderIdentity": "", "leaseDurationSeconds": 1}
    await api.create(LEASE, {"metadata": {"name": "leader"}, "spec": spec}, "default")
    one, two = (Election(api, REF, name) for name in ("one", "two"))
    slow = asyncio.create_task(one.acquire())
    await asyncio.sleep(1)
    leader = asyncio.create_task(two.run(forever))
    await asyncio.sleep(45)
    assert (one.leading, two.leading) == (False, True)
    slow.cancel()
    leader.cancel()


async def test_a_replica_that_is_stopped_while_it_renews_releases_the_lease() -> None:
    api = SlowApi(time.time)
    one = Election(api, REF, "one")
    leader = asyncio.create_task(one.run(forever))
    await until(lambda: one.leading)
    first = await api.get(REF, Object)
    api.silent = True
    while (await api.get(REF, Object))["spec"] == first["spec"]:
        await asyncio.sleep(0.005)
    leader.cancel()
    api.silent = False
    await asyncio.gather(leader, return_exceptions=True)
    assert (await api.get(REF, Object))["spec"]["holderIdentity"] == ""


async def test_an_error_of_the_work_is_passed_on_and_the_lease_released(api: CutOffApi) -> None:
    async def fail() -> None:
        raise KeyError("work")

    with pytest.raises(KeyError):
        await Election(api, REF, "one").run(fail)
    assert (await api.get(REF, Object))["spec"]["holderIdentity"] == ""
