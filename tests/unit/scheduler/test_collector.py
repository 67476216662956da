from __future__ import annotations

import gc

import pytest

from pykai.scheduler import collector


def test_it_rests_inside_and_works_afterwards() -> None:
    with collector.at_rest():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_works_again_after_a_failure() -> None:
    with pytest.raises(RuntimeError), collector.at_rest():
        raise RuntimeError
    assert gc.isenabled()


def test_who_comes_second_leaves_it_as_it_was() -> None:
    with collector.at_rest():
        with collector.at_rest():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
