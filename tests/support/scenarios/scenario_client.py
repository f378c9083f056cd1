"""Requests by hand to the brokers of a cluster: what a scenario sends, in the version that the scenario names."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from metadata_log.compression import Compression
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record, records
from metadata_log.serde import Message, schema_of
from support.interop.real_kafka import eventually
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from transport.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from support.scenarios.scenario_cluster import Topic

M = TypeVar("M", bound=Message)
R = TypeVar("R")

SOCKET_SECONDS: Final = 60
PRODUCE_MS: Final = 20_000
PRODUCE: Final = 13
FETCH: Final = 17
"""The newest version that Kafka 3.9 knows, too."""
BY_ID: Final = 13
"""The first version of Produce and of Fetch that names topics by id."""
LATEST: Final = -1
EARLIEST: Final = -2
AGAIN: Final = {
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.UNKNOWN_TOPIC_ID,
    Error.NOT_ENOUGH_REPLICAS,
    Error.LEADER_NOT_AVAILABLE,
}
"""What a producer answers with the same batch, sent again."""


def batch(
    *values: bytes | None,
    codec: Compression = Compression.NONE,
    timestamp_ms: int | None = None,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    key: bytes | None = None,
    transactional: bool = False,
) -> bytes:
    """A batch as a producer sends it; `producer` is its id and epoch."""
    now = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    return write_batch(
        [Record(at, now, 0, key, value) for at, value in enumerate(values)],
        epoch=-1,
        compression=codec,
        transactional=transactional,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
    )


def as_stored(sent: bytes, offset: int, epoch: int) -> bytes:
    """The bytes of a batch that a leader has taken in place: only offset and leader epoch differ."""
    return offset.to_bytes(8, "big") + sent[8:12] + epoch.to_bytes(4, "big", signed=True) + sent[16:]


def values_in(data: bytes | memoryview | None) -> list[tuple[int, bytes | None]]:
    """The offsets and values of whole batches; the last one may be cut, as Kafka cuts it."""
    data = bytes(data or b"")
    end = 0
    while len(data) - end >= 12 and end + 12 + int.from_bytes(data[end + 8 : end + 12], "big") <= len(data):
        end += 12 + int.from_bytes(data[end + 8 : end + 12], "big")
    return [(one.offset, one.value) for each in scan(data[:end]) for one in records(each)]


class Connection:
    """One connection to a broker, on which requests are answered in order."""

    def __init__(self, port: int, source: str = "127.0.0.1", client_id: str = "scenario") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), SOCKET_SECONDS, (source, 0))
        self._client_id = client_id
        self._reader = FrameReader()
        self._frames: list[bytes] = []
        self._last = 0

    def send(self, message: Message, version: int) -> int:
        """Send a request; returns its correlation id."""
        api_key = schema_of(type(message)).api_key
        assert api_key is not None
        self._last += 1
        frame = encode_request(api_key, version, self._last, self._client_id, message, apis=ALL_APIS)
        self.socket.sendall(len(frame).to_bytes(4, "big") + frame)
        return self._last

    def frame(self) -> bytes | None:
        """The next answer without its length; None if the broker has closed the connection."""
        while not self._frames:
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._frames += self._reader.feed(data)
        return self._frames.pop(0)

    def ask(self, message: Message, version: int, answer: type[M]) -> M:
        """Send a request, and return its answer."""
        self.send(message, version)
        return self.answer(version, answer)

    def answer(self, version: int, answer: type[M]) -> M:
        """The answer to the last request."""
        api_key = schema_of(answer).api_key
        assert api_key is not None
        frame = self.frame()
        assert frame is not None, f"the broker closed the connection instead of sending {answer.__name__}"
        header, body = decode_response(api_key, version, frame, apis=ALL_APIS)
        assert header.correlation_id == self._last
        assert isinstance(body, answer)
        return body


class Client:
    """The requests of a scenario to brokers by id."""

    ports: dict[int, int]

    @contextmanager
    def connected(self, broker: int, source: str = "127.0.0.1", client_id: str = "scenario") -> Iterator[Connection]:
        """A connection to a broker, until the block ends."""
        connection = Connection(self.ports[broker], source, client_id)
        try:
            yield connection
        finally:
            connection.socket.close()

    def ask(self, broker: int, message: Message, version: int, answer: type[M]) -> M:
        """The answer of a broker to one request on a connection of its own."""
        with self.connected(broker) as connection:
            return connection.ask(message, version, answer)

    def produce_request(
        self,
        topic: Topic,
        data: bytes | None,
        *,
        acks: int = -1,
        version: int = PRODUCE,
        timeout_ms: int = PRODUCE_MS,
        transactional_id: str | None = None,
    ) -> ProduceRequest:
        """A Produce request for the one partition of a topic."""
        partition = [PartitionProduceData(0, data)]
        named = (
            TopicProduceData(topic_id=topic.id, partition_data=partition)
            if version >= BY_ID
            else TopicProduceData(name=topic.name, partition_data=partition)
        )
        return ProduceRequest(transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=[named])

    def produce(
        self, broker: int, topic: Topic, data: bytes | None, *, version: int = PRODUCE, **fields: Any
    ) -> PartitionProduceResponse:
        """The answer of a broker to one batch."""
        request = self.produce_request(topic, data, version=version, **fields)
        [found] = self.ask(broker, request, version, ProduceResponse).responses
        [partition] = found.partition_responses
        return partition

    def append(self, broker: int, topic: Topic, data: bytes, *, acks: int = -1) -> int:
        """Produce to a broker that must lead and take the batch; returns the offset."""
        answer = self.produce(broker, topic, data, acks=acks)
        assert answer.error_code == Error.NONE, Error.of(answer.error_code)
        return answer.base_offset

    def send(self, leader: Callable[[], int], topic: Topic, data: bytes) -> int:
        """Produce as a client does, with acks=all: the same batch again after a retriable error. Returns the offset."""
        answers: list[PartitionProduceResponse] = []

        def taken() -> bool:
            try:
                answer = self.produce(leader(), topic, data)
            except (OSError, AssertionError):
                return False
            assert answer.error_code in {Error.NONE, *AGAIN}, Error.of(answer.error_code)
            answers.append(answer)
            return answer.error_code == Error.NONE

        eventually(taken, f"a batch is taken in {topic.name}", SOCKET_SECONDS)
        return answers[-1].base_offset

    def fetch_request(
        self,
        topic: Topic,
        offset: int,
        *,
        version: int = FETCH,
        wait_ms: int = 0,
        leader_epoch: int = -1,
        fetched_epoch: int = -1,
        partition_bytes: int = 1 << 20,
        replica: ReplicaState | None = None,
        **fields: Any,
    ) -> FetchRequest:
        """A Fetch request for the one partition of a topic."""
        part = FetchPartition(
            0,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=fetched_epoch,
            partition_max_bytes=partition_bytes,
        )
        named = (
            FetchTopic(topic_id=topic.id, partitions=[part])
            if version >= BY_ID
            else FetchTopic(topic=topic.name, partitions=[part])
        )
        if replica is not None:
            fields["replica_state"] = replica
        return FetchRequest(**{"max_wait_ms": wait_ms, "min_bytes": 1, "topics": [named], **fields})

    def fetch(self, broker: int, topic: Topic, offset: int, *, version: int = FETCH, **fields: Any) -> PartitionData:
        """The answer of a broker to a fetch of the one partition."""
        request = self.fetch_request(topic, offset, version=version, **fields)
        [found] = self.ask(broker, request, version, FetchResponse).responses
        [partition] = found.partitions
        return partition

    def values(self, broker: int, topic: Topic, offset: int = 0) -> list[bytes | None]:
        """The values that a consumer sees from an offset to the high watermark of a broker."""
        found: list[bytes | None] = []
        with self.connected(broker) as connection:
            while True:
                response = connection.ask(self.fetch_request(topic, offset), FETCH, FetchResponse)
                part = response.responses[0].partitions[0]
                assert part.error_code == Error.NONE, Error.of(part.error_code)
                read = [(at, value) for at, value in values_in(part.records) if at >= offset]
                if not read:
                    return found
                found += [value for _, value in read]
                offset = read[-1][0] + 1

    def offset_for(
        self, broker: int, topic: Topic, timestamp: int = LATEST, *, replica_id: int = -1, version: int = 11
    ) -> ListOffsetsPartitionResponse:
        """The answer of a broker to ListOffsets."""
        named = ListOffsetsTopic(topic.name, [ListOffsetsPartition(0, timestamp=timestamp)])
        request = ListOffsetsRequest(replica_id=replica_id, topics=[named])
        [found] = self.ask(broker, request, version, ListOffsetsResponse).topics
        [partition] = found.partitions
        return partition

    def watermark(self, broker: int, topic: Topic) -> int:
        """The high watermark of a leader, as consumers see it."""
        return self.offset_for(broker, topic).offset

    def producer_id(self, broker: int) -> tuple[int, int]:
        """A new producer id with its epoch."""
        request = InitProducerIdRequest(transactional_id=None)
        answer = InitProducerIdResponse(error_code=Error.COORDINATOR_LOAD_IN_PROGRESS)

        def given() -> bool:
            nonlocal answer
            answer = self.ask(broker, request, 5, InitProducerIdResponse)
            return answer.error_code == Error.NONE

        eventually(given, f"broker {broker} gives out a producer id", SOCKET_SECONDS)
        return answer.producer_id, answer.producer_epoch

    def let_fetches_end(self, broker: int, topic: Topic, end: int, wait_ms: int) -> None:
        """Wait at a leader for as long as a fetch of a follower waits, so that what a paused follower asked is over."""
        assert values_in(self.fetch(broker, topic, end, wait_ms=wait_ms).records) == []


@contextmanager
def in_background(work: Callable[[], R]) -> Iterator[Future[R]]:
    """Run a request that waits while the block does something else."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(work)
