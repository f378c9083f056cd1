"""Shows the ledgers of groups and of transactions what is committed, and what members and producers are told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from kraft.handling.coordinators import partition_of
from kraft.invariants.cluster_model import PartitionKey
from kraft.invariants.groups import GroupLedger, Place, decoded_assignment
from kraft.invariants.stored_batches import StoredBatch
from kraft.invariants.transactions import TransactionLedger
from kraft.partitions.replicas import HostedPartition, ReplicaManager
from kraft.sim.nodes.data_broker import DataBroker
from kraft.sim.workloads.committed_logs import CommittedLogs
from kraft.sim.workloads.partition_watch import PartitionWatch, is_hopeless
from kraft.sim.workloads.record_watch import Life, RecordWatch, with_ids
from kraft.sim.world.simulated_quorum import SimulatedQuorum
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from transport.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from transport.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from transport.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from transport.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from transport.protocol.messages.produce import ProduceRequest, ProduceResponse
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from transport.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

OFFSETS: Final = "__consumer_offsets"
STATES: Final = "__transaction_state"
INPUT: Final = "input"
"""The topic of which groups own the partitions."""
OUTPUT: Final = "output"
"""The topic with the records of transactions."""
TRANSFORMERS: Final = "transformers"
"""The group with the offsets of the inputs that workers have transformed."""
WORKERS: Final = ("worker-0", "worker-1", "worker-2")
"""The transactional ids. Each transforms the inputs of the partition with its number."""
ASKED: Final = 100
"""Of how many fetches of offsets, and of how many requests of classic members, the run knows what was so before."""
WATCHED: Final = (OFFSETS, STATES, OUTPUT)
SPARED: Final = (*WATCHED, INPUT)
"""The topics that nobody deletes, grows or lets have an unclean leader."""


class CoordinatorWatch(RecordWatch):
    """The `Watch` of a world of brokers that coordinate groups and transactions."""

    def __init__(self, broker_ids: tuple[int, ...], flush_messages: int | None) -> None:
        super().__init__(broker_ids, flush_messages)
        self._unsequenced_names = (OFFSETS, STATES)
        self.groups = GroupLedger()
        self.transactions = TransactionLedger()
        self.unfinished = ""
        """The work that the clients of the run have still to do, after the end of all faults."""
        self.logs = CommittedLogs()
        """The records that the ledgers have seen as committed."""
        self.on_committed: list[Callable[[str, PartitionKey, StoredBatch], None]] = []
        """Told of each committed batch of a watched topic, before the ledgers judge it."""
        self.on_asked: list[Callable[[Message], None]] = []
        """Told of each request of a client, before it is sent."""
        self.on_ended: list[Callable[[EndTxnRequest], None]] = []
        """Told of each end of a transaction that a client asked for, and that the coordinator answers with success."""
        self._floors: deque[tuple[OffsetFetchRequest, dict[Place, int]]] = deque(maxlen=ASKED)
        """The least offsets that each of the last fetches of offsets may return."""
        self._present: deque[tuple[Message, int]] = deque(maxlen=ASKED)
        """The generations of members that were committed when they sent their last requests."""

    @property
    def is_void(self) -> bool:
        """Whether records are lost as Kafka allows: then the ledgers of coordinators judge no more."""
        return self.logs.is_void

    def follow_cleaning(self) -> None:
        """The logs of coordinators are cleaned in this run."""
        self._compacted_names = (OFFSETS, STATES)

    def administering(self, request: Message) -> None:
        """A client is about to send a request. The batches of transactions need no answer: they are fenced."""
        PartitionWatch.administering(self, request)
        for listener in self.on_asked:
            listener(request)
        if isinstance(request, OffsetFetchRequest):
            self._floors.append((request, self.groups.floor()))
        elif isinstance(request, (SyncGroupRequest, HeartbeatRequest)):
            self._present.append((request, self.groups.epoch_of(request.group_id, request.member_id)))

    # The log

    def _look_at_replicas(self, member: DataBroker, manager: ReplicaManager, life: Life) -> None:
        super()._look_at_replicas(member, manager, life)
        watched = [(key, part) for key, part in manager.partitions.items() if part.topic in WATCHED]
        # A broker may learn in one step that an outcome is committed, and append its markers.
        watched.sort(key=lambda one: one[1].topic != STATES)
        for key, part in watched:
            if not part.is_offline and not self.is_void:
                self._show(member, key, part)

    def _held_by(self, member: DataBroker, part: HostedPartition) -> Sequence[StoredBatch]:
        """The batches of a replica; of one that is cleaned those that are left."""
        if part.key[0] in self._compacted:
            return self.batches_of(member, part)
        return self.records.held_by(member.node_id, part.key)

    def _show(self, member: DataBroker, key: PartitionKey, part: HostedPartition) -> None:
        logs, broker_id, name = self.logs, member.node_id, str(part)
        if not logs.is_new(broker_id, key, part):
            return
        # The ledger of compaction knows whether a cleaned log has lost anything.
        is_cleaned = key[0] in self._compacted
        advance = logs.look(broker_id, key, part, self._held_by(member, part), is_cleaned=is_cleaned)
        for batch in advance.committed:
            for listener in self.on_committed:
                listener(part.topic, key, batch)
            if part.topic == STATES:
                self.transactions.decided(batch)
                continue
            if part.topic == OFFSETS:
                self.groups.committed(key, batch)
            self.transactions.committed(key, name, batch, has_attempts=part.topic == OUTPUT)
        for batch in advance.appended:
            self.transactions.appended(name, batch)

    # Answers

    def _judge(self, member: DataBroker, request: Message, response: Message) -> None:
        request, response = (with_ids(one, self.ledger.image) for one in (request, response))
        super()._judge(member, request, response)
        if self.is_void:
            return
        match request, response:
            case SyncGroupRequest(), SyncGroupResponse(error_code=Error.NONE):
                by_name = self.ledger.image.topics.by_name
                listed = decoded_assignment(bytes(response.assignment))
                owned = [(by_name.get(topic, Uuid.ZERO), number) for topic, number in listed]
                name = request.group_instance_id or request.member_id
                self.groups.told(request.group_id, request.generation_id, name, owned)
            case ConsumerGroupHeartbeatRequest(), ConsumerGroupHeartbeatResponse(error_code=Error.NONE):
                if response.assignment is not None:
                    parts = response.assignment.topic_partitions
                    ids = [(one.topic_id, number) for one in parts for number in one.partitions]
                    name = request.instance_id or request.member_id
                    self.groups.told(request.group_id, response.member_epoch, name, ids)
            case OffsetCommitRequest(), OffsetCommitResponse():
                errors = {
                    (one.topic_id, each.partition_index): each for one in response.topics for each in one.partitions
                }
                for topic in request.topics:
                    for part in topic.partitions:
                        if errors[topic.topic_id, part.partition_index].error_code == Error.NONE:
                            place = request.group_id, self._name_of(topic.topic_id), part.partition_index
                            self.groups.acknowledged(place, part.committed_metadata or "")
            case OffsetFetchRequest(), OffsetFetchResponse():
                floors = next((floor for asked, floor in self._floors if asked is request), {})
                self._judge_offsets(member, response, floors)
            case InitProducerIdRequest(transactional_id=str(name)), InitProducerIdResponse(error_code=Error.NONE):
                ends = {key: shown[-1].next_offset for key, shown in self.logs.shown.items() if shown}
                self.transactions.initialized(name, response.producer_id, response.producer_epoch, ends)
            case EndTxnRequest(), EndTxnResponse(error_code=Error.NONE):
                for listener in self.on_ended:
                    listener(request)
                self.transactions.ended_by(request.producer_id, request.producer_epoch, commits=request.committed)
            case ProduceRequest(topic_data=[topic_data]), ProduceResponse(responses=[answered]):
                (sent,), (told,) = topic_data.partition_data, answered.partition_responses
                if told.error_code == Error.NONE:
                    self.transactions.acknowledged((topic_data.topic_id, sent.index), sent.records or b"")
            case TxnOffsetCommitRequest(topics=[of_topic]), TxnOffsetCommitResponse(topics=[pended]):
                (wanted,), (noted,) = of_topic.partitions, pended.partitions
                key = self.partition_for(request.group_id)
                if noted.error_code == Error.NONE and key is not None:
                    place = request.group_id, of_topic.name or self._name_of(of_topic.topic_id), wanted.partition_index
                    self.groups.pended(key, request.producer_id, place, wanted.committed_metadata or "")
        if isinstance(request, (SyncGroupRequest, HeartbeatRequest)):
            self._judge_generation(member, request, response)

    def _judge_generation(
        self, member: DataBroker, request: SyncGroupRequest | HeartbeatRequest, response: Message
    ) -> None:
        """A leader that nobody has told of its successor knows the former generations only, as in Kafka."""
        is_accepted = isinstance(response, (SyncGroupResponse, HeartbeatResponse)) and response.error_code == Error.NONE
        if is_accepted and self.is_current(member, request.group_id):
            present = next((epoch for asked, epoch in self._present if asked is request), 0)
            self.groups.accepted(request.group_id, request.member_id, request.generation_id, present)

    def _judge_offsets(self, member: DataBroker, response: OffsetFetchResponse, floors: dict[Place, int]) -> None:
        for group in response.groups:
            if not self.is_current(member, group.group_id):
                # A leader that nobody has told of its successor answers what was committed once, as in Kafka.
                continue
            for topic in group.topics:
                for part in topic.partitions:
                    place = group.group_id, self._name_of(topic.topic_id), part.partition_index
                    if group.error_code == Error.NONE and part.error_code == Error.NONE:
                        floor = floors.get(place, 0)
                        self.groups.fetched(place, part.committed_offset, part.metadata or "", floor)

    def is_current(self, member: DataBroker, group_id: str) -> bool:
        """Whether a broker leads the partition of a group by the committed metadata."""
        key = self.partition_for(group_id)
        known = None if key is None else self.partition_of(key)
        part = None if member.manager is None or key is None else member.manager.partitions.get(key)
        if known is None or part is None:
            return False
        return known.leader == member.node_id and known.leader_epoch == part.leader_epoch

    def partition_for(self, group_id: str) -> PartitionKey | None:
        """The partition of a group; None while there is no topic."""
        return self._partition_in(OFFSETS, group_id)

    def _partition_in(self, name: str, key: str) -> PartitionKey | None:
        """The partition of a group or a transactional id in a topic of coordinators; None while there is no topic."""
        topics = self.ledger.image.topics
        if name not in topics:
            return None
        return topics[name].id, partition_of(key, len(topics[name].partitions))

    def _name_of(self, topic_id: Uuid) -> str:
        topic = self.ledger.image.topics.by_id.get(topic_id)
        return str(topic_id) if topic is None else topic.name

    # End

    def is_lost_to(self, group_id: str, transactional_id: str | None = None) -> bool:
        """Whether a client can only wait for an operator, as in Kafka: a partition that its group or its transactions
        need stays without a leader.
        """
        if self.partition_for(group_id) in self._hopeless(OFFSETS):
            return True
        key = None if transactional_id is None else self._partition_in(STATES, transactional_id)
        return key is not None and (key in self._hopeless(STATES) or bool(self._hopeless(OUTPUT)))

    def _hopeless(self, name: str) -> list[PartitionKey]:
        """The partitions of a topic that stay without a leader."""
        topics = self.ledger.image.topics
        if name not in topics:
            return []
        return [(topics[name].id, number) for number, one in enumerate(topics[name].partitions) if is_hopeless(one)]

    def unsettled(self, world: SimulatedQuorum) -> str:
        """The requirement after the end of all faults that is not met yet; empty if none."""
        return ("" if self.is_void else self.unfinished) or super().unsettled(world)

    def _may_hang(self, key: PartitionKey) -> bool:
        return self.is_void or bool(self._hopeless(STATES)) or super()._may_hang(key)

    def concluded(self, world: SimulatedQuorum) -> None:
        """The run is over."""
        super().concluded(world)
        if not (self.is_void or any(map(self._hopeless, WATCHED)) or self.unsettled(world)):
            committed = {one: self.groups.offset_of((TRANSFORMERS, INPUT, at)) for at, one in enumerate(WORKERS)}
            self.transactions.concluded(committed)
