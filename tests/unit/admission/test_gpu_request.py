"""What annotations ask of a GPU, and the names made for the container that gets it."""

from __future__ import annotations

import pytest

from pykai.objects.gpu_request import (
    ContainerRef,
    GpuRequestError,
    SharedGpuNames,
    check,
    check_configmap_prefix,
    fraction_container,
    new_configmap_prefix,
    portion,
    positive_count,
    shared_gpu_names,
    shares_gpu,
)

MAIN = ContainerRef("main", 0, init=False)
NAME, TYPE = "gpu-fraction-container-name", "gpu-fraction-container-type"


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.5", 0.5), (".25", 0.25), ("5e-1", 0.5), ("+0.2", 0.2), ("1.2E-10", 1.2e-10), ("1", None), ("nan", None)],
)
def test_portion(text: str, value: float | None) -> None:
    assert portion(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("007", 7), (str(2**64 - 1), 2**64 - 1), (str(2**64), None), ("0", None), ("", None)]
)
def test_positive_count(text: str, value: int | None) -> None:
    assert positive_count(text) == value


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2", "mps": "true"},
        {"gpu-memory": "2000", "gpu-fraction-num-devices": "4"},
        {"mps": "false"},
        {"gpu-fraction": "0." + "3" * 10_000},
    ],
)
def test_requests_that_are_in_order(annotations: dict[str, str]) -> None:
    check(annotations, whole_gpu_limit=False)


def test_a_whole_gpu_needs_no_annotation() -> None:
    check({}, whole_gpu_limit=True)


def test_a_share_is_asked_for_even_when_its_value_is_bad() -> None:
    assert shares_gpu({"gpu-fraction": ""})
    assert shares_gpu({"gpu-memory": "x"})
    assert not shares_gpu({"gpu-fraction-num-devices": "2", "mps": "true"})


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, ContainerRef("main", 0, init=False)),
        ({NAME: ""}, ContainerRef("main", 0, init=False)),
        ({NAME: "side"}, ContainerRef("side", 1, init=False)),
        ({NAME: "warm"}, ContainerRef("warm", 1, init=True)),
        ({TYPE: "InitContainer"}, ContainerRef("load", 0, init=True)),
        ({TYPE: "InitContainer", NAME: "warm"}, ContainerRef("warm", 1, init=True)),
        ({TYPE: "RegularContainer"}, ContainerRef("main", 0, init=False)),
        ({TYPE: "RegularContainer", NAME: "side"}, ContainerRef("side", 1, init=False)),
        ({TYPE: ""}, ContainerRef("main", 0, init=False)),
    ],
)
def test_the_container_that_receives_the_share(annotations: dict[str, str], expected: ContainerRef) -> None:
    assert fraction_container(annotations, ["load", "warm"], ["main", "side"]) == expected


def test_a_name_that_both_kinds_carry_is_the_init_container_unless_the_type_says_otherwise() -> None:
    assert fraction_container({NAME: "x"}, ["x"], ["x"]).init
    assert not fraction_container({NAME: "x", TYPE: "RegularContainer"}, ["x"], ["x"]).init


def test_a_pod_without_containers_has_none_to_give_to() -> None:
    with pytest.raises(GpuRequestError, match="no regular container found"):
        fraction_container({}, ["load"], [])


@pytest.mark.parametrize(
    ("base", "container", "prefix"),
    [
        ("train", MAIN, "train-abc1234-shared-gpu"),
        ("", MAIN, "abc1234-shared-gpu"),
        ("job-", MAIN, "job-abc1234-shared-gpu"),
        ("a" * 60, MAIN, "a" * 33 + "-abc1234-shared-gpu"),
        ("a" * 60, ContainerRef("c", 10, init=False), "a" * 32 + "-abc1234-shared-gpu"),
        ("a" * 31 + "..-b", MAIN, "a" * 31 + "-abc1234-shared-gpu"),
    ],
)
def test_new_prefix(base: str, container: ContainerRef, prefix: str) -> None:
    assert new_configmap_prefix(base, "abc1234", container) == prefix


@pytest.mark.parametrize("index", [0, 9, 10, 99])
@pytest.mark.parametrize("init", [False, True])
def test_every_name_made_from_a_new_prefix_is_valid(index: int, init: bool) -> None:
    place = ContainerRef("c", index, init)
    prefix = new_configmap_prefix("very.long-name" * 20, "abc1234", place)
    check_configmap_prefix(prefix, place)
    assert len(shared_gpu_names(prefix, place).volume) <= 63


def test_names_of_a_share() -> None:
    assert shared_gpu_names("My.pod-x", ContainerRef("c", 2, init=True)) == SharedGpuNames(
        capabilities="My.pod-x-i2", environment="My.pod-x-i2-evar", volume="my-pod-x-i2-vol"
    )


@pytest.mark.parametrize("prefix", ["Upper", "a/b", "-a", "a-", "a..b", "ä", "a" * 57, "a b", ""])
def test_a_prefix_by_hand_must_make_valid_names(prefix: str) -> None:
    with pytest.raises(GpuRequestError, match="runai/shared-gpu-configmap annotation value must be a lower-case DNS"):
        check_configmap_prefix(prefix, MAIN)


@pytest.mark.parametrize("text", ["9" * 250_000 + "x", "0." + "9" * 250_000 + "x", "0x" + "1" * 250_000])
def test_an_annotation_full_of_digits_is_read_in_one_pass(text: str) -> None:
    with pytest.raises(GpuRequestError, match=r"must be a positive number smaller than 1\.0"):
        check({"gpu-fraction": text}, whole_gpu_limit=False)
