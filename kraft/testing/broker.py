"""One broker of a `Cluster`."""

from __future__ import annotations

from typing import Protocol

from kraft.broker import BrokerAgent
from kraft.broker.registered import RegisteredBroker
from kraft.node.node import Node
from transport.memory import MemoryNetwork


class Nodes(Protocol):
    """The part of a cluster that a broker needs."""

    network: MemoryNetwork

    def node(self, node_id: int) -> Node:
        """A running node."""

    async def kill(self, node_id: int, *, loses_power: bool = True) -> None:
        """End a node like a power failure, or only its process."""

    async def stop(self, node_id: int) -> None:
        """Shut a node down gracefully."""

    async def restart(self, node_id: int) -> Node:
        """Start a node with the contents of its disk."""


class Broker:
    """One broker of a cluster, running or not; `id` is its node id."""

    def __init__(self, cluster: Nodes, broker_id: int) -> None:
        self.id = broker_id
        self._cluster = cluster

    @property
    def agent(self) -> BrokerAgent:
        """The agent of the broker while the broker runs, for inspection only.

        Raises:
            ValueError: The broker is not running.
        """
        application = self._cluster.node(self.id).application
        assert isinstance(application, RegisteredBroker), application
        return application.agent

    def pause(self) -> None:
        """Cut the broker off from the network until `resume`, as if its process were suspended."""
        self._cluster.network.isolate(self.id)

    def resume(self) -> None:
        """Reconnect the broker; this also heals each other network cut that affects it."""
        self._cluster.network.heal(self.id)

    async def kill(self, *, loses_power: bool = True) -> None:
        """End the broker like a power failure, or only its process; see `Cluster.kill`.

        Raises:
            ValueError: The broker is not running.
        """
        await self._cluster.kill(self.id, loses_power=loses_power)

    async def stop(self) -> None:
        """Shut the broker down gracefully: its leaderships move first.

        Raises:
            ValueError: The broker is not running.
        """
        await self._cluster.stop(self.id)

    async def restart(self) -> None:
        """Start the broker with the contents of its disk.

        Raises:
            ValueError: The broker is running.
        """
        await self._cluster.restart(self.id)
