"""Schemas of all types as text: what they are in canonical form, and whether one can follow others.

A call may take as long as a stranger wants, so that the caller runs it in a process that can be ended
(`kraft.registry.checking`). Its arguments can be pickled, and its results are plain data.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple

from msgspec import Struct

from kraft.registry.records import AVRO, JSON, PROTOBUF
from metadata_log.errors import install_extra

NONE: Final = "NONE"
LEVELS: Final = (
    *(NONE, "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE"),
    *("FULL", "FULL_TRANSITIVE"),
)
CURE: Final = install_extra("registry")


class InvalidSchema(Exception):
    """A text is no schema."""


class CannotCheck(Exception):
    """Whether a schema can follow another one is not known here."""


class TooCostly(Exception):
    """A schema, or a comparison, takes more time or memory than it may."""


class Imported(Struct, frozen=True):
    """A schema that another one imports, by the name it has there."""

    name: str
    text: str


class Source(Struct, frozen=True):
    """A schema as text, with all that it imports; what is imported comes first."""

    type: str
    text: str
    imports: tuple[Imported, ...] = ()


class Difference(NamedTuple):
    """Why a reader cannot read what a writer writes: the kind of difference, a sentence, and where it is."""

    kind: str
    what: str
    where: str


class SchemaType(NamedTuple):
    """A type of schemas.

    Attributes:
        module: The module of `kraft.registry` with `canonical(source, normalize)`, `comparable(source, normalize)`,
            `differences(reader, writer)` and `rendered(source, form)`.
        needs: The library that the module needs, by the name of its import.
        smallest: A schema.
        about: How it is read and compared.
    """

    module: str
    needs: str
    smallest: str
    about: str


TYPES: Final = {
    AVRO: SchemaType(
        "kraft.registry.avro_schemas",
        "avro",
        '"int"',
        "by Apache Avro's library `avro`; compared by the rules of resolution, and written as Java's writes it",
    ),
    JSON: SchemaType(
        "kraft.registry.json_schemas",
        "jsonschema",
        "{}",
        "by `jsonschema`, and compared here: whether it is sure that each document of the writer is one of the reader",
    ),
    PROTOBUF: SchemaType(
        "kraft.registry.protobuf_schemas",
        "grpc_tools",
        'syntax = "proto3";',
        "by protoc of `grpcio-tools`, from a text or a descriptor in Base64; written and compared from the descriptor",
    ),
}


def installed() -> list[str]:
    """The types whose libraries are installed."""
    return [name for name, one in TYPES.items() if importlib.util.find_spec(one.needs) is not None]


def check_installed() -> None:
    """Raise `ModuleNotFoundError` with the cure if the library of no type is installed."""
    if not installed():
        raise ModuleNotFoundError(f"a schema registry needs the libraries of schemas: {CURE}")


def _module(schema_type: str) -> Any:
    entry = TYPES.get(schema_type)
    if entry is None:
        raise InvalidSchema(f"Invalid schema type {schema_type}; the types are {', '.join(TYPES)}")
    try:
        return importlib.import_module(entry.module)
    except ImportError as missing:
        raise InvalidSchema(f"Schemas of type {schema_type} need the library {missing.name}: {CURE}") from missing


@cache
def warm(schema_type: str) -> None:
    """Load what a type needs, if it is one and its libraries are installed: that takes longer than most schemas."""
    with suppress(InvalidSchema, KeyError):
        canonical(Source(schema_type, TYPES[schema_type].smallest))


def canonical(source: Source, normalize: bool = False) -> str:
    """The form in which a schema is stored and compared.

    Args:
        source: The schema.
        normalize: Whether schemas that mean the same get the same form, as far as the type knows how.

    Raises:
        InvalidSchema: It is no schema of its type.
    """
    module = _module(source.type)
    try:
        text: str = module.canonical(source, normalize)
        text.encode()
        return text
    except UnicodeEncodeError:
        raise InvalidSchema("the schema has half a character, an escape such as \\ud800 alone") from None
    except RecursionError:
        raise InvalidSchema("the schema is nested too deep") from None


def matching(new: Source, others: Sequence[Source], normalize: bool) -> int | None:
    """The place of the first schema that is the same as another one, though in other words.

    Args:
        new: The schema, in canonical form.
        others: Schemas of its type, perhaps not in canonical form: other programs write to the topic, too.
        normalize: Whether all are normalized first.
    """
    comparable: Callable[[Source, bool], str] = _module(new.type).comparable
    wanted = comparable(new, normalize)
    for at, one in enumerate(others):
        try:
            if comparable(one, normalize) == wanted:
                return at
        except (InvalidSchema, RecursionError):
            continue  # what another program has taken for a schema
    return None


def rendered(source: Source, form: str) -> str:
    """A stored schema in another form (`format=…`); in its own if its type has no such form."""
    text: str = _module(source.type).rendered(source, form)
    return text


class Earlier(Struct, frozen=True):
    """A version that a schema has to be compatible with."""

    version: int
    source: Source


def incompatibilities(new: Source, earlier: Sequence[Earlier], level: str) -> list[str]:
    """Why a schema cannot follow the earlier ones, in the words of the common registry; empty if it can.

    Args:
        new: The schema.
        earlier: The versions before it, in order.
        level: The compatibility level: BACKWARD lets the new schema read what the last one wrote, FORWARD the other
            way around, FULL both; with _TRANSITIVE not the last one counts, but all.

    Raises:
        InvalidSchema: It is no schema of its type.
        CannotCheck: The levels but NONE do not exist for this type, or these schemas.
    """
    if level == NONE:
        return []
    backward = level.startswith(("BACKWARD", "FULL"))
    forward = level.startswith(("FORWARD", "FULL"))
    for one in reversed(earlier if level.endswith("TRANSITIVE") else earlier[-1:]):
        problems = list(_between(new, one.source, backward=backward, forward=forward))
        if problems:
            return [
                *(
                    f"{{errorType:'{kind}', description:'{what}', additionalInfo:'{where}'}}"
                    for kind, what, where in problems
                ),
                f"{{oldSchemaVersion: {one.version}}}",
                f"{{oldSchema: '{_shortened(one.source.text)}'}}",
                f"{{compatibility: '{level}'}}",
            ]
    return []


def _between(new: Source, old: Source, *, backward: bool, forward: bool) -> Iterator[Difference]:
    if new.type != old.type:
        yield Difference("SCHEMA_TYPE_CHANGED", f"an earlier schema is of type {old.type}, not {new.type}", "/")
        return
    differences: Callable[[Source, Source], Iterator[Difference]] = _module(new.type).differences
    try:
        if backward:
            yield from differences(new, old)
        if forward:
            yield from differences(old, new)
    except RecursionError:
        raise CannotCheck("the schemas are nested too deep to be compared here") from None


def _shortened(text: str, most: int = 1000) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
