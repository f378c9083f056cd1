"""Members of share groups of one run, and a producer, all drawn from its seed: what they send, and what an answer means
to them.

Each client is a generator of requests and pauses (`kraft.sim.workloads.client_steps`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import groupby
from random import Random
from typing import Final

from msgspec import Struct

from kraft.invariants.cluster_model import PartitionKey
from kraft.invariants.shares import ACCEPT, GAP, REJECT, RELEASE, RENEW
from kraft.sim.workloads.client_steps import Ask, HangUp, Pause, Step, Steps
from kraft.sim.workloads.coordinator_clients import CLIENT_RETRY_MS, GROUP, Client, World
from kraft.sim.workloads.record_clients import ALL
from kraft.sim.world.host import START_MS
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import share_acknowledge as acknowledged
from transport.protocol.messages import share_fetch as fetched
from transport.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from transport.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

LEAVES: Final = -1
FINAL_EPOCH: Final = -1
MEMBER_IDS: Final = 36
_OUT: Final = frozenset((Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH, Error.GROUP_ID_NOT_FOUND))
"""The answers after which a member begins anew."""
_KINDS: Final = (ACCEPT, RELEASE, REJECT, GAP, RENEW)
_MAX_BYTES: Final = 1 << 20


class ShareWorld(World):
    """The knowledge of the clients of one run."""

    begins_ms: int = 1 << 60
    """When members join: every broker has the settings of their groups by then."""

    def leader_of(self, key: PartitionKey) -> int:
        """The leader of a partition; -1 without one."""
        topic = self.image.topics.by_id.get(key[0])
        return -1 if topic is None or key[1] >= len(topic.partitions) else topic.partitions[key[1]].leader


class _Session(Struct):
    """The session of a member with a leader."""

    partitions: dict[PartitionKey, None]
    epoch: int = 0


class _Held(Struct):
    """Records that a member has, with what becomes of them."""

    kinds: dict[int, int] = {}
    """How each will be acknowledged, by offset."""


class ShareMember(Client):
    """One member of a share group after the other, of the same process."""

    def __init__(self, rng: Random, world: ShareWorld, group: str) -> None:
        super().__init__(rng, world, GROUP, group)
        self._shares = world
        self._member_id = ""
        self._epoch = 0
        self._assigned: dict[PartitionKey, None] = {}
        self._leaders: dict[PartitionKey, int] = {}
        self._sessions: dict[int, _Session] = {}
        self._held: dict[PartitionKey, _Held] = {}
        self._former: list[tuple[str, int, PartitionKey, int, int]] = []
        """Records that it had under former ids: the member, the broker, the partition, and both ends."""
        self._mean_ms = rng.choice((20, 60, 200))
        self._silence = rng.choice((0.0, 0.01, 0.04))
        self._leaves = rng.choice((0.0, 0.01, 0.03))
        self._weights = rng.choice(((90, 5, 3, 1, 1), (60, 25, 5, 2, 8), (40, 50, 5, 0, 5)))
        """How often records are accepted, released, rejected, passed over and renewed."""
        self._forgets = rng.choice((0.0, 0.05, 0.3))
        """How often a record is left to its lock."""
        self._mode = rng.randrange(2)
        self._most = rng.choice((1, 4, 20, 500))

    def steps(self) -> Steps:
        """One life after the other."""
        while self._shares.now_ms < self._shares.begins_ms:
            yield Pause(50)
        while True:
            yield from self._life()
            yield self._pause(CLIENT_RETRY_MS)

    def _life(self) -> Steps:
        """Take part under a new id, until the member is out of the group."""
        self._member_id, self._epoch = str(Uuid(self._rng.randbytes(16))), 0
        self._assigned, self._sessions, self._held = {}, {}, {}
        while True:
            if (not self._assigned or self._rng.random() < 0.2) and not (yield from self._beat()):
                return
            yield self._silent() or self._pause(self._mean_ms)
            yield from self._speak_late()
            if not self._world.is_over and self._rng.random() < self._leaves:
                yield from self._leave()
                return
            yield from self._consume()

    def _silent(self) -> Pause | None:
        if not self._world.is_over and self._rng.random() < self._silence:
            return Pause(self._rng.choice((500, 1000, 3000)))
        return None

    # The group

    def _beat(self) -> Generator[Step, Message | None, bool]:
        """Tell the coordinator of the member, and take what it may consume; returns whether it is a member."""
        says = self._epoch == 0 or self._rng.random() < 0.1
        names = [
            name for name, topic_id in self._world.image.topics.by_name.items() if topic_id == self._world.input_id
        ]
        answer = yield from self.coordinated(
            ShareGroupHeartbeatRequest(
                group_id=self._name,
                member_id=self._member_id,
                member_epoch=self._epoch,
                subscribed_topic_names=names if says else None,
            )
        )
        if not isinstance(answer, ShareGroupHeartbeatResponse):
            return True
        if answer.error_code in _OUT:
            return False
        if answer.error_code == Error.NONE:
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                listed = answer.assignment.topic_partitions
                self._assigned = {(one.topic_id, number): None for one in listed for number in one.partitions}
        return True

    def _leave(self) -> Steps:
        """Go away, with or without a word to the leaders and to the coordinator."""
        for node_id, session in list(self._sessions.items()):
            if self._rng.random() < 0.5:
                yield HangUp(node_id, self._member_id)
            elif self._rng.random() < 0.7 and session.epoch > 0:
                acks = self._acks(session, renews=False)
                yield Ask(node_id, self._acknowledging(FINAL_EPOCH, acks, renews=False))
        for key, held in self._held.items():
            if held.kinds:
                first, last = min(held.kinds), max(held.kinds)
                self._former = [*self._former[-3:], (self._member_id, self._leader(key), key, first, last)]
        if self._rng.random() < 0.7:
            yield from self.coordinated(
                ShareGroupHeartbeatRequest(group_id=self._name, member_id=self._member_id, member_epoch=LEAVES)
            )
        yield self._pause(500)

    # Records

    def _leader(self, key: PartitionKey) -> int:
        """The leader of a partition as the member knows it, which may be a former one."""
        if self._leaders.get(key, -1) < 0 or self._rng.random() < 0.05:
            self._leaders[key] = self._shares.leader_of(key)
        return self._leaders[key]

    def _consume(self) -> Steps:
        """Turn to one leader: acknowledge what the member is done with, and ask for more."""
        by_leader: dict[int, dict[PartitionKey, None]] = {}
        for key in self._assigned:
            by_leader.setdefault(self._leader(key), {})[key] = None
        by_leader.pop(-1, None)
        if not by_leader:
            return
        node_id = self._rng.choice(list(by_leader))
        session = self._sessions.get(node_id)
        if session is None:
            session = self._sessions[node_id] = _Session({})
        if session.epoch > 0 and self._rng.random() < 0.4:
            renews = self._rng.random() < 0.5
            acks = self._acks(session, renews=renews)
            if acks:
                request: Message = self._acknowledging(session.epoch, acks, renews=renews)
                yield from self._take(node_id, session, acks, (yield Ask(node_id, request)))
                return
        acks = self._acks(session, renews=False) if session.epoch > 0 else {}
        request = self._fetching(session, by_leader[node_id], acks)
        yield from self._take(node_id, session, acks, (yield Ask(node_id, request)))

    def _acks(self, session: _Session, *, renews: bool) -> dict[PartitionKey, list[tuple[int, int, list[int]]]]:
        """The acknowledgements that are due at a leader, which the member then holds no more."""
        due: dict[PartitionKey, list[tuple[int, int, list[int]]]] = {}
        for key in session.partitions:
            held = self._held.get(key)
            if held is None:
                continue
            chosen = [
                (offset, kind)
                for offset, kind in sorted(held.kinds.items())
                if (renews or kind != RENEW) and (self._world.is_over or self._rng.random() < 0.7)
            ]
            for offset, kind in chosen:
                if kind == RENEW:
                    held.kinds[offset] = ACCEPT
                else:
                    del held.kinds[offset]
            if chosen:
                due[key] = list(self._ranges(chosen))
        return due

    def _ranges(self, chosen: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int, list[int]]]:
        """Neighbours as one range, with one kind if all have the same."""
        for _, neighbours in groupby(enumerate(chosen), key=lambda one: one[1][0] - one[0]):
            run = [one for _, one in neighbours]
            kinds = [kind for _, kind in run]
            is_plain = len(set(kinds)) == 1 and self._rng.random() < 0.5
            yield run[0][0], run[-1][0], kinds[:1] if is_plain else kinds

    def _acknowledging(
        self, epoch: int, acks: dict[PartitionKey, list[tuple[int, int, list[int]]]], *, renews: bool
    ) -> acknowledged.ShareAcknowledgeRequest:
        return acknowledged.ShareAcknowledgeRequest(
            group_id=self._name,
            member_id=self._member_id,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=[
                acknowledged.AcknowledgeTopic(
                    topic_id,
                    [
                        acknowledged.AcknowledgePartition(
                            number, [acknowledged.AcknowledgementBatch(*one) for one in ranges]
                        )
                    ],
                )
                for (topic_id, number), ranges in acks.items()
            ],
        )

    def _fetching(
        self,
        session: _Session,
        wanted: dict[PartitionKey, None],
        acks: dict[PartitionKey, list[tuple[int, int, list[int]]]],
    ) -> fetched.ShareFetchRequest:
        named = {**dict.fromkeys(one for one in wanted if one not in session.partitions), **dict.fromkeys(acks)}
        forgotten = [one for one in session.partitions if one not in wanted and one not in acks]
        for one in forgotten:
            del session.partitions[one]
        session.partitions |= dict.fromkeys(named)
        return fetched.ShareFetchRequest(
            group_id=self._name,
            member_id=self._member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=self._rng.choice((0, 50, 300)),
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            max_records=self._most,
            batch_size=self._rng.choice((1, self._most)),
            share_acquire_mode=self._mode,
            topics=[
                fetched.FetchTopic(
                    key[0],
                    [fetched.FetchPartition(key[1], [fetched.AcknowledgementBatch(*one) for one in acks.get(key, ())])],
                )
                for key in named
            ],
            forgotten_topics_data=[fetched.ForgottenTopic(key[0], [key[1]]) for key in forgotten],
        )

    def _take(
        self,
        node_id: int,
        session: _Session,
        acks: dict[PartitionKey, list[tuple[int, int, list[int]]]],
        answer: Message | None,
    ) -> Steps:
        """Take the answer of a leader. Without one, nobody knows the epoch of the session."""
        if not isinstance(answer, fetched.ShareFetchResponse | acknowledged.ShareAcknowledgeResponse):
            del self._sessions[node_id]
            self._leaders.clear()
            if not self._world.is_over and self._rng.random() < 0.5:
                yield HangUp(node_id, self._member_id)
            return
        if answer.error_code != Error.NONE:
            del self._sessions[node_id]
            self._restore(acks)
            return
        session.epoch += 1
        for topic in answer.responses:
            for part in topic.partitions:
                key = topic.topic_id, part.partition_index
                if part.error_code != Error.NONE:
                    self._leaders.pop(key, None)
                if isinstance(part, fetched.PartitionData):
                    self._hold(key, part)

    def _restore(self, acks: dict[PartitionKey, list[tuple[int, int, list[int]]]]) -> None:
        """Nothing of this was done."""
        for key, ranges in acks.items():
            held = self._held.setdefault(key, _Held())
            for first, last, kinds in ranges:
                for at, offset in enumerate(range(first, last + 1)):
                    held.kinds[offset] = kinds[at] if len(kinds) > 1 else kinds[0]

    def _hold(self, key: PartitionKey, part: fetched.PartitionData) -> None:
        held = self._held.setdefault(key, _Held())
        for one in part.acquired_records:
            for offset in range(one.first_offset, one.last_offset + 1):
                if self._world.is_over:
                    held.kinds[offset] = ACCEPT
                elif self._rng.random() >= self._forgets:
                    (held.kinds[offset],) = self._rng.choices(_KINDS, self._weights)

    def _speak_late(self) -> Steps:
        """Something that the member has sent as somebody else arrives only now. The leader refuses it."""
        if self._world.is_over or not self._former or self._rng.random() > 0.05:
            return
        member_id, node_id, key, first, last = self._rng.choice(self._former)
        if node_id < 0:
            return
        own, self._member_id = self._member_id, member_id
        opening = self._fetching(_Session({}), {key: None}, {})
        acks = {key: [(first, last, [self._rng.choice((ACCEPT, RELEASE, REJECT))])]}
        speaking = self._acknowledging(1, acks, renews=False)
        self._member_id = own
        yield Ask(node_id, opening)
        yield Ask(node_id, speaking)


class ShareProducer:
    """Writes records, as many batches as it has answers for."""

    def __init__(self, rng: Random, world: ShareWorld, name: str) -> None:
        self._rng = rng
        self._world = world
        self._name = name
        self._count = 0
        self._mean_ms = rng.choice((50, 150, 400))

    def steps(self) -> Steps:
        """Write batch after batch, until all faults end."""
        while not self._world.is_over:
            yield Pause(1 + int(self._rng.expovariate(1 / self._mean_ms)))
            topic_id = self._world.input_id
            if topic_id is None or self._world.is_over:
                continue
            key = topic_id, self._rng.randrange(self._world.input_count)
            count = self._rng.choice((1, 1, 2, 6))
            self._count += count
            records = [
                Record(at, START_MS + self._world.now_ms, 0, None, f"{self._name} {self._count - at}".encode())
                for at in range(count)
            ]
            data = write_batch(records, epoch=-1, producer_id=-1, producer_epoch=-1, base_sequence=-1)
            topic = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(key[1], data)])
            yield Ask(key, ProduceRequest(acks=ALL, timeout_ms=1000, topic_data=[topic]))
