"""One node for all tests of this folder; they run in order, and each leaves the cluster empty for the next."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.node.node import RealNode, real_node


@pytest.fixture(scope="session")
def node() -> Iterator[RealNode]:
    """A running node without pykai; the first test installs it."""
    with real_node() as running:
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows the cluster as it left it: nothing of the node is there afterwards."""
    report = yield
    found = item.funcargs.get("node")
    if report.failed and isinstance(found, RealNode):
        report.sections.append(("the cluster", found.summary()))
    return report
