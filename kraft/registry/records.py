"""The records of the topic `_schemas`, whose keys are byte for byte as the common registry writes them.

A key is what compaction goes by: `{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}`. Other programs write the
same key with other spaces, or in another order, so that what is replaced or deleted goes by the bytes that were read
(`State.records`). A record of a kind that is not known here is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from hashlib import md5
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

PER_ENTRY: Final = 1000
"""About the bytes of memory that any version, setting or mode takes besides its texts."""
PER_REFERENCE: Final = 300
PER_BYTE_OF_TREE: Final = 30
AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
TENANT: Final = "default"
"""The one tenant that is known here."""


class SchemaReference(Struct, frozen=True):
    """A schema that another one imports: the name it has there, and where it is registered."""

    name: str
    subject: str
    version: int


class SchemaKey(Struct, frozen=True, tag_field="keytype", tag="SCHEMA"):
    """The key of a version of a subject. No value: the version is gone for good."""

    subject: str
    version: int
    magic: int = 1


class ConfigKey(Struct, frozen=True, tag_field="keytype", tag="CONFIG"):
    """The key of the settings of a subject, or of all."""

    subject: str | UnsetType | None = UNSET
    magic: int = 0

    @property
    def of(self) -> str | None:
        """The subject; None for all."""
        return None if isinstance(self.subject, UnsetType) else self.subject


class ModeKey(Struct, frozen=True, tag_field="keytype", tag="MODE"):
    """The key of the mode of a subject, or of all."""

    subject: str | UnsetType | None = UNSET
    magic: int = 0

    @property
    def of(self) -> str | None:
        """The subject; None for all."""
        return None if isinstance(self.subject, UnsetType) else self.subject


class DeleteSubjectKey(Struct, frozen=True, tag_field="keytype", tag="DELETE_SUBJECT"):
    """The key of a deletion of all versions of a subject that can be taken back."""

    subject: str
    magic: int = 0


class ClearSubjectKey(Struct, frozen=True, tag_field="keytype", tag="CLEAR_SUBJECT"):
    """The key of the removal of what is left of a subject, or of all."""

    subject: str | UnsetType | None = UNSET
    magic: int = 0

    @property
    def of(self) -> str | None:
        """The subject; None for all."""
        return None if isinstance(self.subject, UnsetType) else self.subject


class ContextKey(Struct, frozen=True, tag_field="keytype", tag="CONTEXT"):
    """The key of a context that has subjects, or had some; the default one has none."""

    tenant: str
    context: str
    magic: int = 0


class NoopKey(Struct, frozen=True, tag_field="keytype", tag="NOOP"):
    """The key of a record that only marks how far the topic was read."""

    magic: int = 0


Key = SchemaKey | ConfigKey | ModeKey | DeleteSubjectKey | ClearSubjectKey | ContextKey | NoopKey


class SchemaValue(Struct, kw_only=True, omit_defaults=True, rename="camel", dict=True):
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema_type: str = AVRO
    references: tuple[SchemaReference, ...] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    schema: str
    deleted: bool

    @cached_property
    def identity(self) -> Identity:
        """The key by which two schemas are the same."""
        return identity(self.schema_type, self.schema, self.references, self.metadata, self.rule_set)

    def removed(self) -> SchemaValue:
        """The version as it is once it was deleted softly."""
        value = structs.replace(self, deleted=True)
        vars(value).update(vars(self))  # the identity, which takes long for a long schema
        return value

    @property
    def memory(self) -> int:
        """About the bytes that the version takes in memory, where JSON of strangers becomes objects."""
        texts = [self.subject, self.schema]
        for one in self.references:
            texts += one.name, one.subject
        trees = [msgspec.json.encode(one) for one in (self.metadata, self.rule_set) if one is not None]
        references = len(self.references) * PER_REFERENCE
        return PER_ENTRY + sum(map(_memory, texts)) + references + sum(map(len, trees)) * PER_BYTE_OF_TREE


def _memory(text: str) -> int:
    return len(text) if text.isascii() else 8 * len(text)  # four bytes for each character, and the same as UTF-8


class ConfigValue(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The settings of a subject, or of all."""

    subject: str | None = None
    normalize: bool | None = None
    compatibility_level: str | None = None


class ModeValue(Struct, frozen=True, kw_only=True):
    """The mode of a subject, or of all."""

    subject: str | UnsetType | None = UNSET
    mode: str


class DeleteSubjectValue(Struct, frozen=True):
    """Up to which version a subject was deleted."""

    subject: str
    version: int


class ContextValue(Struct, frozen=True):
    """A context."""

    tenant: str
    context: str


class ClearSubjectValue(Struct, frozen=True, omit_defaults=True):
    """The subject that was cleared; None for all."""

    subject: str | None = None


Identity = tuple[str, str]
"""The type of a schema, and the digest of its contents as a UUID (the `guid` of the common registry)."""
Record = tuple[bytes, bytes | None]


def identity(
    schema_type: str,
    schema: str,
    references: Sequence[SchemaReference],
    metadata: dict[str, Any] | None = None,
    rule_set: dict[str, Any] | None = None,
) -> Identity:
    """The identity of a schema; metadata and rules count by their JSON."""
    digest = md5(schema.encode(), usedforsecurity=False)
    for one in references:
        digest.update(one.name.encode() + one.subject.encode() + (one.version & 0xFFFFFFFF).to_bytes(4, "big"))
    for given in (metadata, rule_set):
        if given is not None:
            digest.update(b"\x01" + msgspec.json.encode(given, order="sorted"))
    hexes = digest.hexdigest()
    return schema_type, f"{hexes[:8]}-{hexes[8:12]}-{hexes[12:16]}-{hexes[16:20]}-{hexes[20:]}"


def encoded(key: Key, value: Struct | None) -> Record:
    """A record as it is written."""
    return msgspec.json.encode(key), None if value is None else msgspec.json.encode(value)


_key: Final = msgspec.json.Decoder(Key)


def key_of(data: bytes | None) -> Key | None:
    """The key of a record; None for one that is not known here."""
    try:
        return None if data is None else _key.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
