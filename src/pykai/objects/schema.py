"""Generates CRDs from the msgspec structs that components decode.

A field's annotation carries its description for `kubectl explain` and further keywords of its schema:

    quota: Annotated[float, Doc("The guaranteed amount. -1 is unlimited.")] = 0.0

`Definition.manifest` generates the structural schema from types and annotations. Decoding does not validate against it:
an informer must read whatever the API server stores. A `ClassVar` field is part of the CRD but not decoded, because no
component reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

Schema = dict[str, Any]

NAME_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DURATION_PATTERN = (
    r"^[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*)$"
)
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
MAX_DURATION_LENGTH = 64
DURATION_RULES: Schema = {
    "maxLength": MAX_DURATION_LENGTH,
    "x-kubernetes-validations": [
        {"rule": f"self.matches(r'{DURATION_PATTERN}')", "message": "must be a duration such as 90s or 1h30m"}
    ],
}
"""A CEL rule instead of a pattern: its violation shows this message, that of a pattern the regular expression."""
QUANTITY_RULES: Schema = {
    "pattern": QUANTITY_PATTERN,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_API_VERSION = "The version of the API this object is written in, as group/version."
_KIND = "The kind of this object."


class Kind(Struct, rename="camel", gc=False, kw_only=True, omit_defaults=True, frozen=True):
    """Base of all structs of objects: immutable, camelCase on the wire, unknown fields ignored."""


class OwnerReference(Kind):
    name: str = ""
    kind: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(Kind):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: list[OwnerReference] | None = None
    generation: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def title(self) -> str:
        """`namespace/name`, for messages."""
        return f"{self.namespace}/{self.name}"


class Doc:
    """The description of a field and further keywords of its schema.

    `shape`: the type for the schema if the decoded type is less specific; `words`: values of placeholders in the
    descriptions and defaults of the struct below; `required`: whether the field is required; `name`: the wire name of a
    field that is not decoded; `rules`: schema keywords; None removes a keyword.
    """

    def __init__(
        self,
        text: str = "",
        *,
        shape: Any = None,
        words: Mapping[str, str] | None = None,
        required: bool = False,
        name: str = "",
        **rules: Any,
    ) -> None:
        self.text = text
        self.name = name
        self.shape = shape
        self.words = words or {}
        self.required = required
        self.rules = rules


Duration = Annotated[str, Doc(" A duration such as 90s or 1h30m.", **DURATION_RULES)]
Quantity = Annotated[str | int | float, Doc(**QUANTITY_RULES)]
IntOrString = Annotated[int | str, Doc(**{key: rule for key, rule in QUANTITY_RULES.items() if key != "pattern"})]
Amounts = dict[str, Annotated[Quantity, Doc("Amount of this resource.")]]
_KEYED: Schema = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


def keyed_by_type(text: str) -> Doc:
    """The Doc of a list with one entry per `type`, such as conditions."""
    return Doc(text, **_KEYED)


@dataclass(frozen=True)
class PrinterColumn:
    """A column of `kubectl get`; `type` is one of string, integer, number, boolean, date."""

    name: str
    path: str
    type: str = "string"
    doc: str = ""

    def manifest(self) -> dict[str, Any]:
        """Return the column in the CRD."""
        row = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**row, "description": self.doc} if self.doc else row


AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True)
class Definition:
    """A CRD with one version; without `status_struct` it has no status subresource.

    Schemas are generated on first use, because most components use none.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    doc: str
    spec_struct: type[Struct]
    spec_doc: str = ""
    status_struct: type[Struct] | None = None
    status_words: Mapping[str, str] | None = None
    short_names: tuple[str, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    spec_required: bool = False

    @property
    def name(self) -> str:
        """`plural.group`."""
        return f"{self.plural}.{self.group}"

    @cached_property
    def spec(self) -> Schema:
        """The structural schema of `spec`."""
        schema = struct_schema(self.spec_struct)
        return {**schema, "description": self.spec_doc} if self.spec_doc else schema

    @cached_property
    def status(self) -> Schema | None:
        """The structural schema of `status`; None without that subresource."""
        return None if self.status_struct is None else struct_schema(self.status_struct, self.status_words)

    def schema(self) -> Schema:
        """Return the structural schema of the whole object."""
        fields: dict[str, Schema] = {
            "apiVersion": {"type": "string", "description": _API_VERSION},
            "kind": {"type": "string", "description": _KIND},
            "metadata": {"type": "object"},
            "spec": self.spec,
        }
        if self.status is not None:
            fields["status"] = self.status
        schema: Schema = {"type": "object", "description": self.doc, "properties": fields}
        return {**schema, "required": ["spec"]} if self.spec_required else schema

    def manifest(self) -> dict[str, Any]:
        """Return the CustomResourceDefinition object."""
        names: dict[str, Any] = {
            "kind": self.kind,
            "listKind": f"{self.kind}List",
            "plural": self.plural,
            "singular": self.kind.lower(),
        }
        if self.short_names:
            names["shortNames"] = list(self.short_names)
        version: dict[str, Any] = {"name": self.version, "served": True, "storage": True}
        if self.columns:
            version["additionalPrinterColumns"] = [column.manifest() for column in self.columns]
        if self.status is not None:
            version["subresources"] = {"status": {}}
        version["schema"] = {"openAPIV3Schema": self.schema()}
        scope = "Namespaced" if self.namespaced else "Cluster"
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {"group": self.group, "names": names, "scope": scope, "versions": [version]},
        }


def struct_schema(struct: type[Struct], words: Mapping[str, str] | None = None) -> Schema:
    """Return the schema of a struct; every field needs a Doc."""
    names = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
    fields: dict[str, Schema] = {}
    required: list[str] = []
    for name, hint in get_type_hints(struct, include_extras=True).items():
        _, docs = _unwrap(hint)
        if not docs:
            raise TypeError(f"{struct.__name__}.{name} needs a Doc: it is part of a custom resource")
        wire_name = names.get(name) or next((doc.name for doc in docs if doc.name), _camel(name))
        fields[wire_name] = _field_schema(hint, words or {})
        if any(doc.required for doc in docs):
            required.append(wire_name)
    doc = (struct.__doc__ or "").format_map(words or {})
    schema: Schema = {"type": "object", "description": doc, "properties": fields}
    return {**schema, "required": required} if required else schema


def _field_schema(hint: Any, words: Mapping[str, str]) -> Schema:
    kind, docs = _unwrap(hint)
    shape = next((doc.shape for doc in docs if doc.shape is not None), kind)
    nested_words = {**words, **{key: word for doc in docs for key, word in doc.words.items()}}
    schema = _type_schema(shape, nested_words)
    for doc in reversed(docs):
        schema |= doc.rules
    if isinstance(schema.get("default"), str):
        schema["default"] = schema["default"].format_map(nested_words)
    description = "".join(doc.text for doc in docs).format_map(words)
    if description:
        schema["description"] = description
    return {key: value for key, value in schema.items() if value is not None}


def _unwrap(hint: Any) -> tuple[Any, list[Doc]]:
    """Return the type inside ClassVar, Annotated and `| None`, and its Docs, the outermost first."""
    docs: list[Doc] = []
    while True:
        origin = get_origin(hint)
        if origin is ClassVar:
            (hint,) = get_args(hint)
        elif origin is Annotated:
            hint, *annotations = get_args(hint)
            docs += [doc for doc in reversed(annotations) if isinstance(doc, Doc)]
        elif origin in (Union, UnionType) and type(None) in get_args(hint):
            (hint,) = [part for part in get_args(hint) if part is not type(None)][:1]
        else:
            return hint, docs


_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int32"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
    Any: {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


def _type_schema(kind: Any, words: Mapping[str, str]) -> Schema:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is list:
        return {"type": "array", "items": _field_schema(arguments[0], words)}
    if origin is dict and arguments[1] is Any:
        return dict(_PLAIN[Any])
    if origin is dict:
        return {"type": "object", "additionalProperties": _field_schema(arguments[1], words)}
    if isinstance(kind, type) and issubclass(kind, Struct):
        return struct_schema(kind, words)
    return dict(_PLAIN.get(kind, {}))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
