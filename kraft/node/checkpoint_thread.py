"""Writes the checkpoint files of a broker in a thread: a slow disk holds up no request (Kafka: `KafkaScheduler`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kraft.broker.server import BrokerServer
from metadata_log.disk import Disk, replace_file
from metadata_log.types import Uuid


class CheckpointThread:
    """A `CheckpointWriter` with a thread, which begins with the first file. One owner calls the methods.

    A file that waits keeps its place, and gets the newest content. After a failure in a log directory nothing more is
    written there.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._moved = threading.Condition()
        """Held while the fields below change, and notified of each change."""
        self._waiting: dict[tuple[str, str], tuple[Uuid, bytes]] = {}
        """By path and name: the log directory, and the content."""
        self._is_writing = False
        self._is_ending = False
        self._failures: list[tuple[Uuid, OSError]] = []
        self._failed: set[str] = set()
        """The paths of the log directories that have failed."""
        self._bug: BaseException | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether everything is written, but for what has failed."""
        with self._moved:
            return not self._waiting and not self._is_writing

    @property
    def has_waiting(self) -> bool:
        """Whether a file waits, besides the one that is being written."""
        return bool(self._waiting)

    def put(self, directory: Uuid, path: str, name: str, content: bytes) -> None:
        """Write a file soon."""
        with self._moved:
            if path in self._failed or self._bug is not None or self._is_ending:
                return
            self._waiting[path, name] = directory, content
            self._moved.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kraft-checkpoints", daemon=True)
            self._thread.start()

    def settle(self) -> None:
        """Wait until everything is written, but for what has failed."""
        with self._moved:
            self._moved.wait_for(lambda: not self._waiting and not self._is_writing)

    def take_failures(self) -> Sequence[tuple[Uuid, OSError]]:
        """The failures since the last call; raises what has ended the thread otherwise."""
        if self._bug is not None:
            raise self._bug
        if not self._failures:
            return ()
        with self._moved:
            failures, self._failures = self._failures, []
        return failures

    def end(self) -> None:
        """Write nothing that waits, and return once the thread has ended."""
        with self._moved:
            self._is_ending = True
            self._waiting.clear()
            self._moved.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while self._write_next():
                pass
        except BaseException as bug:  # the owner raises any error
            with self._moved:
                self._bug, self._is_writing = bug, False
                self._waiting.clear()
                self._moved.notify_all()

    def _write_next(self) -> bool:
        """Wait for a file and write it; returns whether to go on."""
        with self._moved:
            self._moved.wait_for(lambda: self._waiting or self._is_ending)
            if not self._waiting:
                return False
            path, name = next(iter(self._waiting))
            directory, content = self._waiting.pop((path, name))
            self._is_writing = True
        failure = None
        try:
            replace_file(self._disk, path, name, content)
        except OSError as failed:
            failure = failed
        with self._moved:
            self._is_writing = False
            if failure is not None:
                self._failures.append((directory, failure))
                self._failed.add(path)
                self._waiting = {key: kept for key, kept in self._waiting.items() if key[0] != path}
            self._moved.notify_all()
        return True


@contextmanager
def checkpoints_in_thread(broker: BrokerServer, disk: Disk) -> Iterator[None]:
    """Let a thread write the checkpoint files of a broker; it has ended when the block ends."""
    thread = CheckpointThread(disk)
    broker.write_checkpoints_by(thread)
    try:
        yield
    finally:
        thread.end()
