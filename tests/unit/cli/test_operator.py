"""What `kai operator` brings to the operator: certificates, registrations, where it is, how it asks a Prometheus."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from pykai.cli.main import CommandTable, main
from pykai.cli.operator import WEBHOOKS, check_command_line, check_configuration, environment_of, ping, serving_secret
from pykai.config.fields import FieldError
from pykai.controllers.operator.components import Endpoint
from pykai.controllers.operator.desired import Validators, desired, validated
from tests.unit.controllers.operator.cluster import OWNER, PARTS, container_of, installation, wanted

NOW = datetime(2030, 1, 1, tzinfo=UTC)
AT = Endpoint("kai-scheduler", "admission", 443, b"trusted")


def test_a_certificate_is_made_once_and_renewed_in_time() -> None:
    first = serving_secret("admission", "kai-scheduler", None, NOW)
    assert serving_secret("admission", "kai-scheduler", first, NOW + timedelta(days=200)) is first
    second = serving_secret("admission", "kai-scheduler", first, NOW + timedelta(days=300))
    assert second["tls.crt"] != first["tls.crt"]
    trusted = x509.load_pem_x509_certificates(base64.b64decode(second["ca.crt"]))
    assert len(trusted) == 2
    leaf = x509.load_pem_x509_certificate(base64.b64decode(second["tls.crt"]))
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "admission.kai-scheduler.svc" in names.get_values_for_type(x509.DNSName)


@pytest.mark.parametrize("broken", [{}, {"tls.crt": "", "tls.key": ""}, {"tls.crt": "eA==", "tls.key": "eA=="}])
def test_what_is_no_certificate_is_replaced(broken: dict[str, str]) -> None:
    fresh = serving_secret("admission", "kai-scheduler", broken, NOW)
    assert set(fresh) == {"ca.crt", "tls.crt", "tls.key"}


@pytest.mark.parametrize("damaged", ["tls.key", "ca.crt"])
def test_what_does_not_belong_to_the_certificate_is_replaced(damaged: str) -> None:
    one, other = (serving_secret("admission", "kai-scheduler", None, NOW) for _ in range(2))
    fresh = serving_secret("admission", "kai-scheduler", {**one, damaged: other[damaged]}, NOW)
    assert fresh["tls.crt"] != one["tls.crt"]


def test_a_key_that_was_read_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    present = serving_secret("binder", "here", None)
    assert serving_secret("binder", "here", present) is present
    monkeypatch.setattr(serialization, "load_pem_private_key", lambda *_: pytest.fail("read again"))
    assert serving_secret("binder", "here", present) is present


def test_registrations_lead_to_the_service() -> None:
    spec = {"global": {"namespaceLabelSelector": {"team": "a"}, "podLabelSelector": {"gpu": "yes"}}}
    made = [
        *WEBHOOKS.pods(AT, installation(spec).config, ("m", "v")),
        *WEBHOOKS.queues(AT, "q-"),
        *WEBHOOKS.pod_groups(AT, "g-"),
    ]
    assert [item["metadata"]["name"] for item in made] == ["m", "v", "q-v2", "g-v2alpha2"]
    for item in made:
        for hook in item["webhooks"]:
            assert hook["clientConfig"]["service"]["name"] == "admission"
            assert base64.b64decode(hook["clientConfig"]["caBundle"]) == b"trusted"
    assert made[0]["webhooks"][0]["objectSelector"] == {"matchLabels": {"gpu": "yes"}}
    assert made[0]["webhooks"][0]["namespaceSelector"]["matchLabels"] == {"team": "a"}


def test_where_the_operator_is() -> None:
    given = {
        "namespace": "n",
        "image_registry": "reg/",
        "image_tag": "t",
        "image_name": "i",
        "image_pull_secret": "s",
    }
    site = environment_of(given)
    assert (site.namespace, site.registry, site.tag, site.image, site.pull_secret) == ("n", "reg", "t", "i", "s")


async def test_asking_a_prometheus() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=200 if request.path == "/good" else 503)

    app = web.Application()
    app.add_routes([web.get("/good", answer), web.get("/bad", answer)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    assert await ping(f"{base}/good", 2) == ""
    assert await ping(f"{base}/bad", 2) == f"{base}/bad answered 503"
    await runner.cleanup()
    assert "annot connect" in await ping(f"{base}/good", 2)


EVERYTHING = {
    "global": {
        "replicaCount": 2,
        "jsonLog": True,
        "podLabelSelector": {"a": "b"},
        "namespaceLabelSelector": {"c": "d"},
    },
    "podGrouper": {
        "args": {
            "gangScheduleKnative": False,
            "defaultPrioritiesConfigMapName": "m",
            "defaultPrioritiesConfigMapNamespace": "n",
        },
        "k8sClientConfig": {"qps": 1, "burst": 2},
        "maxConcurrentReconciles": 3,
    },
    "binder": {
        "maxConcurrentReconciles": 3,
        "resourceReservation": {
            "allocationTimeout": 9,
            "podResources": {"requests": {"cpu": "1m"}},
            "reservationPodSecurityContext": {"runAsUser": 1},
        },
        "plugins": {"hamicore": {"enabled": True}},
    },
    "admission": {"gpuSharing": True, "blockNvidiaVisibleDevices": True, "gpuPodRuntimeClassName": "x"},
    "queueController": {
        "metricsNamespace": "q",
        "queueLabelToMetricLabel": "a=b",
        "queueLabelToDefaultMetricValue": "a=c",
        "webhooks": {"enableValidation": False},
    },
    "podGroupController": {"maxConcurrentReconciles": 2, "webhooks": {"enableValidation": False}},
    "nodeScaleAdjuster": {"args": {"gpuMemoryToFractionRatio": 0.2}},
    "numaPlacementExporter": {"service": {"enabled": True}, "pollInterval": "2s", "driftResyncInterval": "0"},
}


@pytest.mark.parametrize("spec", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_components_take_the_flags_that_the_operator_gives(spec: dict[str, Any]) -> None:
    assert isinstance(main, CommandTable)
    made = wanted(spec, {"default": {"args": {"v": "5"}}}, fake_gpu_nodes=True)
    workloads = [item for (kind, _), item in made.items() if kind in ("Deployment", "DaemonSet")]
    assert len(workloads) == (8 if spec else 7)
    for item in workloads:
        program, subcommand = container_of(item)["command"]
        assert program == "kai"
        command = main.get_command(main.make_context("kai", [], resilient_parsing=True), subcommand)
        assert command is not None, subcommand
        command.make_context(subcommand, list(container_of(item)["args"]))


def test_a_shard_with_a_flag_that_the_scheduler_does_not_have_is_refused() -> None:
    made = desired(installation(), {"default": {"args": {"fly": "high"}}}, PARTS, OWNER)
    refused = validated(made, Validators(check_command_line, check_configuration)).refused
    assert refused == {"default": "spec.args.fly: scheduler has no such flag"}


@pytest.mark.parametrize("spec", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_nothing_that_is_right_is_refused(spec: dict[str, Any]) -> None:
    shards = {"default": {}, "spread": {"partitionLabelValue": "a", "placementStrategy": {"gpu": "spread"}}}
    made = desired(installation(spec), shards, PARTS, OWNER)
    assert validated(made, Validators(check_command_line, check_configuration)) == made


REFUSED_FLAGS = [
    ("scheduler", "--v=five", "flags of scheduler: Invalid value for '--v': 'five' is not a valid integer"),
    ("scheduler", "--schedule-period=soon", "--schedule-period"),
    ("binder", '--plugins={"nope": {}}', "failed to get binder plugin nope"),
    ("podgrouper", "--burst=many", "--burst"),
    ("podgrouper", "--pod-label-selector=a", "--pod-label-selector"),
    ("queue-controller", "--queue-label-to-metric-label=a=b c", "--queue-label-to-metric-label"),
    ("node-scale-adjuster", "--gpu-memory-to-fraction-ratio=2", "--gpu-memory-to-fraction-ratio"),
    ("nobody", "--v=1", "there is no component 'nobody'"),
]


@pytest.mark.parametrize(("component", "argument", "message"), REFUSED_FLAGS)
def test_a_flag_that_a_component_would_refuse_is_named(component: str, argument: str, message: str) -> None:
    with pytest.raises(FieldError, match=re.escape(message)):
        check_command_line(component, [argument])


def test_flags_that_were_accepted_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--scheduler-name=read-once"]
    check_command_line("binder", arguments)
    monkeypatch.setattr(CommandTable, "get_command", lambda *_: pytest.fail("read again"))
    check_command_line("binder", arguments)


REFUSED_CONFIGURATIONS = [
    ({"tiers": [{"plugins": [{"name": "nope"}]}]}, "tiers[0].plugins[0]: plugin 'nope' does not exist"),
    ({"usageDBConfig": {"clientType": "nope"}}, "usageDBConfig.clientType"),
]


def test_what_a_scheduler_would_take_in_vain_is_told() -> None:
    plugins = [{"name": "elastic", "arguments": {"colour": "red"}}]
    (line,) = check_configuration({"tiers": [{"plugins": plugins}]})
    assert line.startswith("tiers[0].plugins[0].arguments.colour: plugin elastic has no such argument")


@pytest.mark.parametrize(("document", "message"), REFUSED_CONFIGURATIONS)
def test_a_configuration_that_a_scheduler_would_refuse_is_named(document: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError, match=re.escape(message)):
        check_configuration({"actions": "allocate", **document})
