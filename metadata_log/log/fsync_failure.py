"""The memory of a failed fsync: what the kernel dropped is never taken for written (Kafka stops the log directory)."""

from __future__ import annotations

from msgspec import Struct

from metadata_log.disk import File


class FsyncFailure(Struct, eq=False):
    """The first failed fsync of a log, in any thread. After it the log is never flushed again."""

    error: OSError | None = None

    def check(self) -> None:
        """Raise the stored failure again, if any: after a failure Linux reports success for dropped data."""
        if self.error is not None:
            raise self.error

    def fsync(self, file: File) -> None:
        """Fsync a file of the log; raises `OSError`, and from then on always the same error."""
        self.check()
        try:
            file.fsync()
        except OSError as failed:
            self.error = failed
            raise
