"""A browser, and the real control plane of the integration tests. Skipped with a line where no browser is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import webdriver
from tests.integration.conftest import (  # noqa: F401 - fixtures
    control_plane_binary,
    eventually,
    kubectl,
    local_cluster,
    real_api,
)


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Browser]:
    """A browser without a window; one of the programs that it needs may be missing."""
    if program := webdriver.missing():
        pytest.skip(f"{program} is not installed: apt-get install chromium chromium-driver")
    with webdriver.browser() as found:
        yield found
