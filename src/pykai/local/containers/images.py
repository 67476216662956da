"""Images that this machine can stand in for: which of their programs are at hand, and what a container of one runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its programs by name, each as the words that run it here; its entry point and its variables."""

    programs: Mapping[str, Sequence[str]]
    entrypoint: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


Images = Mapping[str, Image]


def name_of(reference: str) -> str:
    """The last part of an image's name, without registry, tag and digest."""
    return reference.partition("@")[0].rpartition("/")[2].partition(":")[0]


def words_of(container: Object, image: Image) -> list[str]:
    """The container's command and arguments, as written in it or in the image; ValueError if the image lacks it."""
    program, *rest = container.get("command") or image.entrypoint
    if program not in image.programs:
        raise ValueError(f"image {container['image']} has no program {program!r}")
    return [*image.programs[program], *rest, *(container.get("args") or ())]
