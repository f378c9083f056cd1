"""Members of groups and transactional workers of one run, all drawn from its seed: what they send, and what an answer
means to them.

Each client is a generator of requests and pauses (`kraft.sim.workloads.client_steps`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from random import Random
from typing import Final

from msgspec import Struct

from kraft.invariants.cluster_model import PartitionKey
from kraft.invariants.groups import decoded_assignment, encoded_assignment, mark
from kraft.invariants.transactions import Attempt, content
from kraft.sim.workloads.client_steps import PATIENCE_MS, Ask, Asking, Pause, Step, Steps
from kraft.sim.workloads.coordinator_watch import INPUT, OUTPUT, TRANSFORMERS
from kraft.sim.workloads.record_clients import ALL
from kraft.sim.world.host import START_MS
from metadata_log.image import MetadataImage
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from transport.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from transport.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from transport.protocol.messages.delete_groups import DeleteGroupsRequest
from transport.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from transport.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from transport.protocol.messages.heartbeat import HeartbeatRequest
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from transport.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from transport.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from transport.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from transport.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from transport.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

REBALANCE_MS: Final = 2000
CLIENT_RETRY_MS: Final = 100
GROUP: Final = 0
TRANSACTION: Final = 1
_PROTOCOL: Final = "by-turns"
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2
"""The member epochs of members that leave; a static one comes back."""
PLAIN_PRODUCE: Final = 11
PLAIN_ADDING: Final = 3
PLAIN_OFFSETS: Final = 3
PLAIN_COMMIT: Final = 4
PLAIN_END: Final = 4
"""The last versions of the requests of clients that keep their epoch (transaction version 1)."""
_LEAVES: Final = 0.01
_MIGRATES: Final = 0.06
"""How often a member leaves, before each turn, and one of a mixed group, which changes its protocol by that."""
_LATE: Final = 0.15
"""How often something late arrives, before each turn of a client."""
_OUT: Final = frozenset(
    (
        *(Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH),
        *(Error.UNRELEASED_INSTANCE_ID, Error.FENCED_INSTANCE_ID, Error.GROUP_ID_NOT_FOUND),
    )
)
"""The answers after which a member of a consumer group begins anew."""
LOST: Final = frozenset((Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS))
"""The answers after which a client looks for the coordinator again."""
_AGAIN: Final = LOST | frozenset(
    (
        *(Error.CONCURRENT_TRANSACTIONS, Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_ID),
        *(Error.NOT_ENOUGH_REPLICAS, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Error.REQUEST_TIMED_OUT),
        *(Error.KAFKA_STORAGE_ERROR, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NETWORK_EXCEPTION),
        Error.UNSTABLE_OFFSET_COMMIT,
    )
)
"""The answers after which a producer sends the same again."""


class Identity(Struct, frozen=True):
    """The producer id and the epoch that an instance has."""

    producer_id: int
    epoch: int


class World(Struct):
    """The knowledge of the clients of one run, and their deeds."""

    image: MetadataImage
    now_ms: int = 0
    regex: str = ""
    """The regular expression by which members of consumer groups want the inputs; empty if they name the topic."""
    is_over: bool = False
    """Whether all faults have ended: no client goes silent any more."""
    commits: dict[tuple[str, int], None] = {}
    """The partitions by group with an acknowledged commit since then."""
    ends: dict[str, None] = {}
    """The workers with a committed transaction since then."""

    @property
    def input_id(self) -> Uuid | None:
        """The topic of the inputs; None before there is one."""
        return self.image.topics.by_name.get(INPUT)

    @property
    def input_count(self) -> int:
        """How many partitions the topic of inputs has."""
        topic_id = self.input_id
        return 0 if topic_id is None else len(self.image.topics.by_id[topic_id].partitions)


class Client:
    """The common part of all clients: a coordinator that they look for."""

    def __init__(self, rng: Random, world: World, kind: int, name: str) -> None:
        self._rng = rng
        self._world = world
        self._kind = kind
        self._name = name
        self._node: int | None = None

    def coordinated(self, request: Message, patience_ms: int = PATIENCE_MS, *, version: int | None = None) -> Asking:
        """Ask the coordinator, once it is known."""
        if self._node is None:
            reply = yield Ask(None, FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[self._name]))
            match reply:
                case FindCoordinatorResponse(coordinators=[one]) if one.error_code == Error.NONE:
                    self._node = one.node_id
                case _:
                    yield Pause(CLIENT_RETRY_MS)
                    return None
        answer = yield Ask(self._node, request, patience_ms, version)
        if answer is None or error_of(answer) in LOST:
            self._node = None
        return answer

    def _pause(self, mean_ms: int) -> Pause:
        return Pause(1 + int(self._rng.expovariate(1 / mean_ms)))


def error_of(answer: Message) -> Error:
    """The error of an answer, or of its only part."""
    match answer:
        case OffsetCommitResponse(topics=[topic, *_]) | TxnOffsetCommitResponse(topics=[topic, *_]):
            return Error.of(topic.partitions[0].error_code)
        case OffsetFetchResponse(groups=[group]):
            return Error.of(group.error_code)
        case ProduceResponse(responses=[produced]):
            return Error.of(produced.partition_responses[0].error_code)
        case AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[added]):
            return Error.of(added.results_by_partition[0].partition_error_code)
        case _:
            return Error.of(getattr(answer, "error_code", 0))


class _Member(Client):
    """The common part of the members of both kinds of groups: partitions, and positions in them."""

    def __init__(self, rng: Random, world: World, group: str, name: int, *, is_mixed: bool = False) -> None:
        super().__init__(rng, world, GROUP, group)
        self._is_mixed = is_mixed
        self._leaves = _MIGRATES if is_mixed else _LEAVES
        self._member_id = ""
        self._epoch = -1
        self._positions: dict[int, int] = {}
        """The position in each partition that the member owns."""
        self._count = 0
        self._mean_ms = rng.choice((50, 150, 400))
        self._instance_id = f"static-{name}" if rng.random() < 0.4 else None
        self._former: list[tuple[str, int, dict[int, int]]] = []
        """The ids and epochs in which the member was somebody else, each with positions."""
        self._silence = rng.choice((0.0, 0.01, 0.03))
        """How often the member goes silent, for longer than its session."""

    def _fetch(self, numbers: Iterable[int]) -> Generator[Step, Message | None, bool]:
        """Look up the committed offsets of partitions; returns whether that was possible."""
        wanted, topic_id = sorted(numbers), self._world.input_id
        if not wanted or topic_id is None:
            return True
        topics = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=wanted)]
        group = OffsetFetchRequestGroup(self._name, self._member_id, self._epoch, topics)
        answer = yield from self.coordinated(
            OffsetFetchRequest(groups=[group], require_stable=self._rng.random() < 0.5)
        )
        match answer:
            case OffsetFetchResponse(groups=[found]) if found.error_code == Error.NONE:
                parts = [each for topic in found.topics for each in topic.partitions]
                if all(each.error_code == Error.NONE for each in parts):
                    self._positions |= {each.partition_index: max(0, each.committed_offset) for each in parts}
                    return True
        return False

    def _commit(self, numbers: Iterable[int]) -> Generator[Step, Message | None, Error | None]:
        """Commit further positions; returns the error, None without an answer."""
        wanted, topic_id = sorted(numbers), self._world.input_id
        if not wanted or topic_id is None:
            return Error.NONE
        self._count += 1
        offsets = {one: self._positions[one] + self._rng.choice((0, 1, 1, 5)) for one in wanted}
        # Whatever the answer: a commit that could not be replicated in time may be later.
        self._positions |= offsets
        answer = yield from self.coordinated(self._committing(topic_id, self._member_id, self._epoch, offsets))
        if answer is None:
            return None
        error = error_of(answer)
        if error is Error.NONE and self._world.is_over:
            self._world.commits |= {(self._name, one): None for one in wanted}
        return error

    def _committing(self, topic_id: Uuid, member_id: str, epoch: int, offsets: dict[int, int]) -> OffsetCommitRequest:
        text = mark(member_id, epoch, self._count)
        parts = [OffsetCommitRequestPartition(one, offset, -1, text) for one, offset in offsets.items()]
        return OffsetCommitRequest(
            group_id=self._name,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=self._instance_id,
            topics=[OffsetCommitRequestTopic(topic_id=topic_id, partitions=parts)],
        )

    def _retire(self) -> None:
        """Remember what the member is until now."""
        if self._positions:
            self._former = [*self._former[-3:], (self._member_id, self._epoch, dict(self._positions))]

    def _speak_late(self) -> Steps:
        """Something that the member has sent as somebody else arrives only now. The coordinator refuses it."""
        topic_id = self._world.input_id
        if self._world.is_over or topic_id is None or not self._former or self._rng.random() > _LATE:
            return
        member_id, epoch, positions = self._rng.choice(self._former)
        if (member_id, epoch) != (self._member_id, self._epoch):
            self._count += 1
            yield from self.coordinated(self._late(topic_id, member_id, epoch, positions))

    def _late(self, topic_id: Uuid, member_id: str, epoch: int, positions: dict[int, int]) -> Message:
        return self._committing(topic_id, member_id, epoch, positions)

    def _wanted(self) -> list[int]:
        """The partitions for the next commit: in the end those without one."""
        if self._world.is_over:
            return [one for one in self._positions if (self._name, one) not in self._world.commits]
        return [one for one in self._positions if self._rng.random() < 0.6]

    def _silent(self) -> Pause | None:
        if not self._world.is_over and self._rng.random() < self._silence:
            return Pause(self._rng.choice((1000, 3000, 6000)))
        return None


class ClassicMember(_Member):
    """A member of a classic group."""

    session_ms: Final = 2000

    def steps(self) -> Steps:
        """Join, own partitions, commit; and again."""
        while True:
            yield from self.life()

    def life(self) -> Steps:
        """Take part until the member is out of the group."""
        while True:
            if (yield from self._join()):
                yield from self._work()
            else:
                yield self._pause(CLIENT_RETRY_MS)
            if not self._member_id:
                return

    def _join(self) -> Generator[Step, Message | None, bool]:
        """Join the next generation; returns whether the member has an assignment."""
        protocol = JoinGroupRequestProtocol(_PROTOCOL, _subscription())
        request = JoinGroupRequest(
            group_id=self._name,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        answer = yield from self.coordinated(request, 3 * REBALANCE_MS)
        if not isinstance(answer, JoinGroupResponse):
            return False
        if answer.error_code != Error.NONE:
            is_told = answer.error_code == Error.MEMBER_ID_REQUIRED
            if is_told or answer.error_code in (Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID):
                self._member_id = answer.member_id if is_told else ""
            return (yield from self._join()) if is_told else False
        self._retire()
        self._member_id, self._epoch, self._positions = answer.member_id, answer.generation_id, {}
        count = self._world.input_count
        ids = [one.member_id for one in answer.members]
        shares = {one: [number for number in range(count) if number % len(ids) == at] for at, one in enumerate(ids)}
        answer = yield from self.coordinated(
            SyncGroupRequest(
                group_id=self._name,
                generation_id=self._epoch,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type="consumer",
                protocol_name=_PROTOCOL,
                assignments=[
                    SyncGroupRequestAssignment(one, encoded_assignment({INPUT: numbers}))
                    for one, numbers in shares.items()
                ],
            ),
            3 * REBALANCE_MS,
        )
        if not isinstance(answer, SyncGroupResponse) or answer.error_code != Error.NONE:
            if answer is not None and error_of(answer) in (Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID):
                self._member_id = ""
            return False
        return (yield from self._begin([number for _, number in decoded_assignment(bytes(answer.assignment))]))

    def _begin(self, numbers: list[int]) -> Generator[Step, Message | None, bool]:
        for _ in range(20):
            if (yield from self._fetch(numbers)):
                return True
            yield self._pause(CLIENT_RETRY_MS)
        return False

    def _work(self) -> Steps:
        """Take part in a generation, until it ends for this member."""
        while True:
            yield self._silent() or self._pause(self._mean_ms)
            yield from self._speak_late()
            if not self._world.is_over and self._rng.random() < self._leaves:
                yield from self._leave()
                return
            wanted = self._wanted()
            if wanted and self._rng.random() < 0.5:
                error = yield from self._commit(wanted)
                if error is None:
                    # The commit may still arrive. Nobody commits after it in this generation.
                    self._member_id = ""
                    return
            else:
                request = HeartbeatRequest(self._name, self._epoch, self._member_id, self._instance_id)
                answer = yield from self.coordinated(request)
                error = Error.NONE if answer is None else error_of(answer)
            if error in (Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION, Error.FENCED_INSTANCE_ID):
                self._member_id = ""
                return
            if error is Error.REBALANCE_IN_PROGRESS:
                return

    def _leave(self) -> Steps:
        # Close, as clients do: a static member comes back, and takes its partitions from its former self.
        if self._instance_id is None:
            leaving = MemberIdentity(self._member_id)
            yield from self.coordinated(LeaveGroupRequest(group_id=self._name, members=[leaving]))
        self._retire()
        self._member_id = ""
        yield self._pause(1000)

    def _late(self, topic_id: Uuid, member_id: str, epoch: int, positions: dict[int, int]) -> Message:
        drawn = self._rng.random()
        if drawn < 0.5 and not (self._is_mixed and self._has_outlived(member_id, epoch)):
            return super()._late(topic_id, member_id, epoch, positions)
        if drawn < 0.7:
            return HeartbeatRequest(self._name, epoch, member_id, self._instance_id)
        return SyncGroupRequest(
            group_id=self._name,
            generation_id=epoch,
            member_id=member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
        )

    def _has_outlived(self, member_id: str, epoch: int) -> bool:
        """Whether a member was in a later epoch, too. A consumer group takes its commits of both (KIP-1251): a late one
        replaces a newer offset, as in Kafka.
        """
        epochs = [later for one, later, _ in self._former if one == member_id]
        return member_id == self._member_id or max(epochs) > epoch


def _subscription() -> bytes:
    """The subscription of a consumer of the inputs (`ConsumerProtocolSubscription`, version 0)."""
    name = INPUT.encode()
    return b"\0\0" + (1).to_bytes(4, "big") + len(name).to_bytes(2, "big") + name + (-1).to_bytes(4, "big", signed=True)


class ConsumerMember(_Member):
    """A member of a consumer group (KIP-848)."""

    def steps(self) -> Steps:
        """Join, reconcile, commit; and again under another id."""
        while True:
            yield from self.life()

    def life(self) -> Steps:
        """Take part under a new id, until the member is out of the group."""
        self._retire()
        self._member_id, self._epoch, self._positions = str(Uuid(self._rng.randbytes(16))), 0, {}
        yield from self._work()
        yield self._pause(CLIENT_RETRY_MS)

    def _work(self) -> Steps:
        while True:
            wanted = self._wanted() if self._epoch > 0 else []
            if wanted and self._rng.random() < 0.5:
                error = yield from self._commit(wanted)
                if error is None or error in _OUT:
                    return
            elif not (yield from self._beat()):
                return
            yield self._silent() or self._pause(self._mean_ms)
            yield from self._speak_late()
            if self._epoch > 0 and not self._world.is_over and self._rng.random() < self._leaves:
                yield from self.coordinated(
                    ConsumerGroupHeartbeatRequest(
                        group_id=self._name,
                        member_id=self._member_id,
                        instance_id=self._instance_id,
                        member_epoch=LEAVES if self._instance_id is None else LEAVES_FOR_A_WHILE,
                    )
                )
                yield self._pause(1000)
                return

    def _beat(self) -> Generator[Step, Message | None, bool]:
        """Tell the coordinator what the member owns, and take what it may own; returns whether it is a member."""
        topic_id = self._world.input_id
        if topic_id is None:
            return True
        is_new = self._epoch == 0
        says = is_new or self._rng.random() < 0.1
        owned = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id, sorted(self._positions))]
        answer = yield from self.coordinated(
            ConsumerGroupHeartbeatRequest(
                group_id=self._name,
                member_id=self._member_id,
                member_epoch=self._epoch,
                instance_id=self._instance_id,
                rebalance_timeout_ms=REBALANCE_MS,
                subscribed_topic_names=[INPUT] if not self._world.regex and says else None,
                subscribed_topic_regex=self._world.regex if self._world.regex and says else None,
                topic_partitions=[] if is_new or not self._positions else owned,
            )
        )
        if not isinstance(answer, ConsumerGroupHeartbeatResponse):
            return True
        if answer.error_code in _OUT:
            return False
        if answer.error_code != Error.NONE:
            return True
        self._epoch = answer.member_epoch
        if answer.assignment is None:
            return True
        now = {number for one in answer.assignment.topic_partitions for number in one.partitions}
        revoked = [one for one in self._positions if one not in now]
        if revoked and self._rng.random() < 0.5 and (yield from self._commit(revoked)) is None:
            return False
        for one in revoked:
            del self._positions[one]
        for _ in range(20):
            if (yield from self._fetch(now - self._positions.keys())):
                return True
            yield self._pause(CLIENT_RETRY_MS)
        return False


class MixedMember:
    """A member of a group of both kinds: whenever it comes back, it may be of the other protocol. A static member takes
    its partitions along.
    """

    def __init__(self, rng: Random, world: World, group: str, name: int) -> None:
        self._rng = rng
        self._classic = ClassicMember(rng, world, group, name, is_mixed=True)
        self._consumer = ConsumerMember(rng, world, group, name, is_mixed=True)
        self._consumer._instance_id = self._classic._instance_id

    def steps(self) -> Steps:
        """One life after the other."""
        while True:
            yield from self._rng.choice((self._classic, self._consumer)).life()


class Observer(Client):
    """Somebody who looks at the committed offsets of a group, and belongs to none."""

    def steps(self) -> Steps:
        """Look now and then."""
        while not self._world.is_over:
            yield self._pause(100)
            topic_id, count = self._world.input_id, self._world.input_count
            if topic_id is not None:
                topics = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=list(range(count)))]
                groups = [OffsetFetchRequestGroup(group_id=self._name, topics=topics)]
                is_stable = self._rng.random() < 0.5
                yield from self.coordinated(OffsetFetchRequest(groups=groups, require_stable=is_stable))


class Remover(Client):
    """An operator who deletes a group or its offsets now and then. It is refused while members want them."""

    def steps(self) -> Steps:
        """Delete now and then."""
        while not self._world.is_over:
            yield self._pause(400)
            parts = [OffsetDeleteRequestPartition(one) for one in range(self._world.input_count)]
            topics = [OffsetDeleteRequestTopic(INPUT, parts)]
            yield from self.coordinated(
                DeleteGroupsRequest([self._name])
                if self._rng.random() < 0.5 or not parts
                else OffsetDeleteRequest(self._name, topics)
            )


class Worker(Client):
    """One instance of a transactional id: it transforms inputs, and commits their offsets with the outputs. A `plain`
    one is a client from before KIP-890: it keeps its epoch, and adds partitions itself.
    """

    def __init__(
        self, rng: Random, world: World, name: str, number: int, instance: int, *, is_plain: bool = False
    ) -> None:
        super().__init__(rng, world, TRANSACTION, name)
        self._number = number
        self._instance = f"{name}.{instance}"
        self._offsets = Client(rng, world, GROUP, TRANSFORMERS)
        self._is_last = instance == 0
        """Whether this instance goes on in the end."""
        self._producer_id = self._epoch = -1
        self._is_plain = is_plain
        self._sequences: dict[PartitionKey, int] = {}
        """The next sequence number in each partition, which only a new epoch begins anew."""
        self._position = 0
        self._count = 0
        self._ended: tuple[Identity, bool] | None = None
        """The producer of the last transaction with an end, and whether it was a commit."""
        self._former: list[Identity] = []
        """The producers that this instance was before, whose transactions are over in all partitions."""
        self._timeout_ms = rng.choice((1000, 3000, 10_000))
        self._silence = rng.choice((0.0, 0.02, 0.1))
        self._mean_ms = rng.choice((20, 50, 150))

    def steps(self) -> Steps:
        """Fence the other instances, and make transactions until another one fences this."""
        yield self._pause(2000)
        while not self._world.is_over or (self._is_last and self._name not in self._world.ends):
            if (yield from self._initialize()) and (yield from self._look()) and (yield from self._write_outside()):
                while (yield from self._transact()):
                    yield self._pause(self._mean_ms)
                    yield from self._speak_late()
                yield from self._speak_late()
            elif not self._world.is_over:
                yield self._pause(CLIENT_RETRY_MS)
                continue
            yield self._pause(CLIENT_RETRY_MS if self._world.is_over else self._rng.choice((100, 3000, 6000)))

    def _initialize(self) -> Generator[Step, Message | None, bool]:
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=self._timeout_ms)
        answer = yield from self.coordinated(request)
        match answer:
            case InitProducerIdResponse(error_code=Error.NONE):
                # The answer comes once everything before is over.
                self._former = [*self._former[-3:], Identity(self._producer_id, self._epoch)]
                self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                self._sequences = {}
                return True
        return False

    def _write_outside(self) -> Generator[Step, Message | None, bool]:
        """A batch before the first transaction of an epoch changes nothing; returns whether that is certain.

        After the end of a transaction, a partition that has no marker yet would take the batch, as in Kafka.
        """
        rng, topic_id = self._rng, self._world.image.topics.by_name.get(OUTPUT)
        if not self._is_plain or self._world.is_over or topic_id is None or rng.random() < 0.5:
            return True
        self._count += 1
        attempt = Attempt(f"{self._instance}#{self._count} outside", self._name, self._position, self._position + 1)
        key = topic_id, rng.randrange(len(self._world.image.topics.by_id[topic_id].partitions))
        producer = Identity(self._producer_id, self._epoch)
        answer = yield Ask(key, self._producing(key, attempt, producer), version=PLAIN_PRODUCE)
        return answer is not None and error_of(answer) is not Error.NONE

    def _speak_late(self) -> Steps:
        """Something from a former life of the producer arrives only now. It changes nothing."""
        rng, topic_id = self._rng, self._world.image.topics.by_name.get(OUTPUT)
        if self._world.is_over or topic_id is None or rng.random() > _LATE:
            return
        if self._ended is not None and rng.random() < 0.3:
            producer, was_commit = self._ended
            commits = was_commit if rng.random() < 0.3 else not was_commit
            yield from self.coordinated(EndTxnRequest(self._name, producer.producer_id, producer.epoch, commits))
            return
        former = [one for one in self._former if one.producer_id >= 0]
        if not former:
            return
        producer, end = rng.choice(former), self._position + 1
        self._count += 1
        attempt = Attempt(f"{self._instance}#{self._count} late", self._name, self._position, end)
        if rng.random() < 0.3:
            yield from self._offsets.coordinated(self._committing(attempt, producer))
        elif rng.random() < 0.3:
            ending = EndTxnRequest(self._name, producer.producer_id, producer.epoch, True)
            yield from self.coordinated(ending, version=PLAIN_END if self._is_plain else None)
        else:
            key = topic_id, rng.randrange(len(self._world.image.topics.by_id[topic_id].partitions))
            yield Ask(key, self._producing(key, attempt, producer))

    def _look(self) -> Generator[Step, Message | None, bool]:
        """Read on from the committed offset."""
        for _ in range(20):
            topic_id = self._world.input_id
            if topic_id is not None:
                topics = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[self._number])]
                group = OffsetFetchRequestGroup(group_id=TRANSFORMERS, topics=topics)
                answer = yield from self._offsets.coordinated(OffsetFetchRequest(groups=[group], require_stable=True))
                match answer:
                    case OffsetFetchResponse(groups=[found]) if found.error_code == Error.NONE:
                        ((part,),) = [topic.partitions for topic in found.topics]
                        if part.error_code == Error.NONE:
                            self._position = max(0, part.committed_offset)
                            return True
            yield self._pause(CLIENT_RETRY_MS)
        return False

    def _transact(self) -> Generator[Step, Message | None, bool]:
        """One transaction; returns whether the producer may begin another one."""
        if self._world.is_over and (not self._is_last or self._name in self._world.ends):
            return False
        self._count += 1
        rng, image = self._rng, self._world.image
        topic_id = image.topics.by_name.get(OUTPUT)
        if topic_id is None:
            return False
        end = self._position + rng.choice((1, 1, 3))
        attempt = Attempt(f"{self._instance}#{self._count}", self._name, self._position, end)
        parts: list[int | None] = [*range(len(image.topics.by_id[topic_id].partitions)), None]
        rng.shuffle(parts)
        if self._is_plain and not (yield from self._add(len(parts) - 1)):
            return False
        for one in parts:
            is_done = (
                (yield from self._add_offsets(attempt))
                if one is None
                else (yield from self._produce((topic_id, one), attempt))
            )
            if not is_done:
                return False
            if not self._world.is_over and rng.random() < self._silence:
                yield Pause(rng.choice((300, 2000, 5000)))
        commits = self._world.is_over or rng.random() < 0.75
        if not (yield from self._end(commits=commits)):
            return False
        if commits:
            self._position = end
            if self._world.is_over:
                self._world.ends[self._name] = None
        return True

    def _add(self, count: int) -> Generator[Step, Message | None, bool]:
        """Add the partitions of the outputs, and the group, as the older clients do."""
        producer_id, epoch = self._producer_id, self._epoch
        topics = [AddPartitionsToTxnTopic(OUTPUT, list(range(count)))]
        adding = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )
        requests: list[tuple[Message, int]] = [
            (adding, PLAIN_ADDING),
            (AddOffsetsToTxnRequest(self._name, producer_id, epoch, TRANSFORMERS), PLAIN_OFFSETS),
        ]
        for request, version in requests:
            for _ in range(10):
                answer = yield from self.coordinated(request, version=version)
                error = None if answer is None else error_of(answer)
                if error is Error.NONE:
                    break
                if error is not None and error not in _AGAIN:
                    return False
                yield self._pause(CLIENT_RETRY_MS)
            else:
                return False
        return True

    def _produce(self, key: PartitionKey, attempt: Attempt) -> Generator[Step, Message | None, bool]:
        request = self._producing(key, attempt, Identity(self._producer_id, self._epoch))
        for _ in range(10):
            answer = yield Ask(key, request, version=PLAIN_PRODUCE if self._is_plain else None)
            error = None if answer is None else error_of(answer)
            if error is Error.NONE:
                if self._is_plain:
                    self._sequences[key] = self._sequences.get(key, 0) + 1
                return True
            if error is not None and error not in _AGAIN:
                return False
            yield self._pause(CLIENT_RETRY_MS)
        return False

    def _producing(self, key: PartitionKey, attempt: Attempt, producer: Identity) -> ProduceRequest:
        name, value = content(attempt)
        data = write_batch(
            [Record(0, START_MS + self._world.now_ms, 0, name, value)],
            epoch=-1,
            transactional=True,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=self._sequences.get(key, 0) if producer.epoch == self._epoch else 0,
        )
        topic = TopicProduceData(name=OUTPUT, topic_id=key[0], partition_data=[PartitionProduceData(key[1], data)])
        return ProduceRequest(transactional_id=self._name, acks=ALL, timeout_ms=1500, topic_data=[topic])

    def _committing(self, attempt: Attempt, producer: Identity) -> TxnOffsetCommitRequest:
        topic_id = self._world.input_id
        assert topic_id is not None, attempt
        part = TxnOffsetCommitRequestPartition(self._number, attempt.end, -1, attempt.name)
        return TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=TRANSFORMERS,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=[TxnOffsetCommitRequestTopic(INPUT, topic_id, [part])],
        )

    def _add_offsets(self, attempt: Attempt) -> Generator[Step, Message | None, bool]:
        request = self._committing(attempt, Identity(self._producer_id, self._epoch))
        for _ in range(10):
            answer = yield from self._offsets.coordinated(request, version=PLAIN_COMMIT if self._is_plain else None)
            error = None if answer is None else error_of(answer)
            if error is Error.NONE:
                return True
            if error is not None and error not in _AGAIN:
                return False
            yield self._pause(CLIENT_RETRY_MS)
        return False

    def _end(self, *, commits: bool) -> Generator[Step, Message | None, bool]:
        """End the transaction; the same request again until there is an answer, or another instance has the id."""
        request = EndTxnRequest(self._name, self._producer_id, self._epoch, commits)
        for _ in range(20):
            answer = yield from self.coordinated(request, version=PLAIN_END if self._is_plain else None)
            if isinstance(answer, EndTxnResponse):
                error = Error.of(answer.error_code)
                if error is Error.NONE and self._is_plain:
                    return True
                if error is Error.NONE:
                    # A later transaction has begun since the end of the last one, so that end is known everywhere.
                    self._former = [*self._former[-3:], *([self._ended[0]] if self._ended is not None else [])]
                    self._ended = Identity(self._producer_id, self._epoch), commits
                    self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                    return True
                if error not in _AGAIN:
                    return False
            yield self._pause(CLIENT_RETRY_MS)
        return False
