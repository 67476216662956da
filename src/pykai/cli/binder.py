"""`kai binder`: binds pods as BindRequests say and reserves shared GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import click
from msgspec import DecodeError, Struct, json

from pykai.cli.component import Composition, Part, process_of, run_component
from pykai.cli.flags import CLIENT, ELECTION, LOGS, SERVERS, WORKERS, Flag, takes, warn_ineffective
from pykai.config.fields import FieldError, converted
from pykai.controllers.binder.bind_requests import BindRules
from pykai.controllers.binder.binder import Binder, BinderSettings
from pykai.controllers.binder.plugins import Plugin, read_plugins
from pykai.controllers.binder.reservations import ReservationTemplate
from pykai.kube.api import Api
from pykai.kube.informer import InformerFactory
from pykai.kube.workqueue import Pace
from pykai.objects import names, units
from pykai.observe.metrics import WorkMetrics

_USUAL, _POD = BinderSettings(), ReservationTemplate()
RESERVATION = (
    Flag("resource-reservation-namespace", _POD.namespace, "Namespace of reservation pods."),
    Flag("resource-reservation-service-account", _POD.service_account, "Service account of reservation pods."),
    Flag("resource-reservation-app-label", _POD.app, "Value of label `app` of reservation pods."),
    Flag("resource-reservation-pod-image", _POD.image, "Image of reservation pods."),
    Flag("resource-reservation-allocation-timeout", 40, "Seconds to wait until a reservation pod reports its GPU."),
    Flag(
        "resource-reservation-pod-resources",
        json.encode(_POD.resources).decode(),
        "Requests and limits of reservation pods beside the GPU (JSON).",
    ),
    Flag("resource-reservation-pod-security-context", "", "Security context of reservation pods (JSON)."),
    Flag("resource-reservation-container-security-context", "", "Security context of their container (JSON)."),
    Flag("runtime-class-name", _POD.runtime_class, "Runtime class of reservation pods; empty: none."),
    Flag("fake-gpu-nodes", False, "Nodes have fake GPUs: reservation pods only sleep."),
)
FLAGS = (
    Flag("scheduler-name", names.SCHEDULER_NAME, "Only bind pods with this spec.schedulerName."),
    Flag("scale-adjust-namespace", _USUAL.scaling_namespace, "Namespace of scaling pods."),
    Flag("rate-limiter-base-delay", 1, "Initial backoff after a failed reconcile, in seconds."),
    Flag("rate-limiter-max-delay", 60, "Maximum backoff after failed reconciles, in seconds."),
    Flag("plugins", "", "Binder plugins that differ from the defaults (JSON)."),
    Flag("feature-gates", "", "", ineffective="there are none"),
)


class _Resources(Struct, frozen=True, forbid_unknown_fields=True):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None
    claims: list[dict[str, str]] | None = None


def settings_of(given: Mapping[str, Any]) -> BinderSettings:
    """The settings in the flags; an invalid value is a click.BadParameter that names the flag."""
    return BinderSettings(
        rules=BindRules(given["scheduler_name"], _seconds(given, "resource-reservation-allocation-timeout")),
        reservations=_template(given),
        scaling_namespace=given["scale_adjust_namespace"],
        plugins=_plugins(given["plugins"]),
        pace=_pace(given),
    )


def _template(given: Mapping[str, Any]) -> ReservationTemplate:
    return ReservationTemplate(
        namespace=given["resource_reservation_namespace"],
        service_account=given["resource_reservation_service_account"],
        app=given["resource_reservation_app_label"],
        image=given["resource_reservation_pod_image"],
        runtime_class=given["runtime_class_name"],
        resources=_resources(given, "resource-reservation-pod-resources"),
        pod_security=_object(given, "resource-reservation-pod-security-context"),
        container_security=_object(given, "resource-reservation-container-security-context"),
        fake_gpus=given["fake_gpu_nodes"],
    )


def _pace(given: Mapping[str, Any]) -> Pace:
    first, longest = (_seconds(given, f"rate-limiter-{which}-delay") for which in ("base", "max"))
    if first > longest:
        raise click.BadParameter(f"is shorter than the base delay of {first:g}", param_hint="--rate-limiter-max-delay")
    return Pace(given["max_concurrent_reconciles"], first, longest)


def _seconds(given: Mapping[str, Any], flag: str) -> float:
    seconds = float(given[flag.replace("-", "_")])
    if seconds <= 0:
        raise click.BadParameter("must be more than 0 seconds", param_hint=f"--{flag}")
    return seconds


def _resources(given: Mapping[str, Any], flag: str) -> dict[str, Any]:
    """Requests and limits, validated here: otherwise the API server would reject every reservation pod."""
    found = _object(given, flag)
    try:
        asked = converted(found, _Resources)
        for part, amounts in (("requests", asked.requests), ("limits", asked.limits)):
            for name, amount in (amounts or {}).items():
                _check_amount(f"{part}.{name}", amount)
    except FieldError as error:
        raise click.BadParameter(str(error), param_hint=f"--{flag}") from error
    return found


def _check_amount(path: str, amount: str | int | float) -> None:
    try:
        negative = units.parse_quantity(amount) < 0
    except units.QuantityError as error:
        raise FieldError(path, str(error)) from error
    if negative:
        raise FieldError(path, f"{amount} is negative")


def _object(given: Mapping[str, Any], flag: str) -> dict[str, Any]:
    text = given[flag.replace("-", "_")]
    try:
        return json.decode(text, type=dict[str, Any]) if text else {}
    except DecodeError as error:
        raise click.BadParameter(f"is not a JSON object: {error}", param_hint=f"--{flag}") from error


def _plugins(text: str) -> Mapping[str, Plugin]:
    try:
        return read_plugins(text)
    except FieldError as error:
        raise click.BadParameter(str(error), param_hint="--plugins") from error


def make(settings: BinderSettings, api: Api, watches: InformerFactory, work: WorkMetrics) -> Binder:
    """A binder with its metrics."""
    meters = {name: work.meter(name) for name in ("bindrequest", "reservation")}
    return Binder(api, watches, settings, meters)


def part(made: Binder) -> Part:
    """The binder as a part of a component."""
    return Part("binder", made.run)


def compose(settings: BinderSettings, api: Api, watches: InformerFactory, work: WorkMetrics) -> Composition:
    """The binder as a component."""
    return Composition([part(make(settings, api, watches, work))])


@click.command("binder")
@takes(FLAGS, RESERVATION, WORKERS, ELECTION, SERVERS, CLIENT, LOGS)
def binder(**given: Any) -> None:
    """Bind pods as BindRequests say and reserve shared GPUs."""
    process = process_of("binder", given, names.BINDER_LEASE)
    warn_ineffective((*FLAGS, *LOGS), given)
    run_component(process, partial(compose, settings_of(given)))
