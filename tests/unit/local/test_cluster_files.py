"""A cluster's place: ports, secrets, kubeconfig, flags."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
import yaml

from pykai.local import control_plane
from pykai.local.clusters import ClusterError, ClusterFiles, Ports, checked_name, free_ports, prepare, write_kubeconfig
from pykai.local.control_plane import ControlPlane, tail

FILES = ClusterFiles(Path("/nowhere/demo"), Ports(2379, 2380, 6443))


def test_free_ports_differ() -> None:
    ports = free_ports()
    assert len({ports.etcd, ports.etcd_peer, ports.api}) == 3


@pytest.mark.parametrize("name", ["", "Kai", "../up", "a/b", "-a", "a-", "x" * 33])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cluster name"):
        checked_name(name)


@pytest.mark.parametrize("name", ["a", "kai", "kai-2", "x" * 32])
def test_good_names(name: str) -> None:
    assert checked_name(name) == name


def test_secrets_are_private_and_new_each_time(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "demo", free_ports())
    prepare(files)
    token = files.admin_token()
    assert files.tokens.read_text() == f"{token},admin,admin,system:masters\n"
    for path in (files.tokens, files.service_account_key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (files.directory / "etcd").mkdir()
    prepare(files)
    assert files.admin_token() != token
    assert not (files.directory / "etcd").exists()


def test_kubeconfig_is_what_kubectl_reads(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "demo", free_ports())
    prepare(files)
    files.certificate.write_text("CERTIFICATE")
    write_kubeconfig(files)
    config = yaml.safe_load(files.kubeconfig.read_text())
    assert config["current-context"] == config["contexts"][0]["name"] == "kai-local-demo"
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"] == f"https://127.0.0.1:{files.ports.api}"
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"CERTIFICATE"
    assert config["users"][0]["user"] == {"token": files.admin_token()}
    assert stat.S_IMODE(files.kubeconfig.stat().st_mode) == 0o600


@pytest.mark.parametrize("part", control_plane.FLAGS)
def test_every_part_listens_on_loopback_or_not_at_all(part: str) -> None:
    arguments = control_plane.arguments(part, FILES)
    assert arguments[0] == part
    flags = dict(argument.removeprefix("--").split("=", 1) for argument in arguments[1:])
    urls = [value for flag, value in flags.items() if flag.endswith("-urls")]
    assert all(url.startswith("http://127.0.0.1:") for url in urls)
    assert urls or flags.get("bind-address") == "127.0.0.1" or flags["secure-port"] == "0"


def test_unknown_extra_part_is_refused() -> None:
    with pytest.raises(ClusterError, match="unknown part 'kube-proxy'"):
        ControlPlane(FILES, Path("/bin/true"), ["kube-proxy"])


@pytest.mark.parametrize(
    ("content", "shown"),
    [("", "  (empty)"), ("a\nb\n", "  a\n  b"), ("x\n" * 1000 + "end\n", "  x\n  x\n  end")],
)
def test_tail(tmp_path: Path, content: str, shown: str) -> None:
    log = tmp_path / "log"
    log.write_text(content)
    assert tail(log, 3) == shown


def test_tail_of_no_file(tmp_path: Path) -> None:
    assert tail(tmp_path / "none") == "  (empty)"
