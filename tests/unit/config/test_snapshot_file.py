"""Snapshot files: the parameters, the time and the refusals."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pykai.config import snapshot_file
from pykai.config.fields import FieldError
from pykai.model.params import SchedulerParams
from pykai.objects.units import parse_timestamp


def write(path: Path, document: Any, member: str = snapshot_file.MEMBER) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, document if isinstance(document, str) else json.dumps(document))
    return path


def test_parameters_the_file_does_not_name_are_zero(tmp_path: Path) -> None:
    file = snapshot_file.load(write(tmp_path / "s.zip", {"rawObjects": {}}))
    params = snapshot_file.params(file)
    assert params == SchedulerParams(
        node_pool_key="",
        partitioned=False,
        max_consolidation_victims=0,
        use_signatures=False,
        full_hierarchy_fairness=False,
        allow_consolidating_reclaim=False,
        staleness_grace=0.0,
        stuck_in_releasing=0.0,
        update_eviction_condition=False,
    )
    assert snapshot_file.observed_at(file) is None


def test_parameters_are_read_in_seconds(tmp_path: Path) -> None:
    given = {
        "schedulerName": "mine",
        "partitionParams": {"NodePoolLabelKey": "pool", "NodePoolLabelValue": "a"},
        "maxNumberConsolidationPreemptees": 16,
        "globalDefaultStalenessGracePeriod": 60_000_000_000,
        "stuckInReleasingThreshold": 1_500_000_000,
        "fullHierarchyFairness": True,
    }
    params = snapshot_file.params(
        snapshot_file.load(write(tmp_path / "s.zip", {"rawObjects": {}, "schedulerParams": given}))
    )
    assert (params.scheduler_name, params.node_pool_key, params.node_pool, params.partitioned) == (
        "mine",
        "pool",
        "a",
        True,
    )
    assert (params.max_consolidation_victims, params.staleness_grace, params.stuck_in_releasing) == (16, 60.0, 1.5)
    assert params.full_hierarchy_fairness


@pytest.mark.parametrize(
    ("discovery", "served"),
    [
        (None, True),
        ({"resources": None}, True),
        ({"resources": [{"groupVersion": "v1"}]}, False),
        ({"resources": [{"groupVersion": "v1"}, {"groupVersion": "resource.k8s.io/v1"}]}, True),
    ],
)
def test_the_cluster_tells_whether_it_had_dra(tmp_path: Path, discovery: Any, served: bool) -> None:
    file = snapshot_file.load(write(tmp_path / "s.zip", {"rawObjects": {}, "discovery": discovery}))
    assert snapshot_file.params(file).dra_enabled is served


def test_the_newest_instant_is_when_the_file_was_taken(tmp_path: Path) -> None:
    node = {"metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    group = {
        "metadata": {
            "name": "g",
            "creationTimestamp": "2026-01-02T00:00:00Z",
            "annotations": {"kai.scheduler/last-start-timestamp": "2026-01-04T00:00:00Z"},
        }
    }
    pod = {"metadata": {"name": "p", "deletionTimestamp": "2026-01-03T00:00:00Z"}}
    objects = {"nodes": [node], "podGroups": [group], "pods": [pod], "queues": None}
    file = snapshot_file.load(write(tmp_path / "s.zip", {"rawObjects": objects}))
    assert snapshot_file.observed_at(file) == parse_timestamp("2026-01-04T00:00:00Z")


@pytest.mark.parametrize(
    ("document", "member", "message"),
    [
        ("{", snapshot_file.MEMBER, "snapshot.json: not JSON"),
        ("{}", snapshot_file.MEMBER, "rawObjects is missing"),
        ("{}", "other.json", "holds no snapshot.json"),
        (
            {"rawObjects": {"pods": [{"metadata": {"name": 3}}]}},
            snapshot_file.MEMBER,
            "snapshot.json: rawObjects.pods[0].metadata.name: expected a string",
        ),
        (
            {"rawObjects": {"pods": [{"metadata": {"name": "p", "labels": {"x": "y", "a.b/c": 3}}}]}},
            snapshot_file.MEMBER,
            "snapshot.json: rawObjects.pods[0].metadata.labels.a.b/c: expected a string",
        ),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, document: Any, member: str, message: str) -> None:
    path = write(tmp_path / "wrong.zip", document, member)
    with pytest.raises(FieldError) as refused:
        snapshot_file.load(path)
    assert "wrong.zip" in str(refused.value)
    assert message in str(refused.value)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.zip"
    path.write_text("hello")
    with pytest.raises(FieldError, match=r"plain.zip: not a zip archive"):
        snapshot_file.load(path)


def test_a_snapshot_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(snapshot_file.MEMBER, b" " * 2**22)
    monkeypatch.setattr(snapshot_file, "MAX_BYTES", 2**20)
    with pytest.raises(FieldError, match=r"snapshot.json: larger than 1 MiB: not a snapshot"):
        snapshot_file.load(path)
