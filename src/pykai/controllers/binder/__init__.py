"""The binder: carries out bind requests and keeps one reservation pod for every shared GPU."""

from pykai.controllers.binder.binder import Binder, BinderSettings
from pykai.controllers.binder.plugins import Plugin, read_plugins
from pykai.controllers.binder.requests import Rules
from pykai.controllers.binder.reservation_pod import ReservationTemplate

__all__ = ["Binder", "BinderSettings", "Plugin", "ReservationTemplate", "Rules", "read_plugins"]
