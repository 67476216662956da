"""A shared watch tells every object's life once and in order, whatever happens to its connection."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from pykai.kube.api import Object, Patch, Resource, Selection
from pykai.kube.api_resources import CONFIG_MAP, CRD, POD
from pykai.kube.errors import Forbidden, Gone, NotFound, Timeout, TooManyRequests, Unauthorized, Unavailable
from pykai.kube.informer import ABSENT_SECONDS, PAGE_SIZE, InformerFactory, InformerState, SharedInformer
from pykai.kube.informer_store import WatchChange
from tests.permissive_crd import permissive_crd
from tests.virtual_time import set_jitter

from .flaky import FlakyApi, config_map, running, until

pytestmark = pytest.mark.virtual_time

DEFAULT = Selection("default")


@pytest.fixture
def api() -> FlakyApi:
    return FlakyApi()


@pytest.fixture
def told() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def watch(api: FlakyApi, told: list[tuple[str, str]]) -> SharedInformer[Object]:
    shared = SharedInformer(api, CONFIG_MAP, Object, DEFAULT)
    shared.subscribe(lambda change: told.append((change.type.value, change.key[1])))
    return shared


async def test_it_follows_in_pages(api: FlakyApi, watch: SharedInformer[Object], told: list[tuple[str, str]]) -> None:
    for index in range(2 * PAGE_SIZE + 1):
        await api.create(CONFIG_MAP, config_map(f"a{index}"), "default")
    async with running(watch.run()):
        await watch.synced()
        assert (api.lists, len(watch), watch.state) == (3, 2 * PAGE_SIZE + 1, InformerState.LIVE)
        await api.create(CONFIG_MAP, config_map("late"), "default")
        await until(lambda: watch.get("late", "default") is not None)
    assert sorted(told[:-1]) == sorted(("ADDED", f"a{index}") for index in range(2 * PAGE_SIZE + 1))
    assert told[-1] == ("ADDED", "late")


def _watched(api: FlakyApi, times: int) -> bool:
    return api.watches > times


async def test_a_stream_that_ends_goes_on_without_a_list(
    api: FlakyApi, watch: SharedInformer[Object], told: list[tuple[str, str]]
) -> None:
    async with running(watch.run()):
        await watch.synced()
        for index in range(5):
            await until(partial(_watched, api, index))
            api.disconnect()
            await api.create(CONFIG_MAP, config_map(f"a{index}"), "default")
        await until(lambda: len(watch) == 5)
    assert told == [("ADDED", f"a{index}") for index in range(5)]
    assert api.lists == 1


async def test_gone_means_a_list_and_its_difference(
    api: FlakyApi, watch: SharedInformer[Object], told: list[tuple[str, str]]
) -> None:
    for name in ("keep", "change", "drop", "again"):
        await api.create(CONFIG_MAP, config_map(name), "default")
    async with running(watch.run()):
        await watch.synced()
        await until(lambda: api.watches == 1)
        told.clear()
        api.watch_failures = [Unavailable("down"), Unavailable("down")]
        api.disconnect()
        await api.patch(CONFIG_MAP.ref("change", "default"), Patch.merge({"data": {"x": "1"}}))
        for name in ("drop", "again"):
            await api.delete(CONFIG_MAP.ref(name, "default"))
        for name in ("new", "again"):
            await api.create(CONFIG_MAP, config_map(name), "default")
        api.compact()
        await until(lambda: watch.get("new", "default") is not None)
        assert watch.alive
    expected = [("MODIFIED", "change"), ("DELETED", "drop"), ("DELETED", "again"), ("ADDED", "again"), ("ADDED", "new")]
    assert sorted(told) == sorted(expected)
    assert told.index(("DELETED", "again")) < told.index(("ADDED", "again"))


async def test_a_bookmark_saves_the_list(api: FlakyApi, watch: SharedInformer[Object]) -> None:
    async with running(watch.run()):
        await watch.synced()
        await until(lambda: api.watches == 1)
        for index in range(3):
            await api.create(POD, {"metadata": {"name": f"p{index}"}, "spec": _SPEC}, "default")
        api.bookmark()
        api.compact()
        await until(lambda: watch._version == str(api._core.store.log.revision))
        api.disconnect()
        await until(lambda: api.watches == 2)
        await api.create(CONFIG_MAP, config_map("a"), "default")
        await until(lambda: len(watch) == 1)
    assert api.lists == 1


_SPEC = {"containers": [{"name": "c", "image": "i"}]}


async def test_trouble_is_survived_and_shown(api: FlakyApi, watch: SharedInformer[Object]) -> None:
    api.list_failures = [Unavailable("down"), Forbidden("no"), TooManyRequests("busy"), Timeout("slow"), Gone("late")]
    assert not watch.alive
    async with running(watch.run()):
        await until(lambda: watch.state is InformerState.LOST)
        assert "configmaps" in watch.problem
        await watch.synced()
        assert (watch.alive, watch.problem) == (True, "")
        await until(lambda: api.watches == 1)
        api.watch_failures = [Unavailable("down again")] * 3
        api.disconnect()
        await until(lambda: watch.state is InformerState.LOST)
        assert watch.problem == "configmaps: down again"
        await until(lambda: watch.alive)


async def test_a_stream_that_breaks_goes_on_and_stays_alive(api: FlakyApi, watch: SharedInformer[Object]) -> None:
    states: set[InformerState] = set()
    api.stream_failures = [Timeout("silent"), Unavailable("reset"), Timeout("silent")]
    async with running(watch.run()):
        await watch.synced()
        await until(lambda: states.add(watch.state) or api.watches == 4)  # type: ignore[func-returns-value]
        await api.create(CONFIG_MAP, config_map("a"), "default")
        await until(lambda: len(watch) == 1)
    assert (states, api.lists) == ({InformerState.LIVE}, 1)


async def test_refused_credentials_end_the_watch_only_when_persistent(
    api: FlakyApi, watch: SharedInformer[Object]
) -> None:
    api.list_failures = [Unauthorized("who?"), Unauthorized("who?")]
    async with running(watch.run()) as task:
        await watch.synced()
        api.watch_failures = [Unauthorized("who?")] * 3
        api.disconnect()
        with pytest.raises(Unauthorized):
            await task


async def test_a_handler_that_fails_ends_the_watch(api: FlakyApi, watch: SharedInformer[Object]) -> None:
    def refuse(change: WatchChange[Object]) -> None:
        raise RuntimeError(f"cannot take {change.key[1]}")

    watch.subscribe(refuse)
    await api.create(CONFIG_MAP, config_map("a"), "default")
    with pytest.raises(RuntimeError, match="cannot take a"):
        await watch.run()


async def test_late_subscribers_begin_with_what_is(api: FlakyApi, watch: SharedInformer[Object]) -> None:
    await api.create(CONFIG_MAP, config_map("a"), "default")
    async with running(watch.run()):
        await watch.synced()
        late: list[tuple[str, str]] = []
        leave = watch.subscribe(lambda change: late.append((change.type.value, change.key[1])))
        await api.create(CONFIG_MAP, config_map("b"), "default")
        await until(lambda: len(late) == 2)
        leave()
        await api.create(CONFIG_MAP, config_map("c"), "default")
        await until(lambda: len(watch) == 3)
    assert late == [("ADDED", "a"), ("ADDED", "b")]


# --------------------------------------------------------------------------------------------------- many watches
WIDGET = Resource("example.org", "v1", "widgets", "Widget", False)


async def test_one_watch_per_kind(api: FlakyApi) -> None:
    watches = InformerFactory(api)
    assert watches.of(CONFIG_MAP, Object) is watches.of(CONFIG_MAP, Object)
    assert watches.of(CONFIG_MAP, Object, DEFAULT) is not watches.of(CONFIG_MAP, Object)
    with pytest.raises(ValueError, match="configmaps is already watched"):
        watches.of(CONFIG_MAP, dict)


async def test_ready_means_all_alive(api: FlakyApi) -> None:
    watches = InformerFactory(api)
    watches.of(CONFIG_MAP, Object)
    watches.of(POD, Object)
    assert watches.problems()
    assert watches.problems() == ["configmaps: not listed yet", "pods: not listed yet"]
    async with running(watches.run()):
        await watches.synced()
        assert not watches.problems()
        later = watches.of(CRD, Object)
        assert watches.problems()
        await later.synced()
        assert watches.problems() == []


async def test_an_absent_kind_costs_nothing_and_is_picked_up(api: FlakyApi) -> None:
    watches = InformerFactory(api)
    watch = watches.of(WIDGET, Object, optional=True)
    async with running(watches.run()):
        await watches.synced()
        assert (watch.state, watches.problems()) == (InformerState.ABSENT, [])
        await until(lambda: api.watches == 1)
        lists = api.lists
        await api.create(CONFIG_MAP, config_map("a"), "default")
        assert api.lists == lists
        await api.create(CRD, permissive_crd(WIDGET))
        await api.create(WIDGET, {"metadata": {"name": "w"}})
        await until(lambda: watch.get("w") is not None)
        assert watch.state is InformerState.LIVE
        await api.delete(CRD.ref("widgets.example.org"))
        await until(lambda: watch.state is InformerState.ABSENT)
        assert (len(watch), watches.problems()) == (0, [])


async def test_an_absent_kind_is_looked_for_at_long_intervals_that_differ_between_processes() -> None:
    api = FlakyApi()
    set_jitter(0.5)
    watches = InformerFactory(api)
    watches.of(WIDGET, Object, optional=True)
    async with running(watches.run()):
        await watches.synced()
        lists = api.lists
        await asyncio.sleep(1.5 * ABSENT_SECONDS - 1.0)
        assert api.lists == lists
        await asyncio.sleep(2.0)
        assert api.lists == lists + 1


async def test_a_kind_that_must_be_there_makes_the_process_unready(api: FlakyApi) -> None:
    watches = InformerFactory(api)
    watch = watches.of(WIDGET, Object, optional=True)
    assert watches.of(WIDGET, Object) is watch
    async with running(watches.run()):
        await until(lambda: watch.state is InformerState.ABSENT)
        assert watches.problems()
        assert watches.problems() == ["widgets.example.org: the server could not find the requested resource"]
        await api.create(CRD, permissive_crd(WIDGET))
        await until(lambda: not watches.problems())


async def test_the_first_fatal_error_ends_them_all(api: FlakyApi) -> None:
    watches = InformerFactory(api)
    watches.of(CONFIG_MAP, Object)
    watches.of(POD, Object)
    api.list_failures = [Unauthorized("who?")] * 20
    with pytest.raises(Unauthorized):
        await watches.run()


async def test_a_vanished_kind_is_told_as_deletions(api: FlakyApi, watch: SharedInformer[Object]) -> None:
    await api.create(CONFIG_MAP, config_map("a"), "default")
    watch.optional = True
    gone: list[str] = []
    async with running(watch.run()):
        await watch.synced()
        await until(lambda: api.watches == 1)
        watch.subscribe(lambda change: gone.append(change.type.value))
        api.watch_failures, api.list_failures = [Gone("old")], [NotFound("no such kind")]
        api.disconnect()
        await until(lambda: watch.state is InformerState.ABSENT)
    assert gone == ["ADDED", "DELETED"]
