"""The custom resource definitions as the chart's YAML files; `make chart` writes them."""

from __future__ import annotations

from typing import Any

import yaml

from pykai.objects.crds import DEFINITIONS

HEAD = "# Generated from the tables in pykai.objects.crds: change those, then write this file anew (make chart).\n"


class _Dumper(yaml.SafeDumper):
    """YAML without aliases, which repeated parts of a schema would otherwise become."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never write an alias."""
        return True


def files() -> dict[str, str]:
    """The text of every definition by the name of its file."""
    return {
        f"{definition.group}_{definition.plural}.yaml": HEAD
        + yaml.dump(definition.manifest(), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
        for definition in DEFINITIONS
    }
