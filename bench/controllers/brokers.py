"""Simulated brokers that send requests over the wire, equal for each controller: registration, heartbeats, ISRs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from load import Address, connect
from load import ask as ask_on

from metadata_log.serde import Message, schema_of
from metadata_log.types import Uuid
from transport.protocol import messages as m
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages.broker_registration import Feature, Listener

CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
EVERYTHING: Final = 2**60
"""The metadata offset of a broker that has the whole log."""
REGISTRATION_VERSION: Final = 4
HEARTBEAT_VERSION: Final = 1
FEATURES: Final = (
    ("eligible.leader.replicas.version", 0, 1),
    ("group.version", 0, 1),
    ("kraft.version", 0, 1),
    ("metadata.version", 7, 30),
    ("share.version", 0, 1),
    ("streams.version", 0, 1),
    ("transaction.version", 0, 2),
)
UNFENCE_SECONDS: Final = 30
M = TypeVar("M", bound=Message)


def frame(message: Message, version: int) -> bytes:
    """An encoded request, length prefix included."""
    api_key = schema_of(type(message)).api_key
    assert api_key is not None
    content = encode_request(api_key, version, 1, "bench", message)
    return len(content).to_bytes(4, "big") + content


def registration(broker: int) -> m.BrokerRegistrationRequest:
    """The registration of a broker: one directory, and the supported features of Kafka 4.3.1."""
    return m.BrokerRegistrationRequest(
        broker_id=broker,
        cluster_id=CLUSTER_ID,
        incarnation_id=Uuid(bytes([0x40, *broker.to_bytes(15, "big")])),
        listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=1 + broker)],
        features=[
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, lowest, highest in FEATURES
        ],
        log_dirs=[Uuid(bytes([0x10, *broker.to_bytes(15, "big")]))],
    )


class Brokers:
    """The brokers of one cluster, which all send to its active controller."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.epochs: dict[int, int] = {}
        self._connection = connect(address)

    def close(self) -> None:
        """Close the connection for sequential requests."""
        self._connection.close()

    def ask(self, request: Message, version: int, answer: type[M]) -> tuple[M, float]:
        """The response and its latency in seconds, without encoding and decoding."""
        sent = frame(request, version)
        began = time.perf_counter()
        received = ask_on(self._connection, sent)
        took = time.perf_counter() - began
        api_key = schema_of(type(request)).api_key
        assert api_key is not None
        _, response = decode_response(api_key, version, received)
        assert isinstance(response, answer)
        return response, took

    def start(self, broker: int) -> None:
        """Register a broker and wait until it is unfenced."""
        response, _ = self.ask(registration(broker), REGISTRATION_VERSION, m.BrokerRegistrationResponse)
        assert response.error_code == Error.NONE, (broker, Error.of(response.error_code))
        self.epochs[broker] = response.broker_epoch
        self.unfence(broker)

    def unfence(self, broker: int) -> None:
        """Send heartbeats until the broker is unfenced; a controller may still be replaying its registration."""
        deadline = time.monotonic() + UNFENCE_SECONDS
        while self.beat(broker)[0].is_fenced:
            assert time.monotonic() < deadline, f"broker {broker} stays fenced"

    def beat(self, broker: int, **wishes: Any) -> tuple[m.BrokerHeartbeatResponse, float]:
        """Send one heartbeat; returns the response and its latency in seconds."""
        response, took = self.ask(self.heartbeat(broker, **wishes), HEARTBEAT_VERSION, m.BrokerHeartbeatResponse)
        assert response.error_code == Error.NONE, (broker, Error.of(response.error_code))
        return response, took

    def heartbeat(self, broker: int, **wishes: Any) -> m.BrokerHeartbeatRequest:
        """The heartbeat of a broker that is up to date."""
        return m.BrokerHeartbeatRequest(
            broker_id=broker, broker_epoch=self.epochs[broker], current_metadata_offset=EVERYTHING, **wishes
        )

    @contextmanager
    def beating(self, brokers: Sequence[int], every_s: float) -> Iterator[Callable[[], float]]:
        """Send heartbeats during the block; yields a function for the longest latency of a response, in seconds."""
        stop = threading.Event()
        waits: list[float] = [0.0]

        def beat(broker: int) -> None:
            sent = frame(self.heartbeat(broker), HEARTBEAT_VERSION)
            with connect(self.address) as connection:
                while not stop.wait(every_s):
                    began = time.perf_counter()
                    ask_on(connection, sent)
                    waits.append(time.perf_counter() - began)

        threads = [threading.Thread(target=beat, args=(broker,)) for broker in brokers]
        for thread in threads:
            thread.start()
        try:
            yield lambda: max(waits)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
