"""Shows the record ledger what is in the files of each replica, and what clients of the brokers are told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, structs

from kraft.invariants.cluster_model import PartitionKey, PartitionModel
from kraft.invariants.compaction import CompactionLedger
from kraft.invariants.leaderships import Belief, LeadershipLedger, Remote
from kraft.invariants.liveness import Liveness
from kraft.invariants.records import RecordLedger, Replica
from kraft.invariants.stored_batches import StoredBatch, stored_batches
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas import HostedPartition, ReplicaManager
from kraft.sim.nodes.cluster import SLOWEST_LAG_MS
from kraft.sim.nodes.data_broker import DataBroker
from kraft.sim.nodes.frames import Frame
from kraft.sim.workloads.partition_watch import PartitionWatch, is_hopeless
from kraft.sim.workloads.record_clients import COMPACTED
from kraft.sim.world.member_interface import Administered, Member, Output, SimulatedRequest
from kraft.sim.world.simulated_quorum import SimulatedQuorum
from metadata_log.image import MetadataImage
from metadata_log.log.epochs import EpochHistory
from metadata_log.log.partition_names import parse_partition_name
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.alter_partition import AlterPartitionRequest
from transport.protocol.messages.fetch import FetchRequest, FetchResponse
from transport.protocol.messages.produce import ProduceRequest, ProduceResponse
from transport.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ALL: Final = -1
READ_COMMITTED: Final = 1
LONGEST_MS: Final = 2 * SLOWEST_LAG_MS + 2000
"""How long a watermark may stand below the records of the whole ISR in the calm, and how long a producer may wait: a
follower outside of the ISR is waited for as long as the lag time, and each member tells its end with a fetch.
"""
ALTER_PARTITION: Final = "AlterPartition"
SUFFIX: Final = ".log"
DELETED: Final = ".log.deleted"
FIRST_OF_RECORDS: Final = 100_000_000
"""The requests of producers and consumers have ids from this one on."""
ENDINGS: Final = (Error.NONE, Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.INVALID_PRODUCER_EPOCH)
"""The answers after which a producer does not send a batch again."""
Batch = tuple[PartitionKey, int, int, int]
"""The partition, the producer id, the producer epoch and the first sequence number of an idempotent batch."""


class _Seen(Struct):
    """The last look at the files of one replica in one life of its broker."""

    part: HostedPartition
    log: PartitionLog
    state: tuple[object, ...]
    sizes: dict[int, int]
    """The size of each segment in bytes, by base offset."""
    epochs: EpochHistory
    belief: tuple[object, ...] = ()
    """The leadership and the epochs at the last look."""


class _Assigned(Struct, frozen=True):
    """A partition with its replicas."""

    key: PartitionKey
    name: str
    replicas: tuple[int, ...]
    is_hopeless: bool
    """Whether it stays without a leader. Its replicas remain, with what they have, until an operator elects one."""


class Life(Struct):
    """One life of a broker."""

    seen: dict[PartitionKey, _Seen] = {}
    power_failures: int = 0
    """How often the power had failed before this life."""
    lost_power: bool = False
    """Whether the power has failed since the last life in which the logs were open."""
    was_clean: bool = False
    was_failing: bool = False
    has_loaded: bool = False
    deleted_to: dict[str, int] = {}
    """Up to where the former life had deleted old segments, by the directory of a log. A crash may have interrupted the
    step with the last deletion, so that no look has seen it.
    """


class RecordWatch(PartitionWatch):
    """The `Watch` of a world of brokers with data."""

    def __init__(self, broker_ids: tuple[int, ...], flush_messages: int | None) -> None:
        super().__init__(broker_ids)
        self.records = RecordLedger(self, flush_messages)
        self.compaction = CompactionLedger(self)
        self.leaderships = LeadershipLedger(self)
        self._counted: dict[tuple[int, PartitionKey, int], int] = {}
        """When a leader has last counted a Fetch, by leader, partition and follower, by the clock of the leader."""
        self.answers: dict[int, Message] = {}
        """The answers to producers and consumers, by request id; the clients of the run take them."""
        self.judged_id = 0
        """The request of which the answer is judged."""
        self._lives: dict[int, Life] = {}
        self._min_isr: dict[PartitionKey, int] = {}
        self._produced: dict[Batch, None] = {}
        """The batches with acks=all of idempotent producers."""
        self._open: dict[Batch, None] = {}
        """Those among them that no answer has ended yet."""
        self._led: tuple[MetadataImage | None, list[_Assigned]] = (None, [])
        """The last committed image, and its partitions. The one that was unsettled at the last look comes first: mostly
        it still is.
        """
        self._changes = -1
        self._replicas: dict[PartitionKey, tuple[int, ...]] = {}
        self._unassigned: dict[tuple[int, PartitionKey], None] = {}
        """The replicas that were taken from their brokers since the last load: a start puts such a log aside."""
        self.is_writing = False
        """Whether the clients have still to write their last records, after the end of all faults."""
        self._liveness = Liveness(LONGEST_MS)
        self._compacted_names: tuple[str, ...] = (COMPACTED,)
        self._unsequenced_names: tuple[str, ...] = ()
        """The topics of coordinators: each of their batches has the sequence number 0."""
        self._compacted: dict[Uuid, None] = {}
        """The compacted topics: the cleaner changes their batches, so that the ledger of batches does not see them."""

    # The committed metadata, for the ledger

    def partition_of(self, key: PartitionKey) -> PartitionModel | None:
        """The partition; None if its topic is deleted."""
        return self.ledger.partition_of(key)

    def isr_at(self, key: PartitionKey, partition_epoch: int) -> tuple[int, ...] | None:
        """The ISR of a partition epoch; None if no record has it, or the topic is deleted."""
        return None if self.partition_of(key) is None else self.ledger.isrs[key].get(partition_epoch)

    def least_min_isr(self, key: PartitionKey) -> int:
        """The smallest effective `min.insync.replicas` that the partition ever had."""
        return self._min_isr.get(key, 1)

    def _follow_metadata(self) -> None:
        if self._changes == self._place:
            return
        self._changes = self._place
        for key, epoch in self.ledger.unclean.items():
            self.records.elected_uncleanly(key, epoch)
            self.compaction.elected_uncleanly(key, epoch)
        image = self.ledger.image
        for topic_id, topic in image.topics.by_id.items():
            if topic.name in self._compacted_names:
                self._compacted[topic_id] = None
            if topic.name in self._unsequenced_names:
                self.records.unsequenced[topic_id] = None
            for number in range(len(topic.partitions)):
                key = (topic_id, number)
                partition = self.ledger.partition_of(key)
                if partition is not None:
                    for broker_id in self._replicas.get(key, ()):
                        if broker_id not in partition.replicas:
                            self._unassigned[broker_id, key] = None
                    self._replicas[key] = partition.replicas
                    wanted = self.ledger.min_isr_of(key)
                    self._min_isr[key] = min(wanted, self._min_isr.get(key, wanted))

    # Steps

    def started(self, member: Member, world: SimulatedQuorum) -> None:
        """A node has started."""
        super().started(member, world)
        if isinstance(member, DataBroker):
            before = self._lives.get(member.node_id)
            failures = member.disk.power_failures
            life = Life(power_failures=failures)
            if before is not None:
                life.lost_power = failures > before.power_failures or (before.lost_power and not before.has_loaded)
                life.was_failing = before.was_failing
                life.deleted_to |= {} if before.has_loaded else before.deleted_to
            life.deleted_to |= dict(_deletions(member))
            agent = member.agent
            assert agent is not None, member.node_id
            life.was_clean = agent.settings.options.previous_epoch >= 0
            self._lives[member.node_id] = life
            self.leaderships.began(member.node_id)

    def stepped(self, member: Member, outputs: list[Output], world: SimulatedQuorum) -> None:
        """A node has completed a step: look at its replicas, and at its answers to clients."""
        super().stepped(member, outputs, world)
        self._follow_metadata()
        if not isinstance(member, DataBroker):
            return
        manager, life = member.manager, self._lives[member.node_id]
        assert manager is not None, member.node_id
        host = world.hosts[member.node_id]
        life.was_failing = life.was_failing or host.is_disk_failing
        asking = member.take_asking()
        if manager.is_loaded:
            life.has_loaded = True
            if asking is not None:
                self._note_fetch(member.node_id, asking)
            self._look_at_replicas(member, manager, life)
            if world.is_calm:
                self._look_at_waits(member.node_id, manager, world)
            self._look_at_follower(member, manager, asking, world)
        for output in outputs:
            if type(output) is Administered and output.request_id >= FIRST_OF_RECORDS:
                response = output.response
                assert isinstance(response, Message), response
                self.answers[output.request_id] = response
                self.judged_id = output.request_id
                self._judge(member, host.administered[output.request_id], response)
            elif type(output) is SimulatedRequest and output.kind == ALTER_PARTITION:
                waiting = sum(one.kind == ALTER_PARTITION for one in host.waiting.values())
                self.leaderships.in_flight(member.node_id, waiting + 1)
                self._look_at_proposals(member.node_id, output.message)
        for told in member.take_told():
            self._look_at_told(member, manager, told)

    def _look_at_waits(self, broker_id: int, manager: ReplicaManager, world: SimulatedQuorum) -> None:
        """Look whether the partitions that a broker leads, or their producers, wait for something that never comes."""
        short: set[PartitionKey] = set()
        for key in list(manager.partitions):
            part, partition = manager.partitions.get(key), self.ledger.partition_of(key)
            if part is None or part.is_offline or not part.is_leader or partition is None:
                continue
            if len(partition.isr) < self.ledger.min_isr_of(key):
                short.add(key)
            elif part.leader_epoch == partition.leader_epoch:
                ends = {one: _end_at(world, one, key) for one in partition.isr}
                self._liveness.watermark(key, str(part), partition, part.log.high_watermark, ends, world.now_ms)
        waiting = [
            request_id
            for request_id, asked in world.hosts[broker_id].administered.items()
            if isinstance(asked, ProduceRequest) and short.isdisjoint(_partitions_in(asked, self.ledger.image))
        ]
        self._liveness.producers(broker_id, waiting, world.now_ms)

    def _look_at_replicas(self, member: DataBroker, manager: ReplicaManager, life: Life) -> None:
        """Look at the replicas that have changed. This runs after every step of a broker, mostly in vain."""
        compacted, known, parts = self._compacted, life.seen, manager.partitions
        for key, part in parts.items():
            if part.is_offline:
                continue
            log = part.log
            segments = log.segments
            last = segments[-1]
            state: tuple[object, ...] = (
                log.start_offset,
                log.end_offset,
                log.high_watermark,
                part.leader_epoch,
                part.leading is not None,
                len(segments),
                last.base_offset,
                last.batches.size_bytes,
                log.size_bytes if key[0] in compacted else 0,
            )
            seen = known.get(key)
            if seen is None or seen.part is not part:
                known[key] = self._load(member, part, state, life)
            elif seen.state != state or seen.epochs is not log.epochs or seen.log is not log:
                self._compare(member, part, state, seen)
            leading = part.leading
            belief = (leading, part.partition_epoch, part.leader_epoch, leading and leading.partition_epoch)
            if known[key].belief != belief:
                known[key].belief = belief
                self.leaderships.believes(_belief(member, part))
        if len(parts) < len(known):
            for key in [one for one in life.seen if manager.partitions.get(one) is None]:
                del life.seen[key]
                self.records.removed(member.node_id, key)
                self.compaction.removed(member.node_id, key)

    def _load(self, member: DataBroker, part: HostedPartition, state: tuple[object, ...], life: Life) -> _Seen:
        sizes, batches = _content(member, part)
        if (member.node_id, part.key) in self._unassigned:
            del self._unassigned[member.node_id, part.key]
            self.records.removed(member.node_id, part.key)
            self.compaction.removed(member.node_id, part.key)
        if part.key[0] in self._compacted:
            may_lose = (life.lost_power and not life.was_clean) or life.was_failing
            self._look_at_values(member, part, is_start=True, may_lose=may_lose)
            return _Seen(part, part.log, state, sizes, part.log.epochs)
        self.records.deleted(part.key, life.deleted_to.get(part.log.directory, 0))
        self.records.loaded(
            replica_of(member.node_id, part),
            batches,
            lost_power=life.lost_power,
            was_clean=life.was_clean,
            was_failing=life.was_failing,
        )
        self.records.moved(replica_of(member.node_id, part), len(batches), ())
        return _Seen(part, part.log, state, sizes, part.log.epochs)

    def _compare(self, member: DataBroker, part: HostedPartition, state: tuple[object, ...], seen: _Seen) -> None:
        if part.key[0] in self._compacted:
            self._look_at_values(member, part)
            seen.log, seen.state, seen.epochs = part.log, state, part.log.epochs
            return
        replica, log = replica_of(member.node_id, part), part.log
        before = self.records.held_by(member.node_id, part.key)
        sizes = {one.base_offset: one.batches.size_bytes for one in log.segments}
        last = max(seen.sizes)
        is_grown = seen.log is log and all(sizes.get(base) == size for base, size in seen.sizes.items() if base != last)
        if is_grown and sizes.get(last, -1) >= seen.sizes[last] and seen.epochs is log.epochs:
            added = [
                batch
                for segment in log.segments
                if segment.base_offset >= last
                for batch in stored_batches(
                    member.disk.files.peek(segment.batches.file.path)[seen.sizes.get(segment.base_offset, 0) :]
                )
            ]
            self.records.moved(replica, len(before), added)
        else:
            sizes, batches = _content(member, part)
            kept = 0
            for old, new in zip(before, batches, strict=False):
                if old.content != new.content:
                    break
                kept += 1
            self.records.moved(replica, kept, batches[kept:])
        seen.log, seen.state, seen.sizes, seen.epochs = log, state, sizes, log.epochs

    def batches_of(self, member: DataBroker, part: HostedPartition) -> list[StoredBatch]:
        """The batches in the files of a replica."""
        return _content(member, part)[1]

    def _look_at_values(
        self, member: DataBroker, part: HostedPartition, *, is_start: bool = False, may_lose: bool = False
    ) -> None:
        files = member.disk.files
        data = b"".join(files.peek(segment.batches.file.path) for segment in part.log.segments)
        self.compaction.looked(replica_of(member.node_id, part), data, is_start=is_start, may_lose=may_lose)

    # What leaders believe

    def _note_fetch(self, broker_id: int, asking: FetchRequest) -> None:
        """Tell the ledger from which offsets a follower fetches: so far it claims to have the records."""
        follower = asking.replica_state
        offsets = [
            ((topic.topic_id, one.partition), one.fetch_offset) for topic in asking.topics for one in topic.partitions
        ]
        self.leaderships.fetched(broker_id, follower.replica_id, follower.replica_epoch, offsets)

    def _look_at_follower(
        self, member: DataBroker, manager: ReplicaManager, asking: FetchRequest | None, world: SimulatedQuorum
    ) -> None:
        """Look at what a broker knows of itself, and of the follower whose Fetch has just arrived."""
        broker = member.broker
        assert broker is not None, member.node_id
        self.leaderships.registered(member.node_id, broker.agent.lifecycle.epoch)
        if asking is None:
            return
        follower = asking.replica_state
        registered = manager.hosting.image.brokers.by_id.get(follower.replica_id)
        now_ms = world.hosts[member.node_id].clock_ms(world.now_ms)
        for key, part in manager.partitions.items():
            leading = part.leading
            remote = None if leading is None else leading.remotes.get(follower.replica_id)
            fetch = (member.node_id, key, follower.replica_id)
            if remote is None or remote.fetched_ms != now_ms or self._counted.get(fetch) == now_ms:
                continue
            self._counted[fetch] = now_ms
            belief = _belief(member, part)
            self.leaderships.believes(belief)
            if registered is not None:
                self.leaderships.counted(belief, follower.replica_id, follower.replica_epoch, registered.epoch)

    def _look_at_proposals(self, broker_id: int, frame: object) -> None:
        assert isinstance(frame, Frame), frame
        request = frame.request()
        assert isinstance(request, AlterPartitionRequest), request
        for topic in request.topics:
            for one in topic.partitions:
                members = [
                    (each.broker_id, each.broker_epoch)
                    for each in one.new_isr_with_epochs
                    if each.broker_id != broker_id
                ]
                key = (topic.topic_id, one.partition_index)
                self.leaderships.proposed(broker_id, key, one.leader_epoch, members)

    def _look_at_told(self, member: DataBroker, manager: ReplicaManager, told: FetchResponse) -> None:
        for topic in told.responses:
            for one in topic.partitions:
                key = (topic.topic_id, one.partition_index)
                part = manager.partitions.get(key)
                if part is not None and part.leading is not None and one.error_code == Error.NONE:
                    self.leaderships.answered(member.node_id, key, str(part), part.leader_epoch, one.high_watermark)

    # Answers

    def _judge(self, member: DataBroker, request: Message, response: Message) -> None:
        manager = member.manager
        assert manager is not None, member.node_id
        match request, response:
            case ProduceRequest(), ProduceResponse():
                self._judge_produce(member, manager, request, response)
            case FetchRequest(topics=[topic]), FetchResponse(responses=[answered]) if not answered.topic:
                (asked,) = topic.partitions
                (data,) = answered.partitions
                part = self._in_ledger(manager, (topic.topic_id, asked.partition))
                if data.error_code == Error.NONE and part is not None:
                    aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
                    self.records.consumed_by_client(
                        replica_of(member.node_id, part),
                        asked.fetch_offset,
                        data.records or b"",
                        aborted if request.isolation_level == READ_COMMITTED else None,
                    )
            case WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse(markers=[marked]):
                self._judge_marker(member, manager, marker, marked)

    def _in_ledger(self, manager: ReplicaManager, key: PartitionKey) -> HostedPartition | None:
        """The replica of a partition, if it is online and the ledger of batches follows the topic."""
        part = None if key[0] in self._compacted else manager.partitions.get(key)
        return None if part is None or part.is_offline else part

    def _judge_marker(
        self, member: DataBroker, manager: ReplicaManager, sent: WritableTxnMarker, marked: WritableTxnMarkerResult
    ) -> None:
        (topic,) = marked.topics
        (answered,) = topic.partitions
        key = (self.ledger.image.topics.by_name.get(topic.name, Uuid.ZERO), answered.partition_index)
        part = self._in_ledger(manager, key)
        if answered.error_code in (Error.NONE, Error.INVALID_PRODUCER_EPOCH):
            self._end_batches(key, sent)
        if answered.error_code == Error.NONE and part is not None:
            is_committed = sent.transaction_result
            self.records.marked(
                replica_of(member.node_id, part), sent.producer_id, sent.producer_epoch, is_committed=is_committed
            )

    def _end_batches(self, key: PartitionKey, sent: WritableTxnMarker) -> None:
        """A marker ends the batches before it, also one that its producer has given up."""
        for batch in list(self._open):
            of, producer, epoch, _ = batch
            if of == key and producer == sent.producer_id and epoch < sent.producer_epoch:
                del self._open[batch]

    def _judge_produce(
        self, member: DataBroker, manager: ReplicaManager, request: ProduceRequest, response: ProduceResponse
    ) -> None:
        sent = {(one.topic_id, each.index): each.records for one in request.topic_data for each in one.partition_data}
        for topic in response.responses:
            for each in topic.partition_responses:
                key = (topic.topic_id, each.index)
                data = sent[key] or b""
                (batch,) = stored_batches(data)
                if request.acks == ALL and each.error_code in ENDINGS:
                    self._open.pop(_named(key, batch), None)
                part = self._in_ledger(manager, key)
                if each.error_code == Error.NONE and part is not None:
                    replica = replica_of(member.node_id, part)
                    self.records.answered(replica, each.base_offset, data, is_for_all=request.acks == ALL)

    def administering(self, request: Message) -> None:
        """A client is about to send a request."""
        super().administering(request)
        if isinstance(request, ProduceRequest) and request.acks == ALL:
            for topic in request.topic_data:
                for each in topic.partition_data:
                    (batch,) = stored_batches(each.records or b"")
                    named = _named((topic.topic_id, each.index), batch)
                    if batch.producer_id >= 0 and named not in self._produced:
                        self._produced[named] = self._open[named] = None

    # The end

    def unanswered(self, world: SimulatedQuorum) -> str:
        """The broker that has a Produce without an answer, whoever has sent that; empty if none."""
        for node_id, host in world.hosts.items():
            waiting = [number for number, asked in host.administered.items() if isinstance(asked, ProduceRequest)]
            if waiting:
                return f"broker {node_id} has not answered the Produce requests {waiting}"
        return ""

    def unsettled(self, world: SimulatedQuorum) -> str:
        """The requirement after the end of all faults that is not met yet; empty if none."""
        if self.is_writing:
            return f"the last records are not written: {self.not_whole(world)}"
        return self.unanswered(world) or self.not_whole(world)

    def not_whole(self, world: SimulatedQuorum) -> str:
        """Say what keeps the cluster from being whole, with all records on all replicas; empty if nothing does."""
        unsettled = super().unsettled(world)
        if unsettled:
            return unsettled
        partitions = self._partitions()
        for at, one in enumerate(partitions):
            unsettled = self._unsettled_partition(one, world)
            if unsettled:
                partitions.insert(0, partitions.pop(at))
                return unsettled
        return ""

    def _unsettled_partition(self, led: _Assigned, world: SimulatedQuorum) -> str:
        replicas = _hosted(led, world)
        if isinstance(replicas, str):
            return replicas
        if led.is_hopeless:
            return ""
        first = replicas[0]
        if any((one.end_offset, one.high_watermark) != (first.end_offset, first.end_offset) for one in replicas):
            return f"the replicas of {first.name} have not caught up: {'; '.join(map(str, replicas))}"
        waiting = [
            f"sequence {sequence} of producer {producer} in epoch {epoch}"
            for of, producer, epoch, sequence in self._open
            if of == led.key
        ]
        if waiting:
            return f"batches for {led.name} wait for an answer: {', '.join(waiting)}"
        for one in () if self._may_hang(led.key) else replicas:
            stable = self.records.stable_end(one.broker_id, led.key)
            if stable < one.high_watermark:
                return f"a transaction in {one.name} is open at offset {stable} on broker {one.broker_id}"
        return ""

    def _may_hang(self, key: PartitionKey) -> bool:
        """Whether nobody may be left who ends a transaction in a partition, as records are lost or not followed."""
        return key[0] in self._compacted or self.records.was_unclean(key)

    def concluded(self, world: SimulatedQuorum) -> None:
        """The run is over."""
        super().concluded(world)
        for led in self._partitions():
            if led.is_hopeless:
                continue
            replicas = _hosted(led, world)
            if isinstance(replicas, str) or {(one.end_offset, one.high_watermark) for one in replicas} != {
                (replicas[0].end_offset, replicas[0].end_offset)
            }:
                continue
            if led.key[0] in self._compacted:
                self.compaction.concluded(led.key, led.name, [one.broker_id for one in replicas])
            else:
                self.records.concluded(led.key, led.name, replicas)

    def _partitions(self) -> list[_Assigned]:
        """Every partition."""
        image = self.ledger.image
        if self._led[0] is not image:
            partitions = [
                _Assigned((topic.id, number), f"{topic.name}-{number}", partition.replicas, is_hopeless(partition))
                for topic in (image.topics[name] for name in image.topics)
                for number, partition in enumerate(topic.partitions)
            ]
            self._led = image, partitions
        return self._led[1]


def _hosted(led: _Assigned, world: SimulatedQuorum) -> list[Replica] | str:
    """The replicas of a partition, or why one of them is not there."""
    replicas = list[Replica]()
    for broker_id in led.replicas:
        member = world.hosts[broker_id].member
        assert isinstance(member, DataBroker), member
        part = None if member.manager is None else member.manager.partitions.get(led.key)
        if part is None or part.is_offline:
            return f"broker {broker_id} has no log of {led.name} that is online"
        replicas.append(replica_of(member.node_id, part))
    return replicas


def _deletions(member: DataBroker) -> Iterator[tuple[str, int]]:
    """The directories of logs with deleted old segments, and where the remaining segments begin."""
    files = member.disk.files
    for log_dir in member.log_dirs:
        for name in files.list(log_dir) if files.exists(log_dir) else ():
            if parse_partition_name(name) is None:
                continue
            directory = f"{log_dir}/{name}"
            names = files.list(directory)
            kept = [int(one.removesuffix(SUFFIX)) for one in names if one.endswith(SUFFIX)]
            gone = [int(one.removesuffix(DELETED)) for one in names if one.endswith(DELETED)]
            if kept and gone and min(gone) < min(kept):
                yield directory, min(kept)


def _content(member: DataBroker, part: HostedPartition) -> tuple[dict[int, int], list[StoredBatch]]:
    """The sizes of the segments of a replica, and the batches in its files."""
    sizes, batches = dict[int, int](), list[StoredBatch]()
    for segment in part.log.segments:
        sizes[segment.base_offset] = segment.batches.size_bytes
        batches += stored_batches(member.disk.files.peek(segment.batches.file.path))
    return sizes, batches


def _partitions_in(request: ProduceRequest, image: MetadataImage) -> list[PartitionKey]:
    asked = with_ids(request, image)
    assert isinstance(asked, ProduceRequest), asked
    return [(topic.topic_id, each.index) for topic in asked.topic_data for each in topic.partition_data]


def with_ids(message: Message, image: MetadataImage) -> Message:
    """A request to produce, or the answer, with the id of its only topic: that of an older client has the name."""
    match message:
        case ProduceRequest(topic_data=[topic]) if topic.name:
            topic_id = image.topics.by_name.get(topic.name, Uuid.ZERO)
            return structs.replace(message, topic_data=[structs.replace(topic, topic_id=topic_id)])
        case ProduceResponse(responses=[answered]) if answered.name:
            topic_id = image.topics.by_name.get(answered.name, Uuid.ZERO)
            return structs.replace(message, responses=[structs.replace(answered, topic_id=topic_id)])
    return message


def _end_at(world: SimulatedQuorum, broker_id: int, key: PartitionKey) -> int | None:
    """The end of the log of a replica; None if the broker is down, or the log is offline."""
    host = world.hosts[broker_id]
    member = host.member
    assert isinstance(member, DataBroker), member
    part = None if member.manager is None or not host.is_running else member.manager.partitions.get(key)
    return None if part is None or part.is_offline else part.log.end_offset


def _belief(member: DataBroker, part: HostedPartition) -> Belief:
    leading = part.leading
    if leading is None:
        return Belief(member.node_id, part.key, str(part), part.leader_epoch, part.partition_epoch)
    return Belief(
        member.node_id,
        part.key,
        str(part),
        leading.leader_epoch,
        max(leading.partition_epoch, part.partition_epoch),
        leading.isr,
        {one: Remote(remote.broker_epoch, remote.end_offset) for one, remote in leading.remotes.items()},
        is_leader=True,
    )


def replica_of(broker_id: int, part: HostedPartition) -> Replica:
    """Describe a replica for the invariants."""
    return Replica(
        broker_id=broker_id,
        key=part.key,
        name=str(part),
        start_offset=part.log.start_offset,
        end_offset=part.log.end_offset,
        high_watermark=part.log.high_watermark,
        leader_epoch=part.leader_epoch,
        is_leader=part.is_leader,
    )


def _named(key: tuple[Uuid, int], batch: StoredBatch) -> Batch:
    return key, batch.producer_id, batch.producer_epoch, batch.base_sequence
