"""Three brokers with data that answer decoded requests: image, replicas and handlers, wired in memory."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource, AuthorizerSettings
from kraft.agenda import Slot
from kraft.broker.requests import Requests
from kraft.handling.reply_keys import Channel
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas import DataDirectory, DataSettings, HostedPartition, ReplicaManager
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.settings import ReplicationSettings
from kraft.wire import Answer, Outcome, Send, WireRequest
from metadata_log.image import MetadataDelta, MetadataImage, Partition
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.metadata import AccessControlEntryRecord
from metadata_log.records.record import Record
from metadata_log.serde import Message, schema_of
from metadata_log.types import OffsetAndEpoch, Uuid
from support.broker.data_brokers import load
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.headers import decode_request
from transport.protocol.inbound import ANONYMOUS, ANY_SIZE, Principal
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from transport.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

LISTENER: Final = "PLAINTEXT"
BROKERS: Final = (101, 102, 103)
START_MS: Final = 1_795_387_500_000
SESSION_MS: Final = 120_000
LATEST: Final = {0: 13, 1: 18, 2: 11, 21: 2, 22: 5, 23: 4, 35: 5, 61: 0}
"""The latest version of each API that the tests use."""


def due_of(requests: Requests, now_ms: int) -> Iterator[Outcome | Send]:
    """Do what is due, as the server of a broker does: what comes of it, in its order."""
    for slot in requests.agenda.take_due(now_ms):
        yield from requests.works[slot](now_ms)


def wire_request(
    request_id: int,
    api_key: int,
    version: int,
    message: Message,
    *,
    client_id: str | None = "test",
    principal: Principal = ANONYMOUS,
    room: int = ANY_SIZE,
) -> WireRequest:
    """A decoded request, as a connection delivers it."""
    return WireRequest(
        request_id=request_id,
        api_key=api_key,
        version=version,
        message=message,
        listener=LISTENER,
        client_id=client_id,
        peer="127.0.0.1:5000",
        principal=principal,
        room=room,
    )


class NewTopic(Struct, frozen=True):
    """A topic of a test: the replicas of each partition, the leader first."""

    name: str
    id: Uuid
    partitions: tuple[tuple[int, ...], ...]
    configs: dict[str, str] = {}


def epoch_of(broker_id: int) -> int:
    """The broker epoch of a registration."""
    return 1000 + broker_id


def directory_of(broker_id: int) -> Uuid:
    """The id of the log directory of a broker."""
    return Uuid(bytes([0, broker_id] * 8))


def topic_id(number: int) -> Uuid:
    """The id of a topic of a test."""
    return Uuid(bytes([9, number] * 8))


def replayed(image: MetadataImage, *added: Message) -> MetadataImage:
    """The image after more records."""
    delta = MetadataDelta(image)
    for at, record in enumerate(added):
        delta.replay(record, image.end.offset + at)
    return delta.apply(OffsetAndEpoch(epoch=1, offset=image.end.offset + len(added)))


def cluster_of(topics: list[NewTopic]) -> MetadataImage:
    """Three brokers in three racks, and topics with all of their replicas in sync."""
    added: list[Message] = [records.FeatureLevelRecord(name="metadata.version", feature_level=30)]
    added += [
        records.RegisterBrokerRecord(
            broker_id=one,
            broker_epoch=epoch_of(one),
            incarnation_id=Uuid(bytes([one] * 16)),
            fenced=False,
            rack=f"rack-{one - 100}",
            log_dirs=(directory_of(one),),
            end_points=(records.BrokerEndpoint(name=LISTENER, host="127.0.0.1", port=26000 + one),),
        )
        for one in BROKERS
    ]
    for topic in topics:
        added.append(records.TopicRecord(name=topic.name, topic_id=topic.id))
        for number, replicas in enumerate(topic.partitions):
            added.append(
                records.PartitionRecord(
                    partition_id=number,
                    topic_id=topic.id,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=tuple(directory_of(one) for one in replicas),
                )
            )
        for name, value in topic.configs.items():
            added.append(records.ConfigRecord(resource_type=2, resource_name=topic.name, name=name, value=value))
    return replayed(MetadataImage(), *added)


LITERAL, ALLOW = 3, 3
CLUSTER = "kafka-cluster"


def rule(number: int, operation: AclOperation, resource: AclResource, name: str) -> AccessControlEntryRecord:
    """An ACL that allows every principal an operation."""
    return AccessControlEntryRecord(
        id=Uuid(bytes([7, number] * 8)),
        resource_type=resource,
        resource_name=name,
        pattern_type=LITERAL,
        principal="User:*",
        host="*",
        operation=operation,
        permission_type=ALLOW,
    )


class Brokers:
    """Brokers that answer requests, and replicate when the test says so."""

    def __init__(
        self,
        topics: list[NewTopic],
        *,
        now_ms: int = START_MS,
        disks: dict[int, MemoryDisk] | None = None,
        lag_ms: int = 30_000,
        authorizer: AuthorizerSettings | None = None,
        **settings: Any,
    ) -> None:
        self.now_ms = now_ms
        self.image = cluster_of(topics)
        self.managers: dict[int, ReplicaManager] = {}
        self.requests: dict[int, Requests] = {}
        self.rights: dict[int, Rights] = {}
        self._last_id = 0
        self._ended: list[Outcome] = []
        """The outcomes that `due` has met."""
        self._sends: list[Send] = []
        """The requests to other nodes that `poll` has met."""
        self._published: dict[tuple[int, PartitionKey], Partition] = {}
        for one in BROKERS:
            directory = DataDirectory(directory_of(one), "d", is_clean=disks is not None)
            disk = MemoryDisk() if disks is None else disks[one]
            manager = ReplicaManager(
                disk,
                DataSettings(
                    broker_id=one,
                    directories=(directory,),
                    replication=ReplicationSettings(lag_time_max_ms=lag_ms),
                ),
            )
            self.managers[one] = manager
            self.rights[one] = Rights(authorizer)
            self.requests[one] = Requests(
                manager, RequestSettings(broker_id=one, **settings), Random(one), self.rights[one]
            )
        self.publish(self.image)

    def publish(self, image: MetadataImage) -> None:
        """Apply new metadata at all brokers: as the agent does, only the partitions with a change."""
        self.image = image
        for one, manager in self.managers.items():
            load(manager, image, self.now_ms)
            manager.on_image(image)
            assigned = {
                (topic.id, number): partition
                for topic in image.topics.by_id.values()
                for number, partition in enumerate(topic.partitions)
                if one in partition.replicas
            }
            for key in list(manager.partitions):
                if key not in assigned:
                    manager.on_partition(key, None, self.now_ms)
            for key, partition in assigned.items():
                if self._published.get((one, key)) is not partition:
                    self._published[one, key] = partition
                    manager.on_partition(key, partition, self.now_ms, directory_of(one))

    def change(self, *added: Message) -> None:
        """Apply more metadata records at all brokers."""
        self.publish(replayed(self.image, *added))

    def part(self, broker_id: int, key: PartitionKey) -> HostedPartition:
        """A replica of a broker."""
        found = self.managers[broker_id].partitions.get(key)
        assert found is not None, key
        return found

    def send(
        self,
        broker_id: int,
        message: Message,
        version: int | None = None,
        *,
        client_id: str = "test",
        room: int = ANY_SIZE,
    ) -> tuple[int, Outcome | None]:
        """Pass a request to a broker; returns its id and the outcome."""
        api_key = schema_of(type(message)).api_key
        assert api_key is not None
        self._last_id += 1
        request = wire_request(
            self._last_id,
            api_key,
            LATEST[api_key] if version is None else version,
            message,
            client_id=client_id,
            room=room,
        )
        return self._last_id, self.requests[broker_id].on_request(request, self.image, self.now_ms)

    def ask(self, broker_id: int, message: Message, version: int | None = None) -> Any:
        """Pass a request to a broker that answers it at once; returns the response."""
        request_id, outcome = self.send(broker_id, message, version)
        assert isinstance(outcome, Answer), outcome
        assert outcome.request_id == request_id
        return outcome.message

    def frame(self, broker_id: int, frame: bytes) -> tuple[int, Outcome | None]:
        """Pass the bytes of a request to a broker; returns its id and the outcome."""
        header, message = decode_request(frame, apis=ALL_APIS)
        return self.send(broker_id, message, header.request_api_version)

    def poll(self, broker_id: int, *, after_ms: int = 0) -> list[Outcome]:
        """Let time pass, and return the outcomes of waiting requests."""
        self.now_ms += after_ms
        self._look(broker_id)
        ended, self._ended = self._ended, []
        return ended

    def due(self, broker_id: int) -> list[Send]:
        """The requests to other nodes that are due; `poll` has the outcomes."""
        self._look(broker_id)
        sends, self._sends = self._sends, []
        return sends

    def _look(self, broker_id: int) -> None:
        requests = self.requests[broker_id]
        requests.use(self.image)
        requests.broker_epoch = epoch_of(broker_id)
        for one in due_of(requests, self.now_ms):
            if isinstance(one, Send):
                self._sends.append(one)
            else:
                self._ended.append(one)

    def due_ms(self, broker_id: int) -> int:
        """When something of the requests is due; the agent of the broker is not here."""
        return min(self.requests[broker_id].agenda.times[Slot.AGENT + 1 : Slot.REPORTS])

    def give_ids(self, broker_id: int, response: Message | None) -> list[Outcome]:
        """Answer the request for a block of producer ids; the outcomes of the producers that waited."""
        self.requests[broker_id].on_reply(Channel.PRODUCER_IDS, response, self.now_ms)
        return self.poll(broker_id)

    def replicate(self, *keys: PartitionKey, by: tuple[int, ...] = BROKERS) -> None:
        """Let the followers fetch until nothing moves any more, as in a calm cluster."""
        is_moving = True
        while is_moving:
            is_moving = False
            for one in by:
                for key in keys:
                    found = self.managers[one].partitions.get(key)
                    if found is not None and not found.is_leader and found.leader_id >= 0:
                        is_moving |= self._fetch(one, key, found)

    def _fetch(self, broker_id: int, key: PartitionKey, part: HostedPartition) -> bool:
        """Fetch once as a follower; returns whether anything moved."""
        log = part.log
        epoch = log.epochs.last_epoch
        wanted = FetchPartition(
            partition=key[1],
            current_leader_epoch=part.leader_epoch,
            fetch_offset=log.end_offset,
            last_fetched_epoch=-1 if epoch is None else epoch,
            log_start_offset=log.start_offset,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            replica_state=ReplicaState(broker_id, epoch_of(broker_id)),
            topics=[FetchTopic(topic_id=key[0], partitions=[wanted])],
        )
        leader = self.managers[part.leader_id].partitions.get(key)
        assert leader is not None
        before = _offsets(log), _offsets(leader.log)
        response = self.ask(part.leader_id, request)
        assert isinstance(response, FetchResponse)
        data = response.responses[0].partitions[0]
        assert data.error_code == 0, data
        log.append_as_follower(data.records or b"", leader_epoch=part.leader_epoch, now_ms=self.now_ms)
        log.raise_high_watermark(data.high_watermark)
        log.raise_start(min(data.log_start_offset, log.high_watermark))
        return (_offsets(log), _offsets(leader.log)) != before


def _offsets(log: PartitionLog) -> tuple[int, int, int]:
    return log.start_offset, log.high_watermark, log.end_offset


def batch(*values: bytes, timestamp_ms: int = START_MS, producer_id: int = -1, sequence: int = -1) -> bytes:
    """A batch as a producer sends it."""
    return write_batch(
        [Record(at, timestamp_ms, 0, None, value) for at, value in enumerate(values)],
        epoch=-1,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=sequence,
    )


def produce(key: PartitionKey, records: bytes | None, *, acks: int = -1, timeout_ms: int = 5000) -> ProduceRequest:
    """A Produce request of version 13 for one partition."""
    data = TopicProduceData(topic_id=key[0], partition_data=[PartitionProduceData(key[1], records)])
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])


def fetch(*wanted: tuple[PartitionKey, int], wait_ms: int = 0, min_bytes: int = 1, **fields: Any) -> FetchRequest:
    """A Fetch request of version 13 or later for partitions from offsets on."""
    topics = [
        FetchTopic(topic_id=key[0], partitions=[FetchPartition(key[1], fetch_offset=at, partition_max_bytes=1 << 20)])
        for key, at in wanted
    ]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, topics=topics, **fields)


def only_partition(response: Any) -> Any:
    """The one partition of a response to Produce or Fetch."""
    [topic] = response.responses
    [part] = topic.partition_responses if isinstance(response, ProduceResponse) else topic.partitions
    return part
