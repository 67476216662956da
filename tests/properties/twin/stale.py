"""§16.10 stale gangs, from the JSON of gangs and pods and from what the cycle did before."""

from __future__ import annotations

from dataclasses import dataclass

from pykai.model.status import Status
from pykai.objects import names
from tests.properties.small_world import Fields
from tests.properties.twin.gangs import satisfied
from tests.properties.twin.runtimes import instant, seconds
from tests.properties.twin.world import ACTIVE_ALLOCATED, ACTIVE_USED, World


@dataclass(frozen=True)
class Verdict:
    """What the action says of one gang; `since` is its annotation from now on."""

    since: float | None
    evicted: tuple[int, ...] = ()


def verdict(world: World, gang: int, group: Fields, default_grace: float, now: float) -> Verdict:
    if not _is_stale(world, gang):
        return Verdict(None)
    since = instant((group["metadata"].get("annotations") or {}).get(names.STALE_TIMESTAMP))
    since = now if since is None else since
    grace = _signed(group["spec"].get("stalenessGracePeriod"))
    grace = default_grace if grace is None else grace
    if grace < 0 or now < since + grace:
        return Verdict(since)
    return Verdict(since, tuple(world.having(gang, ACTIVE_ALLOCATED)))


def _signed(text: str | None) -> float | None:
    if text and text.startswith("-"):
        return -(seconds(text[1:]) or 0.0)
    return seconds(text)


def _is_stale(world: World, gang: int) -> bool:
    """No Succeeded pod, at least one active-used pod, and some podset below its minimum.

    Our rule: below a set with minSubGroup, other sub-groups may be there instead.
    """
    if world.having(gang, {Status.SUCCEEDED}) or not world.having(gang, ACTIVE_USED):
        return False
    return not satisfied(world.tree(gang), lambda row: world.in_podset(gang, row, ACTIVE_USED))
