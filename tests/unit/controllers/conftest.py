"""The API server on which components of this package are tested."""

from __future__ import annotations

import pytest

from tests.unit.controllers.live import DiaryApi, make_priority_classes


@pytest.fixture
async def api() -> DiaryApi:
    """A server with the priority classes of an installation, on which nothing else was written yet."""
    server = DiaryApi()
    await make_priority_classes(server)
    server.writes.clear()
    return server
