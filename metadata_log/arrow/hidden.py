"""Hides secrets in the columns of the raw and the typed views, as `kraft dump` does in its lines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from metadata_log.arrow import bodies
from metadata_log.arrow.schema import RECORDS, UNKNOWN_TAGS, columns_of
from metadata_log.errors import DecodeError
from metadata_log.records.frame import RECORD_TYPES, read_record
from metadata_log.records.metadata import ConfigRecord
from metadata_log.records.redact import MAY_HOLD_SECRETS, REDACTED, is_secret_config, secret_fields
from metadata_log.serde.fields import Message

_TYPES: Final = {number: cls for number, cls in RECORD_TYPES.items() if cls in MAY_HOLD_SECRETS}
_COLUMNS: Final = {"UserScramCredentialRecord": ("salt", "stored_key", "server_key"), "ConfigRecord": ("value",)}


def without_secrets(frame: pa.RecordBatch, view: str, found: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """The columns `found` of a view, with `REDACTED` in place of the secrets in the records of `frame`.

    In the raw view the whole `value` of a record with a secret is hidden. An unreadable record, or one of an unknown
    type, may hold a secret: its bytes are hidden too, unless its type never holds a secret.
    """
    names = ("value",) if view == RECORDS else _COLUMNS.get(view, ())
    hidden = _hidden(frame) if names else None
    if hidden is None:
        return dict(found)
    shown = dict(found)
    for name in (*names, "undecoded"):
        if name in found:
            column = found[name]
            mask = pc.and_(hidden, pc.is_valid(column))
            shown[name] = pc.if_else(mask, _redacted(column.type), column)
    if "unknown_tagged" in found and view != RECORDS:
        shown["unknown_tagged"] = pc.if_else(hidden, pa.scalar(None, UNKNOWN_TAGS), found["unknown_tagged"])
    return shown


@cache
def _numbers() -> pa.Array:
    # No import makes an array: pyarrow loads pandas for the first one.
    return pa.array(sorted(_TYPES), pa.int16())


def _redacted(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(REDACTED if kind == pa.string() else REDACTED.encode(), kind)


def _hidden(frame: pa.RecordBatch) -> pa.Array | None:
    """A mask of the records to hide; None for no record."""
    of_type = pc.and_(pc.is_in(frame["type_id"], _numbers()), pc.invert(pc.fill_null(frame["is_control"], False)))
    suspects = pc.or_(pc.fill_null(of_type, False), pc.is_null(frame["type_id"]))
    if not pc.any(suspects).as_py():
        return None
    rows = pc.indices_nonzero(suspects)
    chosen = frame.take(rows)
    if chosen["damage"].null_count == len(chosen):
        are_secret = pa.array(map(_holds_secret, chosen["value"].to_pylist()), pa.bool_())
    else:
        are_secret = pa.array([record is None or _is_secret(record) for record in bodies.decode(chosen)[0]], pa.bool_())
    if not pc.any(are_secret).as_py():
        return None
    return pc.replace_with_mask(pa.repeat(pa.scalar(False), frame.num_rows), suspects, are_secret)


_CONFIG: Final = b"\x01\x04\x00"
"""Frame version 1, ConfigRecord, version 0."""


def _holds_secret(value: bytes) -> bool:
    """Whether the value of a record is hidden. Most are ConfigRecords, where the name of the resource does not matter:
    the same keys and values repeat over topics and clusters, and are judged once.
    """
    if value[:3] == _CONFIG and len(value) > 5 and 0 < value[4] < 0x80:
        end = 4 + value[4]
        if end < len(value) and value[5:end].isascii():
            return _judge(value[:4] + b"\x01" + value[end:])
    return _judge_one(value)


def _judge_one(value: bytes) -> bool:
    try:
        record = read_record(value)[3]
    except DecodeError:
        return True
    return record is None or _is_secret(record)


_judge: Final = lru_cache(4096)(_judge_one)


def _is_secret(record: Message) -> bool:
    if type(record) is ConfigRecord:
        return record.value is not None and is_secret_config(record.resource_type, record.name, record.value)
    fields = secret_fields(record)
    return any(
        getattr(record, name) is not None
        for name, field in columns_of(type(record)).items()
        if field.json_name in fields
    )
