"""What ends a query. Spark shows an error's text and nothing else, so the text says what to do, too."""

from __future__ import annotations

from metadata_log.errors import MetadataLogError


class SourceError(MetadataLogError):
    """A query cannot go on."""

    def __str__(self) -> str:
        return f"{super().__str__()}. {self.hint}" if self.hint else super().__str__()


class OptionError(SourceError, ValueError):
    """An option of the source is not known, or its value is not."""


class DataLoss(SourceError):
    """Records that a stream has not read are gone (option `failOnDataLoss`)."""


class TruncatedTail(SourceError):
    """Records that a stream has read are no longer in the log (option `onTruncation`)."""
