"""The chart as a file of a release: the same bytes for the same sources, and a provenance that `helm verify` checks.

python -m deploy.chart charts/kai-scheduler dist [KEY]

Helm's own archive holds the time of packing and its signature covers that archive, so both are made here: the archive
anew from Helm's, the provenance with gpg. KEY names a key of gpg's keyring (GNUPGHOME); without one nothing is signed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from deploy.image.oci import EPOCH

_LEVEL = 9


def package(chart: Path, target: Path) -> Path:
    """Let Helm choose the files of a chart, and pack them without times and owners; gives the archive."""
    helm = shutil.which("helm", path=str(Path(sys.executable).parent)) or "helm"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([helm, "package", "-d", folder, chart], check=True, capture_output=True)
        (made,) = Path(folder).iterdir()
        archive = target / made.name
        archive.write_bytes(normalized(made.read_bytes()))
    return archive


def normalized(packed: bytes) -> bytes:
    """A packed archive with its files in order of their names, all equally old and owned by root."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as given:
        members = {each.name: given.extractfile(each) for each in given.getmembers() if each.isfile()}
        contents = {name: file.read() for name, file in members.items() if file is not None}
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as written:
        for name in sorted(contents, key=_chart_first):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(contents[name]), EPOCH, 0o644
            written.addfile(entry, io.BytesIO(contents[name]))
    return gzip.compress(plain.getvalue(), _LEVEL, mtime=0)


def _chart_first(name: str) -> tuple[bool, str]:
    """Readers of the metadata alone find it at the start."""
    return not name.endswith("/Chart.yaml") or name.count("/") != 1, name


def provenance(archive: Path) -> str:
    """What is signed: the chart's metadata and the digest of its archive."""
    name = archive.name.rpartition("-")[0]
    with tarfile.open(archive) as packed:
        file = packed.extractfile(f"{name}/Chart.yaml")
        metadata = file.read().decode().strip() if file else ""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return f"{metadata}\n\n...\nfiles:\n  {archive.name}: sha256:{digest}\n"


def sign(archive: Path, key: str) -> Path:
    """Write the signed provenance beside the archive."""
    signed = archive.with_name(f"{archive.name}.prov")
    command = ["gpg", "--batch", "--yes", "--digest-algo", "SHA512", "--local-user", key, "--clearsign"]
    subprocess.run([*command, "--output", signed], input=provenance(archive).encode(), check=True)
    return signed


if __name__ == "__main__":
    packed_chart = package(Path(sys.argv[1]), Path(sys.argv[2]))
    print(packed_chart)
    if key_name := "".join(sys.argv[3:]):
        print(sign(packed_chart, key_name))
