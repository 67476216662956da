"""What is in the images, laid out in three folders: a Python, the dependencies, pykai.

The Python is the one that runs this, with its standard library and the shared libraries it and its extensions load.
There is no shell and no package manager.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution
from pathlib import Path

from deploy.distributions import PRODUCT, closure

HOME = "usr/local"
PYTHON = f"{HOME}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
LIBRARY = f"{HOME}/lib/python{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"{LIBRARY}/site-packages"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PROGRAMS = {
    "kai": "import sys\nfrom pykai.__main__ import start\nsys.argv[0] = 'kai'\nstart()\n",
    "true": "",
}
_NOT_SHIPPED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
_FOR_DEVELOPERS = "pykai/local/"
"""`kai local` builds and runs a control plane; no component of an installation needs it."""
_NOT_NEEDED = (
    "__pycache__", "config-*", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test", "tests",
    "tkinter", "turtledemo", "turtle.py", "_tkinter*", "_test*", "_xxtestfuzz*", "xxlimited*",
)  # fmt: skip


def lay_out(folder: Path, wheel: Path) -> list[Path]:
    """Write everything below `folder`; gives the folder of each layer, lowest first."""
    layers = [folder / name for name in ("python", "dependencies", PRODUCT)]
    _interpreter(layers[0])
    for name, each in closure().items():
        if name != PRODUCT:
            _copy_distribution(each, layers[1] / SITE)
    product(layers[2], wheel)
    for layer in layers:
        compiled(layer)
    _shared_libraries(layers[0], [path for layer in layers for path in layer.rglob("*.so*")])
    return layers


def _interpreter(target: Path) -> None:
    python = target / PYTHON
    python.parent.mkdir(parents=True)
    shutil.copy(Path(sys._base_executable).resolve(), python)  # type: ignore[attr-defined]
    (python.parent / "python").symlink_to(python.name)
    shutil.copytree(sysconfig.get_path("stdlib"), target / LIBRARY, ignore=shutil.ignore_patterns(*_NOT_NEEDED))
    for name in ("tmp", "etc"):
        (target / name).mkdir()
    (target / "etc/passwd").write_text("root:x:0:0:root:/:/nologin\nkai:x:10000:0:kai:/tmp:/nologin\n")
    if CERTIFICATES.exists():
        copy = target / CERTIFICATES.relative_to("/")
        copy.parent.mkdir(parents=True)
        shutil.copy(CERTIFICATES, copy)


def _copy_distribution(of: Distribution, site: Path) -> None:
    """The files of a distribution for site-packages, without its tests and what an installer notes for itself."""
    for file in of.files or ():
        if {"..", "tests"} & set(file.parts) or file.suffix == ".pyc" or file.name in _NOT_SHIPPED:
            continue
        target = site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(of.locate_file(file)), target)


def product(target: Path, wheel: Path) -> None:
    """The files of the wheel without those for developers, and the programs."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if Path(name).name not in _NOT_SHIPPED and not name.startswith(_FOR_DEVELOPERS):
                archive.extract(name, target / SITE)
    programs = target / HOME / "bin"
    programs.mkdir(parents=True)
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/{PYTHON}\n{text}")
        (programs / name).chmod(0o755)


def compiled(folder: Path) -> None:
    """Compile all sources once, by content and not by time; hash seed and order are fixed, so that the bytes are."""
    command = [sys.executable, "-m", "compileall", "-q", "-s", str(folder), "-p", "/"]
    command += ["--invalidation-mode", "unchecked-hash", str(folder)]
    subprocess.run(command, check=False, env={"PYTHONHASHSEED": "0"}, stdout=subprocess.DEVNULL)


def _shared_libraries(target: Path, loading: Iterable[Path]) -> None:
    """Copy what the interpreter and the extensions load, and the loader to where the interpreter looks for it."""
    ours = target.parent
    for name, path in sorted(set(_loaded([target / PYTHON, *loading]))):
        if path.is_relative_to(ours):
            continue
        place = target / name.lstrip("/") if name.startswith("/") else target / HOME / "lib" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path.resolve(), place)


def _loaded(files: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """(name it is loaded by, where it is) of every shared library the files need; the loader has a path as its name."""
    shown = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False).stdout
    for name, path in re.findall(r"^\s+(\S+) => (/\S+) \(", shown, re.MULTILINE):
        yield name, Path(path)
    for path in re.findall(r"^\s+(/\S+) \(", shown, re.MULTILINE):
        yield path, Path(path)
