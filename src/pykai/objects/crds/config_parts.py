"""The parts that the components in Config share: service, image, client limits, replicas."""

from __future__ import annotations

from pykai.objects.crds.shapes import (
    Schema,
    choice,
    foreign,
    foreign_list,
    quantities,
    record,
    switch,
    text,
    whole,
)


def image(name: str) -> Schema:
    """A container image."""
    return record(
        "The container image, as repository/name:tag.",
        {
            "repository": text("The registry and path; the operator's own if absent."),
            "name": text("The name of the image.", default=name),
            "tag": text("The tag; the operator's own if absent."),
            "pullPolicy": choice("When to pull it.", "Always", "IfNotPresent", "Never", default="IfNotPresent"),
        },
    )


def resources() -> Schema:
    """Requests and limits of a container."""
    return record(
        "What the container asks for.",
        {
            "requests": quantities("What is set aside for it."),
            "limits": quantities("What it may not exceed."),
            "claims": foreign_list("Resource claims it uses."),
        },
    )


def client_limits(doc: str) -> Schema:
    """Limits of a component's requests to the API server."""
    return record(
        doc, {"qps": whole("Requests per second.", minimum=0), "burst": whole("Requests at once.", minimum=0)}
    )


def service(name: str, **enabled: bool) -> Schema:
    """A component's deployment; `enabled` may carry another default than true."""
    rules = enabled or {"default": True}
    return record(
        "How the component is deployed.",
        {
            "enabled": switch("Whether the component is deployed.", **rules),
            "image": image(name),
            "resources": resources(),
            "k8sClientConfig": client_limits("Limits of its requests to the API server; 20 and 100 if absent."),
            "affinity": foreign("Where its pods run (Affinity); goes before the global one."),
            "podDisruptionBudget": record(
                "How many of its pods may be taken down at a time; only with more than one replica.",
                {
                    "enabled": switch("Whether there is a budget.", default=False),
                    "maxUnavailable": {
                        "description": "How many pods, or which part of them, may be missing.",
                        "anyOf": [{"type": "integer"}, {"type": "string"}],
                        "x-kubernetes-int-or-string": True,
                        "default": 1,
                    },
                },
            ),
        },
    )


def service_without_default(name: str) -> Schema:
    """A component's deployment that the operator turns on and off by itself unless told."""
    part = service(name)
    del part["properties"]["enabled"]["default"]
    return part


def autoscaler() -> Schema:
    """Vertical autoscaling of a component."""
    return record(
        "Vertical autoscaling.",
        {
            "enabled": switch("Whether there is an autoscaler.", default=False),
            "updatePolicy": foreign("How it acts (PodUpdatePolicy)."),
            "resourcePolicy": foreign("What it may set (PodResourcePolicy)."),
        },
    )


def replicas() -> Schema:
    """How many copies of a component run."""
    return whole("How many copies run; global.replicaCount if absent.", minimum=0)


def port(doc: str, default: int) -> Schema:
    """A port number."""
    return whole(doc, minimum=1, maximum=65535, default=default)


def webhook_port() -> Schema:
    """The service port of a validating webhook."""
    return record(
        "The port of the webhook.",
        {
            "port": port("The port of the service.", 443),
            "targetPort": port("The port of the container.", 9443),
            "name": text("The name of the port.", default="webhook"),
        },
    )


def validation(prefix: str) -> Schema:
    """Whether objects are checked when they are written."""
    return record(
        "Checks of objects when they are written.",
        {
            "enableValidation": switch("Whether objects are checked.", default=True),
            "webhookConfigurationNamePrefix": text("How the webhook configuration's name begins.", default=prefix),
        },
    )
