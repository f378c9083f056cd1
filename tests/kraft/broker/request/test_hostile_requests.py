"""Whatever a client sends, the handlers answer or close: no value of a field and no record bytes end the broker."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

import pytest

from kraft.wire import Answer, Outcome
from metadata_log.compression import Compression
from metadata_log.records.batch_builder import with_checksum, write_batch
from metadata_log.records.record import Record
from metadata_log.serde import Message, schema_of
from metadata_log.types import Uuid
from support.broker.request_brokers import BROKERS, Brokers, NewTopic, batch, epoch_of, topic_id
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.headers import encode_response
from transport.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from transport.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from transport.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from transport.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from transport.protocol.messages.init_producer_id import InitProducerIdRequest
from transport.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from transport.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from transport.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

T = TypeVar("T")

SMALL = (-(2**31), -5, -2, -1, 0, 1, 2, 5, 1000, 2**31 - 1)
LARGE = (-(2**63), -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 5, 10**13, 2**63 - 1)
CONFIGS: tuple[dict[str, str], ...] = (
    {},
    {"message.timestamp.type": "LogAppendTime", "compression.type": "lz4"},
    {"cleanup.policy": "compact"},
    {"internal.segment.bytes": "300", "max.message.bytes": "400"},
)
NAMES = tuple(f"t{at}" for at in range(len(CONFIGS)))
VERSIONS = {0: (3, 13), 1: (4, 18), 2: (1, 11), 21: (0, 2), 22: (0, 5), 23: (2, 4), 35: (1, 5), 61: (0, 0)}


class Client:
    """A client that draws every field from values that are rarely right."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.session = 0

    def some(self, values: Sequence[T]) -> T:
        return values[self.rng.randrange(len(values))]

    def name(self) -> str:
        return self.some((*NAMES, *NAMES, "nope", "", "__consumer_offsets"))

    def id(self) -> Uuid:
        return self.some((*map(topic_id, range(len(NAMES))), topic_id(77), Uuid.ZERO))

    def number(self) -> int:
        return self.some((0, 0, 0, 0, -1, 1, 2**31 - 1))

    def data(self) -> bytes | None:
        """Records: sound ones, sound ones with a changed byte, with and without a new checksum, and no records."""
        kind = self.rng.randrange(8)
        if kind == 0:
            return self.some((None, b"", b"\0", bytes(61), self.rng.randbytes(80)))
        made = write_batch(
            [
                Record(at, self.some((0, 1, 10**13, 1_795_387_500_000)), 0, self.some((b"k", None)), b"v" * 9)
                for at in range(self.rng.randrange(1, 4))
            ],
            epoch=-1,
            compression=Compression(self.rng.randrange(5)),
            producer_id=self.some((-1, -1, 7)),
            producer_epoch=0,
            base_sequence=self.some((-1, 0, 1, 2**31 - 1)),
        )
        if kind < 4:
            return made
        broken = bytearray(made)
        for _ in range(self.rng.randrange(1, 4)):
            broken[self.rng.randrange(8, len(broken))] = self.some((0, 1, 0x7F, 0x80, 0xFF, self.rng.randrange(256)))
        cut = bytes(broken) if kind < 7 else bytes(broken[: self.rng.randrange(len(broken))])
        return with_checksum(cut) if kind < 6 and len(cut) > 61 else cut

    def request(self, api_key: int, version: int) -> Message:
        """A request of an API."""
        match api_key:
            case 0:
                parts = [PartitionProduceData(self.number(), self.data()) for _ in range(self.rng.randrange(3))]
                return ProduceRequest(
                    transactional_id=self.some((None, None, "", "t")),
                    acks=self.some((-1, -1, 0, 1, 2, -5)),
                    timeout_ms=self.some((-1, 0, 5, 2**31 - 1)),
                    topic_data=[
                        TopicProduceData(self.name(), Uuid.ZERO, parts)
                        if version < 13
                        else TopicProduceData("", self.id(), parts)
                    ],
                )
            case 1:
                return self.fetch(version)
            case 2:
                wanted = [
                    ListOffsetsPartition(self.number(), self.some(SMALL), self.some(LARGE))
                    for _ in range(self.rng.randrange(3))
                ]
                return ListOffsetsRequest(
                    self.some((-3, -2, -1, -1, 102)), self.some((0, 1, 9)), [ListOffsetsTopic(self.name(), wanted)]
                )
            case 21:
                topics = [DeleteRecordsTopic(self.name(), [DeleteRecordsPartition(self.number(), self.some(LARGE))])]
                return DeleteRecordsRequest(topics, self.some(SMALL))
            case 22:
                has_id = version >= 3
                return InitProducerIdRequest(
                    transactional_id=self.some((None, None, "", "t")),
                    producer_id=self.some(LARGE) if has_id else -1,
                    producer_epoch=self.some((-1, 0, 7)) if has_id else -1,
                )
            case 23:
                epochs = [OffsetForLeaderPartition(self.number(), self.some(SMALL), self.some(SMALL))]
                return OffsetForLeaderEpochRequest(
                    self.some((-2, -1, 102)), [OffsetForLeaderTopic(self.name(), epochs)]
                )
            case 35:
                return DescribeLogDirsRequest(
                    self.some((None, [], [DescribableLogDirTopic(self.name(), [self.number()])]))
                )
        return DescribeProducersRequest([TopicRequest(self.name(), [self.number()])])

    def fetch(self, version: int) -> FetchRequest:
        topics, forgotten = [], []
        for _ in range(self.rng.randrange(3)):
            names = {"topic": self.name()} if version < 13 else {"topic_id": self.id()}
            part = FetchPartition(
                partition=self.number(),
                current_leader_epoch=self.some((-1, -1, *SMALL)),
                fetch_offset=self.some((0, 1, *LARGE)),
                last_fetched_epoch=self.some((-1, 0, *SMALL)) if version >= 12 else -1,
                log_start_offset=self.some(LARGE),
                partition_max_bytes=self.some((100, *SMALL)),
            )
            topics.append(FetchTopic(**names, partitions=[part]))
            if version >= 7 and self.rng.random() < 0.2:
                forgotten.append(ForgottenTopic(**names, partitions=[self.number()]))
        replica = self.some((-1, -1, -1, -2, -3, 102, 103, 999))
        in_session = version >= 7
        return FetchRequest(
            replica_id=replica if version < 15 else -1,
            replica_state=ReplicaState(replica, self.some((-1, 1, epoch_of(102), 2**40)))
            if version >= 15
            else ReplicaState(),
            max_wait_ms=self.some((0, 0, 5, *SMALL)),
            min_bytes=self.some((0, 1, *SMALL)),
            max_bytes=self.some((1000, *SMALL)),
            isolation_level=self.some((0, 1, 9)),
            session_id=self.some((0, self.session, self.session, *SMALL)) if in_session else 0,
            session_epoch=self.some((-1, 0, 1, 2, 3, *SMALL)) if in_session else -1,
            topics=topics,
            forgotten_topics_data=forgotten,
            rack_id=self.some(("", "rack-1", "rack-2", "x")),
        )


def carried(api_key: int, version: int, outcome: Outcome) -> None:
    """An answer has to fit into the version of its request."""
    if isinstance(outcome, Answer):
        encode_response(api_key, version, 1, outcome.message, apis=ALL_APIS)


@pytest.mark.parametrize("seed", range(10))
def test_a_hostile_client_gets_answers_and_the_broker_goes_on(seed: int) -> None:
    rng = Random(seed)
    client = Client(rng)
    topics = [NewTopic(name, topic_id(at), (BROKERS,), CONFIGS[at]) for at, name in enumerate(NAMES)]
    brokers = Brokers(topics, prefers_rack_of_client=rng.random() < 0.5)
    brokers.give_ids(101, AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=20))
    asked: dict[int, tuple[int, int]] = {}
    answered = 0
    for _ in range(300):
        api_key = client.some(tuple(VERSIONS))
        version = rng.randint(*VERSIONS[api_key])
        broker_id = client.some((101, 101, 101, 102))
        message = client.request(api_key, version)
        assert schema_of(type(message)).api_key == api_key
        request_id, outcome = brokers.send(broker_id, message, version)
        asked[request_id] = api_key, version
        outcomes = [] if outcome is None else [outcome]
        for one in BROKERS:
            outcomes += brokers.poll(one)
        brokers.now_ms += rng.choice((0, 1, 1000))
        for each in outcomes:
            carried(*asked[each.request_id], each)
            answered += 1
            client.session = getattr(getattr(each, "response", None), "session_id", 0) or client.session
    assert answered > 150, f"seed {seed}"
    # The broker still serves a client that makes no mistake.
    key = (topic_id(0), 0)
    before = brokers.part(101, key).log.end_offset
    sound = ProduceRequest(acks=1, topic_data=[TopicProduceData("", key[0], [PartitionProduceData(0, batch(b"a"))])])
    assert brokers.ask(101, sound).responses[0].partition_responses[0].base_offset == before, f"seed {seed}"
