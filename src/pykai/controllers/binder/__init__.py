"""The binder: carries out bind requests, keeps one reservation pod for every shared GPU (docs/concepts/binding.md)."""

from pykai.controllers.binder.bind_requests import BindRules
from pykai.controllers.binder.binder import Binder, BinderSettings
from pykai.controllers.binder.plugins import Plugin, read_plugins
from pykai.controllers.binder.reservations import ReservationTemplate

__all__ = ["BindRules", "Binder", "BinderSettings", "Plugin", "ReservationTemplate", "read_plugins"]
