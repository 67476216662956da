"""What pykai needs at run time: the installed distributions that follow from its requirements."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution

PRODUCT = "pykai"


def closure(name: str = PRODUCT) -> dict[str, Distribution]:
    """The distribution and everything it requires, by normal name in alphabetical order; extras are left out."""
    found: dict[str, Distribution] = {}
    waiting = [name]
    while waiting:
        one = distribution(waiting.pop())
        found[normal(one.name)] = one
        waiting += [each for each in requirements(one) if each not in found]
    return dict(sorted(found.items()))


def requirements(of: Distribution) -> list[str]:
    """The normal names of what a distribution requires, as far as this environment has it."""
    wanted = [text for text in of.requires or () if "extra ==" not in text]
    names = {normal(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in wanted}
    return sorted(name for name in names if _installed(name))


def normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(name: str) -> bool:
    """A requirement for other platforms or Pythons is not installed."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
