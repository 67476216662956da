from __future__ import annotations

import gc

import pytest

from pykai.scheduler.process_memory import gc_disabled


def test_it_rests_inside_and_works_afterwards() -> None:
    with gc_disabled():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_works_again_after_a_failure() -> None:
    with pytest.raises(RuntimeError), gc_disabled():
        raise RuntimeError
    assert gc.isenabled()


def test_who_comes_second_leaves_it_as_it_was() -> None:
    with gc_disabled():
        with gc_disabled():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
