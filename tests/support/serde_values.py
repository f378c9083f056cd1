"""Helpers of the serialization tests: golden vectors, every declared class, and random values for any declaration."""

from typing import Any

from hypothesis import strategies as st

from metadata_log.records import CONTROL_RECORDS, RECORD_TYPES
from metadata_log.records.aborted_txn import AbortedTxn
from metadata_log.records.control import ControlRecordTypeSchema, EndTxnMarker, QuorumStateData
from metadata_log.records.coordinator import TOPICS
from metadata_log.records.remote_storage import RECORD_TYPES as REMOTE_RECORDS
from metadata_log.serde import Message, schema_of
from metadata_log.serde.fields import ArrayOf, Field, FieldType, Kind, fields_at
from metadata_log.types import Uuid
from transport.protocol import messages

CLASSES: dict[str, type[Message]] = {
    cls.__name__: cls
    for cls in [
        *RECORD_TYPES.values(),
        *CONTROL_RECORDS.values(),
        *(cls for kinds in TOPICS.values() for kind in kinds.values() for cls in (kind.key, kind.value)),
        *REMOTE_RECORDS.values(),
        QuorumStateData,
        ControlRecordTypeSchema,
        EndTxnMarker,
        AbortedTxn,
        *(getattr(messages, name) for name in messages.__all__),
    ]
}
CLASS_VERSIONS = [
    (cls, version)
    for _, cls in sorted(CLASSES.items())
    for version in range(schema_of(cls).versions.lowest, schema_of(cls).versions.highest + 1)
]


def is_flexible(cls: type[Message], version: int) -> bool:
    return version in schema_of(cls).flexible


def _integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high) | st.sampled_from([0, low, high])


PRIMITIVES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.BOOL: st.booleans(),
    Kind.INT8: _integers(8),
    Kind.INT16: _integers(16),
    Kind.UINT16: _integers(16, signed=False),
    Kind.INT32: _integers(32) | st.just(-1),
    Kind.INT64: _integers(64) | st.just(-1),
    Kind.FLOAT64: st.floats(allow_nan=False),
    Kind.STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.sampled_from(["", "x" * 126, "y" * 127, "é" * 70, "z" * 20000]),
    Kind.BYTES: st.binary(max_size=8) | st.sampled_from([bytes(126), bytes(127), bytes(20000)]),
    Kind.RECORDS: st.binary(max_size=8) | st.sampled_from([bytes(126), bytes(127), bytes(20000)]),
    Kind.UUID: st.binary(min_size=16, max_size=16).map(Uuid) | st.just(Uuid.ZERO),
}


def values(cls: type[Message], version: int, *, flexible: bool) -> st.SearchStrategy[Message]:
    """Instances of `cls` that `version` can carry, with unknown tagged fields where there is room for them."""
    at = fields_at(cls, version)
    given = {field.name: _field_values(field, version, flexible) for field in at.in_order}
    if flexible:
        taken = {field.tag for field in (*at.in_order, *at.absent) if field.tag is not None}
        tags = st.integers(0, 40) | st.integers(0, 0xFFFFFFFF)
        given["unknown_tagged"] = st.just(()) | st.dictionaries(
            tags.filter(lambda tag: tag not in taken), st.binary(max_size=4), max_size=2
        ).map(lambda found: tuple(sorted(found.items())))
    return st.builds(cls, **given)


def _field_values(field: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    made = _typed_values(field.type, version, flexible)
    if version in field.nullable:
        made = made | st.none()
    return st.just(field.default) | made if field.tag is not None else made


def _typed_values(kind: FieldType, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    match kind:
        case Kind():
            return PRIMITIVES[kind]
        case ArrayOf():
            sizes = (
                [2, 2, 2, 40] if isinstance(kind.element, Kind) and kind.element is not Kind.STRING else [2, 2, 2, 5]
            )
            made = st.sampled_from(sizes).flatmap(
                lambda most: st.lists(_typed_values(kind.element, version, flexible), max_size=most)
            )
            return made.map(tuple) if kind.as_tuple else made
        case _:
            return values(kind, version, flexible=flexible)


@st.composite
def damage(draw: st.DrawFn, raw: bytes) -> bytes:
    """The bytes flipped, cut and lengthened."""
    damaged = bytearray(raw)
    for _ in range(draw(st.integers(0, 3)) if raw else 0):
        value = draw(st.integers(0, 255) | st.sampled_from([0, 0x7F, 0x80, 0xFF]))
        damaged[draw(st.integers(0, len(damaged) - 1))] = value
    return bytes(damaged[: draw(st.integers(0, len(damaged)))]) + draw(st.binary(max_size=6))
