"""Makes the broker of a process: its settings, its replicas with data, its requests (Kafka: `BrokerServer.startup`)."""

from __future__ import annotations

from random import Random

from msgspec import Struct, structs

from kraft.access.failures import RequestFailures
from kraft.broker import BrokerAgent, BrokerListener, BrokerSettings
from kraft.broker.handling.rights import Rights
from kraft.broker.handling.settings import RequestSettings
from kraft.broker.partitions import DataDirectory, DataSettings, ReplicaManager
from kraft.broker.requests import Requests
from kraft.broker.server import BrokerServer
from kraft.broker.settings import PLAINTEXT
from kraft.replica.interface.application import Application, ApplicationFactory
from kraft.replica.interface.options import ReplicaOptions
from kraft.supported_features import SUPPORTED_FEATURES
from metadata_log.disk import DirectoryDisk
from metadata_log.serde import Message
from metadata_log.types import random_uuid


class ServingOptions(Struct, frozen=True, kw_only=True):
    """The settings of a broker with data, but for what its directories say of themselves.

    `log_dirs` are the paths of the log directories, in the order of `BrokerOptions.directories`.
    """

    log_dirs: tuple[str, ...]
    data: DataSettings
    requests: RequestSettings


def host_serving_broker(disk: DirectoryDisk, serving: ServingOptions) -> ApplicationFactory:
    """The factory of a broker with data on the log directories of `disk`."""

    def host(options: ReplicaOptions, cluster_id: str, bootstrap: tuple[Message, ...], rng: Random) -> BrokerServer:
        broker = options.broker
        assert broker is not None, "these are not the options of a broker"
        directories = tuple(
            DataDirectory(id=one, path=path, is_clean=one in broker.clean_directories)
            for one, path in zip(broker.directories, serving.log_dirs, strict=True)
        )
        manager = ReplicaManager(disk, structs.replace(serving.data, directories=directories))
        agent = BrokerAgent(broker_settings(options, cluster_id, rng), manager)
        rights = Rights(options.admin.authorizer)
        failures = RequestFailures(is_survived=options.survives_failures)
        settings = _request_settings(serving.requests, options, cluster_id)
        requests = Requests(manager, settings, rng, rights, failures)
        return BrokerServer(agent, requests, manager)

    return host


def _request_settings(given: RequestSettings, options: ReplicaOptions, cluster_id: str) -> RequestSettings:
    assert options.broker is not None
    return structs.replace(
        given,
        cluster_id=cluster_id,
        own_settings=options.own_settings,
        min_insync_replicas=options.min_insync_replicas,
        num_partitions=options.decisions.num_partitions,
        default_replication_factor=options.decisions.default_replication_factor,
        auto_create_topics=options.broker.auto_create_topics,
        controller_timeout_ms=options.broker.request_timeout_ms,
        max_partitions=options.broker.max_described_partitions,
        token_secret=options.admin.token_secret,
    )


def broker_settings(options: ReplicaOptions, cluster_id: str, rng: Random) -> BrokerSettings:
    """The settings of a broker's agent, with a new incarnation id."""
    assert options.broker is not None, "these are not the options of a broker"
    protocols = dict(options.security_protocols)
    return BrokerSettings(
        broker_id=options.node_id,
        cluster_id=cluster_id,
        incarnation_id=random_uuid(rng),
        listeners=tuple(
            BrokerListener(one.name, one.host, one.port, protocols.get(one.name, PLAINTEXT))
            for one in options.endpoints.listeners
        ),
        features=SUPPORTED_FEATURES,
        options=options.broker,
    )


def broker_of(application: Application) -> BrokerServer | None:
    """The broker that an application is, or has beside a controller."""
    part = getattr(application, "broker", application)
    return part if isinstance(part, BrokerServer) else None
