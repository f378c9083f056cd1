"""A writer of checkpoint files that is always one file late, as the thread of a real broker is on a slow disk."""

from __future__ import annotations

from collections.abc import Sequence

from kraft.partitions.replicas.checkpoint_writer import AtOnce
from metadata_log.disk import Disk
from metadata_log.types import Uuid


class LateWriter:
    """A `CheckpointWriter` that writes a file when the next one is put: a failure is known when others are in hand."""

    def __init__(self, disk: Disk) -> None:
        self._at_once = AtOnce(disk)
        self._waiting: tuple[Uuid, str, str, bytes] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return self._waiting is None

    def put(self, directory: Uuid, path: str, name: str, content: bytes) -> None:
        """Write the file before this one."""
        self.settle()
        self._waiting = directory, path, name, content

    def settle(self) -> None:
        """Write the file that waits."""
        if self._waiting is not None:
            self._at_once.put(*self._waiting)
            self._waiting = None

    def take_failures(self) -> Sequence[tuple[Uuid, OSError]]:
        """The failures since the last call."""
        return self._at_once.take_failures()
