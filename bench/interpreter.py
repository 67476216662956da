"""`python -m bench.interpreter PYTHON DIRECTORY`: an environment for benchmarks on another interpreter.

The image of production is `python:3.12-slim`, whose interpreter is built with profile-guided and link-time
optimisation; a developer's own often is not. PYTHON is a path or a name of an interpreter, or `image`: CPython 3.12 as
python-build-standalone builds it, optimised in the same way (and by BOLT). No Python registry has that build; the Go
module `go-embed-python` carries it, and the Go module proxy serves it with a checksum.
"""

from __future__ import annotations

import gzip
import json
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import click

from bench.measure import BenchError

IMAGE = "image"
MODULE = "github.com/kluctl/go-embed-python@v0.0.0-3.12.3-20240415-1"
PLATFORMS = {("Linux", "x86_64"): "linux-amd64", ("Linux", "aarch64"): "linux-arm64"}
ROOT = Path(__file__).resolve().parents[1]


def optimised(home: Path) -> Path:
    """The interpreter optimised as that of the image, unpacked below `home` unless it is there."""
    found = home / "bin" / "python3.12"
    if not found.exists():
        unpack(_downloaded(), home)
    return found


def _downloaded() -> Path:
    """The module as a zip file, from Go's cache or the module proxy; Go compares its checksum with Go's database."""
    go = shutil.which("go")
    if go is None:
        raise BenchError("PYTHON_BENCH=image needs Go to download the interpreter; give a path to one instead")
    run = subprocess.run([go, "mod", "download", "-json", MODULE], capture_output=True, text=True, cwd=ROOT)
    if run.returncode:
        raise BenchError(f"the interpreter cannot be downloaded: {run.stdout}{run.stderr}")
    return Path(json.loads(run.stdout)["Zip"])


def unpack(archive: Path, home: Path) -> None:
    """The files of this platform; large ones are packed one by one."""
    kind = PLATFORMS.get((platform.system(), platform.machine()))
    if kind is None:
        raise BenchError(f"there is no such interpreter for {platform.system()} on {platform.machine()}")
    root = f"{MODULE}/python/internal/data/{kind}/"
    unfinished = home.with_name(home.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            if name.startswith(root) and not name.endswith("/"):
                _write(unfinished / name.removeprefix(root), packed.read(name))
    (unfinished / "bin" / "python3.12").chmod(0o755)
    unfinished.rename(home)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path, content = path.with_suffix(""), gzip.decompress(content)
    path.write_bytes(content)


def make_environment(python: str, directory: Path) -> None:
    """A virtual environment with the project and its tools in the versions of `constraints.txt`."""
    uv = [str(Path(sys.executable).with_name("uv"))]
    where = str(directory / "bin" / "python")
    project = [*uv, "pip", "install", "-q", "--python", where, "-e", f"{ROOT}[dev,report]"]
    for command in (
        [*uv, "venv", "-q", "--clear", "--python", python, str(directory)],
        [*project, "-c", str(ROOT / "constraints.txt")],
    ):
        if subprocess.run(command).returncode:
            raise BenchError(f"`{' '.join(command)}` failed")


@click.command()
@click.argument("python")
@click.argument("directory", type=click.Path(path_type=Path))
def main(python: str, directory: Path) -> None:
    """Make an environment in DIRECTORY on PYTHON: a path, a name, or `image`."""
    try:
        own = ROOT / "build" / "bench" / "python3.12"
        make_environment(str(optimised(own)) if python == IMAGE else python, directory)
    except BenchError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
