"""Quotas of the time of requests and of new connections, at a broker of either make: the same waits, the same mute
connections, the same peers that are turned away.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct

from metadata_log.serde import Message, schema_of
from monitored_node import values_after
from one_node import NODE
from support.eventually import eventually
from support.interop.mbeans import Key
from support.interop.real_kafka import KafkaInstallation
from support.wire import ANSWER_SECONDS, ask, request_bytes
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_response
from transport.protocol.messages import (
    DescribeClusterRequest,
    FetchRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    MetadataRequest,
    create_topics,
    fetch,
)
from transport.protocol.messages import alter_client_quotas as altering
from transport.protocol.messages import describe_client_quotas as describing
from transport.protocol.messages import describe_configs as described
from transport.protocol.messages import incremental_alter_configs as configs

pytestmark = pytest.mark.kafka
CLIENT: Final = "interop"
"""The client id of the requests by hand."""
NOTHING_ALLOWED: Final = 0.0001
"""Percent: any request is above it."""
MUCH_ALLOWED: Final = 100_000.0
BROKER: Final = 4
"""The type of resource."""
WINDOW_MS: Final = 1000
"""The longest wait for the time of requests."""


class Answered(Struct, frozen=True):
    """The answer to one request of a series on one connection."""

    throttle_ms: int
    has_data: bool
    since_last_ms: float


def series() -> list[tuple[Message, int]]:
    """Requests with their versions."""
    partition = fetch.FetchPartition(partition=0, partition_max_bytes=1000)
    fetching = FetchRequest(max_wait_ms=0, max_bytes=1000, topics=[fetch.FetchTopic("t", partitions=[partition])])
    topic = create_topics.CreatableTopic("made", num_partitions=1, replication_factor=1)
    return [
        (MetadataRequest(topics=[]), 12),
        (fetching, 12),
        (ListGroupsRequest(), 4),
        (DescribeClusterRequest(), 1),
        (FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4),
        (create_topics.CreateTopicsRequest([topic], validate_only=True), 7),
        (MetadataRequest(topics=[]), 12),
    ]


def set_quota(port: int, kind: str, name: str | None, key: str, value: float) -> None:
    """Set a quota, and wait until the broker knows it."""
    entity = [altering.AlterClientQuotasRequestEntityData(kind, name)]
    entry = altering.AlterClientQuotasRequestEntryData(entity, [altering.OpData(key, value)])
    (answer,) = ask(port, altering.AlterClientQuotasRequest([entry]), 1, altering.AlterClientQuotasResponse).entries
    assert answer.error_code == 0, answer

    def knows() -> bool:
        found = ask(
            port, describing.DescribeClientQuotasRequest([], strict=False), 1, describing.DescribeClientQuotasResponse
        )
        return (key, value) in {(one.key, one.value) for entry in found.entries or () for one in entry.values}

    eventually(knows, "the broker knows the quota")


def answers(port: int, requests: list[tuple[Message, int]]) -> list[Answered]:
    """The answers to requests that are sent one after the other on one connection."""
    found, reader = [], FrameReader()
    with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as connection:
        last = time.monotonic()
        for message, version in requests:
            connection.sendall(request_bytes(message, version))
            frames: list[bytes] = []
            while not frames:
                data = connection.recv(1 << 16)
                assert data, f"closed instead of answering {message}"
                frames = reader.feed(data)
            now = time.monotonic()
            api_key = schema_of(type(message)).api_key
            assert api_key is not None
            _, decoded = decode_response(api_key, version, frames[0], apis=ALL_APIS)
            body: Any = decoded
            has_data = isinstance(body, fetch.FetchResponse) and bool(body.responses)
            found.append(Answered(body.throttle_time_ms, has_data, (now - last) * 1000))
            last = now
    return found


def test_who_has_no_time_waits_for_a_window_after_each_request(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    told: dict[str, list[Answered]] = {}
    metrics: dict[str, set[Key]] = {}

    def use(make: str) -> Callable[[str], None]:
        def asked(address: str) -> None:
            port = int(address.rpartition(":")[2])
            set_quota(port, "client-id", CLIENT, "request_percentage", MUCH_ALLOWED)
            free = answers(port, series())
            set_quota(port, "client-id", CLIENT, "request_percentage", NOTHING_ALLOWED)
            told[make] = [*free, *answers(port, series())]
            set_quota(port, "client-id", CLIENT, "request_percentage", MUCH_ALLOWED)

        return asked

    for make in ("kafka", "ours"):
        found = values_after(newer_kafka, tmp_path / make, make, use(make))
        metrics[make] = {key for key in found if key.type == "Request"}
    count = len(series())
    waits = {make: [one.throttle_ms for one in each] for make, each in told.items()}
    assert waits["kafka"] == waits["ours"] == [0] * count + [WINDOW_MS] * count
    for each in told.values():
        assert [one.has_data for one in each[:count]] == [False, True, *[False] * (count - 2)]
        assert not any(one.has_data for one in each[count:])
        # The connection is mute meanwhile.
        assert all(WINDOW_MS * 0.95 < one.since_last_ms < WINDOW_MS * 2 for one in each[count + 1 :])
    tags = (("client_id", CLIENT),)
    ours = {Key("Request", name, tags) for name in ("request-time", "throttle-time")}
    assert ours <= metrics["ours"]
    assert metrics["ours"] - metrics["kafka"] == set(), metrics["kafka"]


class Speaker:
    """A connection that stays, by which a test changes a broker."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        self._reader = FrameReader()

    def ask(self, message: Message, version: int) -> Any:
        """The answer to a request."""
        self.socket.sendall(request_bytes(message, version))
        frames: list[bytes] = []
        while not frames:
            data = self.socket.recv(1 << 16)
            assert data, f"closed instead of answering {message}"
            frames = self._reader.feed(data)
        api_key = schema_of(type(message)).api_key
        assert api_key is not None
        return decode_response(api_key, version, frames[0], apis=ALL_APIS)[1]

    def set_rate_of_address(self, rate: float) -> None:
        """Bound the new connections of this machine, and wait until the broker knows."""
        entity = [altering.AlterClientQuotasRequestEntityData("ip", "127.0.0.1")]
        entry = altering.AlterClientQuotasRequestEntryData(entity, [altering.OpData("connection_creation_rate", rate)])
        (answer,) = self.ask(altering.AlterClientQuotasRequest([entry]), 1).entries
        assert answer.error_code == 0, answer
        eventually(lambda: rate in self.rates(), "the broker knows the quota")

    def rates(self) -> list[float]:
        """The values of all quotas."""
        found = self.ask(describing.DescribeClientQuotasRequest([], strict=False), 1)
        return [one.value for entry in found.entries or () for one in entry.values]

    def set_rate_of_listener(self, rate: int) -> None:
        """Bound the new connections of the listener, and wait until the broker knows."""
        key = "listener.name.plaintext.max.connection.creation.rate"
        changes = [configs.AlterableConfig(key, 0, str(rate))]
        resource = configs.AlterConfigsResource(BROKER, str(NODE), changes)
        (answer,) = self.ask(configs.IncrementalAlterConfigsRequest([resource]), 1).responses
        assert answer.error_code == 0, answer
        asked = described.DescribeConfigsResource(BROKER, str(NODE), [key])

        def knows() -> bool:
            (found,) = self.ask(described.DescribeConfigsRequest([asked]), 4).results
            return [one.value for one in found.configs] == [str(rate)]

        eventually(knows, "the broker knows the rate")


def at_once(port: int, count: int) -> list[tuple[bool, float]]:
    """Connect so often at once: whether each got an answer, and when it or the end came, in seconds."""
    made, found = [], []
    began = time.monotonic()
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        connection.settimeout(ANSWER_SECONDS)
        connection.sendall(request_bytes(MetadataRequest(topics=[]), 12))
        made.append(connection)
    for connection in made:
        with connection:
            try:
                is_answered = bool(connection.recv(1 << 16))
            except ConnectionResetError:
                is_answered = False
            found.append((is_answered, time.monotonic() - began))
    return found


def test_peers_that_come_too_fast_are_turned_away_or_wait(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    """First the rate of an address, then that of the listener."""
    of_address: dict[str, list[tuple[bool, float]]] = {}
    of_listener: dict[str, list[tuple[bool, float]]] = {}
    metrics: dict[str, set[Key]] = {}

    def use(make: str) -> Callable[[str], None]:
        def asked(address: str) -> None:
            port = int(address.rpartition(":")[2])
            speaker = Speaker(port)
            with speaker.socket:
                speaker.set_rate_of_address(1)
                of_address[make] = at_once(port, 14)
                speaker.set_rate_of_address(100_000)
                assert all(is_answered for is_answered, _ in at_once(port, 5))
                speaker.set_rate_of_listener(10)
                of_listener[make] = at_once(port, 120)

        return asked

    for make in ("kafka", "ours"):
        found = values_after(newer_kafka, tmp_path / make, make, use(make))
        metrics[make] = {key for key in found if "accept" in key.name}
    for make in ("kafka", "ours"):
        turned_away = [when for is_answered, when in of_address[make] if not is_answered]
        assert [is_answered for is_answered, _ in of_address[make]] == [True] * 10 + [False] * 4, make
        assert all(0.9 < when < 2 for when in turned_away), turned_away
        assert all(is_answered for is_answered, _ in of_listener[make]), make
    # Ten a second, of which a hundred may come at once: the last ones wait until these are ten seconds ago.
    lasted = {make: each[-1][1] for make, each in of_listener.items()}
    assert all(8 < seconds < 20 for seconds in lasted.values()), lasted
    assert abs(lasted["ours"] - lasted["kafka"]) < 3, lasted
    own = {one for one in metrics["ours"] if dict(one.tags).get("listener") != "CONTROLLER"}
    assert own <= metrics["kafka"], (own - metrics["kafka"], metrics["kafka"])
    assert {one.name for one in own} == {
        "connection-accept-rate",
        "broker-connection-accept-rate",
        "connection-accept-throttle-time",
        "ip-connection-accept-throttle-time",
    }
