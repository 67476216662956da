"""The Helm chart: it lints, renders for ten sets of values, refuses what it does not know, and agrees with the code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from charts import generate, roles, values

import pykai
from pykai.cli import install
from pykai.cli.main import CommandTable, main
from pykai.controllers.operator.components import COMPONENTS
from pykai.controllers.operator.desired import desired
from pykai.controllers.operator.installation import read_config, read_shard
from pykai.controllers.operator.shards import config_document
from pykai.controllers.podgrouper.reader import plural_of
from pykai.controllers.podgrouper.rules.workload_kinds import TABLE
from pykai.objects.crds import DEFINITIONS
from pykai.objects.schema_validation import violations
from tests.unit.controllers.operator.cluster import OWNER, PARTS, container_of, installation

from .rendering import CHART, VALUE_SETS, by_name, helm, objects, render

Object = dict[str, Any]
SETS = pytest.mark.parametrize("name", VALUE_SETS)


def rendered(folder: Path, given: Object, *arguments: str) -> dict[tuple[str, str], Object]:
    return by_name(objects(render(folder, given, *arguments)))


def config_of(folder: Path, given: Object, *arguments: str) -> Object:
    spec = rendered(folder, given, *arguments)["Config", "kai-config"]["spec"]
    assert isinstance(spec, dict)
    return spec


# --------------------------------------------------------------------------------------------------- generated parts
def test_generated_files_are_up_to_date() -> None:
    on_disk = {name: (CHART / name).read_text() for name in generate.files()}
    assert on_disk == generate.files(), "write them anew: python -m charts.generate"
    assert {path.name for path in (CHART / "crds").iterdir()} == {
        Path(name).name for name in generate.files() if name.startswith("crds/")
    }


def test_versions_agree() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["name"], chart["version"], chart["appVersion"]) == (
        "kai-scheduler",
        pykai.__version__,
        pykai.__version__,
    )


def leaves(value: Any, path: str = "") -> set[str]:
    """The dotted paths of a tree of values, those above a leaf included."""
    found = {path} if path else set()
    if isinstance(value, dict):
        for key, item in value.items():
            found |= leaves(item, f"{path}.{key}" if path else key)
    return found


def test_every_default_is_a_known_value_and_every_value_is_explained() -> None:
    known = values.paths()
    given = yaml.safe_load((CHART / "values.yaml").read_text())
    assert leaves({key: _fields(item, known, key) for key, item in given.items()}) <= set(known)
    assert [path for path, about in known.items() if not about.endswith(".")] == []


def _fields(value: Any, known: dict[str, Any], path: str) -> Any:
    """The value without what is inside of free-form fields."""
    if not isinstance(value, dict) or not any(each.startswith(f"{path}.") for each in known):
        return None
    return {key: _fields(item, known, f"{path}.{key}") for key, item in value.items()}


# --------------------------------------------------------------------------------------------------------- rendering
def test_lint() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART)).stdout


@SETS
def test_every_set_lints_and_renders_to_objects(name: str, tmp_path: Path) -> None:
    text = render(tmp_path, VALUE_SETS[name])
    assert text == render(tmp_path, VALUE_SETS[name]), "rendering is not stable"
    helm("lint", "--strict", str(CHART), "-f", str(tmp_path / "values.yaml"))
    items = objects(text)
    keys = [
        (item["apiVersion"], item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
        for item in items
    ]
    assert len(set(keys)) == len(keys)
    for item in items:
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert all(isinstance(value, str) for value in labels.values())


@SETS
def test_custom_objects_fit_their_definitions(name: str, tmp_path: Path) -> None:
    schemas = {definition.kind: definition.spec for definition in DEFINITIONS}
    for item in objects(render(tmp_path, VALUE_SETS[name])):
        if item["kind"] in schemas and item["apiVersion"].split("/")[0] in ("kai.scheduler", "scheduling.run.ai"):
            assert list(violations(item["spec"], schemas[item["kind"]], "spec")) == []
            assert _unknown(item["spec"], schemas[item["kind"]]) == []


def _unknown(value: Any, schema: Object, path: str = "spec") -> list[str]:
    """Fields that the API server would drop."""
    known = schema.get("properties")
    if not isinstance(value, dict) or not known:
        return []
    lost = [f"{path}.{key}" for key in value if key not in known]
    return lost + [line for key in value if key in known for line in _unknown(value[key], known[key], f"{path}.{key}")]


@SETS
def test_the_operator_and_the_scheduler_read_what_is_rendered(name: str, tmp_path: Path) -> None:
    made = rendered(tmp_path, VALUE_SETS[name])
    config = made["Config", "kai-config"]["spec"]
    assert read_config(config).namespace == "kai-scheduler"
    if ("SchedulingShard", "default") in made:
        shard = read_shard("default", made["SchedulingShard", "default"]["spec"])
        assert config_document(shard, installation(config))


@SETS
def test_commands_of_the_charts_own_pods_exist(name: str, tmp_path: Path) -> None:
    assert isinstance(main, CommandTable)
    for item in objects(render(tmp_path, VALUE_SETS[name])):
        for container in (item.get("spec") or {}).get("template", {}).get("spec", {}).get("containers", []):
            program, subcommand = container["command"]
            command = main.get_command(main.make_context("kai", [], resilient_parsing=True), subcommand)
            assert program == "kai"
            assert command is not None
            command.make_context(subcommand, list(container.get("args", [])))


@pytest.mark.parametrize(
    ("name", "user"), [("defaults", 10000), ("openshift", None), ("placement", 2000), ("private-registry", 10000)]
)
def test_own_pods_fit_the_restricted_profile(name: str, user: int | None, tmp_path: Path) -> None:
    made = rendered(tmp_path, VALUE_SETS[name])
    for key in (("Deployment", "kai-operator"), ("Job", "crd-upgrader")):
        pod = made[key]["spec"]["template"]["spec"]
        context = pod["containers"][0]["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context.get("runAsUser") == user
        assert "hostNetwork" not in pod
        if name != "placement":
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}


# ------------------------------------------------------------------------------------------------------------ values
@pytest.mark.parametrize(
    "wrong",
    [
        "global.gpuSharin=true",
        "dashboard.enable=true",
        "dashboard.port=0",
        "gpuSharing=true",
        "global.gpuSharing=maybe",
        "binder.runtimeclassname=x",
        "binder.resourceReservation.runtimeClass=x",
        "scheduler.placementStrategy=best",
        "scheduler.args.v=5",
        "scheduler.plugins.elastic.enabeld=false",
        "operator.replicaCount=two",
        "operator.replicas=2",
        "global.fipsMode=on",
        "defaultQueue.childResources.gpu.qouta=1",
        "global.imagePullSecrets[0]=pull",
        "admission.ports.webhookPort=0",
        "prometheus.externalPrometheusURL=http://x",
    ],
)
def test_a_wrong_value_is_refused_by_name(wrong: str) -> None:
    done = helm("template", str(CHART), "--set", wrong, check=False)
    assert done.returncode != 0
    path = wrong.split("=")[0].replace("[0]", ".0")
    assert path.split(".")[-1] in done.stderr or path in done.stderr


@pytest.mark.parametrize(
    ("arguments", "path", "expected"),
    [
        ([], "admission.gpuSharing", False),
        (["global.gpuSharing=true"], "admission.gpuSharing", True),
        ([], "binder.resourceReservation.runtimeClassName", "nvidia"),
        (["binder.resourceReservation.runtimeClassName=kata"], "binder.resourceReservation.runtimeClassName", "kata"),
        (["binder.resourceReservation.runtimeClassName="], "binder.resourceReservation.runtimeClassName", ""),
        (["binder.runtimeClassName=kata"], "binder.resourceReservation.runtimeClassName", "kata"),
        (["binder.runtimeClassName="], "binder.resourceReservation.runtimeClassName", ""),
        (
            ["binder.runtimeClassName=a", "binder.resourceReservation.runtimeClassName=b"],
            "binder.resourceReservation.runtimeClassName",
            "b",
        ),
        ([], "admission.gpuFractionRuntimeClassName", "nvidia"),
        (["admission.gpuFractionRuntimeClassName=null"], "admission.gpuFractionRuntimeClassName", "nvidia"),
        (["global.gpuSharing=true"], "global.gpuSharingMode", None),
        (["global.gpuSharingMode=HamiCore"], "global.gpuSharingMode", "HamiCore"),
        (["global.gpuSharingMode=HamiCore"], "admission.gpuSharing", True),
        (["global.gpuSharingMode=Disabled", "global.gpuSharing=true"], "admission.gpuSharing", False),
        (["global.gpuSharingMode=NvFractions"], "admission.gpuSharing", False),
        (["global.nvFractions.set=true"], "global.gpuSharingMode", "NvFractions"),
        (["admission.serviceName=hooks"], "admission.serviceName", "hooks"),
        ([], "queueController.service.podDisruptionBudget", {"enabled": True, "maxUnavailable": 1}),
        ([], "binder.service.podDisruptionBudget", {"enabled": True, "maxUnavailable": 1}),
        (["admission.gpuFractionRuntimeClassName="], "admission.gpuFractionRuntimeClassName", ""),
        (["admission.gpuPodRuntimeClassName=kata"], "admission.gpuPodRuntimeClassName", "kata"),
        (["binder.cdiEnabled=true"], "binder.cdiEnabled", True),
        ([], "binder.cdiEnabled", None),
        (["openshift=true"], "global.openshift", True),
        (["operator.replicaCount=3"], "global.replicaCount", 3),
        (["global.clusterAutoscaling=true"], "nodeScaleAdjuster.service.enabled", True),
        (["podgrouper.queueLabelKey=runai/queue"], "global.queueLabelKey", "runai/queue"),
        (["podgrouper.args.gangScheduleDeployment=false"], "podGrouper.args.gangScheduleDeployment", False),
        (["podgrouper.args.gangScheduleKnative=false"], "podGrouper.args.genericKartaFallback", True),
        (["podgrouper.genericKartaFallback=false"], "podGrouper.args.genericKartaFallback", False),
        (["podgrouper.args.genericKartaFallback=false"], "podGrouper.args.genericKartaFallback", False),
        (["global.resourceReservation.namespace=elsewhere"], "binder.resourceReservation.namespace", "elsewhere"),
        (["numaPlacementExporter.enabled=false"], "numaPlacementExporter.service.enabled", False),
        ([], "numaPlacementExporter.service.enabled", None),
        (["scheduler.ports.metricsPort=9090"], "scheduler.schedulerService.targetPort", 9090),
        (["admission.ports.webhookPort=9000"], "admission.webhook.targetPort", 9000),
    ],
)
def test_values_reach_the_config(arguments: list[str], path: str, expected: Any, tmp_path: Path) -> None:
    sets = [part for argument in arguments for part in ("--set", argument)]
    found: Any = config_of(tmp_path, {}, *sets)
    for key in path.split("."):
        found = (found or {}).get(key)
    assert found == expected


@pytest.mark.parametrize(
    ("given", "present"),
    [
        ({}, True),
        ({"kaiConfigDeployer": {"enabled": False}}, False),
        ({"kaiConfigDeployer": {"enabled": False}, "kaiConfig": {"render": True}}, True),
    ],
)
def test_who_makes_the_config(given: Object, present: bool, tmp_path: Path) -> None:
    assert (("Config", "kai-config") in rendered(tmp_path, given)) is present


@pytest.mark.parametrize(
    ("given", "reference"),
    [
        ({}, f"registry/local/kai-scheduler/pykai:{pykai.__version__}"),
        ({"global": {"tag": "v1", "registry": "r/"}}, "r/pykai:v1"),
        ({"operator": {"image": {"name": "operator", "tag": "x"}}}, "registry/local/kai-scheduler/pykai:x"),
        ({"operator": {"image": {"name": "own"}}}, f"registry/local/kai-scheduler/own:{pykai.__version__}"),
    ],
)
def test_the_operators_image(given: Object, reference: str, tmp_path: Path) -> None:
    pod = rendered(tmp_path, given)["Deployment", "kai-operator"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == reference


def test_the_operators_probes_allow_more_than_the_usual_second(tmp_path: Path) -> None:
    (container,) = rendered(tmp_path, {})["Deployment", "kai-operator"]["spec"]["template"]["spec"]["containers"]
    assert (container["readinessProbe"]["timeoutSeconds"], container["livenessProbe"]["timeoutSeconds"]) == (5, 10)


def test_a_value_file_of_kai_works(tmp_path: Path) -> None:
    given = yaml.safe_load((Path(__file__).parent / "values_of_kai.yaml").read_text())
    made = rendered(tmp_path, given)
    assert made["Deployment", "kai-operator"]["spec"]["template"]["spec"]["containers"][0]["image"].startswith(
        "r/pykai:"
    )
    config = made["Config", "kai-config"]["spec"]
    workloads = desired(installation(config), {"default": {}}, PARTS, OWNER).all()
    used = {container_of(item)["image"] for item in workloads if item["kind"] == "Deployment"}
    assert used == {"reg.example/kai/pykai:v1"}


def test_queues_and_priority_classes(tmp_path: Path) -> None:
    made = rendered(tmp_path, {})
    classes = {name: item["value"] for (kind, name), item in made.items() if kind == "PriorityClass"}
    assert classes == {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
    share = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    for name, parent in (("default-parent-queue", None), ("default-queue", "default-parent-queue")):
        queue = made["Queue", name]
        assert queue["spec"].get("parentQueue") == parent
        assert queue["spec"]["resources"] == {"cpu": share, "memory": share, "gpu": share}
        assert queue["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    upgraded = rendered(tmp_path, {}, "--is-upgrade")
    assert not [key for key in upgraded if key[0] == "Queue"]


def test_hooks_come_only_before(tmp_path: Path) -> None:
    for item in objects(render(tmp_path, {})):
        hook = (item["metadata"].get("annotations") or {}).get("helm.sh/hook")
        assert hook in (None, "pre-install,pre-upgrade")
    without = render(tmp_path, {"crdupgrader": {"enabled": False}})
    assert "helm.sh/hook" not in without


def test_topologies_are_copied_unless_switched_off(tmp_path: Path) -> None:
    assert "migrate-topologies" in {flag.name for flag in install.FLAGS}
    for enabled in (True, False):
        job = rendered(tmp_path, {"topologyMigration": {"enabled": enabled}})["Job", "crd-upgrader"]
        argument = job["spec"]["template"]["spec"]["containers"][0]["args"][0]
        assert argument == f"--migrate-topologies={str(enabled).lower()}"


# ------------------------------------------------------------------------------------------------------------- roles
def allowed(role: str, scope: str = "cluster") -> dict[tuple[str, str], set[str]]:
    """The verbs of a role by group and resource."""
    found: dict[tuple[str, str], set[str]] = {}
    for rule in roles.document()[role].get(scope, []):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def test_no_role_allows_everything() -> None:
    for name, role in roles.document().items():
        for scope in ("cluster", "system", "reservation", "scaling"):
            for rule in role.get(scope, []):
                assert "*" not in rule["verbs"], name
                assert "*" not in rule["apiGroups"], name
                assert "*" not in rule["resources"] or rule["verbs"] == ["get"], name


def test_components_write_only_their_own_lease() -> None:
    for row in COMPONENTS:
        if row.lease:
            (role,) = [role for role in roles.document().values() if role["account"] == row.name]
            rules = [rule for rule in role["system"] if "leases" in rule["resources"]]
            written = {verb: rule.get("resourceNames") for rule in rules for verb in rule["verbs"]}
            assert written == {"create": None, "get": [row.lease], "update": [row.lease]}, row.name
    operated = {"get", "list", "watch", "create", "patch", "delete", "update"}
    assert allowed("kai-operator", "system")["coordination.k8s.io", "leases"] == operated


@pytest.mark.parametrize("role", ["kai-scheduler", "kai-binder", "kai-podgrouper", "kai-operator", "queuecontroller"])
def test_nobody_reads_secrets_of_the_cluster_or_grants_rights(role: str) -> None:
    forbidden = {"secrets", "clusterroles", "clusterrolebindings", "roles", "rolebindings", "serviceaccounts"}
    assert not forbidden & {resource for _, resource in allowed(role)}


def test_the_pod_grouper_may_read_every_workload_it_knows() -> None:
    verbs = allowed("kai-podgrouper")
    for row in TABLE.values():
        if row.group:
            plural = plural_of(row.kind)
            assert "get" in verbs.get((row.group, plural), set()) | verbs.get((row.group, "*"), set()), row


def test_every_component_has_its_account_bound(tmp_path: Path) -> None:
    made = rendered(tmp_path, {"global": {"clusterAutoscaling": True}})
    bound = {
        subject["name"]
        for (kind, _), item in made.items()
        if kind in ("ClusterRoleBinding", "RoleBinding")
        for subject in item["subjects"]
    }
    assert bound >= {
        "scheduler",
        "binder",
        "pod-grouper",
        "podgroup-controller",
        "queue-controller",
        "node-scale-adjuster",
        "numa-placement-exporter",
        "kai-operator",
        "kai-resource-reservation",
        "crd-upgrader",
    }
    for (kind, _), item in made.items():
        if kind in ("ClusterRoleBinding", "RoleBinding"):
            assert (item["roleRef"]["kind"], item["roleRef"]["name"]) in made


def test_the_dashboard_is_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert not [key for key in rendered(tmp_path, {}) if "kai-dashboard" in key[1]]
    made = rendered(tmp_path, {"dashboard": {"enabled": True, "tlsSecretName": "certificate", "port": 443}})
    kinds = {kind for kind, name in made if name == "kai-dashboard"}
    assert kinds == {"ServiceAccount", "Service", "Deployment", "ClusterRole", "ClusterRoleBinding"}
    pod = made["Deployment", "kai-dashboard"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["kai", "dashboard"]
    assert "--tls-cert-file=/etc/tls/tls.crt" in container["args"]
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert pod["volumes"] == [{"name": "tls", "secret": {"secretName": "certificate"}}]
    assert made["Service", "kai-dashboard"]["spec"]["ports"] == [{"name": "https", "port": 443, "targetPort": "pages"}]


def test_the_dashboard_reads_and_asks_but_changes_nothing() -> None:
    for (_, resource), verbs in allowed("kai-dashboard").items():
        expected = {"create"} if resource.endswith("reviews") else {"list", "watch"}
        assert verbs <= expected, resource


def test_the_schema_is_json() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["additionalProperties"] is False
    assert schema["properties"]["global"]["additionalProperties"] is False


def test_fractions_and_another_mode_contradict_each_other() -> None:
    values = ("--set", "global.nvFractions.set=true", "--set", "global.gpuSharingMode=HamiCore")
    done = helm("template", str(CHART), *values, check=False)
    text = 'global.nvFractions.set=true requires global.gpuSharingMode to be empty or "NvFractions", got "HamiCore"'
    assert done.returncode
    assert text in done.stderr
