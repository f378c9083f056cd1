"""Shows the ledger of share groups what is committed, and what members are told by leaders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from kraft.broker.server import BrokerServer
from kraft.coordinators.shares.in_flight import State
from kraft.coordinators.shares.leader import Led
from kraft.coordinators.shares.share_partition import SharePartition
from kraft.handling.coordinators import partition_of
from kraft.invariants.cluster_model import PartitionKey
from kraft.invariants.shares import Member, Place, ShareLedger, Told
from kraft.invariants.shares import State as Known
from kraft.partitions.replicas import ReplicaManager
from kraft.sim.nodes.data_broker import DataBroker
from kraft.sim.workloads.committed_logs import CommittedLogs
from kraft.sim.workloads.coordinator_watch import INPUT, OFFSETS
from kraft.sim.workloads.partition_watch import is_hopeless
from kraft.sim.workloads.record_watch import Life, RecordWatch, replica_of
from kraft.sim.world import member_interface
from kraft.sim.world.member_interface import Administered, Output
from kraft.sim.world.simulated_quorum import SimulatedQuorum
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from transport.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

STATES: Final = "__share_group_state"
WATCHED: Final = (OFFSETS, STATES, INPUT)
FINAL_EPOCH: Final = -1
Request = ShareFetchRequest | ShareAcknowledgeRequest


class _Memory(Struct):
    """A leader's memory of a share partition."""

    led: Led
    number: int
    place: Place
    is_loaded: bool = False


class ShareWatch(RecordWatch):
    """The `Watch` of a world of brokers that serve share groups."""

    def __init__(self, broker_ids: tuple[int, ...], flush_messages: int | None, deliveries: int, lock_ms: int) -> None:
        super().__init__(broker_ids, flush_messages)
        self._unsequenced_names = (OFFSETS, STATES)
        self.shares = ShareLedger(deliveries, lock_ms)
        self.logs = CommittedLogs()
        self.unfinished = ""
        """The records that members have still to be given, after the end of all faults."""
        self._memories: dict[tuple[int, Place], _Memory] = {}
        self._last_number = 0
        self._asked: dict[int, dict[PartitionKey, Member]] = {}
        """The requests that have arrived, each with its partitions."""
        self._pruned: dict[PartitionKey, int] = {}
        """Where the logs of the share coordinators begin, as far as that was judged."""
        self._now_ms = 0
        """The time by the clock of the broker of the present step."""

    @property
    def is_void(self) -> bool:
        """Whether records are lost as Kafka allows: then nothing is judged any more."""
        return self.logs.is_void

    # The log

    def _look_at_replicas(self, member: DataBroker, manager: ReplicaManager, life: Life) -> None:
        super()._look_at_replicas(member, manager, life)
        for key, part in manager.partitions.items():
            if part.topic not in WATCHED or part.is_offline or self.is_void:
                continue
            if self.logs.is_new(member.node_id, key, part):
                held = self.records.held_by(member.node_id, key)
                advance = self.logs.look(member.node_id, key, part, held, is_cleaned=False)
                for batch in advance.committed if part.topic == STATES else ():
                    self.shares.committed(batch)
            if part.topic == STATES and part.log.start_offset > self._pruned.get(key, 0):
                self._pruned[key] = part.log.start_offset
                places = [one for one in self.shares.places() if self._place_of_state(one) == key]
                self.shares.pruned(str(part), part.log.start_offset, places)

    def _place_of_state(self, place: Place) -> PartitionKey | None:
        """The partition of the share coordinators that has a share partition."""
        group, topic_id, number = place
        return self.in_topic(STATES, f"{group}:{topic_id}:{number}")

    def in_topic(self, name: str, key: str) -> PartitionKey | None:
        """The partition of a key in a topic of coordinators; None while there is no topic."""
        topics = self.ledger.image.topics
        return (topics[name].id, partition_of(key, len(topics[name].partitions))) if name in topics else None

    # Steps

    def stepped(self, member: member_interface.Member, outputs: list[Output], world: SimulatedQuorum) -> None:
        """A node has completed a step: look at the share partitions that it leads before its answers are judged."""
        if isinstance(member, DataBroker):
            host = world.hosts[member.node_id]
            self._now_ms = host.clock_ms(world.now_ms)
            self._look_at_memories(member)
            for request_id, asked in host.administered.items():
                if request_id not in self._asked and isinstance(asked, Request):
                    self._arrived(member, request_id, asked)
            for peer in member.take_hung_up():
                self._gave_up(member.node_id, peer)
        super().stepped(member, outputs, world)
        for one in outputs:
            if type(one) is Administered:
                self._asked.pop(one.request_id, None)

    def _look_at_memories(self, member: DataBroker) -> None:
        """Follow the share partitions that a broker has in its memory."""
        broker = member.broker
        assert isinstance(broker, BrokerServer), member.node_id
        rooms = broker.requests._shares
        if rooms is None:
            return
        for key, led in rooms.fetch.leader.led.items():
            place = key.group_id, key.topic_id, key.partition
            memory = self._memories.get((member.node_id, place))
            if memory is None or memory.led is not led:
                self._last_number += 1
                memory = self._memories[member.node_id, place] = _Memory(led, self._last_number, place)
                self.shares.began(memory.number, member.node_id)
            partition = led.partition
            if partition is None or self.is_void:
                continue
            name = f"{key.group_id} at {led.part}"
            if not memory.is_loaded:
                memory.is_loaded = True
                if self._is_current(member, led):
                    self.shares.loaded(memory.number, place, name, partition.start, _states_of(partition))
            self.shares.moved(memory.number, name, partition.start)

    def _is_current(self, member: DataBroker, led: Led) -> bool:
        """Whether a broker leads a partition by the committed metadata, in the epoch of its memory."""
        known = self.partition_of((led.key.topic_id, led.key.partition))
        return known is not None and (known.leader, known.leader_epoch) == (member.node_id, led.leader_epoch)

    # Requests

    def _arrived(self, member: DataBroker, request_id: int, request: Request) -> None:
        """Acknowledgements, or a wish for records, have arrived at a broker."""
        by_key = self._asked[request_id] = {}
        group, name = request.group_id or "", request.member_id or ""
        for (broker_id, place), memory in self._memories.items():
            if broker_id == member.node_id and place[0] == group:
                by_key[place[1], place[2]] = Member(request_id, name, place, memory.number, self._now_ms)
        for key, acks in _acks_of(request).items():
            asking = by_key.setdefault(key, Member(request_id, name, (group, *key), -1, self._now_ms))
            self.shares.asked(asking, acks, self._log_start(member, key))
        if request.share_session_epoch == FINAL_EPOCH:
            self._gave_up(member.node_id, name, group)

    def _gave_up(self, node_id: int, name: str, group: str | None = None) -> None:
        for (broker_id, place), memory in self._memories.items():
            if broker_id == node_id and group in (None, place[0]):
                self.shares.gave_up(memory.number, name)

    def _judge(self, member: DataBroker, request: Message, response: Message) -> None:
        super()._judge(member, request, response)
        if self.is_void:
            return
        match request, response:
            case ShareAcknowledgeRequest(), ShareAcknowledgeResponse():
                errors = {
                    (one.topic_id, part.partition_index): Error.of(part.error_code)
                    for one in response.responses
                    for part in one.partitions
                }
                self._judge_acks(member, request, Error.of(response.error_code), errors)
            case ShareFetchRequest(), ShareFetchResponse():
                errors = {
                    (one.topic_id, part.partition_index): Error.of(part.acknowledge_error_code)
                    for one in response.responses
                    for part in one.partitions
                }
                self._judge_acks(member, request, Error.of(response.error_code), errors)
                self._judge_records(member, request, response)

    def _judge_acks(
        self, member: DataBroker, request: Request, refused: Error, errors: dict[PartitionKey, Error]
    ) -> None:
        by_key = self._by_key(request)
        for key, acks in _acks_of(request).items():
            asking = by_key[key]
            error = refused if refused is not Error.NONE else errors.get(key, Error.UNKNOWN_SERVER_ERROR)
            self.shares.acknowledged(asking, self._name(asking.place), acks, error)

    def _judge_records(self, member: DataBroker, request: ShareFetchRequest, response: ShareFetchResponse) -> None:
        by_key = self._by_key(request)
        manager = member.manager
        assert manager is not None, member.node_id
        for topic in response.responses:
            for part in topic.partitions:
                if not part.acquired_records:
                    continue
                key = topic.topic_id, part.partition_index
                place = request.group_id or "", *key
                memory = self._memories[member.node_id, place]
                asking = by_key.get(key, Member(0, request.member_id or "", place, memory.number, self._now_ms))
                is_sure = asking.leading == memory.number and self._is_current(member, memory.led)
                hosted = manager.partitions.get(key)
                if hosted is not None and is_sure:
                    first = part.acquired_records[0].first_offset
                    self.records.consumed_by_client(replica_of(member.node_id, hosted), first, part.records or b"")
                for one in part.acquired_records:
                    self.shares.delivered(
                        asking,
                        self._name(place),
                        one.first_offset,
                        one.last_offset,
                        one.delivery_count,
                        self._now_ms,
                        is_sure=is_sure,
                    )

    def _by_key(self, request: Request) -> dict[PartitionKey, Member]:
        return self._asked.get(self.judged_id, {})

    def _name(self, place: Place) -> str:
        topic = self.ledger.image.topics.by_id.get(place[1])
        return f"{place[0]} at {place[1] if topic is None else topic.name}-{place[2]}"

    def _log_start(self, member: DataBroker, key: PartitionKey) -> int:
        part = None if member.manager is None else member.manager.partitions.get(key)
        return 0 if part is None or part.is_offline else part.log.start_offset

    # The end

    def look_on(self, groups: Iterable[str]) -> None:
        """Note what members have still to be given."""
        self.unfinished = ""
        topic_id = self.ledger.image.topics.by_name.get(INPUT)
        if topic_id is None:
            return
        keys = [(topic_id, number) for number in range(len(self.ledger.image.topics.by_id[topic_id].partitions))]
        for group in groups:
            # A member that waits for what nobody can write does nothing else.
            for key in () if any(self.is_lost_to(group, one) for one in keys) else keys:
                shown = self.logs.shown.get(key, [])
                left = self.shares.unfinished((group, *key), 0, shown[-1].next_offset if shown else 0)
                if left is not None:
                    self.unfinished = f"offset {left} of {INPUT}-{key[1]} is not done with in {group}"
                    return

    def is_lost_to(self, group: str, key: PartitionKey) -> bool:
        """Whether a partition that a group needs stays without a leader until an operator helps, as in Kafka."""
        topics = self.ledger.image.topics
        needed = (key, self.in_topic(OFFSETS, group), self._place_of_state((group, *key)))
        return any(one is not None and is_hopeless(topics.by_id[one[0]].partitions[one[1]]) for one in needed)

    def unsettled(self, world: SimulatedQuorum) -> str:
        """The requirement after the end of all faults that is not met yet; empty if none."""
        return ("" if self.is_void else self.unfinished) or super().unsettled(world)


def _acks_of(request: Request) -> dict[PartitionKey, Sequence[Told]]:
    """The acknowledgements of a request by partition."""
    return {
        (topic.topic_id, part.partition_index): [
            Told(one.first_offset, one.last_offset, one.acknowledge_types) for one in part.acknowledgement_batches
        ]
        for topic in request.topics
        for part in topic.partitions
        if part.acknowledgement_batches
    }


def _states_of(partition: SharePartition) -> dict[int, Known]:
    """The states that a leader has loaded, by offset."""
    return {
        offset: (run.count, int(run.state))
        for batch in partition.batches
        for run in batch.runs
        for offset in range(run.first, run.last + 1)
        if run.state is not State.AVAILABLE or run.count
    }
