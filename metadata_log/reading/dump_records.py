"""Formats records for `kraft dump`, directly from their bytes in the usual cases."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from metadata_log.errors import CorruptBatch, UnsupportedVersion
from metadata_log.reading.entries import Entry
from metadata_log.reading.timeline import END, At
from metadata_log.records import RECORD_TYPES
from metadata_log.records.batch import RecordBatch
from metadata_log.records.frame import FRAME_VERSION, FRAMING_BYTES
from metadata_log.records.record import Record, records
from metadata_log.records.redact import MAY_HOLD_SECRETS, REDACTED, redact, secret_fields
from metadata_log.serde import Message, to_json
from metadata_log.serde.compiler import READ_FAILURES, reader
from metadata_log.serde.json_from_bytes import TextFromBytes, text_reader
from metadata_log.serde.json_text import json_text

_NO_OP: Final = "NoOpRecord"


class Range(Struct, frozen=True, kw_only=True):
    """The offsets and the times (milliseconds) to show, both ends included."""

    first_offset: int = 0
    last_offset: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None

    @classmethod
    def of(cls, since: At | None, until: At | None) -> Range:
        """The range between two moments, each an offset or a time; None is no bound."""
        since, until = since or END, until or END
        return cls(
            first_offset=since.offset or 0,
            last_offset=until.offset,
            first_ms=since.timestamp_ms,
            last_ms=until.timestamp_ms,
        )

    @property
    def is_empty(self) -> bool:
        """Whether no record can be in the range."""
        before_start = self.last_offset is not None and self.last_offset < self.first_offset
        return before_start or (self.first_ms is not None and self.last_ms is not None and self.last_ms < self.first_ms)

    def overlaps(self, batch: RecordBatch) -> bool:
        """Whether a record of the batch may be in the range."""
        return (
            batch.next_offset > self.first_offset
            and (self.last_offset is None or batch.base_offset <= self.last_offset)
            and (self.first_ms is None or batch.max_timestamp >= self.first_ms)
            and (self.last_ms is None or batch.base_timestamp <= self.last_ms)
        )

    def encloses(self, batch: RecordBatch) -> bool:
        """Whether each record of the batch is in the range."""
        return (
            batch.base_offset >= self.first_offset
            and (self.last_offset is None or batch.next_offset <= self.last_offset + 1)
            and (self.first_ms is None or batch.base_timestamp >= self.first_ms)
            and (self.last_ms is None or batch.max_timestamp <= self.last_ms)
        )

    def includes(self, entry: Entry | Record) -> bool:
        """Whether a record is in the range."""
        return (
            entry.offset >= self.first_offset
            and (self.last_offset is None or entry.offset <= self.last_offset)
            and (self.first_ms is None or entry.timestamp >= self.first_ms)
            and (self.last_ms is None or entry.timestamp <= self.last_ms)
        )


class RecordsWanted(Struct, frozen=True, kw_only=True):
    """The selection and format of records. `types` are lower-case names; an empty set selects all types."""

    types: frozenset[str]
    span: Range
    as_json: bool
    noop: bool
    show_secrets: bool

    def has_type(self, name: str) -> bool:
        """Whether records with this name are selected."""
        return name.lower() in self.types if self.types else self.noop or name != _NO_OP

    def of(self, batch: RecordBatch, entries: list[Entry]) -> list[Entry]:
        """The selected records of a batch."""
        wanted = [entry for entry in entries if self.has_type(entry.name)]
        return wanted if self.span.encloses(batch) else [entry for entry in wanted if self.span.includes(entry)]


class _Known(Struct, frozen=True):
    """The data that a record's framing determines: name, type and version, and the function for its text."""

    name: str
    type: int
    version: int
    text: TextFromBytes


class RecordLines:
    """Formats the lines of records; data that depends on the record type is computed once.

    `start` formats the fields that state the batch's position.
    """

    def __init__(self, wanted: RecordsWanted, start: Callable[[str, RecordBatch], str] | None = None) -> None:
        self.wanted = wanted
        self._start = start or _place_in_file
        self._known: dict[bytes, _Known | None] = {}

    def quickly(self, batch: RecordBatch, path: str) -> list[str] | None:
        """The lines of a batch's records; None if they need the slow path.

        The slow path handles damage, control records, unknown types and versions, and batches that are shown in part.
        """
        if batch.is_control or not self.wanted.span.encloses(batch):
            return None
        as_json = self.wanted.as_json
        front, end = (self._start_of_line(path, batch), "}") if as_json else ("  ", "")
        lines: list[str] = []
        time, parts = -1, dict[bytes, tuple[TextFromBytes, str | None]]()
        try:
            for record in records(batch, where=path):
                if record.timestamp != time:
                    time, parts = record.timestamp, {}
                value = record.value or b""
                framing = value[:FRAMING_BYTES]
                if framing not in parts:
                    if (known := self._find(framing)) is None:
                        return None
                    parts[framing] = known.text, self._middle(known, time, batch.epoch)
                body, middle = parts[framing]
                text = body(value, FRAMING_BYTES)
                if middle is not None:
                    lines.append(f"{front}{record.offset}{middle}{text}{end}")
        except (*READ_FAILURES, CorruptBatch, UnsupportedVersion):
            return None
        return lines

    def _middle(self, known: _Known, timestamp: int, epoch: int) -> str | None:
        """The text between a record's offset and its fields; None if the record is not selected."""
        if not self.wanted.has_type(known.name):
            return None
        if not self.wanted.as_json:
            return f" {known.name} v{known.version} "
        return _middle_of_line(timestamp, epoch, False, known.name, known.type, known.version)

    def _find(self, framing: bytes) -> _Known | None:
        if framing not in self._known:
            self._known[framing] = self._learn(framing)
        return self._known[framing]

    def _learn(self, framing: bytes) -> _Known | None:
        """The meaning of a framing with one byte for each number; None if the record's version is unknown."""
        if len(framing) < FRAMING_BYTES or framing[0] != FRAME_VERSION or max(framing) > 0x7F:
            return None
        _, record_type, version = framing
        cls = RECORD_TYPES.get(record_type)
        if cls is None or version not in cls.__schema__.versions:
            return None
        text = text_reader(cls, version, ascii_only=self.wanted.as_json)
        if cls in MAY_HOLD_SECRETS and not self.wanted.show_secrets:
            text = _redacted(cls, version, text, ascii_only=self.wanted.as_json)
        return _Known(cls.__name__, record_type, version, text)

    def line(self, batch: RecordBatch, entry: Entry, path: str) -> str:
        """The line of a record of any kind; an unknown record is shown as bytes."""
        record = entry.record
        if not self.wanted.as_json:
            fields = self._unread(entry) if record is None else self._fields(entry, record)
            return f"  {entry.offset} {entry.name} v{entry.version} {json.dumps(fields, ensure_ascii=False)}"
        if record is None:
            body = json.dumps(self._unread(entry))
        elif self._hides(record):
            body = json.dumps(self._fields(entry, record))
        else:
            body = json_text(record, _shown_version(entry, record))
        middle = _middle_of_line(entry.timestamp, entry.epoch, entry.is_control, entry.name, entry.type, entry.version)
        return f"{self._start_of_line(path, batch)}{entry.offset}{middle}{body}}}"

    def _start_of_line(self, path: str, batch: RecordBatch) -> str:
        return f'{{{self._start(path, batch)}"offset": '

    def _hides(self, record: Message) -> bool:
        return type(record) in MAY_HOLD_SECRETS and not self.wanted.show_secrets

    def _unread(self, entry: Entry) -> object:
        """The text of a record with an unknown type or version."""
        may_hold_secrets = not entry.is_control and RECORD_TYPES.get(entry.type) in MAY_HOLD_SECRETS
        hides = may_hold_secrets and not self.wanted.show_secrets
        return {"hex": REDACTED if hides else entry.value.hex()}

    def _fields(self, entry: Entry, record: Message) -> object:
        fields = to_json(record, _shown_version(entry, record))
        return redact(record, fields) if self._hides(record) else fields


def _place_in_file(path: str, batch: RecordBatch) -> str:
    return f'"file": {json.dumps(path)}, "position": {batch.position}, '


def _middle_of_line(timestamp: int, epoch: int, is_control: bool, name: str, record_type: int, version: int) -> str:
    return (
        f', "timestamp": {timestamp}, "epoch": {epoch}, "is_control": {"true" if is_control else "false"}, '
        f'"name": "{name}", "type": {record_type}, "version": {version}, "json": '
    )


def _shown_version(entry: Entry, record: Message) -> int:
    """The displayed version: that of the record, at most the newest known one."""
    return 0 if entry.is_control else min(entry.version, type(record).__schema__.versions.highest)


def _redacted(cls: type[Message], version: int, plain: TextFromBytes, *, ascii_only: bool) -> TextFromBytes:
    """The function that hides the secrets of a record, if the record type has secrets."""
    read = reader(cls, version, version in cls.__schema__.flexible)

    def text(value: bytes, position: int) -> str:
        record = read(value, position)
        if not secret_fields(record):
            return plain(value, position)
        return json.dumps(redact(record, to_json(record, version)), ensure_ascii=ascii_only)

    return text
