"""A controller and a broker in one process, on one replica of the metadata log (Kafka: `SharedServer`, both
`process.roles`).
"""

from __future__ import annotations

from random import Random

from msgspec import structs

from kraft.broker.server import BrokerServer
from kraft.process.parts.controller_host import ControllerHost, host_controller
from kraft.replica.interface.application import Application, ApplicationFactory, ControllerAndBroker
from kraft.replica.interface.options import ReplicaOptions
from kraft.wire import Target
from metadata_log.serde import Message


def host_combined(broker: ApplicationFactory) -> ApplicationFactory:
    """The factory of a controller with the broker that a factory makes."""

    def host(
        options: ReplicaOptions, cluster_id: str, bootstrap: tuple[Message, ...], rng: Random
    ) -> ControllerAndBroker:
        endpoints, own = options.client_endpoints, options.endpoints.default
        assert endpoints is not None, "these are not the options of a node with both roles"
        assert own is not None, "the controller has no listener"
        part = broker(structs.replace(options, endpoints=endpoints), cluster_id, bootstrap, rng)
        assert isinstance(part, BrokerServer), part
        return ControllerAndBroker(
            host_controller(structs.replace(options, broker=None), cluster_id, bootstrap, rng),
            part,
            own=Target(options.node_id, own.host, own.port),
            client_listeners=frozenset(one.name for one in endpoints.listeners),
        )

    return host


def controller_of(application: Application) -> ControllerHost | None:
    """The controller that an application is or has."""
    part = application.controller if isinstance(application, ControllerAndBroker) else application
    return part if isinstance(part, ControllerHost) else None
