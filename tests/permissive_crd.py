"""Kinds of other projects in a cluster of a test: a definition that takes whatever is written."""

from __future__ import annotations

from pykai.kube.api import Object, Resource


def permissive_crd(resource: Resource) -> Object:
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
