"""The images that are assembled without a container engine: `kai` runs from their files alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from deploy.image import contents, oci
from deploy.image.__main__ import ENVIRONMENT, build

from pykai import __version__
from pykai.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv = Path(sys.executable).with_name("uv")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(oci.EPOCH)}
    subprocess.run([uv, "build", "-q", "--wheel", "--out-dir", folder], cwd=ROOT, check=True, env=environment)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file system of the image `pykai`."""
    folder = tmp_path_factory.mktemp("image")
    assert list(build(wheel, folder / "images.tar")) == ["pykai", "resource-reservation", "scaling-pod"]
    with tarfile.open(folder / "images.tar") as archive:
        archive.extractall(folder / "layout", filter="data")
    for name in json.loads((folder / "layout/manifest.json").read_text())[0]["Layers"]:
        with tarfile.open(folder / "layout" / name) as layer:
            layer.extractall(folder / "root", filter="tar")
    return folder / "root"


def run(root: Path, program: str, *arguments: str) -> str:
    """What a program of the image says, with the interpreter, loader and libraries of the image."""
    script = root / contents.HOME / "bin" / program
    interpreter = script.read_text().splitlines()[0].removeprefix("#!/")
    assert (root / interpreter).is_file()
    (loader,) = root.glob("lib*/ld-linux*")
    home = root / contents.HOME
    environment = {**ENVIRONMENT, "PYTHONHOME": str(home), "LD_LIBRARY_PATH": ""}
    command = [*map(str, (loader, "--library-path", home / "lib", root / interpreter, script)), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_runs_from_the_image(unpacked: Path) -> None:
    assert run(unpacked, "kai", "--version").strip() == f"kai, version {__version__}"
    shown = run(unpacked, "kai", "--help")
    assert all(name in shown for name in COMMANDS)
    for name in ("scheduler", "binder", "operator", "admission", "resource-reservation"):
        assert "--kubeconfig" in run(unpacked, "kai", name, "--help")
    assert run(unpacked, "true") == ""


def test_the_image_has_neither_tests_nor_tools_nor_paths_of_this_machine(unpacked: Path) -> None:
    site = unpacked / contents.SITE
    assert not [*site.rglob("tests")]
    assert {"pykai", "numpy", "aiohttp"} <= {path.name for path in site.iterdir()}
    assert not [name for name in ("pytest", "ruff", "mypy", "pip", "pykai/local") if (site / name).exists()]
    assert not list(unpacked.rglob("direct_url.json"))
    assert not [path for path in (site / "pykai").rglob("*.pyc") if str(ROOT).encode() in path.read_bytes()]


def test_two_builds_give_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    layers = []
    for name in ("one", "two"):
        contents.product(tmp_path / name, wheel)
        contents.compiled(tmp_path / name)
        layers.append(oci.layer(tmp_path / name, "pykai"))
    assert layers[0] == layers[1]
