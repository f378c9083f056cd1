"""Describes what happens to the replicas of brokers with data, for the reader of a schedule.

A description has the requests of clients and followers with their partitions, and each change of a replica or of the
committed metadata of a partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft.invariants.cluster_model import PartitionKey
from kraft.invariants.groups import GroupLedger, Shared
from kraft.invariants.stored_batches import stored_batches
from kraft.partitions.replicas import HostedPartition
from kraft.sim.nodes.data_broker import DataBroker
from kraft.sim.nodes.frames import Frame
from kraft.sim.workloads.coordinator_watch import CoordinatorWatch
from kraft.sim.workloads.record_watch import ALL, READ_COMMITTED, RecordWatch
from kraft.sim.world.actions import WORLD, Administer
from kraft.sim.world.world import World
from metadata_log.serde import Message, decode
from metadata_log.types import NO_PRODUCER, Uuid
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from transport.protocol.messages.create_topics import CreateTopicsRequest
from transport.protocol.messages.delete_records import DeleteRecordsRequest
from transport.protocol.messages.end_txn import EndTxnRequest
from transport.protocol.messages.fetch import FetchRequest
from transport.protocol.messages.heartbeat import HeartbeatRequest
from transport.protocol.messages.join_group import JoinGroupRequest
from transport.protocol.messages.leave_group import LeaveGroupRequest
from transport.protocol.messages.offset_commit import OffsetCommitRequest
from transport.protocol.messages.produce import ProduceRequest
from transport.protocol.messages.sync_group import SyncGroupRequest
from transport.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

_SHORT: Final = 8
"""The characters of a member id that a reader sees; no two members of a run have the same ones."""


class Records:
    """The replicas and partitions of a world as a reader has seen them last; nothing in a world without records."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, PartitionKey], str] = {}
        self._names: dict[Uuid, str] = {}
        self._groups: dict[str, Shared] = {}

    def changes(self, world: World) -> Iterator[tuple[int, str]]:
        """The changes since the last call: the node, `WORLD` for committed metadata, and the new state."""
        if not isinstance(world.watch, RecordWatch):
            return
        now = dict(self._states(world, world.watch))
        for (node_id, key), state in now.items():
            if self._told.get((node_id, key)) != state:
                yield node_id, state
        for node_id, key in self._told:
            if (node_id, key) not in now and world.hosts.get(node_id) is not None and world.hosts[node_id].is_running:
                yield node_id, f"{self._name(key)} is gone"
        self._told = now
        if isinstance(world.watch, CoordinatorWatch):
            yield from ((WORLD, text) for text in self._group_changes(world.watch.groups))

    def _group_changes(self, ledger: GroupLedger) -> Iterator[str]:
        """The groups whose committed members or partitions have changed."""
        now = ledger.shared()
        for group, shared in now.items():
            if self._groups.get(group) != shared:
                yield f"committed: group {group} in {shared.word} {shared.number}: {_owners(shared)}"
        for group in self._groups:
            if group not in now:
                yield f"committed: group {group} has no members"
        self._groups = now

    def _states(self, world: World, watch: RecordWatch) -> Iterator[tuple[tuple[int, PartitionKey], str]]:
        for topic in watch.ledger.image.topics.by_id.values():
            self._names[topic.id] = topic.name
            for number in range(len(topic.partitions)):
                key = (topic.id, number)
                known = watch.partition_of(key)
                if known is not None:
                    leader = "no leader" if known.leader < 0 else f"leader {known.leader}"
                    isr = f"ISR {_listed(known.isr)}" + (f", ELR {_listed(known.elr)}" if known.elr else "")
                    text = f"committed: {self._name(key)} has {leader} in epoch {known.leader_epoch}, {isr}"
                    yield (WORLD, key), text
        for node_id, host in world.hosts.items():
            member = host.member
            manager = member.manager if isinstance(member, DataBroker) and host.is_running else None
            if manager is None or not manager.is_loaded:
                continue
            for key in list(manager.partitions):
                part = manager.partitions.get(key)
                if part is not None:
                    yield (node_id, key), _state_of(part)

    def request_of(self, action: Administer) -> str:
        """The request of a client, with the partition and the records."""
        api = ALL_APIS[action.api_key]
        match decode(api.request, action.version, action.body):
            case ProduceRequest(acks=acks, topic_data=[topic]):
                (each,) = topic.partition_data
                acks_text = "all" if acks == ALL else str(acks)
                key = (topic.topic_id, each.index)
                return f"gets Produce for {self._name(key)}: {_batches(each.records or b'')}, acks={acks_text}"
            case FetchRequest(topics=[topic], isolation_level=isolation):
                (wanted,) = topic.partitions
                reader = "a reader of committed records" if isolation == READ_COMMITTED else "a consumer"
                name = self._name((topic.topic_id, wanted.partition))
                return f"gets Fetch of {reader} for {name} from offset {wanted.fetch_offset}"
            case WriteTxnMarkersRequest(markers=[marker]):
                (marked,) = marker.topics
                verb = "commit" if marker.transaction_result else "abort"
                where = f"{marked.name}-{marked.partition_indexes[0]}"
                return f"gets the order to {verb} the transaction of producer {marker.producer_id} in {where}"
            case DeleteRecordsRequest(topics=[named]):
                (each_part,) = named.partitions
                name = f"{named.name}-{each_part.partition_index}"
                return f"gets DeleteRecords for {name} below offset {each_part.offset}"
            case OffsetCommitRequest(topics=[of_group]) as committer:
                offsets = ", ".join(f"{one.partition_index} to {one.committed_offset}" for one in of_group.partitions)
                who, epoch = committer.member_id, committer.generation_id_or_member_epoch
                return (
                    f"is asked by {_short(who)} of {committer.group_id} in epoch {epoch} to commit partition {offsets}"
                )
            case JoinGroupRequest(group_id=group, member_id=who):
                return f"is asked by {_short(who) or 'a new member'} to join {group}"
            case SyncGroupRequest(group_id=group, member_id=who, generation_id=generation, assignments=assignments):
                where = f"group {group} in generation {generation}"
                return (
                    f"is told by {who} who has what in {where}"
                    if assignments
                    else f"is asked by {_short(who)} of {where} for its partitions"
                )
            case HeartbeatRequest(group_id=group, member_id=who, generation_id=generation):
                return f"hears that {_short(who)} of group {group} in generation {generation} lives"
            case LeaveGroupRequest(group_id=group):
                return f"hears that a member leaves group {group}"
            case ConsumerGroupHeartbeatRequest(group_id=group, member_id=who, member_epoch=epoch):
                return _heartbeat(group, who, epoch)
            case EndTxnRequest(committed=commits) as ending:
                verb = "commit" if commits else "abort"
                return f"is asked by {ending.transactional_id} in epoch {ending.producer_epoch} to {verb}"
            case CreateTopicsRequest(topics=[created]):
                return f"is asked to create {created.name}"
            case _:
                return f"is asked to {api.name}"

    def fetched(self, message: object) -> str:
        """The offsets that a follower asks for; empty for another message, and for a session without news."""
        if not isinstance(message, Frame):
            return ""
        request = message.request()
        if not isinstance(request, FetchRequest):
            return ""
        return ", ".join(self._offsets(request))

    def _offsets(self, request: Message) -> Iterator[str]:
        assert isinstance(request, FetchRequest), request
        for topic in request.topics:
            if topic.topic_id != Uuid.METADATA_TOPIC:
                for each in topic.partitions:
                    yield f"{self._name((topic.topic_id, each.partition))} from offset {each.fetch_offset}"

    def _name(self, key: PartitionKey) -> str:
        return f"{self._names.get(key[0], 'unknown topic')}-{key[1]}"


def _state_of(part: HostedPartition) -> str:
    if part.is_offline:
        return f"{part} is offline"
    role = "leads" if part.is_leader else "follows"
    start = f"log start {part.log.start_offset}, " if part.log.start_offset else ""
    offsets = f"{start}log end {part.log.end_offset}, high watermark {part.log.high_watermark}"
    return f"{role} {part} in epoch {part.leader_epoch}: {offsets}"


def _batches(data: bytes) -> str:
    """The records of a producer's batch."""
    told = []
    for batch in stored_batches(data):
        count = batch.next_offset - batch.base_offset
        text = f"{count} record" + ("s" if count > 1 else "")
        producer = f", sequence {batch.base_sequence} of producer {batch.producer_id}"
        told.append(text + (producer if batch.producer_id != NO_PRODUCER else ""))
    return " and ".join(told)


def _short(member_id: str) -> str:
    """The beginning of the id of a member, which is long and random."""
    return member_id[:_SHORT]


def _heartbeat(group: str, member_id: str, epoch: int) -> str:
    """The heartbeat of a member of a consumer group in words (Kafka: `ConsumerGroupHeartbeatRequest`)."""
    who = _short(member_id)
    if epoch < 0:
        return f"hears that {who} leaves group {group}"
    return (
        f"hears that {who} of group {group} in epoch {epoch} lives" if epoch else f"is asked by {who} to join {group}"
    )


def _owners(shared: Shared) -> str:
    return ", ".join(
        f"{_short(name)} has {' and '.join(map(str, numbers)) or 'no partition'}"
        for name, numbers in shared.owned.items()
    )


def _listed(ids: tuple[int, ...]) -> str:
    return " ".join(map(str, ids)) or "none"
