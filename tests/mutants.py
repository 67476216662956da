"""Mutants: change the product at random, one place at a time, and look whether its tests notice.

`python -m tests.mutants 120` (or `make mutants MUTANTS=120`) runs the tests of a package as they are, which must be
green, and keeps which of them run which lines in `build/mutants` until sources or tests change. It draws so many places
evenly among the packages by a seed and runs, for each, the tests that reach it, the quickest first, in a process in
which that one module is changed as it is imported. Such a process is forked from one that has imported everything but
the product, so a mutant costs seconds. What no test notices is printed with its line; `-o FILE` keeps all verdicts.
"""

from __future__ import annotations

import argparse
import ast
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from random import Random
from types import CodeType

import msgspec
import pytest

ROOT = Path(__file__).parents[1]
PACKAGES: dict[str, tuple[str, ...]] = {
    "engine": ("tests/unit/engine", "tests/unit/verify", "tests/unit/explain", "tests/conformance/test_conformance.py"),
    "plugins": ("tests/unit/plugins", "tests/unit/engine", "tests/conformance/test_conformance.py"),
    "cache": ("tests/unit/cache", "tests/unit/scheduler", "tests/unit/engine", "tests/unit/plugins"),
    "kube": ("tests/unit/kube",),
    "controllers/binder": ("tests/unit/controllers/binder",),
    "admission": ("tests/unit/admission",),
}
"""Package below src/pykai -> its tests."""
CPU_SECONDS, WALL_SECONDS, MOST_TESTS = 60, 900.0, 150
"""Of the tests of one mutant: one that runs for so long does not end, and is noticed, and so is one that waits for
so long; and how many tests that reach a line are run at most."""
LIBRARIES = (
    "aiohttp",
    "cryptography.x509",
    "hypothesis",
    "jq",
    "jsonpatch",
    "numpy",
    "prometheus_client",
    "rich.table",
)
"""What the product and its tests import, imported once."""
KEPT = ROOT / "build" / "mutants"


# ------------------------------------------------------------------------------------------------------------ changes
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
SIGNS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """One changed expression of a file below `src`."""

    package: str
    path: str
    line: int
    kind: str
    start: int
    end: int
    """Offsets in the encoded file."""
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.old} -> {self.new}"


def changed(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Every way to change an expression, with the kind of change."""
    match node:
        case ast.Compare(left, [op, *_] as ops, rest) if type(op) in COMPARISONS:
            yield "swapped comparison", ast.Compare(left, [COMPARISONS[type(op)](), *ops[1:]], rest)
        case ast.BinOp(left, op, right) if type(op) in SIGNS:
            if not isinstance(left, ast.Constant | ast.JoinedStr) and not isinstance(right, ast.JoinedStr):
                yield "swapped sign", ast.BinOp(left, SIGNS[type(op)](), right)
        case ast.BoolOp(op, values):
            for number in range(len(values)):
                rest = [*values[:number], *values[number + 1 :]]
                yield "dropped condition", rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(ast.Not(), operand):
            yield "dropped not", operand
        case ast.IfExp(test, body, orelse):
            yield "swapped branches", ast.IfExp(test, orelse, body)
        case ast.Constant(value) if type(value) is int:
            yield "off by one", ast.Constant(value + 1)
        case ast.Constant(value) if type(value) is bool:
            yield "swapped constant", ast.Constant(not value)


def mutants_of(package: str, path: Path) -> Iterator[Mutant]:
    """Every mutant of a file; annotations, defaults of type parameters and docstrings are left alone."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _expressions(ast.parse(source)):
        for kind, new in changed(node):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            old = " ".join(source[start:end].decode().split())
            text = f"({ast.unparse(ast.fix_missing_locations(new))})"
            yield Mutant(package, str(path.relative_to(ROOT)), node.lineno, kind, start, end, old, text)


def _expressions(tree: ast.AST) -> Iterator[ast.expr]:
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "type_params") or isinstance(tree, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.expr):
                yield child
            if isinstance(child, ast.AST) and not _is_type(child):
                yield from _expressions(child)


def _is_type(node: ast.AST) -> bool:
    """Whether this is `Name = A | B`, an alias of types, or a Final constant's check for type checkers."""
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.BitOr)


# ------------------------------------------------------------------------------------------------------- which tests
class Recorded(msgspec.Struct):
    """Of a package: file -> line -> tests that run it; and the seconds of every test."""

    lines: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    def tests(self, mutant: Mutant) -> list[str]:
        """Those that reach the mutant, the quickest first; what runs at import is reached by every test."""
        found = self.lines.get(mutant.path, {}).get(mutant.line, [])
        names, most = (list(self.seconds), None) if "" in found else (found, MOST_TESTS)
        return sorted((name for name in names if name in self.seconds), key=self.seconds.__getitem__)[:most]


RECORDER = """
import json, os, time
import coverage, pytest
cov = coverage.Coverage(data_file=None, include=[os.environ["KAI_RECORDED"] + "/*"], config_file=False)
cov.start()
seconds = {}

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    cov.switch_context(item.nodeid)
    began = time.monotonic()
    yield
    seconds[item.nodeid] = time.monotonic() - began
    cov.switch_context("")

def pytest_runtest_logreport(report):
    if report.failed:
        seconds.pop(report.nodeid, None)
        failed.add(report.nodeid)

failed = set()

def pytest_unconfigure(config):
    cov.stop()
    data = cov.get_data()
    lines = {f: {n: c for n, c in data.contexts_by_lineno(f).items()} for f in data.measured_files()}
    kept = {name: took for name, took in seconds.items() if name not in failed}
    with open(os.environ["KAI_RECORD"], "w") as file:
        json.dump({"lines": lines, "seconds": kept}, file)
"""


def record(package: str, folder: Path) -> Recorded:
    """Run the tests of a package, unless that was done on the same files, and keep what each of them reaches."""
    kept = KEPT / f"{package.replace('/', '-')}-{_digest(package)}.json"
    if not kept.exists():
        (folder / "kai_recorder.py").write_text(RECORDER)
        source, out = ROOT / "src" / "pykai" / package, folder / "record.json"
        env = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT / 'src'}"}
        command = [sys.executable, "-m", "pytest", *QUIET, *PACKAGES[package], "-p", "kai_recorder"]
        env |= {"KAI_RECORD": str(out), "KAI_RECORDED": str(source)}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"the tests of {package} are not green without a mutant:\n{done.stdout[-3000:]}")
        KEPT.mkdir(parents=True, exist_ok=True)
        out.replace(kept)
    found = msgspec.json.decode(kept.read_bytes(), type=Recorded, strict=False)
    return Recorded({str(Path(f).relative_to(ROOT)): lines for f, lines in found.lines.items()}, found.seconds)


QUIET = ("-q", "-p", "no:cacheprovider", "--no-header", "-m", "not hypothesis")
"""Without property tests, of which one takes as long as hundreds of others."""


def _digest(package: str) -> str:
    """Of the package and its tests."""
    digest = blake2b(digest_size=8)
    for folder in (f"src/pykai/{package}", *PACKAGES[package]):
        path = ROOT / folder
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()


# ----------------------------------------------------------------------------------------------------------- verdicts
NOTICED, SURVIVED, UNREACHED = "noticed", "survived", "reached by no test"


def judge(mutants: Sequence[Mutant], recorded: Recorded, workers: int) -> list[str]:
    """The verdict on each mutant; so many processes run at a time."""
    found = dict.fromkeys(range(len(mutants)), UNREACHED)
    waiting = [number for number, mutant in enumerate(mutants) if recorded.tests(mutant)]
    running: dict[int, tuple[int, float]] = {}
    while waiting or running:
        while waiting and len(running) < workers:
            number = waiting.pop(0)
            running[_started(mutants[number], recorded.tests(mutants[number]))] = number, time.monotonic()
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            number, _ = running.pop(pid)
            found[number] = SURVIVED if os.waitstatus_to_exitcode(status) == pytest.ExitCode.OK else NOTICED
            continue
        for pid, (_, began) in running.items():
            if time.monotonic() - began > WALL_SECONDS:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return [found[number] for number in range(len(mutants))]


def _started(mutant: Mutant, tests: Sequence[str]) -> int:
    """Run tests in a new process in which a module is changed; returns its id."""
    if pid := os.fork():
        return pid
    status = int(pytest.ExitCode.INTERNAL_ERROR)
    with suppress(BaseException):
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        _change(mutant)
        status = int(pytest.main([*QUIET, "-x", *tests]))
    os._exit(status)


def _change(mutant: Mutant) -> None:
    """Let the module of a mutant be imported with its change."""
    path = ROOT / mutant.path
    source = path.read_bytes()
    code = compile(source[: mutant.start] + mutant.new.encode() + source[mutant.end :], str(path), "exec")
    usual = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        return code if Path(self.path) == path else usual(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]


def drawn(package: str, count: int, seed: int) -> list[Mutant]:
    """So many mutants of a package, the same for the same sources and seed."""
    files = sorted((ROOT / "src" / "pykai" / package).rglob("*.py"))
    every = [mutant for path in files for mutant in mutants_of(package, path)]
    return Random(f"{seed}/{package}").sample(every, min(count, len(every)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("count", type=int, help="how many, evenly among the packages")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packages", default=",".join(PACKAGES), help="some of them, separated by commas")
    parser.add_argument("--workers", type=int, default=1, help="how many run at a time")
    parser.add_argument("-o", "--output", type=Path, help="append every verdict to this file")
    args = parser.parse_args()
    chosen = args.packages.split(",")
    if unknown := [name for name in chosen if name not in PACKAGES]:
        parser.error(f"unknown packages: {', '.join(unknown)}; there are {', '.join(PACKAGES)}")
    for name in LIBRARIES:
        import_module(name)
    os.chdir(ROOT)
    began, table = time.monotonic(), dict[str, Counter[str]]()
    with tempfile.TemporaryDirectory() as folder:
        for package in chosen:
            recorded = record(package, Path(folder))
            some = drawn(package, -(-args.count // len(chosen)), args.seed)
            found = judge(some, recorded, args.workers)
            table[package] = Counter(found)
            lines = [f"{verdict}  {mutant}" for mutant, verdict in zip(some, found, strict=True)]
            sys.stdout.writelines(f"{line}\n" for line in lines if not line.startswith(NOTICED))
            sys.stdout.write(f"{package}: {_share(table[package])}\n")
            sys.stdout.flush()
            if args.output:
                with args.output.open("a") as file:
                    file.writelines(f"{line}\n" for line in lines)
    total = sum(table.values(), Counter[str]())
    sys.stdout.write(f"all: {_share(total)}, in {time.monotonic() - began:.0f} s\n")
    return 0


def _share(counts: Counter[str]) -> str:
    noticed, count = counts[NOTICED], counts.total()
    return f"{noticed} of {count} noticed ({noticed / max(count, 1):.0%}), {counts[UNREACHED]} reached by no test"


if __name__ == "__main__":
    sys.exit(main())
