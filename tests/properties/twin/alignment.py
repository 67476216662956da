"""§13 NUMA: which zones of a node a pod gets, on one that aligns what it asks for.

Read from the objects as they were written. Amounts are in cores, bytes and devices, by the names that zones report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from pykai.objects.units import amount
from tests.properties.small_world import Fields

Amounts = Mapping[str, float]
Seat = tuple[int, str, float]
"""Zone, resource, how much of it."""
Room = list[dict[str, float]]
"""What there is, zone by zone."""
Choose = Callable[[Room, Room, Amounts], list[int] | None]
"""What there is and what there could be, a request -> the zones for it."""


def take(room: Room, seats: Sequence[Seat], sign: int = 1) -> None:
    for zone, resource, much in seats:
        room[zone][resource] -= sign * much


def holds(room: Room, seats: Sequence[Seat]) -> bool:
    left = [dict(zone) for zone in room]
    take(left, seats)
    return all(much >= 0 for zone in left for much in zone.values())


# --------------------------------------------------------------------------------------------------------------- nodes
class Board:
    """The zones of a node."""

    def __init__(self, report: Fields) -> None:
        stated = {item["name"]: item["value"] for item in report["attributes"]}
        self.policy, self.pod_scope = stated["topologyManagerPolicy"], stated["topologyManagerScope"] == "pod"
        zones = [zone for zone in report["zones"] if zone["type"] == "Node"]
        zones.sort(key=lambda zone: int(zone["name"].split("-")[-1]))
        self.names = [zone["name"] for zone in zones]
        self.aware = {resource["name"] for zone in zones for resource in zone["resources"]}
        self.allocatable, self.available = (
            [{**dict.fromkeys(self.aware, 0.0), **{r["name"]: amount(r[key]) for r in z["resources"]}} for z in zones]
            for key in ("allocatable", "available")
        )

    def copy(self, reconstructed: bool) -> Room:
        return [dict(zone) for zone in (self.allocatable if reconstructed else self.available)]

    def seats(self, pod: Fields, room: Room) -> list[Seat] | None:
        """What a pod takes of the zones; None: it cannot be aligned."""
        choose, found, left = CHOICES[self.policy], list[Seat](), [dict(zone) for zone in room]
        together, alone = self._units(pod)
        for request in together:
            zones = choose(left, self.allocatable, request)
            if zones is None:
                return None
            seats = list(spread(left, zones, request))
            take(left, seats)
            found += seats
        return found if all(choose(room, self.allocatable, request) is not None for request in alone) else None

    def _units(self, pod: Fields) -> tuple[list[Amounts], list[Amounts]]:
        """Requests that share the room, and those for which all of it is there."""
        together: list[Amounts] = []
        alone: list[Amounts] = []
        peaks: list[Amounts] = []
        for container in init_containers(pod):
            request = self._counted(pod, container)
            if container.get("restartPolicy") == "Always":
                together.append(request)
            else:
                alone.append(request)
                peaks.append(summed([*together, request]))
        together += [self._counted(pod, container) for container in containers(pod)]
        if not self.pod_scope:
            return together, alone
        whole = [summed(together), *peaks]
        return [{name: max(one.get(name, 0.0) for one in whole) for name in self.aware}], []

    def _counted(self, pod: Fields, container: Fields) -> Amounts:
        """All that zones report for Guaranteed pods, devices for others; cores only where they are whole."""
        found = {}
        for name, much in asked(container).items():
            if name in self.aware and (guaranteed(pod) or is_device(name)) and (name != "cpu" or much == int(much)):
                found[name] = much
        return found


def containers(pod: Fields) -> list[Fields]:
    found: list[Fields] = pod["spec"]["containers"]
    return found


def init_containers(pod: Fields) -> list[Fields]:
    found: list[Fields] = pod["spec"].get("initContainers", [])
    return found


def asked(container: Fields) -> dict[str, float]:
    resources = container["resources"]
    return {name: amount(text) for name, text in {**resources.get("limits", {}), **resources["requests"]}.items()}


def guaranteed(pod: Fields) -> bool:
    """QoS: all containers have limits for cores and memory, and ask for as much."""
    for container in [*containers(pod), *init_containers(pod)]:
        limits, requests = container["resources"].get("limits", {}), container["resources"]["requests"]
        if any(limits.get(name) is None or limits[name] != requests.get(name) for name in ("cpu", "memory")):
            return False
    return True


def is_device(name: str) -> bool:
    return name not in ("cpu", "memory") and not name.startswith("hugepages-")


def summed(requests: Sequence[Amounts]) -> Amounts:
    found = dict[str, float]()
    for request in requests:
        for name, much in request.items():
            found[name] = found.get(name, 0.0) + much
    return found


# ------------------------------------------------------------------------------------------------------------- policies
def suffices(room: Room, zones: Sequence[int], request: Amounts) -> bool:
    return all(sum(room[zone][name] for zone in zones) >= much for name, much in request.items())


def single(room: Room, _: Room, request: Amounts) -> list[int] | None:
    return next(([zone] for zone in range(len(room)) if suffices(room, [zone], request)), None)


def restricted(room: Room, full: Room, request: Amounts) -> list[int] | None:
    widths = {width([zone[name] for zone in full], much) for name, much in request.items() if much > 0} or {1}
    if len(widths) > 1:
        return None
    masks = combinations(range(len(room)), widths.pop())
    return next((list(zones) for zones in masks if suffices(room, zones, request)), None)


def width(amounts: Sequence[float], much: float) -> int:
    """Fewest zones, largest first; one more than there are where all together are too few."""
    most = sorted(amounts, reverse=True)
    return next((n for n in range(1, len(most) + 1) if sum(most[:n]) >= much), len(most) + 1)


def best_effort(room: Room, _: Room, request: Amounts) -> list[int] | None:
    """The zone that covers most of the remaining demand; our rule: of each resource by its part of the request."""
    missing, zones = {name: much for name, much in request.items() if much > 0}, list[int]()
    while any(missing.values()) and len(zones) < len(room):
        rest = [zone for zone in range(len(room)) if zone not in zones]
        zones.append(max(rest, key=lambda z: sum(min(room[z][n], m) / request[n] for n, m in missing.items())))
        missing = {name: much - min(room[zones[-1]][name], much) for name, much in missing.items()}
    return None if any(missing.values()) else sorted(zones)


CHOICES: dict[str, Choose] = {"single-numa-node": single, "restricted": restricted, "best-effort": best_effort}


def spread(room: Room, zones: Sequence[int], request: Amounts) -> Iterator[Seat]:
    """What a request takes of its zones: the lowest are used up first."""
    for name, much in request.items():
        for zone in zones:
            if part := min(room[zone][name], much):
                yield zone, name, part
                much -= part
