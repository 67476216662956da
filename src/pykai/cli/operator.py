"""`kai operator`: deploys all other components as Config and SchedulingShard objects specify."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

import aiohttp
import click
import msgspec

from pykai import __version__
from pykai.admission import registration as rules
from pykai.admission.certificates import (
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    defect,
    issue,
    renewal_reason,
    service_names,
    trust_bundle,
)
from pykai.cli.component import Composition, Part, process_of, run_component
from pykai.cli.flags import CLIENT, ELECTION, LOGS, SERVERS, Flag, takes, warn_ineffective
from pykai.cli.main import COMMANDS, main
from pykai.config.fields import FieldError
from pykai.controllers.operator import controller
from pykai.controllers.operator.components import Endpoint, WebhookParts
from pykai.controllers.operator.controller import OperatorSettings
from pykai.controllers.operator.desired import Validators
from pykai.controllers.operator.installation import OperatorEnvironment
from pykai.kube.api import Api
from pykai.kube.informer import InformerFactory
from pykai.objects import names
from pykai.objects.config_kinds import Config
from pykai.observe.metrics import WorkMetrics

FLAGS = (
    Flag("namespace", names.SYSTEM_NAMESPACE, "Namespace of this operator and of everything it deploys."),
    Flag("image-registry", "registry/local/kai-scheduler", "Default registry of images; Config overrides it."),
    Flag("image-tag", __version__, "Default tag of images; Config overrides it."),
    Flag("image-name", "pykai", "Default image name of all components; Config overrides it."),
    Flag("image-pull-secret", "", "Image pull secret, in addition to those of Config."),
)
Secret = Mapping[str, str]
_WITH_SETTINGS = frozenset({"scheduler", "binder", "queue-controller", "podgrouper", "node-scale-adjuster"})
"""Components with a `settings_of` that validates flags beyond the flags' own checks."""
_FILE_FLAGS = {"scheduler_conf": ""}
"""Flags that name files of the component's container, which the operator cannot read."""


def environment_of(flags: Mapping[str, Any]) -> OperatorEnvironment:
    """Return the operator's namespace and images, from the flags."""
    return OperatorEnvironment(
        namespace=flags["namespace"],
        registry=flags["image_registry"].rstrip("/"),
        tag=flags["image_tag"],
        image=flags["image_name"],
        pull_secret=flags["image_pull_secret"],
    )


def serving_secret(service: str, namespace: str, present: Secret | None, now: datetime | None = None) -> Secret:
    """Return the data of a Service's Secret with its serving certificate: `present` while that is valid, else new."""
    time = now or datetime.now(UTC)
    hosts = service_names(service, namespace)
    old = {name: base64.b64decode(text) for name, text in (present or {}).items()}
    certificate, key, authority = (old.get(name) for name in (CERTIFICATE_FILE, KEY_FILE, AUTHORITY_FILE))
    usable = renewal_reason(certificate, hosts, time) is None and defect(certificate, key, authority) is None
    if present is not None and key and usable:
        return present
    issued = issue(hosts, time)
    bundle = trust_bundle([issued.authority, authority or b""], time)
    files = {AUTHORITY_FILE: bundle, CERTIFICATE_FILE: issued.certificate, KEY_FILE: issued.key}
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


def _pod_webhooks(at: Endpoint, config: Config, configuration_names: tuple[str, str]) -> list[rules.Configuration]:
    selection = rules.PodSelection(
        config.shared.scheduler_name,
        config.namespace,
        config.shared.queue_label_key if config.admission.queue_label_selector else None,
        config.shared.namespace_label_selector,
        config.shared.pod_label_selector,
        guards_devices=config.admission.block_nvidia_visible_devices,
        checks_resizes=config.admission.in_place_pod_resize.validate_quota,
    )
    client, (mutating, validating) = _client(at), configuration_names
    return [rules.mutating_pods(client, selection, mutating), rules.validating_pods(client, selection, validating)]


def _client(at: Endpoint) -> rules.Client:
    return rules.service_client(at.namespace, at.service, at.authority, at.port)


WEBHOOKS = WebhookParts(
    issue=serving_secret,
    pods=_pod_webhooks,
    queues=lambda at, prefix: [rules.validating_queues(_client(at), prefix)],
    pod_groups=lambda at, prefix: [rules.validating_pod_groups(_client(at), prefix)],
    merged=rules.merged,
)


async def ping(address: str, seconds: float) -> str:
    """GET an address; return the error, empty for a status below 400."""
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(address) as answer:
            return "" if answer.status < 400 else f"{address} answered {answer.status}"
    except TimeoutError:
        return f"{address} did not answer within {seconds:g} s"
    except aiohttp.ClientError as error:
        return str(error)


def compose(settings: OperatorSettings, api: Api, watches: InformerFactory, work: WorkMetrics) -> Composition:
    """Return the operator as a component."""
    metered = replace(settings, meters=work.meter)
    return Composition([Part("operator", partial(controller.run, api, watches, metered))])


def check_command_line(component: str, arguments: Sequence[str]) -> None:
    """Raise FieldError for a flag that the component would reject; validated command lines are cached."""
    _check_command_line(component, tuple(arguments))


@lru_cache(maxsize=256)
def _check_command_line(component: str, arguments: Sequence[str]) -> None:
    try:
        command = main.get_command(click.Context(main), component)
        if command is None:
            raise FieldError("command", f"there is no component {component!r}")
        flags = command.make_context(component, list(arguments)).params
        if component in _WITH_SETTINGS:
            import_module(f"pykai.cli.{COMMANDS[component].module}").settings_of({**flags, **_FILE_FLAGS})
    except click.NoSuchOption as error:  # only `args` of a user can have one
        raise FieldError(f"args.{error.option_name.lstrip('-')}", f"{component} has no such flag") from error
    except click.ClickException as error:
        raise FieldError(f"flags of {component}", error.format_message()) from error


def check_configuration(document: dict[str, Any]) -> list[str]:
    """Return a line for each part of a scheduler configuration that has no effect; FieldError for an invalid field.

    The known plugins are those installed in this image. Accepted documents are cached.
    """
    return list(_cached_remarks(msgspec.json.encode(document)))


@lru_cache(maxsize=64)
def _cached_remarks(document: bytes) -> tuple[str, ...]:
    from pykai.config import (
        scheduler_config as configuration,  # imported late: with all plugins, a third of the start-up time
    )
    from pykai.config.usage_db import read_usage_config
    from pykai.plugins import registry

    config = configuration.read(msgspec.json.decode(document))
    configuration.policy(config, registry.make, registry.BUILT_IN)
    if config.usage_db:
        read_usage_config(config.usage_db, started=0.0)
    return tuple(configuration.remarks(config, registry.make))


@click.command("operator")
@takes(FLAGS, SERVERS, ELECTION, CLIENT, LOGS)
def operator(**flags: Any) -> None:
    """Deploy all other components as Config and SchedulingShard objects specify."""
    process = process_of("operator", flags, names.OPERATOR_LEASE)
    warn_ineffective(LOGS, flags)
    settings = OperatorSettings(
        WEBHOOKS, environment_of(flags), ping, Validators(check_command_line, check_configuration)
    )
    run_component(process, partial(compose, settings))
