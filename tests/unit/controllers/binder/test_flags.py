"""The flags of `kai binder` and what is refused."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from pykai.cli.binder import binder, settings_of
from pykai.controllers.binder.binder import BinderSettings


def given(*arguments: str) -> dict[str, Any]:
    return binder.make_context("binder", list(arguments)).params


def test_the_defaults_are_those_of_the_settings() -> None:
    made, usual = settings_of(given()), BinderSettings()
    assert (made.rules, made.reservations, made.scaling_namespace) == (
        usual.rules,
        usual.reservations,
        usual.scaling_namespace,
    )
    assert (made.pace.workers, made.pace.first_seconds, made.pace.longest_seconds) == (10, 1.0, 60.0)
    assert made.plugins == usual.plugins
    assert made.reservations.runtime_class == "nvidia"
    asked = made.reservations.resources
    assert set(asked["requests"]) == {"cpu", "memory"}  # not BestEffort, which a node under pressure evicts first
    assert "cpu" not in asked.get("limits", {})


def test_every_flag_reaches_its_setting() -> None:
    made = settings_of(
        given(
            "--scheduler-name=s",
            "--resource-reservation-namespace=rn",
            "--resource-reservation-service-account=sa",
            "--resource-reservation-app-label=app",
            "--resource-reservation-pod-image=img",
            "--resource-reservation-allocation-timeout=7",
            '--resource-reservation-pod-resources={"requests": {"cpu": "1m"}}',
            '--resource-reservation-pod-security-context={"runAsNonRoot": true}',
            '--resource-reservation-container-security-context={"privileged": false}',
            "--runtime-class-name=",
            "--fake-gpu-nodes",
            "--scale-adjust-namespace=sn",
            "--max-concurrent-reconciles=3",
            "--rate-limiter-base-delay=2",
            "--rate-limiter-max-delay=5",
            '--plugins={"hamicore": {"enabled": true}}',
        )
    )
    template = made.reservations
    assert (template.namespace, template.service_account, template.app, template.image) == ("rn", "sa", "app", "img")
    assert (template.runtime_class, template.fake_gpus) == ("", True)
    assert template.resources == {"requests": {"cpu": "1m"}}
    assert (template.pod_security, template.container_security) == ({"runAsNonRoot": True}, {"privileged": False})
    assert (made.rules.scheduler_name, made.rules.allocation_seconds, made.scaling_namespace) == ("s", 7.0, "sn")
    assert (made.pace.workers, made.pace.first_seconds, made.pace.longest_seconds) == (3, 2.0, 5.0)
    assert made.plugins["hamicore"].enabled


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("--resource-reservation-pod-resources=[]", "--resource-reservation-pod-resources"),
        ("--resource-reservation-allocation-timeout=0", "--resource-reservation-allocation-timeout"),
        ("--max-concurrent-reconciles=0", "--max-concurrent-reconciles"),
        ("--rate-limiter-base-delay=90", "--rate-limiter-max-delay"),
        ('--plugins={"magic": {}}', "--plugins"),
    ],
)
def test_refusals_name_the_flag(argument: str, hint: str) -> None:
    with pytest.raises(click.BadParameter) as refusal:
        settings_of(given(argument))
    assert hint in refusal.value.format_message()


def test_help() -> None:
    shown = CliRunner().invoke(binder, ["--help"]).output
    assert "--resource-reservation-pod-image" in shown
    assert "--feature-gates" not in shown
