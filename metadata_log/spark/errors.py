"""The errors that end a query. Some ways of Spark show an error's text alone, so the text includes the hint."""

from __future__ import annotations

from metadata_log.errors import MetadataLogError


class SourceError(MetadataLogError):
    """A query cannot continue."""

    def __init__(
        self, what: str, *, where: str | None = None, position: int | None = None, hint: str | None = None
    ) -> None:
        # The hint is no note besides: Spark shows notes too, so it would stand there twice.
        super().__init__(what, where=where, position=position)
        self.hint = hint

    def __str__(self) -> str:
        return f"{super().__str__()}. {self.hint}" if self.hint else super().__str__()


class OptionError(SourceError, ValueError):
    """An option of the source, or its value, is unknown."""


class DataLoss(SourceError):
    """Records were deleted before a stream has read them (option `failOnDataLoss`)."""


class TruncatedTail(SourceError):
    """Records that a stream has read were removed from the log (option `onTruncation`)."""
