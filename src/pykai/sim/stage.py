"""What every part of the simulated cluster shares: time, objects, settings, and the history they write."""

from __future__ import annotations

from dataclasses import dataclass, field

from pykai.sim.agenda import Agenda
from pykai.sim.history import History
from pykai.sim.manifests import Object
from pykai.sim.setting import Setting
from pykai.sim.store import Key, Store


@dataclass(frozen=True)
class Stage:
    """The parts are shared, not copied."""

    agenda: Agenda
    setting: Setting
    store: Store = field(default_factory=Store)
    history: History = field(default_factory=History)

    @property
    def at(self) -> float:
        """Seconds since the start, in whole milliseconds."""
        return round(self.agenda.now - self.agenda.start, 3)

    def log(self, kind: str, about: str, message: str = "") -> None:
        """Note what happens now."""
        self.history.log(self.at, kind, about, " ".join(message.split()))

    def pod(self, key: Key) -> Object:
        """A pod that exists."""
        found = self.store.find("Pod", key)
        assert found is not None, f"no pod {key}"
        return found
