"""The parts that a process has: the factories that `open_process` takes (Kafka: `KafkaRaftServer`, `SharedServer`).

Each factory loads its part with the first use: a broker needs no controller, and a program that embeds a log neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from kraft.access.failures import RequestFailures
from kraft.config import Config
from kraft.process.parts import Application, ApplicationFactory, BrokerFactory, ControllerAndBroker, Opening
from kraft.state_machine.raw_log import RawLog
from kraft.supported_features import SUPPORTED_FEATURES
from metadata_log.disk import DirectoryDisk
from metadata_log.types import random_uuid

if TYPE_CHECKING:
    from kraft.broker import BrokerSettings
    from kraft.broker.opening import ServingOptions
    from kraft.broker.registered import RegisteredBroker
    from kraft.broker.server import BrokerServer
    from kraft.controller.server import ControllerServer
    from kraft.state_machine import StateMachine
    from kraft.state_machine.server import StateMachineServer

SESSION_TTL_MS: Final = 3_600_000
"""A session that is not used for so long, by the clock of the log, is forgotten."""


def host_raw_log(opening: Opening) -> RawLog:
    """The factory of a raw log that reports its committed batches as `Committed`."""
    return RawLog(reads_batches=True)


def host_silent_raw_log(opening: Opening) -> RawLog:
    """The factory of a raw log for a host that reads `Replica.log` itself."""
    return RawLog(reads_batches=False)


def host_state_machine(
    make: Callable[[], StateMachine[Any, Any]], *, session_ttl_ms: int = SESSION_TTL_MS
) -> ApplicationFactory:
    """The factory of an application that hosts what `make` returns, such as the class of a state machine.

    The sessions that this node opens live for `session_ttl_ms` after their last use.
    """
    from kraft.state_machine.server import StateMachineServer

    def host(opening: Opening) -> StateMachineServer:
        replica = opening.options.replica
        return StateMachineServer(
            make,
            client=f"{replica.node_id}-{random_uuid(opening.rng)}",
            max_batch_bytes=replica.quorum.max_batch_bytes,
            retry_backoff_ms=replica.quorum.retry_backoff_ms,
            request_timeout_ms=replica.quorum.request_timeout_ms,
            session_ttl_ms=session_ttl_ms,
        )

    return host


def host_controller(opening: Opening) -> ControllerServer:
    """The factory of a controller."""
    from kraft.controller import ControllerSettings, QuorumController
    from kraft.controller.features.activation import DEFAULT_BOOTSTRAP
    from kraft.controller.server import ControllerServer

    options, replica = opening.options, opening.options.replica
    voters = tuple(
        (voter.id, address.host, address.port)
        for voter in replica.voters.voters
        if (address := voter.endpoints.default) is not None
    )
    settings = ControllerSettings(
        cluster_id=opening.cluster_id,
        node_id=replica.node_id,
        incarnation_id=random_uuid(opening.rng),
        listeners=tuple((one.name, one.host, one.port) for one in replica.endpoints.listeners),
        listener=replica.listener,
        security_protocols=options.security_protocols,
        voters=voters,
        bootstrap=opening.bootstrap or DEFAULT_BOOTSTRAP,
        topics=options.topics,
        decisions=options.decisions,
        admin=options.admin,
        own_settings=options.own_settings,
    )
    failures = RequestFailures(is_survived=options.survives_failures)
    timeout_ms = replica.quorum.request_timeout_ms
    return ControllerServer(QuorumController(settings), failures, request_timeout_ms=timeout_ms)


def node_with_data(config: Config, disk: DirectoryDisk) -> ApplicationFactory:
    """The factory of a broker with data, with the role of a controller if the configuration has both."""
    broker = broker_with_data(config, disk)
    return host_combined(broker) if config.is_controller else broker


def broker_with_data(config: Config, disk: DirectoryDisk) -> BrokerFactory:
    """The factory of a broker that holds data and serves clients."""
    from kraft.broker.opening import serving_options

    return host_serving_broker(disk, serving_options(config))


def host_serving_broker(disk: DirectoryDisk, serving: ServingOptions) -> BrokerFactory:
    """The factory of a broker with data on the log directories of `disk`."""
    from kraft.broker.opening import open_broker

    def host(opening: Opening) -> BrokerServer:
        options, agent = opening.options, broker_settings(opening)
        requests = structs.replace(serving.requests, cluster_id=opening.cluster_id)
        failures = RequestFailures(is_survived=options.survives_failures)
        return open_broker(disk, serving, agent, requests, options.admin.authorizer, failures, opening.rng)

    return host


def broker_settings(opening: Opening) -> BrokerSettings:
    """The settings of a broker's agent, with a new incarnation id."""
    from kraft.broker import BrokerListener, BrokerOptions, BrokerSettings
    from kraft.broker.settings import PLAINTEXT

    options = opening.options
    assert isinstance(options.broker, BrokerOptions), "these are not the options of a broker"
    endpoints = options.client_endpoints or options.replica.endpoints
    protocols = dict(options.security_protocols)
    return BrokerSettings(
        broker_id=options.replica.node_id,
        cluster_id=opening.cluster_id,
        incarnation_id=random_uuid(opening.rng),
        listeners=tuple(
            BrokerListener(one.name, one.host, one.port, protocols.get(one.name, PLAINTEXT))
            for one in endpoints.listeners
        ),
        features=SUPPORTED_FEATURES,
        options=options.broker,
    )


def host_combined(broker: BrokerFactory) -> ApplicationFactory:
    """The factory of a controller with the broker that a factory makes (Kafka: both `process.roles`)."""

    def host(opening: Opening) -> ControllerAndBroker:
        endpoints = opening.options.client_endpoints
        assert endpoints is not None, "these are not the options of a node with both roles"
        part = broker(opening)
        return ControllerAndBroker(
            host_controller(opening), part, client_listeners=frozenset(one.name for one in endpoints.listeners)
        )

    return host


def controller_of(application: Application) -> ControllerServer | None:
    """The controller that an application is or has."""
    from kraft.controller.server import ControllerServer

    part = application.controller if isinstance(application, ControllerAndBroker) else application
    return part if isinstance(part, ControllerServer) else None


def registered_broker_of(application: Application) -> RegisteredBroker | None:
    """The broker that an application is, or has beside a controller, with data or without."""
    from kraft.broker.registered import RegisteredBroker

    part = application.broker if isinstance(application, ControllerAndBroker) else application
    return part if isinstance(part, RegisteredBroker) else None


def broker_of(application: Application) -> BrokerServer | None:
    """The broker with data that an application is, or has beside a controller."""
    from kraft.broker.server import BrokerServer

    part = application.broker if isinstance(application, ControllerAndBroker) else application
    return part if isinstance(part, BrokerServer) else None
