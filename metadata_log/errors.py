"""What can be wrong with bytes: every error names where it was found.

The taxonomy has five kinds (see `docs/architecture.md`); this module holds the kind "bytes are wrong".
"""

from __future__ import annotations

from typing import Final

REMEDY: Final = (
    "Keep a copy of the directory. Put a sound copy of the file in its place, or let the node rejoin with an empty "
    "directory. A voter of a static quorum may not do that at any time: see docs/howto/damaged-disk.md."
)
"""What an operator can do about a directory that has lost something."""


class MetadataLogError(Exception):
    """Bytes, a file or a directory are not what they should be.

    `where` is a file path or a peer, `position` a byte position in it, `field` the path of the field being read,
    `hint` what a person can do about it.
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

    def __str__(self) -> str:
        place = [part for part in (self.where, self.field) if part]
        if self.position is not None:
            place.append(f"byte {self.position}")
        return f"{self.what} ({', '.join(place)})" if place else self.what


class DecodeError(MetadataLogError):
    """A message, record or file text does not follow its schema."""


class LimitExceeded(DecodeError):
    """A peer sent a frame with more bytes or more values than its API may have; nothing of it was kept."""


class UnsupportedVersion(DecodeError):
    """The bytes claim a version, record type or message format that this software does not know."""


class EncodeError(MetadataLogError):
    """A value cannot be written in the version asked for: a field that is set and not ignorable, or out of range."""


class CorruptBatch(MetadataLogError):
    """A record batch is damaged: wrong CRC, impossible length, or offsets that do not fit."""


class IncompleteBatch(CorruptBatch):
    """The bytes end before the batch does: normal at the torn end of the last segment and of a Fetch answer."""


class DirectoryError(MetadataLogError):
    """A log directory cannot be used: not formatted, locked by another process, or its files disagree."""


class ReplayError(MetadataLogError):
    """A record contradicts the image it is applied to, so the log breaks its own rules (Kafka: `FaultHandler`)."""
