"""Reads a broker's log directories at the start, and writes its state there at a graceful shutdown."""

from __future__ import annotations

from kraft.broker import BrokerOptions
from kraft.config import Config
from kraft.replica.hosts.broker_host import BrokerHost
from kraft.replica.replica import Replica
from metadata_log.disk import Disk
from metadata_log.errors import DirectoryError
from metadata_log.log.clean_shutdown import CLEAN_SHUTDOWN_FILE, UNCLEAN, take_clean_shutdown, write_clean_shutdown
from metadata_log.log.log_dir import read_meta_properties
from metadata_log.types import Uuid


def broker_options(config: Config, disk: Disk) -> BrokerOptions:
    """The options of the broker's agent; raises `DirectoryError` for a directory without an id."""
    directories = tuple(_directory_id(disk, path) for path in config.log_dirs)
    paths = zip(directories, config.log_dirs, strict=True)
    clean = tuple(one for one, path in paths if disk.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}"))
    return BrokerOptions(
        directories=directories,
        clean_directories=clean,
        previous_epoch=take_clean_shutdown(disk, config.log_dirs),
        rack=config.rack,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        initial_registration_timeout_ms=config.initial_registration_timeout_ms,
        replica_lag_time_max_ms=config.replica_lag_time_max_ms,
        fetch_interval_ms=config.replica_fetch_wait_max_ms,
        controlled_shutdown=config.controlled_shutdown,
        auto_create_topics=config.auto_create_topics,
        request_timeout_ms=config.forwarding_timeout_ms,
        max_described_partitions=config.max_described_partitions,
    )


def close_data(replica: Replica) -> None:
    """Close the logs of a broker with data, while the node still locks its directory."""
    if isinstance(replica.application, BrokerHost):
        replica.application.close_data()


def leave_cleanly(replica: Replica, config: Config, disk: Disk) -> None:
    """If the node was a registered broker without data, record its clean shutdown for the next start."""
    application = replica.application
    if not isinstance(application, BrokerHost) or application.has_data:
        return
    if application.agent.lifecycle.epoch != UNCLEAN:
        for path in config.log_dirs:
            write_clean_shutdown(disk, path, application.agent.lifecycle.epoch)


def _directory_id(disk: Disk, path: str) -> Uuid:
    meta = read_meta_properties(disk, path)
    if meta is None or meta.directory_id is None:
        raise DirectoryError(
            "the directory is not formatted" if meta is None else "the directory has no id",
            where=path,
            hint="Run `kraft format` with this configuration.",
        )
    return meta.directory_id
