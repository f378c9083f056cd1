"""The counterpart of `testcontainers.kafka.KafkaContainer` for tests in Python, without a container."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from kraft.config.environment import settings_of
from kraft.testing.kafka import Kafka


class KafkaContainer:
    """A node of `Kafka` behind the methods of a container: what tests that have one call. Also a context manager.

    Args:
        image: Taken, and without effect: there is no image.
        port: The port that `get_exposed_port` knows the node by.
    """

    def __init__(self, image: str = "", port: int = 9093) -> None:
        self.port = port
        self._variables: dict[str, str] = {}
        self._kafka: Kafka | None = None

    def with_kraft(self) -> Self:
        """Nothing: there is no ZooKeeper."""
        return self

    def with_env(self, key: str, value: str) -> Self:
        """Set a property of the node by a variable `KAFKA_…` of Kafka's images; other variables have no effect."""
        self._variables[key] = value
        return self

    def start(self, timeout: float | None = None) -> Self:
        """Start the node; returns once it serves. A second call does nothing.

        Args:
            timeout: Taken, and without effect: a start takes a moment.

        Raises:
            ConfigError: A variable sets what the cluster says itself, such as `KAFKA_LISTENERS`.
        """
        if self._kafka is None:
            self._kafka = Kafka(settings=settings_of(self._variables))
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """End the node, with everything that it has. A second call does nothing."""
        if self._kafka is not None:
            self._kafka.close()
            self._kafka = None

    def __enter__(self) -> Self:
        """The started container."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.stop()

    @property
    def kafka(self) -> Kafka:
        """The cluster, with what a container has not: faults, assertions. Raises RuntimeError if none runs."""
        if self._kafka is None:
            raise RuntimeError("the container is not started: call start(), or enter its block")
        return self._kafka

    def get_bootstrap_server(self) -> str:
        """The address for `bootstrap.servers`."""
        return self.kafka.get_bootstrap_server()

    def get_container_host_ip(self) -> str:
        """The host of that address."""
        return self.get_bootstrap_server().rpartition(":")[0]

    def get_exposed_port(self, port: int) -> int:
        """The port of that address. Raises ValueError for another one than the `port` of the container."""
        if int(port) != self.port:
            raise ValueError(f"the node serves clients at port {self.port}, and not at {port}")
        return int(self.get_bootstrap_server().rpartition(":")[2])
