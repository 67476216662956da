"""What should be done about one shared device, given who holds it, who uses it and who is about to.

    somebody          device held   →
    no                yes           the reservation goes
    uses it           no            who uses it goes: its device may be given to somebody else any moment
    comes             no            a reservation is made, if the name is free and nobody was told of the last one
    uses it, comes    yes           nothing

A reservation pod that has ended holds nothing. One that is being deleted still holds the device, but nobody may join.
Pure functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykai.controllers.binder.groups import GroupKey, is_over
from pykai.controllers.binder.reservation_pod import device_of, name_for
from pykai.objects.kinds import Pod


@dataclass(frozen=True, slots=True)
class Sharing:
    """One shared device as it is.

    `sharers` are on the node and not finished; `coming` have a request that did not fail and are not on a node yet;
    `newcomer` is one of those whose request is still open, None if there is none. `in_hand`: one of them was told the
    device and may be on the node by now.
    """

    reservations: tuple[Pod, ...] = ()
    sharers: tuple[Pod, ...] = ()
    coming: tuple[Pod, ...] = ()
    newcomer: Pod | None = None
    in_hand: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """What to do: reservation pods to delete, pods that lost their device, and for whom to make a reservation."""

    release: tuple[Pod, ...] = ()
    evict: tuple[Pod, ...] = ()
    reserve_for: Pod | None = None

    @property
    def deletes(self) -> bool:
        """Whether carrying it out destroys something."""
        return bool(self.release or self.evict)


def desired(sharing: Sharing) -> Change:
    """What brings the device into order."""
    staying = tuple(pod for pod in sharing.reservations if not is_going(pod))
    if not (sharing.sharers or sharing.coming):
        return Change(release=staying)
    ended = tuple(pod for pod in staying if is_over(pod))
    if any(not is_over(pod) for pod in sharing.reservations):
        return Change(release=ended)
    if sharing.sharers:
        return Change(ended, tuple(pod for pod in sharing.sharers if not is_going(pod)))
    blocked = sharing.reservations or sharing.in_hand
    return Change(ended, reserve_for=None if blocked else sharing.newcomer)


def joinable(key: GroupKey, reservations: tuple[Pod, ...]) -> Pod | None:
    """The reservation pod whose device a newcomer gets; None if there is none that stays.

    There is one. Where an older version left several, all of them stay until nobody uses the group.
    """
    holding = [pod for pod in reservations if not is_over(pod) and not is_going(pod)]
    own = name_for(key)
    return min(holding, key=lambda pod: (not device_of(pod), pod.metadata.name != own, pod.metadata.name), default=None)


def is_going(pod: Pod) -> bool:
    """Whether a pod is being deleted."""
    return pod.metadata.deletion_timestamp is not None
