"""Mutants: change the product at random, one place at a time, and look whether its tests notice.

`python -m tests.mutants 120` (or `make mutants MUTANTS=120`) runs the tests of a package as they are, which must be
green, and keeps which of them run which lines in `build/mutants` until sources or tests change. It draws so many places
evenly among the packages by a seed and runs, for each, the tests that reach it until one fails: the quickest first,
then the property tests. They run in a process forked from one that has collected all of them, in which the one function
is changed in place: a mutant costs what its tests cost. Where the line runs at import, the process is forked before
anything of the product is imported. What no test notices is printed with its line; `-o FILE` keeps all verdicts, and a
run that was interrupted goes on from there.
"""

from __future__ import annotations

import argparse
import ast
import gc
import mmap
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib import import_module
from importlib.machinery import SourceFileLoader
from itertools import pairwise
from math import inf
from pathlib import Path
from random import Random
from types import CodeType, FunctionType
from typing import Any, NoReturn

import coverage
import msgspec
import pytest
from hypothesis import Phase, is_hypothesis_test, settings

ROOT = Path(__file__).parents[1]
_DECISIONS = (
    *(f"tests/unit/{package}" for package in ("engine", "plugins", "cache", "scheduler")),
    "tests/conformance/test_conformance.py",
    "tests/properties",
)
_WRITES = ("tests/unit/kube", "tests/unit/controllers/binder")
PACKAGES: dict[str, tuple[str, ...]] = {
    "engine": _DECISIONS,
    "plugins": _DECISIONS,
    "cache": _DECISIONS,
    "kube": _WRITES,
    "controllers/binder": _WRITES,
    "admission": ("tests/unit/admission", "tests/conformance/test_conformance.py"),
}
"""Package below src/pykai -> its tests; those of packages with the same tests are run once to see what they reach."""
MOST_TESTS, MOST_SECONDS = 200, 10.0
"""How many ordinary tests that reach a function are run at most, and seconds of CPU that property tests may take."""
HANGS, EXAMPLES = 20, 3
"""Seconds beyond ten times what it takes, after which a test has noticed that something does not end; and how many
examples of a property test show what it reaches."""
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
    column: int
    kind: str
    start: int
    end: int
    """Offsets in the encoded file."""
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.kind}: {self.old} -> {self.new.replace(chr(10), '')}"


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
            lines = "\n" * (node.end_lineno - node.lineno)
            text = f"({ast.unparse(ast.fix_missing_locations(new))}{lines})"
            place = package, str(path.relative_to(ROOT)), node.lineno, node.col_offset + 1
            yield Mutant(*place, kind, start, end, old, text)


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
AT_IMPORT = ""
"""Stands among tests for what runs before the first of them."""


class Recorded(msgspec.Struct):
    """Of a package: file -> line -> tests that run it, by number; the names of tests, their seconds of CPU, and which
    are property tests."""

    lines: dict[str, dict[int, list[int]]]
    names: list[str]
    seconds: dict[str, float]
    properties: set[str]

    def reaching(self, mutant: Mutant) -> set[str]:
        return {self.names[number] for number in self.lines.get(mutant.path, {}).get(mutant.line, ())}

    def tests(self, mutant: Mutant) -> list[str]:
        """Those that reach the mutant, the package's own first and properties last, the quickest first of each; all
        reach what runs at import."""
        found = self.reaching(mutant)
        own = f"tests/unit/{mutant.package}/"
        ranks = {
            name: (name in self.properties, not name.startswith(own), seconds)
            for name, seconds in self.seconds.items()
            if name in found or AT_IMPORT in found
        }
        names = sorted(ranks, key=ranks.__getitem__)
        ordinary = [name for name in names if name not in self.properties]
        return ordinary[: None if AT_IMPORT in found else MOST_TESTS] + names[len(ordinary) :]


def limit(items: Sequence[pytest.Item], **changes: Any) -> set[str]:
    """Change the settings of property tests; returns which these are."""
    found = [item for item in items if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)]
    for item in found:
        test = getattr(item.obj, "__func__", item.obj)
        test._hypothesis_internal_use_settings = settings(test._hypothesis_internal_use_settings, **changes)
    return {item.nodeid for item in found}


class Recorder:
    """A plugin of pytest that keeps what each test of a package reaches, of property tests what a few examples do."""

    def __init__(self, package: str) -> None:
        include = [f"{_source(each)}/*" for each in _recorded_with(package)]
        self.coverage = coverage.Coverage(data_file=None, include=include, config_file=False)
        self.seconds: dict[str, float] = {}
        self.properties = set[str]()
        self.coverage.start()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.properties = limit(items, max_examples=EXAMPLES)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        began = time.process_time()
        yield
        self.seconds[item.nodeid] = time.process_time() - began
        self.coverage.switch_context(AT_IMPORT)

    def recorded(self) -> Recorded:
        self.coverage.stop()
        data, numbers = self.coverage.get_data(), dict[str, int]()
        lines = {
            str(Path(file).relative_to(ROOT)): {
                line: [numbers.setdefault(name, len(numbers)) for name in names]
                for line, names in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        return Recorded(lines, list(numbers), self.seconds, self.properties)


def record(package: str) -> Recorded:
    """Run the tests of a package, unless that was done on the same files, and keep what each of them reaches."""
    kept = KEPT / f"{_digest(package)}.json"
    if not kept.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        if not (pid := os.fork()):
            recorder = Recorder(package)
            status = pytest.main([*QUIET, "--tb=short", *PACKAGES[package]], plugins=[recorder])
            if not status:
                kept.write_bytes(msgspec.json.encode(recorder.recorded()))
            _exit(status)
        if os.waitpid(pid, 0)[1]:
            raise SystemExit(f"the tests of {package} are not green without a mutant")
    return msgspec.json.decode(kept.read_bytes(), type=Recorded, strict=False)


QUIET = ("-q", "-p", "no:cacheprovider", "--no-header")


def _source(package: str) -> Path:
    return ROOT / "src" / "pykai" / package


def _recorded_with(package: str) -> list[str]:
    return [each for each, tests in PACKAGES.items() if tests == PACKAGES[package]]


def _digest(package: str) -> str:
    """Of the tests of a package, and of what is recorded with it."""
    digest = blake2b(digest_size=8)
    for path in (*map(_source, _recorded_with(package)), *(ROOT / path for path in PACKAGES[package])):
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()


# ----------------------------------------------------------------------------------------------------------- verdicts
NOTICED, SURVIVED, UNREACHED = "noticed", "survived", "not reached"
OTHERWISE = 77
"""Exit code of a process in which a mutant cannot be made in place."""


class Judge:
    """A plugin of pytest that, in place of running all tests, runs for each mutant those that reach it.

    They run in a process of their own, in which the function of the mutant is changed, unless its module was imported
    with the change.
    """

    def __init__(self, mutants: Sequence[Mutant], recorded: Recorded, output: Path, in_place: bool = True) -> None:
        self.mutants, self.recorded, self.output, self.in_place = mutants, recorded, output, in_place
        self.functions: Mapping[Place, Sequence[FunctionType]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        limit(session.items, phases=(Phase.explicit, Phase.generate))
        items = {item.nodeid: item for item in session.items}
        self.functions = functions_below(ROOT / "src")
        gc.disable()  # a forked process has memory of its own of what a collection looks at
        for mutant in self.mutants:
            tests = [items[name] for name in self.recorded.tests(mutant) if name in items]
            with mmap.mmap(-1, 4096) as running:
                if not (pid := os.fork()):
                    self._run(mutant, session, tests, running)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                by = f"{running[:].rstrip(bytes(1)).decode()}{'' if code > 0 else ', which does not end'}"
            if code != OTHERWISE:
                write(self.output, mutant, f"{NOTICED} by {by}" if code else SURVIVED)
        return True

    def _run(self, mutant: Mutant, session: pytest.Session, tests: Sequence[pytest.Item], running: mmap.mmap) -> None:
        """Run tests in order until one fails, which is then named in `running`; ends the process."""
        if self.in_place and not change_in_place(mutant, self.functions):
            _exit(OTHERWISE)
        until = inf
        for test, following in pairwise([*tests, None]):
            assert test is not None
            running[:] = test.nodeid.encode()[: len(running)].ljust(len(running), bytes(1))
            used, usual = time.process_time(), self.recorded.seconds[test.nodeid]
            if test.nodeid in self.recorded.properties:
                until = min(until, used + MOST_SECONDS)
                signal.signal(signal.SIGXCPU, lambda *_: _exit(0))
            if used > until:
                break
            most = min(used + HANGS + 10 * usual, until)
            resource.setrlimit(resource.RLIMIT_CPU, (round(most) + 1, resource.RLIM_INFINITY))
            signal.alarm(round(10 * (HANGS + 10 * usual)))
            test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
            if session.testsfailed:
                _exit(1)
        _exit(0)


def judge(package: str, mutants: Sequence[Mutant], output: Path) -> None:
    """Append the verdict on each mutant to a file, as soon as it is known."""
    recorded = record(package)
    reached = [mutant for mutant in mutants if recorded.tests(mutant)]
    for mutant in mutants:
        if mutant not in reached:
            write(output, mutant, UNREACHED)
    later = [mutant for mutant in reached if AT_IMPORT not in recorded.reaching(mutant)]
    _fork(PACKAGES[package], Judge(later, recorded, output))
    done = verdicts(output)
    for mutant in reached:
        if str(mutant) not in done:
            _fork(PACKAGES[package], Judge([mutant], recorded, output, in_place=False), mutant)
            if str(mutant) not in verdicts(output):
                write(output, mutant, f"{NOTICED} by an import")


def _fork(paths: Sequence[str], plugin: Judge, mutant: Mutant | None = None) -> None:
    """Collect tests in a new process, in which a module may be imported with a change."""
    if pid := os.fork():
        os.waitpid(pid, 0)
        return
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    if mutant is not None:
        change_import(mutant)
    _exit(pytest.main([*QUIET, "--capture=no", *paths], plugins=[plugin]))


Place = tuple[str, str, int]
"""File, name and first line of a function."""


def functions_below(folder: Path) -> dict[Place, list[FunctionType]]:
    """The functions of the modules below a folder that are imported."""
    found: dict[Place, list[FunctionType]] = {}
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename.startswith(str(folder)):
            found.setdefault(_place(each.__code__), []).append(each)
    return found


def change_in_place(mutant: Mutant, functions: Mapping[Place, Sequence[FunctionType]]) -> bool:
    """Change the function around the mutant; whether there is one."""
    path = ROOT / mutant.path
    around = [node for node in _outermost_functions(ast.parse(path.read_bytes())) if _within(mutant, node)]
    if not around:
        return False
    place = str(path), around[0].name, min(node.lineno for node in (around[0], *around[0].decorator_list))
    (new,) = [code for code in _codes(_compiled(mutant)) if _place(code) == place]
    live = functions.get(place, ())
    if any(each.__code__.co_freevars != new.co_freevars for each in live):
        return False
    for each in live:
        each.__code__ = new
    return bool(live)


def _outermost_functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        else:
            yield from _outermost_functions(node)


def _within(mutant: Mutant, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    assert function.end_lineno is not None
    return function.body[0].lineno <= mutant.line <= function.end_lineno


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_name, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def change_import(mutant: Mutant) -> None:
    """Let the module of a mutant be imported with its change."""
    path, code, usual = ROOT / mutant.path, _compiled(mutant), SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        return code if Path(self.path) == path else usual(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]


def _compiled(mutant: Mutant) -> CodeType:
    source = (ROOT / mutant.path).read_bytes()
    changed_source = source[: mutant.start] + mutant.new.encode() + source[mutant.end :]
    return compile(changed_source, str(ROOT / mutant.path), "exec", dont_inherit=True)


def _exit(status: int) -> NoReturn:
    """End a forked process without what its parent is to do at its end."""
    sys.stdout.flush()
    os._exit(status)


def write(output: Path, mutant: Mutant, verdict: str) -> None:
    with output.open("a") as file:
        file.write(f"{mutant}\t{verdict}\n")


def verdicts(output: Path) -> dict[str, str]:
    """Mutant -> its verdict."""
    lines = output.read_text().splitlines() if output.exists() else ()
    return dict(line.split("\t") for line in lines)


def drawn(package: str, count: int, seed: int) -> list[Mutant]:
    """So many mutants of a package, the same for the same sources and seed."""
    every = [mutant for path in sorted(_source(package).rglob("*.py")) for mutant in mutants_of(package, path)]
    return Random(f"{seed}/{package}").sample(every, min(count, len(every)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("count", type=int, help="how many, evenly among the packages")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packages", default=",".join(PACKAGES), help="some of them, separated by commas")
    parser.add_argument("-o", "--output", type=Path, help="append every verdict to this file; those there hold")
    args = parser.parse_args()
    chosen = args.packages.split(",")
    if unknown := [name for name in chosen if name not in PACKAGES]:
        parser.error(f"unknown packages: {', '.join(unknown)}; there are {', '.join(PACKAGES)}")
    for name in LIBRARIES:
        import_module(name)
    os.chdir(ROOT)
    began, total = time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        output = args.output or Path(folder) / "verdicts"
        for package in chosen:
            some = drawn(package, -(-args.count // len(chosen)), args.seed)
            judge(package, [mutant for mutant in some if str(mutant) not in verdicts(output)], output)
            found = {mutant: verdicts(output)[str(mutant)] for mutant in some}
            unnoticed = [item for item in found.items() if not item[1].startswith(NOTICED)]
            sys.stdout.writelines(f"{verdict}  {mutant}\n" for mutant, verdict in unnoticed)
            counts = Counter(verdict.partition(" by ")[0] for verdict in found.values())
            sys.stdout.write(f"{package}: {_share(counts)}\n")
            sys.stdout.flush()
            total += counts
    sys.stdout.write(f"all: {_share(total)}, in {time.monotonic() - began:.0f} s\n")
    return 0


def _share(counts: Counter[str]) -> str:
    noticed, count = counts[NOTICED], counts.total()
    return f"{noticed} of {count} noticed ({noticed / max(count, 1):.0%}), {counts[UNREACHED]} not reached by any"


if __name__ == "__main__":
    sys.exit(main())
