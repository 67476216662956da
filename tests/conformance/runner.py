"""Runs the cases of a conformance folder through thin adapters and counts them.

An adapter module in `adapters/` exports `SUITES`, a dict from suite name to a function
`(case, document) -> list of mismatches` (empty = passed), and may export `NOT_APPLICABLE`, a dict from case id
to the reason why the case makes sense only inside another implementation. Nothing in the product is shaped
after the cases: adapters translate.

    python -m tests.conformance.runner FOLDER [SUITE-PREFIX]
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance import adapters

Case = dict[str, Any]
Adapter = Callable[[Case, Case], list[str]]
DEFAULT_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "conformance"


@dataclass(frozen=True)
class Suites:
    """What the adapters declare: how a suite is run, and which cases do not apply."""

    adapters: dict[str, Adapter]
    not_applicable: dict[str, str]


def load_adapters() -> Suites:
    found: dict[str, Adapter] = {}
    skipped: dict[str, str] = {}
    for module_info in pkgutil.iter_modules(adapters.__path__):
        module = importlib.import_module(f"{adapters.__name__}.{module_info.name}")
        found.update(getattr(module, "SUITES", {}))
        skipped.update(getattr(module, "NOT_APPLICABLE", {}))
    return Suites(found, skipped)


def cases_folder() -> Path:
    return Path(os.environ.get("PYKAI_CONFORMANCE", DEFAULT_FOLDER))


def documents(folder: Path, prefix: str = "") -> Iterator[tuple[str, Case]]:
    """(suite name, document) of every suite file below the folder, in name order."""
    for path in sorted(folder.glob("*/*.json")):
        suite = f"{path.parent.name}/{path.stem}"
        if suite.startswith(prefix):
            yield suite, json.loads(path.read_text())


def run_case(adapter: Adapter, case: Case, document: Case) -> list[str]:
    try:
        return adapter(case, document)
    except Exception:  # noqa: BLE001 - the case fails, the run goes on
        return ["raised\n" + traceback.format_exc(limit=-6)]


def main(folder: Path, prefix: str = "", verbose: bool = True) -> int:
    suites = load_adapters()
    if not folder.is_dir():
        print(f"no conformance folder at {folder}", file=sys.stderr)
        return 2
    passed = failed = skipped = 0
    for suite, document in documents(folder, prefix):
        adapter = suites.adapters.get(suite)
        counts = [0, 0, 0]
        for case in document["cases"]:
            if case["id"] in suites.not_applicable:
                counts[2] += 1
                print(f"  not applicable  {case['id']}: {suites.not_applicable[case['id']]}")
                continue
            bad = run_case(adapter, case, document) if adapter else ["no adapter for this suite"]
            counts[1 if bad else 0] += 1
            if bad and adapter and verbose:
                print(f"  FAILED  {case['id']} ({case['name']})")
                for line in bad[:6]:
                    print(f"          {line}")
        print(f"{suite:50s} {counts[0]:4d} passed {counts[1]:4d} failed {counts[2]:4d} not applicable")
        passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
    print(f"{passed} passed, {failed} failed, {skipped} skipped" if skipped else f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(Path(arguments[0]) if arguments else cases_folder(), arguments[1] if arguments[1:] else ""))
