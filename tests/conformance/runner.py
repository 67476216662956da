"""Runs the cases of a conformance folder through thin adapters and counts them.

An adapter module in `adapters/` exports `SUITES`, a dict from suite name to a function
`(case, document) -> list of mismatches` (empty = passed), and may export `NOT_APPLICABLE`, a dict from case id
to the reason why the case makes sense only inside another implementation. Nothing in the product is shaped
after the cases: adapters translate.

    python -m tests.conformance.runner FOLDER [SUITE-PREFIX]
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance import adapters
from tests.conformance.cases import NotApplicable, read

Case = dict[str, Any]
Adapter = Callable[[Case, Case], list[str]]
VERDICTS = ("passed", "failed", "not applicable")
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
            yield suite, read(path)


def run_case(adapter: Adapter, case: Case, document: Case) -> list[str]:
    """The mismatches of a case; raises NotApplicable."""
    try:
        return adapter(case, document)
    except NotApplicable:
        raise
    except Exception:  # noqa: BLE001 - the case fails, the run goes on
        return ["raised\n" + traceback.format_exc(limit=-6)]


def main(folder: Path, prefix: str = "") -> int:
    """Run the suites whose names begin with the prefix; 0 if no case fails."""
    suites = load_adapters()
    if not folder.is_dir():
        print(f"no conformance folder at {folder}", file=sys.stderr)
        return 2
    total: Counter[str] = Counter()
    for suite, document in documents(folder, prefix):
        counts = run_suite(suites, suite, document)
        print(f"{suite:50s}" + "".join(f" {counts[verdict]:4d} {verdict}" for verdict in VERDICTS))
        total += counts
    shown = VERDICTS if total["not applicable"] else VERDICTS[:2]
    print(", ".join(f"{total[verdict]} {verdict}" for verdict in shown))
    return 1 if total["failed"] else 0


def run_suite(suites: Suites, suite: str, document: Case) -> Counter[str]:
    """Count the verdicts, and print those that a reader must know of."""
    counts: Counter[str] = Counter()
    adapter = suites.adapters.get(suite)
    for case in document["cases"]:
        try:
            if adapter is None:
                raise NotApplicable(f"no adapter for {suite}")
            if case["id"] in suites.not_applicable:
                raise NotApplicable(suites.not_applicable[case["id"]])
            bad = run_case(adapter, case, document)
        except NotApplicable as reason:
            counts["not applicable"] += 1
            print(f"  not applicable  {case['id']}: {reason}")
            continue
        counts["failed" if bad else "passed"] += 1
        if bad:
            print(f"  FAILED  {case['id']} ({case['name']})", *(f"          {line}" for line in bad[:6]), sep="\n")
    return counts


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(Path(arguments[0]) if arguments else cases_folder(), arguments[1] if arguments[1:] else ""))
