"""The file that proves the clean shutdown of a broker (KIP-966; Kafka: `CleanShutdownFileHandler`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from metadata_log.disk import Disk, is_unwritable, replace_file

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
UNCLEAN: Final = -1


class _Content(msgspec.Struct, frozen=True, rename="camel"):
    version: int
    broker_epoch: int


def write_clean_shutdown(disk: Disk, directory: str, broker_epoch: int) -> None:
    """Write the file: everything in this log directory is on disk, as of this broker epoch."""
    content = msgspec.json.encode(_Content(version=0, broker_epoch=broker_epoch))
    replace_file(disk, directory, CLEAN_SHUTDOWN_FILE, content)


def take_clean_shutdown(disk: Disk, directories: Iterable[str]) -> int:
    """The broker epoch of the last run, if the files in all log directories prove a clean shutdown; else -1.

    The files are removed, because they prove nothing about the run that begins, and one that stays proves nothing.
    """
    epochs = []
    for directory in directories:
        try:
            epochs.append(_taken(disk, directory))
        except OSError as failed:
            if not is_unwritable(failed):
                raise
            epochs.append(UNCLEAN)
    return epochs[0] if epochs and len(set(epochs)) == 1 else UNCLEAN


def _taken(disk: Disk, directory: str) -> int:
    path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    if not disk.exists(path):
        return UNCLEAN
    epoch = _epoch_in(disk.read(path))
    disk.remove(path)
    disk.fsync_dir(directory)
    return epoch


def _epoch_in(content: bytes) -> int:
    """The epoch in the file. An empty file, as before 3.8, proves nothing; neither does an unreadable file."""
    try:
        return msgspec.json.decode(content, type=_Content).broker_epoch
    except msgspec.DecodeError:
        return UNCLEAN
