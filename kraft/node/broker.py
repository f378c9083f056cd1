"""Reads a broker's log directories at the start, and writes its state there at a graceful shutdown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from kraft.config import Config
from kraft.process.hosting import broker_of, registered_broker_of
from kraft.process.process import Process
from metadata_log.disk import Disk, is_unwritable
from metadata_log.log.clean_shutdown import UNCLEAN, write_clean_shutdown
from metadata_log.log.log_dir import take_lock


@contextmanager
def locked_directories(config: Config, disk: Disk) -> Iterator[None]:
    """Hold the locks of a broker's log directories besides that of the metadata log, which has a lock of its own.

    A directory that cannot be written has none. The broker takes it offline, and serves the others
    (`LogManager.lockLogDirs`).

    Raises:
        DirectoryError: Another process uses one of the directories.
    """
    with ExitStack() as held:
        for path in config.log_dirs if config.is_broker else ():
            if path == config.metadata_log_dir or not disk.exists(path):
                continue
            try:
                held.callback(take_lock(disk, path).release)
            except OSError as failed:
                if not is_unwritable(failed):
                    raise
        yield


def close_data(process: Process) -> None:
    """Close the logs of a broker with data, while the node still locks its directory."""
    broker = broker_of(process.application)
    if broker is not None:
        broker.close_data()


def leave_cleanly(process: Process, config: Config, disk: Disk) -> None:
    """If the node was a registered broker without data, record its clean shutdown for the next start."""
    broker = registered_broker_of(process.application)
    if broker is None or broker_of(process.application) is not None:
        return
    if broker.agent.lifecycle.epoch != UNCLEAN:
        for path in config.log_dirs:
            write_clean_shutdown(disk, path, broker.agent.lifecycle.epoch)
