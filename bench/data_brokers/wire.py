"""A client of one broker that sends one request at a time over one connection; equal for every make."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Self, TypeVar

from load import Address, Refused, connect

from metadata_log.records.batch_builder import build_batch
from metadata_log.serde import Message, schema_of
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages import create_topics, fetch, produce

ACKS_ALL: Final = -1
PRODUCE_VERSION: Final = 11
FETCH_VERSION: Final = 12
CREATE_VERSION: Final = 7
LEADER_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 0.001
TIMEOUT_MS: Final = 30_000
M = TypeVar("M", bound=Message)


def batch_of(records: int, value_bytes: int) -> bytes:
    """A batch of so many records with values of this size and without keys, at the present time."""
    return build_batch(0, -1, int(1000 * time.time()), [b"x" * value_bytes] * records)


def produce_frame(topic: str, partition: int, records: bytes, acks: int) -> bytes:
    """A Produce request for one partition, length included."""
    data = [produce.PartitionProduceData(index=partition, records=records)]
    message = produce.ProduceRequest(
        acks=acks,
        timeout_ms=TIMEOUT_MS,
        topic_data=[produce.TopicProduceData(name=topic, partition_data=data)],
    )
    return frame_of(message, PRODUCE_VERSION)


def fetch_frame(topic: str, partition: int, offset: int, max_bytes: int) -> bytes:
    """A Fetch request without a session for one partition, length included; the answer never waits."""
    part = fetch.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    message = fetch.FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=[fetch.FetchTopic(topic=topic, partitions=[part])]
    )
    return frame_of(message, FETCH_VERSION)


def frame_of(message: Message, version: int) -> bytes:
    """A request, length included."""
    api_key = schema_of(type(message)).api_key
    assert api_key is not None
    content = encode_request(api_key, version, 1, "bench", message, apis=ALL_APIS)
    return len(content).to_bytes(4, "big") + content


def answered(content: bytes, version: int, answer: type[M]) -> M:
    """Decode what `WireClient.ask` returned."""
    api_key = schema_of(answer).api_key
    assert api_key is not None
    _, message = decode_response(ApiKey(api_key), version, content, apis=ALL_APIS)
    assert isinstance(message, answer), message
    return message


class WireClient:
    """A connection to one broker."""

    def __init__(self, address: Address) -> None:
        self._socket = connect(address)
        self._reader = FrameReader()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def ask(self, frame: bytes) -> bytes:
        """Send a frame; returns the answer without its length. Raises `OSError` for a closed connection."""
        self._socket.sendall(frame)
        while data := self._socket.recv(1 << 20):
            for answer in self._reader.feed(data):
                return answer
        raise ConnectionResetError("the broker has closed the connection")

    def request(self, message: Message, version: int, answer: type[M]) -> M:
        """Send a request; returns its answer."""
        return answered(self.ask(frame_of(message, version)), version, answer)

    def produce(self, frame: bytes) -> None:
        """Send a frame of `produce_frame`; raises `Refused` unless the record is acknowledged."""
        error = self._error_of_produce(frame)
        if error is not Error.NONE:
            raise Refused(error.name)

    def _error_of_produce(self, frame: bytes) -> Error:
        _, answer = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, self.ask(frame), apis=ALL_APIS)
        assert isinstance(answer, produce.ProduceResponse), answer
        return Error.of(answer.responses[0].partition_responses[0].error_code)

    def fetch(self, frame: bytes) -> int:
        """Send a frame of `fetch_frame`; returns the bytes of records in the answer."""
        _, answer = decode_response(ApiKey.FETCH, FETCH_VERSION, self.ask(frame), apis=ALL_APIS)
        assert isinstance(answer, fetch.FetchResponse), answer
        [part] = answer.responses[0].partitions
        if part.error_code:
            raise Refused(Error.of(part.error_code).name)
        return len(part.records or b"")

    def create_topic(self, topic: str, partitions: int, replicas: list[int]) -> None:
        """Ask for a topic with the same replicas for each partition."""
        assigned = [
            create_topics.CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
            for number in range(partitions)
        ]
        one = create_topics.CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=assigned)
        frame = frame_of(create_topics.CreateTopicsRequest(topics=[one], timeout_ms=TIMEOUT_MS), CREATE_VERSION)
        _, answer = decode_response(ApiKey.CREATE_TOPICS, CREATE_VERSION, self.ask(frame))
        assert isinstance(answer, create_topics.CreateTopicsResponse), answer
        if answer.topics[0].error_code:
            raise Refused(f"{Error.of(answer.topics[0].error_code).name}: {answer.topics[0].error_message}")

    def produce_when_led(self, topic: str, partition: int) -> None:
        """Produce one record with acks=all as soon as the broker leads the partition."""
        frame = produce_frame(topic, partition, batch_of(1, 1024), ACKS_ALL)
        deadline = time.monotonic() + LEADER_SECONDS
        while (error := self._error_of_produce(frame)) is not Error.NONE:
            if time.monotonic() > deadline:
                raise Refused(f"partition {partition} of {topic} answers {error.name} after {LEADER_SECONDS:g} s")
            time.sleep(RETRY_SECONDS)
