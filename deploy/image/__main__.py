"""`python -m deploy.image WHEEL ARCHIVE [REGISTRY]` writes the archive and says the digest of each image."""

from __future__ import annotations

import platform
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from deploy.image import contents, oci
from pykai import __version__

ENVIRONMENT = {
    "PATH": f"/{contents.HOME}/bin",
    "LD_LIBRARY_PATH": f"/{contents.HOME}/lib",
    "SSL_CERT_FILE": str(contents.CERTIFICATES),
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "HOME": "/tmp",
}
IMAGES = (
    oci.Image("pykai", ["kai"], ENVIRONMENT),
    oci.Image(
        "resource-reservation",
        ["kai", "resource-reservation"],
        ENVIRONMENT | {"NVIDIA_DRIVER_CAPABILITIES": "utility"},
    ),
    oci.Image("scaling-pod", ["true"], ENVIRONMENT),
)
LABELS = {
    "org.opencontainers.image.title": "pykai",
    "org.opencontainers.image.description": "A Kubernetes scheduler for AI clusters",
    "org.opencontainers.image.licenses": "Apache-2.0",
    "org.opencontainers.image.version": __version__,
}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def build(wheel: Path, target: Path, registry: str = "") -> dict[str, str]:
    """Write the archive; gives the digest of each image. Their names begin with the registry."""
    machine = platform.machine()
    settings = oci.Settings(__version__, _ARCHITECTURES.get(machine, machine), "10000:0", "/tmp", LABELS)
    with tempfile.TemporaryDirectory() as folder:
        layers = [oci.layer(each, f"pykai: {each.name}") for each in contents.lay_out(Path(folder), wheel)]
    images = [replace(each, name=f"{registry}/{each.name}" if registry else each.name) for each in IMAGES]
    return oci.write(target, images, layers, settings)


if __name__ == "__main__":
    for name, found in build(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]).items():
        print(f"{name}:{__version__} {found}")
