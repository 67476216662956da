from __future__ import annotations

import pytest

from pykai.objects.names import is_subdomain, object_name


@pytest.mark.parametrize("text", ["a", "kai-scheduler", "41fce092.run.ai", "a" * 253])
def test_a_name_stays_what_it_is(text: str) -> None:
    assert object_name(text) == text


@pytest.mark.parametrize("text", ["", "-", "A", "a_b", "a.-b", "a..b", ".a", "Ä", "a" * 254, "_" * 300])
def test_anything_else_becomes_a_name(text: str) -> None:
    assert not is_subdomain(text)
    assert is_subdomain(object_name(text))


def test_different_texts_have_different_names() -> None:
    texts = ["pool-a", "pool-A", "pool_a", "pool.-a", "Pool-a"]
    assert len({object_name(text) for text in texts}) == len(texts)
