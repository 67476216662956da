"""What holds for every test: logging is as in a fresh process, and no example of a property has a time limit."""

from __future__ import annotations

import pytest
import structlog
from hypothesis import settings

settings.register_profile("pykai", deadline=None)  # a machine that is busy with other things proves nothing
settings.load_profile("pykai")


def pytest_runtest_setup(item: pytest.Item) -> None:
    structlog.reset_defaults()
