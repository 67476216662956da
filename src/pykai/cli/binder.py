"""`kai binder`: carries out BindRequests and reserves shared GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import click
from msgspec import DecodeError, Struct, json

from pykai.cli.component import Composition, Part, process_of, run_component
from pykai.cli.flags import (
    CLIENT,
    ELECTION,
    LOGS,
    SERVERS,
    WORKERS,
    Flag,
    reported_flag_errors,
    takes,
    warn_ineffective,
)
from pykai.config.fields import FieldError, converted
from pykai.controllers.binder.bind_reconciler import BindRules
from pykai.controllers.binder.binder import Binder, BinderSettings
from pykai.controllers.binder.plugins import read_plugins
from pykai.controllers.binder.reservations import ReservationTemplate
from pykai.kube.api import Api
from pykai.kube.informer import InformerFactory
from pykai.kube.workqueue import Pace
from pykai.objects import names, units
from pykai.observe.metrics import WorkMetrics

_DEFAULTS, _TEMPLATE = BinderSettings(), ReservationTemplate()
RESERVATION = (
    Flag("resource-reservation-namespace", _TEMPLATE.namespace, "Namespace of reservation pods."),
    Flag(
        "resource-reservation-service-account",
        _TEMPLATE.service_account,
        "Service account of reservation pods.",
    ),
    Flag("resource-reservation-app-label", _TEMPLATE.app, "Value of label `app` of reservation pods."),
    Flag("resource-reservation-pod-image", _TEMPLATE.image, "Image of reservation pods."),
    Flag("resource-reservation-allocation-timeout", 40, "Seconds to wait until a reservation pod reports its GPU."),
    Flag(
        "resource-reservation-pod-resources",
        json.encode(_TEMPLATE.resources).decode(),
        "Requests and limits of reservation pods beside the GPU (JSON).",
    ),
    Flag("resource-reservation-pod-security-context", "", "Security context of reservation pods (JSON)."),
    Flag("resource-reservation-container-security-context", "", "Security context of their container (JSON)."),
    Flag("runtime-class-name", _TEMPLATE.runtime_class, "Runtime class of reservation pods; empty: none."),
    Flag("fake-gpu-nodes", False, "Nodes have fake GPUs: reservation pods only sleep."),
)
FLAGS = (
    Flag("scheduler-name", names.SCHEDULER_NAME, "Only bind pods with this spec.schedulerName."),
    Flag("scale-adjust-namespace", _DEFAULTS.scaling_namespace, "Namespace of scaling pods."),
    Flag("rate-limiter-base-delay", 1, "Initial backoff after a failed reconcile, in seconds."),
    Flag("rate-limiter-max-delay", 60, "Maximum backoff after failed reconciles, in seconds."),
    Flag("plugins", "", "Binder plugins that differ from the defaults (JSON)."),
    Flag("feature-gates", "", "", ineffective="there are none"),
)


class _Resources(Struct, frozen=True, forbid_unknown_fields=True):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None
    claims: list[dict[str, str]] | None = None


def settings_of(flags: Mapping[str, Any]) -> BinderSettings:
    """Return the settings in the flags; an invalid value is a click.BadParameter that names the flag."""
    base, longest = _seconds(flags, "rate-limiter-base-delay"), _seconds(flags, "rate-limiter-max-delay")
    if base > longest:
        raise click.BadParameter(f"is shorter than the base delay of {base:g}", param_hint="--rate-limiter-max-delay")
    with reported_flag_errors("plugins", FieldError):
        plugins = read_plugins(flags["plugins"])
    return BinderSettings(
        rules=BindRules(flags["scheduler_name"], _seconds(flags, "resource-reservation-allocation-timeout")),
        reservations=ReservationTemplate(
            namespace=flags["resource_reservation_namespace"],
            service_account=flags["resource_reservation_service_account"],
            app=flags["resource_reservation_app_label"],
            image=flags["resource_reservation_pod_image"],
            runtime_class=flags["runtime_class_name"],
            resources=_resources(flags, "resource-reservation-pod-resources"),
            pod_security=_object(flags, "resource-reservation-pod-security-context"),
            container_security=_object(flags, "resource-reservation-container-security-context"),
            fake_gpus=flags["fake_gpu_nodes"],
        ),
        scaling_namespace=flags["scale_adjust_namespace"],
        plugins=plugins,
        pace=Pace(flags["max_concurrent_reconciles"], base, longest),
    )


def _seconds(flags: Mapping[str, Any], flag: str) -> float:
    seconds = float(flags[flag.replace("-", "_")])
    if seconds <= 0:
        raise click.BadParameter("must be more than 0 seconds", param_hint=f"--{flag}")
    return seconds


def _resources(flags: Mapping[str, Any], flag: str) -> dict[str, Any]:
    """Requests and limits, validated here: otherwise the API server would reject every reservation pod."""
    resources = _object(flags, flag)
    with reported_flag_errors(flag, FieldError):
        checked = converted(resources, _Resources)
        for part, amounts in (("requests", checked.requests), ("limits", checked.limits)):
            for name, amount in (amounts or {}).items():
                _check_amount(f"{part}.{name}", amount)
    return resources


def _check_amount(path: str, amount: str | int | float) -> None:
    try:
        negative = units.parse_quantity(amount) < 0
    except units.QuantityError as error:
        raise FieldError(path, str(error)) from error
    if negative:
        raise FieldError(path, f"{amount} is negative")


def _object(flags: Mapping[str, Any], flag: str) -> dict[str, Any]:
    text = flags[flag.replace("-", "_")]
    try:
        return json.decode(text, type=dict[str, Any]) if text else {}
    except DecodeError as error:
        raise click.BadParameter(f"is not a JSON object: {error}", param_hint=f"--{flag}") from error


def make(settings: BinderSettings, api: Api, watches: InformerFactory, work: WorkMetrics) -> Binder:
    """Return a binder with its metrics."""
    meters = {name: work.meter(name) for name in ("bindrequest", "reservation")}
    return Binder(api, watches, settings, meters)


def part(pod_binder: Binder) -> Part:
    """Return the binder as a part of a component."""
    return Part("binder", pod_binder.run)


def compose(settings: BinderSettings, api: Api, watches: InformerFactory, work: WorkMetrics) -> Composition:
    """Return the binder as a component."""
    return Composition([part(make(settings, api, watches, work))])


@click.command("binder")
@takes(FLAGS, RESERVATION, WORKERS, ELECTION, SERVERS, CLIENT, LOGS)
def binder(**flags: Any) -> None:
    """Carry out BindRequests and reserve shared GPUs."""
    process = process_of("binder", flags, names.BINDER_LEASE)
    warn_ineffective((*FLAGS, *LOGS), flags)
    run_component(process, partial(compose, settings_of(flags)))
