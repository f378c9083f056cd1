"""Reads a broker's log directories at the start, and writes its state there at a graceful shutdown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from kraft.broker import BrokerOptions
from kraft.config import Config
from kraft.process.parts.broker import broker_of
from kraft.process.process import Process
from metadata_log.disk import Disk
from metadata_log.errors import DirectoryError
from metadata_log.log.clean_shutdown import CLEAN_SHUTDOWN_FILE, UNCLEAN, take_clean_shutdown, write_clean_shutdown
from metadata_log.log.log_dir import check_formatted, read_meta_properties, take_lock
from metadata_log.types import Uuid


@contextmanager
def locked_directories(config: Config, disk: Disk) -> Iterator[None]:
    """Hold the locks of a broker's log directories besides that of the metadata log, which has a lock of its own.

    Raises:
        DirectoryError: Another process uses one of the directories.
    """
    with ExitStack() as held:
        for path in config.log_dirs if config.is_broker else ():
            if path != config.metadata_log_dir and disk.exists(path):
                held.callback(take_lock(disk, path).release)
        yield


def broker_options(config: Config, disk: Disk) -> BrokerOptions:
    """The options of the broker's agent.

    Raises:
        DirectoryError: A directory has no id or that of another one, or belongs to another node or cluster than the
            directory of the metadata log.
    """
    owner = read_meta_properties(disk, config.metadata_log_dir)
    if owner is not None:  # the opening of the metadata log refuses a directory that is not formatted
        check_formatted(disk, config.directories, node_id=config.node_id, cluster_id=owner.cluster_id)
    directories = tuple(_directory_id(disk, path) for path in config.log_dirs)
    paths = zip(directories, config.log_dirs, strict=True)
    clean = tuple(one for one, path in paths if disk.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}"))
    return BrokerOptions(
        directories=directories,
        clean_directories=clean,
        previous_epoch=take_clean_shutdown(disk, config.log_dirs),
        paths=config.log_dirs,
        cordoned=config.cordoned,
        rack=config.rack,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        initial_registration_timeout_ms=config.initial_registration_timeout_ms,
        replica_lag_time_max_ms=config.replica_lag_time_max_ms,
        fetch_interval_ms=config.replica_fetch_wait_max_ms,
        inter_broker_listener=config.inter_broker_listener,
        controlled_shutdown=config.controlled_shutdown,
        auto_create_topics=config.auto_create_topics,
        request_timeout_ms=config.forwarding_timeout_ms,
        max_described_partitions=config.max_described_partitions,
    )


def close_data(process: Process) -> None:
    """Close the logs of a broker with data, while the node still locks its directory."""
    broker = broker_of(process.application)
    if broker is not None:
        broker.close_data()


def leave_cleanly(process: Process, config: Config, disk: Disk) -> None:
    """If the node was a registered broker without data, record its clean shutdown for the next start."""
    broker = broker_of(process.application)
    if broker is None or broker.has_data:
        return
    if broker.agent.lifecycle.epoch != UNCLEAN:
        for path in config.log_dirs:
            write_clean_shutdown(disk, path, broker.agent.lifecycle.epoch)


def _directory_id(disk: Disk, path: str) -> Uuid:
    meta = read_meta_properties(disk, path)
    if meta is None or meta.directory_id is None:
        raise DirectoryError(
            "the directory is not formatted" if meta is None else "the directory has no id",
            where=path,
            hint="Run `kraft format` with this configuration.",
        )
    return meta.directory_id
