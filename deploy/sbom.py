"""A bill of materials in CycloneDX form: pykai and everything it needs at run time, as installed here.

python -m deploy.sbom dist/pykai-0.2.0.cdx.json
"""

from __future__ import annotations

import json
import sys
import uuid
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from deploy.distributions import PRODUCT, closure, normal, requirements


def document() -> dict[str, Any]:
    """The bill; it depends on names and versions only."""
    found = closure()
    parts = {name: _component(each) for name, each in found.items()}
    product = parts.pop(PRODUCT) | {"type": "application"}
    graph = [
        {"ref": _address(each), "dependsOn": [_address(found[name]) for name in requirements(each)]}
        for each in found.values()
    ]
    content = json.dumps([product, parts, graph], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"component": product},
        "components": list(parts.values()),
        "dependencies": graph,
    }


def _address(of: Distribution) -> str:
    return f"pkg:pypi/{normal(of.name)}@{of.version}"


def _component(of: Distribution) -> dict[str, Any]:
    stated = [*_stated(of, "License-Expression"), *_classified(of), *_stated(of, "License")]
    first = [line for text in stated for line in text.strip().splitlines()[:1]][:1]
    licenses = {"licenses": [{"license": {"name": first[0]}}]} if first else {}
    address = _address(of)
    named = {"type": "library", "bom-ref": address, "name": of.name, "version": of.version, "purl": address}
    return {**named, **licenses}


def _stated(of: Distribution, field: str) -> list[str]:
    return list(of.metadata.get_all(field) or ())


def _classified(of: Distribution) -> list[str]:
    kinds = [each.split(" :: ")[-1] for each in _stated(of, "Classifier") if each.startswith("License :: ")]
    return [" AND ".join(kinds)] if kinds else []


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(document(), indent=2) + "\n")
