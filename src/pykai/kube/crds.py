"""The custom resource definitions as the chart's YAML files; `make chart` writes them."""

from __future__ import annotations

from typing import Any

import yaml

from pykai.kube.api import Object, Resource
from pykai.objects.crds import DEFINITIONS

HEAD = "# Generated from the tables in pykai.objects.crds: change those, then write this file anew (make chart).\n"


class _Dumper(yaml.SafeDumper):
    """YAML without aliases, which repeated parts of a schema would otherwise become."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never write an alias."""
        return True


def open_definition(resource: Resource) -> Object:
    """A definition that accepts every object of a kind, for kinds whose own definition is not at hand."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": resource.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {
        "plural": resource.plural,
        "kind": resource.kind,
        "singular": resource.kind.lower(),
        "listKind": f"{resource.kind}List",
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.qualified},
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [{**version, "subresources": {"status": {}}}],
        },
    }


def files() -> dict[str, str]:
    """The text of every definition by the name of its file."""
    return {
        f"{definition.group}_{definition.plural}.yaml": HEAD
        + yaml.dump(definition.manifest(), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
        for definition in DEFINITIONS
    }
