"""What a Config and its shards make: deployments, flags, services, budgets, and how each setting shows in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pykai.config.fields import FieldError
from pykai.controllers.operator.desired import desired
from pykai.controllers.operator.installation import MONITOR_KIND, PROMETHEUS_KIND, VPA_KIND, Leader

from .cluster import ENVIRONMENT, OWNER, PARTS, container_of, flags_of, installation, wanted

Object = dict[str, Any]
USUAL = {"pod-grouper", "binder", "queue-controller", "podgroup-controller", "node-scale-adjuster", "admission"}
HA = {"global": {"replicaCount": 2}}
BINDER_ACCOUNT = "system:serviceaccount:kai-scheduler:binder"


def deployment(name: str, spec: Object | None = None, **facts: Any) -> Object:
    return wanted(spec, {"default": {}}, **facts)["Deployment", name]


def flags(name: str, spec: Object | None = None, **facts: Any) -> dict[str, str]:
    return flags_of(deployment(name, spec, **facts))


def names(kind: str, made: dict[tuple[str, str], Object]) -> set[str]:
    return {name for found, name in made if found == kind}


# ------------------------------------------------------------------------------------------------------ all together
def test_what_an_empty_config_makes() -> None:
    made = wanted({}, {"default": {}})
    assert names("Deployment", made) == USUAL | {"kai-scheduler-default"}
    assert names("ServiceAccount", made) == USUAL | {"scheduler"}
    assert names("Service", made) == {
        "binder",
        "queue-controller",
        "podgroup-controller",
        "admission",
        "kai-scheduler-default",
    }
    assert names("Secret", made) == {
        "queue-webhook-tls-secret",
        "podgroup-webhook-tls-secret",
        "kai-admission-webhook-tls-secret",
    }
    assert names("ValidatingWebhookConfiguration", made) == {
        "kai-queue-validation-v2",
        "kai-podgroup-validation-v2alpha2",
        "validating-kai-admission",
    }
    assert names("MutatingWebhookConfiguration", made) == {"mutating-kai-admission"}
    assert names("ConfigMap", made) == {"kai-scheduler-default"}
    assert {kind for kind, _ in made} & {"PodDisruptionBudget", "VerticalPodAutoscaler", "DaemonSet"} == set()


def test_everything_is_marked_as_ours() -> None:
    for (kind, _), item in wanted({}, {"default": {}}).items():
        metadata = item["metadata"]
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "kai-operator"
        assert metadata["ownerReferences"] == [OWNER]
        assert metadata.get("namespace") == (None if kind.endswith("WebhookConfiguration") else "kai-scheduler")


@pytest.mark.parametrize("part", ["podGrouper", "binder", "queueController", "podGroupController", "admission"])
def test_a_component_that_is_off_leaves_nothing(part: str) -> None:
    everything = wanted({}, {"default": {}})
    made = wanted({part: {"service": {"enabled": False}}}, {"default": {}})
    gone = {name for _, name in set(everything) - set(made)}
    assert gone
    assert set(made) < set(everything)
    if part == "admission":
        assert gone == {
            "admission",
            "kai-admission-webhook-tls-secret",
            "mutating-kai-admission",
            "validating-kai-admission",
        }


def test_without_schedulers_shards_make_nothing() -> None:
    made = wanted({"scheduler": {"service": {"enabled": False}}}, {"default": {}})
    assert not [name for _, name in made if "scheduler" in name]


# -------------------------------------------------------------------------------------------------------------- pods
def test_users_find_pods_by_label() -> None:
    made = wanted({}, {"default": {}, "pool": {"partitionLabelValue": "a"}})
    labels = {
        name: made["Deployment", name]["spec"]["template"]["metadata"]["labels"] for name in ("binder", "admission")
    }
    assert labels == {"binder": {"app": "binder"}, "admission": {"app": "admission"}}
    for shard in ("default", "pool"):
        scheduler = made["Deployment", f"kai-scheduler-{shard}"]
        expected = {"app": "kai-scheduler", "kai.scheduler/shard": shard}
        assert scheduler["spec"]["template"]["metadata"]["labels"] == expected
        assert scheduler["spec"]["selector"]["matchLabels"] == expected


def test_containers_run_the_one_program() -> None:
    made = wanted({}, {"default": {}})
    commands = {name: container_of(item)["command"] for (kind, name), item in made.items() if kind == "Deployment"}
    assert commands == {
        "pod-grouper": ["kai", "podgrouper"],
        "binder": ["kai", "binder"],
        "queue-controller": ["kai", "queue-controller"],
        "podgroup-controller": ["kai", "podgroup-controller"],
        "node-scale-adjuster": ["kai", "node-scale-adjuster"],
        "admission": ["kai", "admission"],
        "kai-scheduler-default": ["kai", "scheduler"],
    }


def test_probes_allow_a_busy_component_more_than_the_usual_second() -> None:
    for (kind, name), item in wanted({}, {"default": {}}).items():
        if kind == "Deployment":
            container = container_of(item)
            assert container["readinessProbe"]["timeoutSeconds"] == 5, name
            alive = container["livenessProbe"]
            assert (alive["timeoutSeconds"], alive["failureThreshold"]) == (10, 6)


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({}, "reg.example/kai/pykai:v1"),
        ({"name": "binder"}, "reg.example/kai/pykai:v1"),
        ({"tag": "v2"}, "reg.example/kai/pykai:v2"),
        ({"repository": "other"}, "other/pykai:v1"),
        ({"repository": "other", "name": "own", "tag": "x"}, "other/own:x"),
    ],
)
def test_images(image: Object, reference: str) -> None:
    assert container_of(deployment("binder", {"binder": {"service": {"image": image}}}))["image"] == reference


@pytest.mark.parametrize(
    ("config", "user"),
    [({}, 10000), ({"global": {"openshift": True}}, None), ({"global": {"securityContext": {"runAsUser": 7}}}, 7)],
)
def test_pods_fit_the_restricted_profile(config: Object, user: int | None) -> None:
    context = container_of(deployment("binder", config))["securityContext"]
    assert context.get("runAsUser") == user
    if user != 7:
        assert context["runAsNonRoot"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_global_settings_reach_every_pod() -> None:
    spec = {
        "global": {
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "k"}],
            "priorityClassName": "system-cluster-critical",
            "imagesPullSecret": "one",
            "additionalImagePullSecrets": ["two", "one"],
        }
    }
    for (kind, _), item in wanted(spec, {"default": {}}).items():
        if kind == "Deployment":
            pod = item["spec"]["template"]["spec"]
            assert pod["nodeSelector"] == {"a": "b"}
            assert pod["tolerations"] == [{"key": "k"}]
            assert pod["priorityClassName"] == "system-cluster-critical"
            assert pod["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]


NODES: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
APART = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}


@pytest.mark.parametrize(
    ("config", "node", "anti"),
    [
        ({}, None, "preferred"),
        ({"global": {"requireDefaultPodAntiAffinityTerm": True}}, None, "both"),
        ({"global": {"affinity": {"nodeAffinity": NODES}}}, NODES, "preferred"),
        ({"global": {"affinity": {"podAntiAffinity": APART}}}, None, "given"),
        ({"binder": {"service": {"affinity": {"podAntiAffinity": APART}}}}, None, "given"),
    ],
)
def test_affinity(config: Object, node: Object | None, anti: str) -> None:
    affinity = deployment("binder", config)["spec"]["template"]["spec"]["affinity"]
    assert affinity.get("nodeAffinity") == node
    own = affinity["podAntiAffinity"]
    if anti == "given":
        assert own == APART
        return
    term = {"labelSelector": {"matchLabels": {"app": "binder"}}, "topologyKey": "kubernetes.io/hostname"}
    assert own["preferredDuringSchedulingIgnoredDuringExecution"] == [{"weight": 100, "podAffinityTerm": term}]
    assert own.get("requiredDuringSchedulingIgnoredDuringExecution") == ([term] if anti == "both" else None)


def test_resources_of_config_replace_ours_part_by_part() -> None:
    spec = {"binder": {"service": {"resources": {"limits": {"memory": "1Gi"}}}}}
    assert container_of(deployment("binder", spec))["resources"] == {
        "requests": {"cpu": "50m", "memory": "200Mi"},
        "limits": {"memory": "1Gi"},
    }


def test_certificates_are_mounted_where_webhooks_are_served() -> None:
    pod = deployment("admission")["spec"]["template"]["spec"]
    assert pod["volumes"][0]["secret"]["secretName"] == "kai-admission-webhook-tls-secret"
    assert pod["containers"][0]["volumeMounts"][0]["mountPath"] == "/tmp/k8s-webhook-server/serving-certs"
    off = wanted({"queueController": {"webhooks": {"enableValidation": False}}})
    assert "volumes" not in off["Deployment", "queue-controller"]["spec"]["template"]["spec"]
    assert ("Secret", "queue-webhook-tls-secret") not in off
    assert ("ValidatingWebhookConfiguration", "kai-queue-validation-v2") not in off
    assert [port["name"] for port in off["Service", "queue-controller"]["spec"]["ports"]] == ["metrics"]
    assert flags_of(off["Deployment", "queue-controller"])["enable-webhook"] == "false"


def test_a_certificate_of_somebody_else_is_used_and_not_written() -> None:
    made = wanted({}, provided=frozenset({"admission"}))
    assert ("Secret", "kai-admission-webhook-tls-secret") not in made
    assert ("MutatingWebhookConfiguration", "mutating-kai-admission") in made


# ------------------------------------------------------------------------------------------------------------- flags
@pytest.mark.parametrize(
    ("name", "spec", "expected"),
    [
        ("admission", {}, {"gpu-fraction-runtime-class-name": "nvidia", "gpu-sharing-enabled": None, "qps": "20"}),
        ("admission", {"admission": {"gpuSharing": True}}, {"gpu-sharing-enabled": "true"}),
        ("admission", {"admission": {"blockNvidiaVisibleDevices": True}}, {"block-nvidia-visible-devices": "true"}),
        ("admission", {"admission": {"gpuFractionRuntimeClassName": ""}}, {"gpu-fraction-runtime-class-name": ""}),
        (
            "admission",
            {"admission": {"gpuPodRuntimeClassName": "kata"}},
            {"gpu-fraction-runtime-class-name": None, "gpu-pod-runtime-class-name": "kata"},
        ),
        ("admission", {"binder": {"plugins": {"hamicore": {"enabled": True}}}}, {"hami-core-enabled": "true"}),
        ("admission", {"admission": {"webhook": {"targetPort": 9000}}}, {"webhook-addr": "9000"}),
        ("admission", {}, {"validate-resize-quota": None, "block-upsize-on-bounded-queues": None}),
        (
            "admission",
            {"admission": {"inPlacePodResize": {"validateQuota": False, "blockUpsizeOnBoundedQueues": True}}},
            {"validate-resize-quota": "false", "block-upsize-on-bounded-queues": "true"},
        ),
        (
            "queue-controller",
            {"queueController": {"enforceQuotaViolation": "Block"}},
            {"enforce-quota-violation": "Block"},
        ),
        ("binder", {}, {"runtime-class-name": "nvidia", "fake-gpu-nodes": None, "leader-elect": None}),
        ("binder", {"binder": {"resourceReservation": {"runtimeClassName": ""}}}, {"runtime-class-name": ""}),
        ("binder", {"binder": {"resourceReservation": {"runtimeClassName": "x"}}}, {"runtime-class-name": "x"}),
        ("binder", {}, {"resource-reservation-pod-image": "reg.example/kai/resource-reservation:v1"}),
        ("binder", HA, {"leader-elect": "true"}),
        ("binder", {"binder": {"service": {"k8sClientConfig": {"qps": 7}}}}, {"qps": "7", "burst": "100"}),
        (
            "binder",
            {"binder": {"resourceReservation": {"podResources": {"limits": {"cpu": "1"}}}}},
            {"resource-reservation-pod-resources": '{"limits":{"cpu":"1"}}'},
        ),
        ("pod-grouper", {}, {"qps": None, "knative-gang-schedule": None, "generic-karta-fallback": "true"}),
        (
            "pod-grouper",
            {"global": {"podLabelSelector": {"b": "2", "a": "1"}}},
            {"pod-label-selector": "a=1,b=2", "namespace-label-selector": None},
        ),
        (
            "pod-grouper",
            {"podGrouper": {"args": {"defaultPrioritiesConfigMapName": "m"}}},
            {"default-priorities-configmap-name": None},
        ),
        ("pod-grouper", {"global": {"queueLabelKey": "runai/queue"}}, {"queue-label-key": "runai/queue"}),
        ("queue-controller", {"queueController": {"metricsNamespace": "q"}}, {"metrics-namespace": "q"}),
        ("podgroup-controller", HA, {"leader-elect": "true"}),
        (
            "node-scale-adjuster",
            {},
            {"scaling-pod-image": "reg.example/kai/scaling-pod:v1", "scaling-pod-service-account": "kai-scale-adjust"},
        ),
        ("kai-scheduler-default", {}, {"leader-elect": None, "partition-label-value": "", "listen-address": ":8080"}),
        ("kai-scheduler-default", {"global": {"replicaCount": 3}}, {"leader-elect": "true"}),
        ("kai-scheduler-default", {"global": {"jsonLog": True}}, {"log-json": "true"}),
        ("binder", {"global": {"jsonLog": True}}, {"zap-devel": "false"}),
    ],
)
def test_flags(name: str, spec: Object, expected: dict[str, str | None]) -> None:
    given = flags(name, spec)
    assert {flag: given.get(flag) for flag in expected} == expected


@pytest.mark.parametrize(
    ("spec", "facts", "enabled"),
    [
        ({}, False, "false"),
        ({}, True, "true"),
        ({"binder": {"cdiEnabled": False}}, True, "false"),
        ({"binder": {"plugins": {"gpusharing": {"arguments": {"cdiEnabled": "true"}}}}}, False, "true"),
    ],
)
def test_cdi(spec: Object, facts: bool, enabled: str) -> None:
    plugins = json.loads(flags("binder", spec, cdi=facts)["plugins"])
    assert plugins["gpusharing"] == {"enabled": False, "priority": 100, "arguments": {"cdiEnabled": enabled}}


def test_binder_plugins() -> None:
    change = {"volumebinding": {"enabled": False}, "own": {"arguments": {"a": "b"}}}
    spec = {"binder": {"plugins": change, "volumeBindingTimeoutSeconds": 30}}
    plugins = json.loads(flags("binder", spec)["plugins"])
    waits = {"bindTimeoutSeconds": "30"}
    assert plugins["volumebinding"] == {"enabled": False, "priority": 300, "arguments": waits}
    assert plugins["dynamicresources"] == {"enabled": True, "priority": 200, "arguments": waits}
    assert plugins["hamicore"]["enabled"] is False
    assert plugins["own"] == {"enabled": True, "priority": 0, "arguments": {"a": "b"}}


def mode(text: str, **more: Object) -> Object:
    return {"global": {"gpuSharingMode": text}, **more}


ON = {"admission": {"gpuSharing": True}}
HAMI = {"binder": {"plugins": {"hamicore": {"enabled": True}}}}
NO_HAMI = {"binder": {"plugins": {"hamicore": {"enabled": False}}}}
FRACTIONS = {"gpu-sharing-mode": "NvFractions", "binder-service-account-username": BINDER_ACCOUNT}
SHARING = {"gpu-sharing-enabled": "true"}


@pytest.mark.parametrize(
    ("spec", "plugins", "admission"),
    [
        ({}, set(), {}),
        (ON, {"gpusharing"}, SHARING),
        (HAMI, {"gpusharing", "hamicore"}, {**SHARING, "hami-core-enabled": "true"}),
        (mode("Disabled"), set(), {}),
        (mode("NonMemoryEnforced"), {"gpusharing"}, SHARING),
        (mode("HamiCore"), {"gpusharing", "hamicore"}, {**SHARING, "hami-core-enabled": "true"}),
        (mode("HamiCore", **NO_HAMI), {"gpusharing"}, SHARING),
        (mode("NvFractions"), {"nvfractions"}, FRACTIONS),
        (mode("NvFractions", **ON), {"gpusharing", "nvfractions"}, {**SHARING, **FRACTIONS}),
        (mode("Disabled", **ON), {"gpusharing"}, SHARING),
    ],
)
def test_gpu_sharing_modes(spec: Object, plugins: set[str], admission: dict[str, str]) -> None:
    """What a plugin says itself, and the older switch, go before the mode."""
    rows = json.loads(flags("binder", spec)["plugins"])
    assert {name for name in ("gpusharing", "nvfractions", "hamicore") if rows[name]["enabled"]} == plugins
    said = flags("admission", spec)
    asked = (*SHARING, *FRACTIONS, "hami-core-enabled")
    assert {flag: said[flag] for flag in asked if flag in said} == admission
    scheduler = flags("kai-scheduler-default", spec)
    assert scheduler.get("gpu-sharing-mode") == admission.get("gpu-sharing-mode")


def test_priorities_of_the_plugins_that_share_gpus() -> None:
    rows = json.loads(flags("binder")["plugins"])
    assert [rows[name]["priority"] for name in ("gpusharing", "nvfractions", "hamicore")] == [100, 90, 50]


@pytest.mark.parametrize("given", [{}, {"gpuFractionRuntimeClassName": "x"}, {"gpuPodRuntimeClassName": "x"}])
def test_no_runtime_class_where_the_gpu_operator_injects_devices_by_nri(given: Object) -> None:
    said = flags("admission", {"admission": given}, nri=True)
    assert (said["gpu-fraction-runtime-class-name"], said.get("gpu-pod-runtime-class-name")) == ("", None)


def test_the_service_of_admission_by_another_name() -> None:
    made = wanted({"admission": {"serviceName": "kai-hooks"}})
    assert ("Service", "kai-hooks") in made
    assert ("Service", "admission") not in made
    hooks = made["ValidatingWebhookConfiguration", "validating-kai-admission"]
    assert hooks["webhooks"][0]["clientConfig"]["service"]["name"] == "kai-hooks"


def test_services_of_schedulers_have_the_label_that_kais_monitors_select() -> None:
    made = wanted({}, {"default": {}})["Service", "kai-scheduler-default"]
    assert made["metadata"]["labels"]["app"] == "kai-scheduler-default"
    assert made["spec"]["selector"]["app"] == "kai-scheduler"


def test_limits_of_the_schedulers_requests() -> None:
    said = flags("kai-scheduler-default", {"scheduler": {"service": {"k8sClientConfig": {"qps": 7, "burst": 70}}}})
    assert (said["qps"], said["burst"]) == ("7", "70")
    assert "qps" not in flags("kai-scheduler-default")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"global": {"fipsOnly": True}}, "spec.global.fipsOnly: there are no images with FIPS cryptography only"),
        ({"admission": {"serviceName": "A b"}}, "spec.admission.serviceName: 'A b' cannot be the name of a Service"),
    ],
)
def test_what_config_may_not_say(spec: Object, message: str) -> None:
    with pytest.raises(FieldError) as refused:
        wanted(spec)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("spec", "reason", "lines"),
    [
        (mode("NvFractions"), "x not found", ["Gpu Sharing is not ready. x not found"]),
        (mode("NvFractions"), "", []),
        ({}, "x not found", []),
        (mode("HamiCore"), "x not found", []),
    ],
)
def test_readiness_of_fractions_is_a_dependency(spec: Object, reason: str, lines: list[str]) -> None:
    assert desired(installation(spec, fractions=reason), {}, PARTS, OWNER).missing == lines


def test_fake_gpu_nodes_are_told_to_the_binder() -> None:
    assert flags("binder", fake_gpu_nodes=True)["fake-gpu-nodes"] == "true"


# ------------------------------------------------------------------------------------------------------------ shards
def test_a_shard_of_its_own_nodes() -> None:
    made = wanted({}, {"gold": {"partitionLabelValue": "gold", "args": {"v": "5", "qps": "99"}}})
    scheduler = made["Deployment", "kai-scheduler-gold"]
    arguments = container_of(scheduler)["args"]
    assert "--partition-label-value=gold" in arguments
    assert arguments[-2:] == ["--qps=99", "--v=5"]
    assert scheduler["spec"]["template"]["spec"]["serviceAccountName"] == "scheduler"


def test_a_change_of_configuration_rolls_out() -> None:
    def version(**spec: Any) -> str:
        template = wanted({}, {"default": spec})["Deployment", "kai-scheduler-default"]["spec"]["template"]
        return str(template["metadata"]["annotations"]["configMapVersion"])

    assert version() == version()
    assert version() != version(kValue=2)


def test_mistakes_in_shards_are_told_and_harm_no_other() -> None:
    shards: dict[str, dict[str, Any]] = {
        "a": {},
        "c": {"partitionLabelValue": ""},
        "d": {"partitionLabelValue": "d", "kValue": "much"},
    }
    made = desired(installation(), shards, PARTS, OWNER)
    assert set(made.shards) == {"a"}
    assert made.refused == {
        "c": "spec.partitionLabelValue: shard a already schedules these nodes",
        "d": "spec.kValue: expected a number, got a string",
    }


# -------------------------------------------------------------------------------------------------- high availability
def test_two_replicas() -> None:
    budget = {"service": {"podDisruptionBudget": {"enabled": True, "maxUnavailable": "50%"}}}
    made = wanted({**HA, "admission": budget, "scheduler": budget}, {"default": {}})
    assert names("PodDisruptionBudget", made) == {"admission", "kai-scheduler-default"}
    assert made["PodDisruptionBudget", "admission"]["spec"]["maxUnavailable"] == "50%"
    for (kind, _), item in made.items():
        if kind == "Deployment":
            assert item["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("name", "strategy"),
    [("binder", "Recreate"), ("kai-scheduler-default", "Recreate"), ("admission", "RollingUpdate")],
)
@pytest.mark.parametrize("config", [{}, HA])
def test_what_may_be_there_twice_for_a_moment(config: Object, name: str, strategy: str) -> None:
    assert wanted(config, {"default": {}})["Deployment", name]["spec"]["strategy"]["type"] == strategy


def test_of_several_schedulers_the_leader_is_the_endpoint() -> None:
    leader = Leader("kai-scheduler-default-x", "10.0.0.1", "n1")
    made = wanted(HA, {"default": {}}, leaders={"kai-scheduler": leader})
    assert "selector" not in made["Service", "kai-scheduler-default"]["spec"]
    ends = made["EndpointSlice", "kai-scheduler-default-leader"]
    assert ends["endpoints"][0]["addresses"] == ["10.0.0.1"]
    assert ends["metadata"]["labels"]["kubernetes.io/service-name"] == "kai-scheduler-default"
    unknown = wanted(HA, {"default": {}})["EndpointSlice", "kai-scheduler-default-leader"]
    assert unknown["endpoints"] == []


def test_one_scheduler_is_selected_by_labels() -> None:
    service = wanted({}, {"default": {}})["Service", "kai-scheduler-default"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"app": "kai-scheduler", "kai.scheduler/shard": "default"}
    assert service["metadata"]["annotations"] == {"prometheus.io/scrape": "true"}


# ------------------------------------------------------------------------------------------------- what may be absent
def test_autoscalers_where_the_cluster_has_them() -> None:
    spec = {"global": {"vpa": {"enabled": True, "updatePolicy": {"updateMode": "Off"}}}}
    made = desired(installation(spec), {"default": {}}, PARTS, OWNER)
    assert not [item for item in made.all() if item["kind"] == "VerticalPodAutoscaler"]
    assert "Binder is missing vertical pod autoscaler" in made.missing
    there = wanted(spec, {"default": {}}, installed=frozenset({VPA_KIND}))
    assert names("VerticalPodAutoscaler", there) == USUAL | {"kai-scheduler-default"}
    vpa = there["VerticalPodAutoscaler", "binder"]["spec"]
    assert vpa["targetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "binder"}
    assert vpa["updatePolicy"] == {"updateMode": "Off"}


BOTH = frozenset({PROMETHEUS_KIND, MONITOR_KIND})


@pytest.mark.parametrize(
    ("asked", "installed", "made", "missing"),
    [
        ({}, BOTH, set(), []),
        ({"enabled": True}, BOTH, {"Prometheus", "ServiceMonitor"}, []),
        ({"enabled": True}, frozenset(), set(), ["KAI-prometheus is missing prometheus operator"]),
        ({"enabled": True, "serviceMonitor": {"enabled": False}}, BOTH, {"Prometheus"}, []),
        ({"enabled": True, "externalPrometheusUrl": "http://p"}, BOTH, {"ServiceMonitor"}, []),
    ],
)
def test_prometheus(asked: Object, installed: frozenset[str], made: set[str], missing: list[str]) -> None:
    found = desired(installation({"prometheus": asked}, installed=installed), {}, PARTS, OWNER)
    kinds = {item["kind"] for item in found.operands["KAI-prometheus"]}
    assert kinds & {"Prometheus", "ServiceMonitor"} == made
    assert list(found.missing) == missing


DAY = 86400.0


@pytest.mark.parametrize(
    ("annotation", "now", "kept"),
    [(None, 100 * DAY, True), ("1970-04-11T00:00:00Z", 113 * DAY, True), ("1970-04-11T00:00:00Z", 115 * DAY, False)],
)
def test_a_database_that_is_switched_off_stays_for_its_retention(
    annotation: str | None, now: float, kept: bool
) -> None:
    annotations = {"kai/deprecation-timestamp": annotation} if annotation else {}
    live = {"metadata": {"name": "prometheus", "annotations": annotations}, "spec": {"retention": "2w"}}
    made = wanted({}, installed=BOTH, database=live, now=now)
    assert (("Prometheus", "prometheus") in made) is kept
    if kept:
        mark = made["Prometheus", "prometheus"]["metadata"]["annotations"]["kai/deprecation-timestamp"]
        assert mark == (annotation or "1970-04-11T00:00:00Z")


@pytest.mark.parametrize(
    ("spec", "shard", "runs"),
    [
        ({}, {}, False),
        ({}, {"plugins": {"numa": {}}}, True),
        ({}, {"plugins": {"numa": {"enabled": False}}}, False),
        ({"numaPlacementExporter": {"service": {"enabled": False}}}, {"plugins": {"numa": {}}}, False),
        ({"numaPlacementExporter": {"service": {"enabled": True}}}, {}, True),
    ],
)
def test_the_numa_exporter_runs_where_it_is_needed(spec: Object, shard: Object, runs: bool) -> None:
    made = wanted(spec, {"default": shard})
    assert (("DaemonSet", "numa-placement-exporter") in made) is runs
    if runs:
        exporter = made["DaemonSet", "numa-placement-exporter"]
        assert exporter["spec"]["template"]["spec"]["nodeSelector"] == {
            "feature.node.kubernetes.io/memory-numa": "true"
        }
        assert flags_of(exporter)["podresources-socket"] == "/var/lib/kubelet/pod-resources/kubelet.sock"
        assert container_of(exporter)["image"] == f"{ENVIRONMENT.registry}/pykai:v1"


@pytest.mark.parametrize("general", [{}, {"runAsNonRoot": True, "runAsUser": 7, "allowPrivilegeEscalation": False}])
def test_the_numa_exporter_is_root_whatever_the_others_are(general: Object) -> None:
    made = wanted({"global": {"securityContext": general}}, {"default": {"plugins": {"numa": {}}}})
    context = container_of(made["DaemonSet", "numa-placement-exporter"])["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"], context["allowPrivilegeEscalation"]) == (0, False, False)
