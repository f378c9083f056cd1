"""An fsync that fails while a node stops is raised, and no file is written to after it. Real files, TCP and threads.

The simulator runs fsyncs without a thread and without the shell of a node, so that this is out of its sight.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
import trio

from embedded_quorum import configs
from kraft.config import Config
from kraft.node.embed import open_node
from metadata_log.disk import OsDisk, OsFile
from support.loopback import free_ports

FLUSH_THREAD = "kraft-flush"
PATIENCE_SECONDS = 30


class Failure:
    """The first fsync of a segment in the flush thread waits until the node is told to stop, and fails then."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_fail = threading.Event()
        self.has_failed = False
        self.afterwards: list[str] = []
        """What was fsynced or written to after the failure."""

    def fsync(self, path: str) -> None:
        if self.has_failed:
            self.afterwards.append(f"fsync {path}")
        elif path.endswith(".log") and threading.current_thread().name == FLUSH_THREAD:
            self.has_begun.set()
            assert self.may_fail.wait(PATIENCE_SECONDS)
            self.has_failed = True
            raise OSError(errno.EIO, "Input/output error", path)

    def append(self, path: str) -> None:
        if self.has_failed:
            self.afterwards.append(f"append {path}")


class FailingDisk(OsDisk):
    """A disk with files that report each fsync and append beforehand."""

    def __init__(self, failure: Failure) -> None:
        self._failure = failure

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
        failure = self._failure

        class File(OsFile):
            def fsync(self) -> None:
                failure.fsync(path)
                super().fsync()

            def append(self, data: bytes) -> None:
                failure.append(path)
                super().append(data)

        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        return File(path, os.open(path, flags, 0o600))


async def stop_during_an_fsync(config: Config, failure: Failure, way: str) -> None:
    """Run a node until its flush thread is in an fsync, and tell both to end."""
    with trio.fail_after(PATIENCE_SECONDS), trio.CancelScope() as scope:
        async with open_node(config, disk=FailingDisk(failure)):
            assert await trio.to_thread.run_sync(failure.has_begun.wait, PATIENCE_SECONDS)
            if way == "cancelled":
                scope.cancel()
            failure.may_fail.set()


@pytest.mark.parametrize("way", ["cancelled", "ended"])
async def test_a_failed_fsync_during_shutdown_is_raised_and_not_repeated(tmp_path: Path, way: str) -> None:
    failure = Failure()
    [config] = configs(tmp_path, free_ports(1))
    cause = pytest.RaisesExc(OSError, match="Input/output error")
    with pytest.RaisesGroup(cause, allow_unwrapped=True, flatten_subgroups=True):
        await stop_during_an_fsync(config, failure, way)
    assert failure.has_failed
    assert failure.afterwards == []
