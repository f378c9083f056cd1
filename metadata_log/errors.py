"""Errors about bytes and files: each one names its place.

`docs/architecture.md` defines five kinds of errors; this module holds the kind "bytes are wrong".
"""

from __future__ import annotations

from typing import Final

REMEDY: Final = (
    "Keep a copy of the directory. Put a sound copy of the file in its place, or let the node rejoin with an empty "
    "directory. A voter of a static quorum may not do that at any time: see docs/howto/damaged-disk.md."
)
"""The remedy for an operator, for a directory that has lost data."""


def install_extra(extra: str) -> str:
    """How the libraries of an extra are installed: as a hint for a user."""
    return f"pip install 'trio-kraft[{extra}]', or in a clone: uv pip install -e '.[{extra}]'"


class MetadataLogError(Exception):
    """The base of all errors about bytes, files and directories.

    Args:
        what: The error as a text.
        where: The file path or the peer.
        position: The byte position in the file or message.
        field: The path of the field.
        hint: A remedy for the operator.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        position: int | None = None,
        field: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.position = position
        self.field = field
        self.hint = hint
        if hint is not None:
            # What shows the error, shows what to do. The text stays without it, for those that show both apart.
            self.add_note(f"hint: {hint}")

    def __str__(self) -> str:
        place = [part for part in (self.where, self.field) if part]
        if self.position is not None:
            place.append(f"byte {self.position}")
        return f"{self.what} ({', '.join(place)})" if place else self.what


class DecodeError(MetadataLogError):
    """A message, record or text file does not follow its schema."""


class LimitExceeded(DecodeError):
    """A peer sent a frame with more bytes or more values than its API may have; the frame was discarded."""


class UnsupportedVersion(DecodeError):
    """The bytes have a version, record type or message format that this software does not know."""


class EncodeError(MetadataLogError):
    """A value has no encoding in the requested version: a set field that is not ignorable, or a value out of range."""


class CorruptBatch(MetadataLogError):
    """A record batch is damaged: wrong CRC, impossible length, or inconsistent offsets."""


class IncompleteBatch(CorruptBatch):
    """The bytes end before the batch does: usual at the end of the last segment and of a Fetch response."""


class OversizedBatch(CorruptBatch):
    """The records of a batch unpack to more bytes than this software takes."""


class OversizedRecord(CorruptBatch):
    """A record of a compressed batch has more bytes than its topic allows: `max.decompressed.message.bytes`."""


class DirectoryError(MetadataLogError):
    """A log directory is unusable: not formatted, locked by another process, or inconsistent."""


class ReplayError(MetadataLogError):
    """A record contradicts the image: the log breaks its own rules (Kafka: the argument of a `FaultHandler`)."""
