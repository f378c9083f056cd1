"""Opens a broker: what its configuration and its directories say, its replicas with data, its requests (Kafka:
`BrokerServer.startup`).
"""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec import Struct, structs

from kraft.access.authorizer import AuthorizerSettings
from kraft.access.failures import RequestFailures
from kraft.broker import BrokerAgent, BrokerOptions, BrokerSettings
from kraft.broker.requests import Requests
from kraft.broker.server import BrokerServer
from kraft.config import Config
from kraft.config.telemetry_settings import TelemetryConfig, check_library
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from kraft.limits import LOGS_OPENED_PER_STEP
from kraft.partitions.replicas import DataDirectory, DataSettings, ReplicaManager
from metadata_log.disk import DirectoryDisk, Disk
from metadata_log.errors import DirectoryError
from metadata_log.log.clean_shutdown import CLEAN_SHUTDOWN_FILE, take_clean_shutdown
from metadata_log.log.log_dir import check_formatted, read_meta_properties
from metadata_log.types import Uuid

NEW_LOG_WEIGHT: Final = ReplicaManager.partitions_per_turn
"""One in a turn: six flushes took some 40 ms, and those of eight logs up to a second, on a busy disk."""
CHANGE_WEIGHT: Final = 2
"""A new leader epoch takes two flushes."""


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
        DataDirectory(one, path, is_clean=one in options.clean_directories, shown=disk.absolute(path))
        for one, path in zip(options.directories, serving.log_dirs, strict=True)
    )
    manager = ReplicaManager(disk, structs.replace(serving.data, directories=directories))
    return BrokerServer(
        BrokerAgent(agent, manager), Requests(manager, requests, rng, Rights(authorizer), failures), manager
    )


def serving_options(config: Config) -> ServingOptions:
    """The settings of a broker with data, from the configuration of its node; raises `ConfigError`."""
    static = {one.name: one.value for one in config.described if one.is_set and one.value is not None}
    own = config.node_id
    check_library(config.of(TelemetryConfig))
    return ServingOptions(
        log_dirs=config.log_dirs,
        data=config.of(
            DataSettings,
            broker_id=own,
            directories=(),
            static=static,
            new_log_weight=NEW_LOG_WEIGHT,
            change_weight=CHANGE_WEIGHT,
            logs_per_step=LOGS_OPENED_PER_STEP,
        ),
        requests=config.of(
            RequestSettings,
            broker_id=own,
            inter_broker_listener=config.inter_broker_listener,
            own_settings=config.described,
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
    return config.of(
        BrokerOptions,
        directories=directories,
        clean_directories=clean,
        previous_epoch=take_clean_shutdown(disk, config.log_dirs),
        paths=config.log_dirs,
        inter_broker_listener=config.inter_broker_listener,
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
