"""The form of a request to a broker: `kraft.broker.metadata` answers some, `kraft.broker.request` others."""

from __future__ import annotations

from typing import Protocol

from metadata_log.serde import Message
from transport.protocol.inbound import Principal


class Asked(Protocol):
    """A request of a client or of another broker (`kraft.replica.interface.events.WireRequest`)."""

    @property
    def request_id(self) -> int:
        """The number that names the request in its answer."""

    @property
    def api_key(self) -> int:
        """Kafka's key of the API."""

    @property
    def version(self) -> int:
        """The version of the request, and of its answer."""

    @property
    def message(self) -> Message:
        """The decoded body."""

    @property
    def listener(self) -> str:
        """The name of the listener: answers name other brokers by their addresses for this listener."""

    @property
    def client_id(self) -> str | None:
        """The name that the client gives itself."""

    @property
    def peer(self) -> str:
        """The peer's address, as `host:port`."""

    @property
    def principal(self) -> Principal:
        """The identity of the peer."""
