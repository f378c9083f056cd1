"""Opens a broker: what its configuration and its directories say, its replicas with data, its requests (Kafka:
`BrokerServer.startup`).
"""

from __future__ import annotations

from random import Random

from msgspec import Struct, structs

from kraft.access.authorizer import AuthorizerSettings
from kraft.access.failures import RequestFailures
from kraft.broker import BrokerAgent, BrokerOptions, BrokerSettings
from kraft.broker.requests import Requests
from kraft.broker.server import BrokerServer
from kraft.config import Config
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from kraft.partitions.replicas import DataDirectory, DataSettings, ReplicaManager
from kraft.partitions.replicas.settings import cleaner_settings
from metadata_log.disk import DirectoryDisk, Disk
from metadata_log.errors import DirectoryError
from metadata_log.log.clean_shutdown import CLEAN_SHUTDOWN_FILE, take_clean_shutdown
from metadata_log.log.log_dir import check_formatted, read_meta_properties
from metadata_log.types import NEVER_MS, Uuid


class ServingOptions(Struct, frozen=True, kw_only=True):
    """The settings of a broker with data, but for what its directories say of themselves.

    `log_dirs` are the paths of the log directories, in the order of `BrokerOptions.directories`.
    """

    log_dirs: tuple[str, ...]
    data: DataSettings
    requests: RequestSettings


def open_broker(
    disk: DirectoryDisk,
    serving: ServingOptions,
    agent: BrokerSettings,
    requests: RequestSettings,
    authorizer: AuthorizerSettings | None,
    failures: RequestFailures,
    rng: Random,
) -> BrokerServer:
    """A broker with data on the log directories of `disk`, with the whole of its settings."""
    options = agent.options
    directories = tuple(
        DataDirectory(id=one, path=path, is_clean=one in options.clean_directories)
        for one, path in zip(options.directories, serving.log_dirs, strict=True)
    )
    manager = ReplicaManager(disk, structs.replace(serving.data, directories=directories))
    return BrokerServer(
        BrokerAgent(agent, manager), Requests(manager, requests, rng, Rights(authorizer), failures), manager
    )


def serving_options(config: Config) -> ServingOptions:
    """The settings of a broker with data, from the configuration of its node."""
    static = {one.name: one.value for one in config.described if one.is_set and one.value is not None}
    data = config.data
    return ServingOptions(
        log_dirs=config.log_dirs,
        data=DataSettings(
            broker_id=config.node_id,
            directories=(),
            static=static,
            lag_time_max_ms=config.replica_lag_time_max_ms,
            fetch_wait_max_ms=config.replica_fetch_wait_max_ms,
            fetch_min_bytes=config.replica_fetch_min_bytes,
            fetch_max_bytes=config.replica_fetch_max_bytes,
            fetch_response_max_bytes=config.replica_fetch_response_max_bytes,
            fetch_backoff_ms=config.replica_fetch_backoff_ms,
            watermark_checkpoint_ms=config.watermark_checkpoint_ms,
            offset_checkpoint_ms=config.offset_checkpoint_ms,
            retention_check_ms=config.retention_check_ms,
            file_delete_delay_ms=config.file_delete_delay_ms,
            has_cleaner=data.has_cleaner,
            cleaner=cleaner_settings(data.cleaner_bytes, data.cleaner_threads, data.cleaner_load_factor),
            move_bytes_per_second=data.move_bytes_per_second,
            cleaner_backoff_ms=data.cleaner_backoff_ms,
            producer_expiry_check_ms=data.producer_expiry_check_ms,
            flush_check_ms=NEVER_MS if data.flush_check_ms is None else data.flush_check_ms,
            initial_task_delay_ms=data.initial_task_delay_ms,
        ),
        requests=RequestSettings(
            broker_id=config.node_id,
            fetch_max_bytes=config.client_fetch_max_bytes,
            session_slots=config.fetch_session_slots,
            prefers_rack_of_client=data.prefers_rack_of_client,
            inter_broker_listener=config.inter_broker_listener,
            verifies_transactions=data.verifies_transactions,
            request_timeout_ms=config.forwarding_timeout_ms,
            quota_samples=data.quota_samples,
            quota_window_ms=data.quota_window_seconds * 1000,
            groups=config.groups,
            transactions=config.transactions,
        ),
    )


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


def _directory_id(disk: Disk, path: str) -> Uuid:
    meta = read_meta_properties(disk, path)
    if meta is None or meta.directory_id is None:
        raise DirectoryError(
            "the directory is not formatted" if meta is None else "the directory has no id",
            where=path,
            hint="Run `kraft format` with this configuration.",
        )
    return meta.directory_id
