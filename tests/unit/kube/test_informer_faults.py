"""A shared watch on a server that refuses what it just gave, forgets what it promised, or was put back in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from msgspec import Raw

from pykai.kube.api import ALL_AT_ONCE, EVERYTHING, EventType, Object, Page, Paging, Resource, Selection, WatchEvent
from pykai.kube.api_resources import CONFIG_MAP
from pykai.kube.codec import bookmark
from pykai.kube.errors import Gone, Timeout
from pykai.kube.informer import PAGE_SIZE, InformerState, SharedInformer

from .flaky import FlakyApi, T, config_map, running, until

pytestmark = pytest.mark.virtual_time

DEFAULT = Selection("default")


def watch_of(api: FlakyApi) -> SharedInformer[Object]:
    return SharedInformer(api, CONFIG_MAP, Object, DEFAULT)


async def test_a_server_that_calls_its_own_list_too_old_is_not_asked_for_lists_all_the_time() -> None:
    api = FlakyApi()
    api.stream_failures = [Gone("too old")] * 1000
    async with running(watch_of(api).run()):
        await asyncio.sleep(60)
        assert api.lists < 15
        api.stream_failures = []
        await asyncio.sleep(60)
        lists = api.lists
        api.compact()
        api.stream_failures = [Gone("too old")]
        await api.create(CONFIG_MAP, config_map("a"), "default")
        await asyncio.sleep(0.01)
        assert api.lists == lists + 1, "after a watch that went well the first list comes at once"


class ForgetfulApi(FlakyApi):
    """Page tokens have expired whenever they are used."""

    async def list(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, paging: Paging = ALL_AT_ONCE
    ) -> Page[T]:
        if paging.token:
            raise Gone("the provided continue parameter is too old")
        return await super().list(resource, into, where, paging)


async def test_pages_that_expire_are_made_up_for_by_one_whole_list() -> None:
    api = ForgetfulApi()
    for index in range(2 * PAGE_SIZE):
        await api.create(CONFIG_MAP, config_map(f"a{index}"), "default")
    watch = watch_of(api)
    async with running(watch.run()):
        await until(lambda: watch.state is InformerState.LIVE)
        assert (len(watch), api.lists) == (2 * PAGE_SIZE, 2)


class VersionlessApi(FlakyApi):
    """The first answer is no list at all, though it is JSON: a proxy's."""

    async def list(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, paging: Paging = ALL_AT_ONCE
    ) -> Page[T]:
        found = await super().list(resource, into, where, paging)
        return Page([], "") if self.lists == 2 else found


async def test_a_list_without_a_version_deletes_nothing() -> None:
    api, told = VersionlessApi(), []
    await api.create(CONFIG_MAP, config_map("a"), "default")
    watch = watch_of(api)
    watch.subscribe(lambda change: told.append(change.type))
    async with running(watch.run()):
        await until(lambda: api.watches == 1)
        api.compact()
        api.watch_failures = [Gone("late")]
        api.disconnect()
        await until(lambda: api.lists == 3 and watch.alive)
    assert told == [EventType.ADDED]


async def test_a_server_that_is_not_as_far_as_we_are_is_listed_anew() -> None:
    api = FlakyApi()
    watch = watch_of(api)
    async with running(watch.run()):
        await until(lambda: api.watches == 1)
        causes = [{"reason": "ResourceVersionTooLarge"}]
        api.watch_failures = [Timeout("Too large resource version: 9, current: 5", details={"causes": causes})]
        api.disconnect()
        await until(lambda: api.watches == 3 and watch.alive)
    assert api.lists == 2


class OddApi(FlakyApi):
    """The first watch sends something odd behind every event."""

    def __init__(self, kind: EventType, sent: bytes) -> None:
        super().__init__()
        self._odd = WatchEvent(kind, Raw(sent))

    async def watch(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, version: str = ""
    ) -> AsyncGenerator[WatchEvent[T], None]:
        async for event in super().watch(resource, into, where, version):
            yield event
            if self.watches == 1:
                yield self._odd  # type: ignore[misc]


async def test_versions_that_go_back_mean_a_new_list() -> None:
    api = OddApi(EventType.BOOKMARK, bookmark(CONFIG_MAP, "1"))
    watch = watch_of(api)
    async with running(watch.run()):
        await until(lambda: api.watches == 2 and watch.alive)
    assert api.lists == 2


@pytest.mark.parametrize("line", [b"null", b"[]", b'{"metadata":null}', b'{"metadata":{"name":1}}'])
async def test_an_object_without_metadata_is_trouble_of_the_server(line: bytes) -> None:
    api = OddApi(EventType.ADDED, line)
    watch = watch_of(api)
    async with running(watch.run()) as task:
        await until(lambda: task.done() or (api.watches == 2 and watch.alive))
        assert not task.done()
