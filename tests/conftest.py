"""What holds for every test: logging is as in a fresh process, whatever an earlier test configured."""

from __future__ import annotations

import pytest
import structlog


def pytest_runtest_setup(item: pytest.Item) -> None:
    structlog.reset_defaults()
