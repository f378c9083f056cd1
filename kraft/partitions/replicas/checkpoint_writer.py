"""The writer of the checkpoint files of a broker's log directories: `AtOnce`, or a thread of the shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from metadata_log.disk import Disk, replace_file
from metadata_log.types import Uuid


class CheckpointWriter(Protocol):
    """Replaces checkpoint files durably, each in the order of its contents."""

    @property
    def is_idle(self) -> bool:
        """Whether everything is written, but for what has failed."""

    def put(self, directory: Uuid, path: str, name: str, content: bytes) -> None:
        """Write a file, now or later; a content that was not written by then is left out.

        Args:
            directory: The id of the log directory.
            path: The log directory.
            name: The name of the file.
            content: The new content.
        """

    def settle(self) -> None:
        """Return once everything is written, but for what has failed."""

    def take_failures(self) -> Sequence[tuple[Uuid, OSError]]:
        """The failures of disks since the last call, with the log directory. Nothing more is written there."""


class AtOnce:
    """Writes within `put`: where time is virtual, and where the disk is memory."""

    is_idle = True

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._failures: list[tuple[Uuid, OSError]] = []

    def put(self, directory: Uuid, path: str, name: str, content: bytes) -> None:
        """Write a file now."""
        if all(failed != directory for failed, _ in self._failures):
            try:
                replace_file(self._disk, path, name, content)
            except OSError as failed:
                self._failures.append((directory, failed))

    def settle(self) -> None:
        """Nothing waits."""

    def take_failures(self) -> Sequence[tuple[Uuid, OSError]]:
        """The failures since the last call."""
        failures, self._failures = self._failures, []
        return failures
