"""The components as the operator asks them: would they start with this command line, with this configuration?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from pykai.cli import binder, node_scale_adjuster, pod_grouper, queue_controller, scheduler
from pykai.cli.main import main
from pykai.config import scheduler as configuration
from pykai.config.fields import FieldError
from pykai.config.scheduler import remarks
from pykai.config.usage import read_usage_config
from pykai.plugins import registry

_SETTINGS: Mapping[str, Callable[[dict[str, Any]], object]] = {
    "scheduler": lambda given: scheduler.settings_of({**given, "scheduler_conf": ""}),
    "binder": binder.settings_of,
    "queue-controller": queue_controller.settings_of,
    "podgrouper": pod_grouper.settings_of,
    "node-scale-adjuster": node_scale_adjuster.settings_of,
}
"""Components that look closer at their flags than at their types; files they name are not here."""


def check_command_line(component: str, arguments: Sequence[str]) -> None:
    """FieldError names the flag that the component would refuse."""
    try:
        command = main.get_command(click.Context(main), component)
        if command is None:
            raise FieldError("command", f"there is no component {component!r}")
        given = command.make_context(component, list(arguments)).params
        if component in _SETTINGS:
            _SETTINGS[component](given)
    except click.ClickException as error:
        raise FieldError(f"flags of {component}", error.format_message()) from error


def check_configuration(document: dict[str, Any]) -> list[str]:
    """What has no effect, a line each; FieldError names the field that a scheduler would refuse.

    Plugins are those installed here.
    """
    config = configuration.read(document)
    configuration.policy(config, registry.make, registry.BUILT_IN)
    if config.usage_db:
        read_usage_config(config.usage_db, started=0.0)
    return remarks(config, registry.make)
