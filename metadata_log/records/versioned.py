"""A record with the version that it is written in (Kafka: `ApiMessageAndVersion`)."""

from __future__ import annotations

from msgspec import Struct

from metadata_log.records.frame import encode_record
from metadata_log.serde import Message


class VersionedRecord(Struct, frozen=True, gc=False):
    """A metadata record, the version to write it in, and its value in the log if the decision has it at hand."""

    record: Message
    version: int = 0
    made: bytes = b""

    @property
    def value(self) -> bytes:
        """The record's value in the log; raises `EncodeError`."""
        return self.made or encode_record(self.record, self.version)
