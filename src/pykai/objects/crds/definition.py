"""A CustomResourceDefinition from one row: names, columns, schema of spec and status."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pykai.objects.crds.shapes import Schema

API_VERSION_DOC = "The version of the API this object is written in, as group/version."
KIND_DOC = "The kind of this object."


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; `type` is one of string, integer, number, boolean, date."""

    name: str
    path: str
    type: str = "string"
    doc: str = ""

    def manifest(self) -> dict[str, Any]:
        """The column as the definition writes it."""
        row = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**row, "description": self.doc} if self.doc else row


AGE = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True)
class Definition:
    """One kind with its only version; `status` None means that it has no status subresource."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    doc: str
    spec: Schema
    status: Schema | None
    short_names: tuple[str, ...] = ()
    columns: tuple[Column, ...] = field(default=())
    spec_required: bool = False

    @property
    def name(self) -> str:
        """`plural.group`."""
        return f"{self.plural}.{self.group}"

    def manifest(self) -> dict[str, Any]:
        """The CustomResourceDefinition object."""
        names: dict[str, Any] = {
            "kind": self.kind,
            "listKind": f"{self.kind}List",
            "plural": self.plural,
            "singular": self.kind.lower(),
        }
        if self.short_names:
            names["shortNames"] = list(self.short_names)
        scope = "Namespaced" if self.namespaced else "Cluster"
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {"group": self.group, "names": names, "scope": scope, "versions": [self._version()]},
        }

    def _version(self) -> dict[str, Any]:
        version: dict[str, Any] = {"name": self.version, "served": True, "storage": True}
        if self.columns:
            version["additionalPrinterColumns"] = [column.manifest() for column in self.columns]
        if self.status is not None:
            version["subresources"] = {"status": {}}
        version["schema"] = {"openAPIV3Schema": self._schema()}
        return version

    def _schema(self) -> Schema:
        fields: dict[str, Schema] = {
            "apiVersion": {"type": "string", "description": API_VERSION_DOC},
            "kind": {"type": "string", "description": KIND_DOC},
            "metadata": {"type": "object"},
            "spec": self.spec,
        }
        if self.status is not None:
            fields["status"] = self.status
        schema: Schema = {"type": "object", "description": self.doc, "properties": fields}
        return {**schema, "required": ["spec"]} if self.spec_required else schema
