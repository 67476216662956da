"""Archives of images: complete, addressed by content, and the same bytes for the same files."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tarfile
from pathlib import Path

import pytest
from deploy.image import oci
from deploy.image.__main__ import IMAGES

from pykai.controllers.operator.installation import RESERVATION, SCALING_POD

SETTINGS = oci.Settings("1.0", "amd64", "10000:0", "/tmp", {"a": "b"})
FILES = {"usr/bin/tool": 0o700, "etc/passwd": 0o600, "usr/lib/deep/er.py": 0o644}


def tree(folder: Path, names: list[str], age: int) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        path.chmod(FILES[name])
        os.utime(path, (age, age))
    (folder / "tmp").mkdir()
    (folder / "usr/bin/link").symlink_to("tool")
    return folder


def test_order_age_and_owner_do_not_matter(tmp_path: Path) -> None:
    one = oci.layer(tree(tmp_path / "a", list(FILES), 1), "x")
    other = oci.layer(tree(tmp_path / "b", list(reversed(FILES)), 10**9), "x")
    assert one == other


def test_a_layer_holds_every_file_as_anybody_may_read_it(tmp_path: Path) -> None:
    packed = oci.layer(tree(tmp_path / "a", list(FILES), 1), "x")
    assert oci.digest(gzip.decompress(packed.blob)) == packed.plain
    with tarfile.open(fileobj=io.BytesIO(packed.blob)) as archive:
        found = {entry.name: (entry.mode, entry.uid, entry.mtime) for entry in archive if not entry.isdir()}
        assert archive.getmember("tmp").mode == 0o1777
        assert archive.getmember("usr/bin/link").linkname == "tool"
    rest = (0, oci.EPOCH)
    assert found == {
        "etc/passwd": (0o644, *rest),
        "usr/bin/link": (0o777, *rest),
        "usr/bin/tool": (0o755, *rest),
        "usr/lib/deep/er.py": (0o644, *rest),
    }


def test_every_blob_is_there_under_its_digest(tmp_path: Path) -> None:
    layers = [oci.layer(tree(tmp_path / "a", list(FILES), 1), "x")]
    said = oci.write(tmp_path / "installation.tar", IMAGES, layers, SETTINGS)
    with tarfile.open(tmp_path / "installation.tar") as archive:
        files = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
    for name, data in files.items():
        assert not name.startswith("blobs/") or name == "blobs/" + oci.digest(data).replace(":", "/")
    index = json.loads(files["index.json"])["manifests"]
    assert [each["digest"] for each in index] == list(said.values())
    assert [each["annotations"]["org.opencontainers.image.ref.name"] for each in index] == [
        "pykai:1.0", "resource-reservation:1.0", "scaling-pod:1.0",
    ]  # fmt: skip
    assert [each["annotations"]["io.containerd.image.name"] for each in index] == [
        "docker.io/library/pykai:1.0",
        "docker.io/library/resource-reservation:1.0",
        "docker.io/library/scaling-pod:1.0",
    ]
    for each, image, loaded in zip(index, IMAGES, json.loads(files["manifest.json"]), strict=True):
        manifest = json.loads(files["blobs/" + each["digest"].replace(":", "/")])
        config = json.loads(files[loaded["Config"]])
        assert "blobs/" + manifest["config"]["digest"].replace(":", "/") == loaded["Config"]
        assert config["config"]["User"] == "10000:0"
        assert config["config"]["Entrypoint"] == image.entry
        assert config["rootfs"]["diff_ids"] == [layer.plain for layer in layers]


@pytest.mark.parametrize(
    ("name", "asked_for"),
    [
        ("pykai:1", "docker.io/library/pykai:1"),
        ("registry/local/kai-scheduler/pykai:1", "docker.io/registry/local/kai-scheduler/pykai:1"),
        ("localhost/pykai:1", "localhost/pykai:1"),
        ("localhost:5000/pykai:1", "localhost:5000/pykai:1"),
        ("registry.example.com/team/pykai:1", "registry.example.com/team/pykai:1"),
    ],
)
def test_containerd_finds_an_image_under_the_name_a_kubelet_asks_for(name: str, asked_for: str) -> None:
    assert oci.qualified(name) == asked_for


def test_images_are_those_the_dockerfile_makes() -> None:
    text = (Path(__file__).parents[3] / "Dockerfile").read_text()
    entries = dict(re.findall(r"^FROM runtime AS ([\w-]+)\n(?:.*\n)*?ENTRYPOINT (.*)$", text, re.MULTILINE))
    assert {image.name: image.entry for image in IMAGES} == {
        "pykai" if name == "kai" else name: json.loads(entry) for name, entry in entries.items()
    }
    assert {RESERVATION, SCALING_POD} < {image.name for image in IMAGES}
