"""Folders as layers and layers as an archive of images, in the layout of OCI; `docker load` and containerd read it.

Nothing depends on when, by whom or in which order files were made.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EPOCH = 1577836800
_TYPE = "application/vnd.oci.image"
_LAYER = f"{_TYPE}.layer.v1.tar+gzip"
_CONTAINERD_NAME = "io.containerd.image.name"
_DEFAULT_DOMAIN = "docker.io"


@dataclass(frozen=True)
class Layer:
    """A packed folder; `plain` is the digest of what is packed."""

    about: str
    blob: bytes
    plain: str


@dataclass(frozen=True)
class Image:
    """What a container of it runs."""

    name: str
    entry: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """What all images of an archive share."""

    tag: str
    architecture: str
    user: str
    folder: str
    labels: Mapping[str, str]


def digest(data: bytes) -> str:
    """The name of a blob."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def qualified(name: str) -> str:
    """The name under which a kubelet asks containerd for an image: with the default domain where it has none."""
    domain, slash, _ = name.partition("/")
    if slash and (domain == "localhost" or any(character in domain for character in ".:")):
        return name
    return f"{_DEFAULT_DOMAIN}/{name}" if slash else f"{_DEFAULT_DOMAIN}/library/{name}"


def layer(folder: Path, about: str) -> Layer:
    """The files of a folder, in order of their paths, owned by root and as old as everything else."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            entry = archive.gettarinfo(path, str(path.relative_to(folder)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = EPOCH
            entry.mode = _mode(path)
            archive.addfile(entry, path.open("rb") if entry.isreg() else None)
    plain = packed.getvalue()
    return Layer(about, gzip.compress(plain, 6, mtime=0), digest(plain))


def _mode(path: Path) -> int:
    if path.is_symlink():
        return 0o777
    if path.is_dir():
        return 0o1777 if path.name == "tmp" else 0o755
    return 0o755 if path.stat().st_mode & 0o100 else 0o644


def write(target: Path, images: Sequence[Image], layers: Sequence[Layer], settings: Settings) -> dict[str, str]:
    """Write an archive of images that share their layers; gives the digest of each."""
    blobs = {digest(each.blob): each.blob for each in layers}
    index, loading = [], []
    for image in images:
        config = _json(_config(image, layers, settings))
        described = [_descriptor(_LAYER, each.blob) for each in layers]
        manifest = _json({
            "schemaVersion": 2,
            "mediaType": f"{_TYPE}.manifest.v1+json",
            "config": _descriptor(f"{_TYPE}.config.v1+json", config),
            "layers": described,
        })  # fmt: skip
        blobs |= {digest(config): config, digest(manifest): manifest}
        name = f"{image.name}:{settings.tag}"
        named = {"annotations": {"org.opencontainers.image.ref.name": name, _CONTAINERD_NAME: qualified(name)}}
        index.append(_descriptor(f"{_TYPE}.manifest.v1+json", manifest) | named)
        paths = [_path(each["digest"]) for each in described]
        loading.append({"Config": _path(digest(config)), "RepoTags": [name], "Layers": paths})
    files = {_path(name): blob for name, blob in blobs.items()}
    files["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = _json({"schemaVersion": 2, "mediaType": f"{_TYPE}.index.v1+json", "manifests": index})
    files["manifest.json"] = _json(loading)
    _archive(target, files)
    return {image.name: each["digest"] for image, each in zip(images, index, strict=True)}


def _config(image: Image, layers: Sequence[Layer], settings: Settings) -> dict[str, Any]:
    return {
        "architecture": settings.architecture,
        "os": "linux",
        "config": {
            "User": settings.user,
            "Env": [f"{name}={value}" for name, value in image.environment.items()],
            "Entrypoint": list(image.entry),
            "WorkingDir": settings.folder,
            "Labels": dict(settings.labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [each.plain for each in layers]},
        "history": [{"created": "2020-01-01T00:00:00Z", "created_by": each.about} for each in layers],
    }


def _descriptor(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest(data), "size": len(data)}


def _path(name: str) -> str:
    return "blobs/" + name.replace(":", "/")


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _archive(target: Path, files: Mapping[str, bytes]) -> None:
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(data), EPOCH, 0o644
            archive.addfile(entry, io.BytesIO(data))
