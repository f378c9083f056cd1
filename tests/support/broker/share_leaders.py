"""Brokers that lead share partitions, in virtual time; the test keeps the states that share coordinators would keep."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.access.authorizer import AuthorizerSettings
from kraft.config.group_settings import GroupConfig, ShareLeaderConfig
from kraft.coordinators.shares.persister import (
    NO_OFFSET,
    PersistedState,
    PersistedWrite,
    ShareKey,
    StateBatch,
    Summary,
)
from kraft.handling.reply_keys import LettersSent
from kraft.wire import Answer, Outcome, Send, WireRequest
from metadata_log.records.metadata import ConfigRecord, FeatureLevelRecord
from metadata_log.serde import Message, schema_of
from metadata_log.types import NEVER_MS
from support.broker.request_brokers import BROKERS, Brokers, NewTopic, wire_request
from transport.protocol.errors import Error
from transport.protocol.inbound import ANONYMOUS, Principal
from transport.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from transport.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from transport.protocol.messages.share_fetch import (
    AcknowledgementBatch as FetchedBatch,
)
from transport.protocol.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)

GROUP: Final = 32
"""The resource type of the configuration of a group."""
_FIRST_LETTER: Final = 9_000_000
"""The id of the first request to a dead-letter queue."""
START_MS: Final = 1_795_882_550_000
"""After the records that were captured from Kafka's clients."""
Ranges = tuple[tuple[int, int, list[int]], ...]
"""Acknowledged offsets with their types."""


class Kept(Struct):
    """The state of a share partition at its coordinator."""

    state_epoch: int
    leader_epoch: int
    start: int
    offsets: dict[int, tuple[int, int]] = {}
    """By offset the count of deliveries, and the state."""

    def batches(self) -> tuple[StateBatch, ...]:
        """The states from the start on; neighbours with the same one are joined."""
        joined: list[StateBatch] = []
        for at, (count, state) in sorted(self.offsets.items()):
            if at < self.start:
                continue
            last = joined[-1] if joined else None
            if last is not None and (last.last_offset + 1, last.delivery_state, last.delivery_count) == (
                at,
                state,
                count,
            ):
                joined[-1] = StateBatch(last.first_offset, at, state, count)
            else:
                joined.append(StateBatch(at, at, state, count))
        return tuple(joined)


class MemoryPersister:
    """The share coordinators of a cluster as one object. Answers wait until the test lets them come."""

    def __init__(self) -> None:
        self.states: dict[ShareKey, Kept] = {}
        self.writes: list[tuple[ShareKey, PersistedWrite]] = []
        self.answers: deque[Callable[[int], None]] = deque()
        self.failing: Error = Error.NONE
        """The error of all writes."""
        self.holds = False
        """Whether answers wait."""

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: int, now_ms: int, then: Callable[[Error, int], None]
    ) -> None:
        """Begin a state."""
        self.states[key] = Kept(state_epoch, 0, start_offset)
        self.answers.append(lambda at: then(Error.NONE, at))

    def read(
        self, key: ShareKey, leader_epoch: int, now_ms: int, then: Callable[[PersistedState | Error, int], None]
    ) -> None:
        """Read a state."""
        kept = self.states.get(key)
        result: PersistedState | Error
        if kept is None:
            result = Error.INVALID_REQUEST
        elif leader_epoch < kept.leader_epoch:
            result = Error.FENCED_LEADER_EPOCH
        else:
            kept.leader_epoch = leader_epoch
            result = PersistedState(kept.state_epoch, kept.start, kept.batches())
        self.answers.append(lambda at: then(result, at))

    def write(self, key: ShareKey, written: PersistedWrite, now_ms: int, then: Callable[[Error, int], None]) -> None:
        """Write a change: more deliveries win, then the larger state."""
        kept, error = self.states[key], self.failing
        if error is Error.NONE and written.leader_epoch < kept.leader_epoch:
            error = Error.FENCED_LEADER_EPOCH
        if error is Error.NONE:
            self.writes.append((key, written))
            kept.start = max(kept.start, written.start_offset)
            for each in written.batches:
                for offset in range(each.first_offset, each.last_offset + 1):
                    new = each.delivery_count, each.delivery_state
                    kept.offsets[offset] = max(kept.offsets.get(offset, new), new)
        self.answers.append(lambda at: then(error, at))

    def summary(
        self, key: ShareKey, leader_epoch: int, now_ms: int, then: Callable[[Summary | Error, int], None]
    ) -> None:
        """No leader of a share partition asks for it."""
        raise AssertionError(key)

    def delete(self, key: ShareKey, now_ms: int, then: Callable[[Error, int], None]) -> None:
        """No leader of a share partition asks for it."""
        raise AssertionError(key)

    # Beside the interface

    def use(self, image: object) -> None:
        """The metadata says nothing to it."""

    def due(self, image: object, broker_epoch: int, now_ms: int) -> tuple[()]:
        """It sends nothing."""
        return ()


class ShareBrokers:
    """Brokers with topics, and members of share groups that ask them.

    Args:
        topics: The topics.
        authorizer: The settings of an authorizer; None if everything is allowed.
        settings: The settings of share groups at the brokers.
    """

    def __init__(self, topics: list[NewTopic], authorizer: AuthorizerSettings | None = None, **settings: Any) -> None:
        config = GroupConfig(share_leader=ShareLeaderConfig(**settings))
        self.brokers = Brokers(topics, now_ms=START_MS, groups=config, authorizer=authorizer)
        self.persister = MemoryPersister()
        self.answered: dict[int, Message] = {}
        self.letters: list[ProduceRequest] = []
        """The requests to dead-letter queues."""
        self.refusing: dict[int, Error | None] = {}
        """By its number in `letters`, the error of a request to a dead-letter queue; None if it is lost."""
        self.holds_letters = False
        """Whether requests to dead-letter queues stay on their way."""
        self.sends: list[Send] = []
        """The other requests to nodes."""
        self._carried: list[tuple[int, Send]] = []
        """The requests to dead-letter queues on their way, with the brokers that have sent them."""
        self._asked: dict[int, tuple[int, Hashable]] = {}
        self._last_id = 5_000_000
        for one in BROKERS:
            self.brokers.requests[one]._persister = self.persister  # type: ignore[assignment]
        self.brokers.change(FeatureLevelRecord(name="share.version", feature_level=1))

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.brokers.now_ms

    def configure(self, group_id: str, **values: str) -> None:
        """Set the configuration of a group; a name is written with underscores."""
        self.brokers.change(
            *(
                ConfigRecord(resource_type=GROUP, resource_name=group_id, name=name.replace("_", "."), value=value)
                for name, value in values.items()
            )
        )

    def begin(self, group_id: str, topic: NewTopic, *, start: int = NO_OFFSET, epoch: int = 2) -> None:
        """Begin the states of a topic for a group."""
        for number in range(len(topic.partitions)):
            self.persister.states[ShareKey(group_id, topic.id, number)] = Kept(epoch, 0, start)

    def send(
        self,
        broker_id: int,
        message: Message,
        *,
        connection: str = "m:1",
        version: int | None = None,
        principal: Principal = ANONYMOUS,
    ) -> int:
        """Pass a request of a connection to a broker; returns the id of the request."""
        api_key = schema_of(type(message)).api_key
        assert api_key is not None
        self._last_id += 1
        latest = {0: 8, 78: 2, 79: 2}
        request = wire_request(
            self._last_id, api_key, latest[api_key] if version is None else version, message, principal=principal
        )
        request = replace(request, peer=connection)
        self._take(self._handle(broker_id, request))
        self.settle()
        return self._last_id

    def _handle(self, broker_id: int, request: WireRequest) -> Outcome | None:
        return self.brokers.requests[broker_id].on_request(request, self.brokers.image, self.now_ms)

    def _take(self, outcome: Outcome | None) -> None:
        if outcome is not None:
            assert isinstance(outcome, Answer), outcome
            self.answered[outcome.request_id] = outcome.message

    def settle(self) -> None:
        """Do all that is due now."""
        is_moving = True
        while is_moving:
            is_moving = False
            while self.persister.answers and not self.persister.holds:
                self.persister.answers.popleft()(self.now_ms)
                is_moving = True
            for one in BROKERS:
                if self.brokers.due_ms(one) <= self.now_ms:
                    is_moving = True
                    for outcome in self.brokers.poll(one):
                        self._take(outcome)
                    for send in self.brokers.due(one):
                        if isinstance(send.reply_to.key, LettersSent):
                            self._carried.append((one, send))
                        else:
                            self.sends.append(send)
            if self._carried and not self.holds_letters:
                is_moving = True
                self._carry(*self._carried.pop(0))
            for request_id in [each for each in self._asked if each in self.answered]:
                is_moving = True
                broker_id, key = self._asked.pop(request_id)
                self.brokers.requests[broker_id].on_reply(key, self.answered.pop(request_id), self.now_ms)

    def _carry(self, sender: int, send: Send) -> None:
        """Bring a request to the leader of a dead-letter queue."""
        request = send.message
        assert isinstance(request, ProduceRequest), send
        number, key = len(self.letters), send.reply_to.key
        self.letters.append(request)
        if number in self.refusing:
            error = self.refusing[number]
            answers = [TopicProduceResponse(partition_responses=[PartitionProduceResponse(error_code=error or 0)])]
            answer = None if error is None else ProduceResponse(answers)
            self.brokers.requests[sender].on_reply(key, answer, self.now_ms)
            return
        assert send.target is not None, send
        request_id = _FIRST_LETTER + number
        self._asked[request_id] = sender, key
        self._take(self._handle(send.target.node_id, wire_request(request_id, 0, 13, request)))

    def wait(self, until_ms: int) -> None:
        """Let time pass, and do what is due at its time."""
        while (at := min(self.brokers.due_ms(one) for one in BROKERS)) <= until_ms:
            assert at < NEVER_MS
            self.brokers.now_ms = max(self.now_ms, at)
            self.settle()
        self.brokers.now_ms = until_ms
        self.settle()

    def ask(self, broker_id: int, message: Message, *, connection: str = "m:1", version: int | None = None) -> Any:
        """The answer to a request, with the time that it takes."""
        request_id = self.send(broker_id, message, connection=connection, version=version)
        while request_id not in self.answered:
            at = min(self.brokers.due_ms(one) for one in BROKERS)
            assert at < NEVER_MS, "nothing is due, and there is no answer"
            self.wait(max(at, self.now_ms))
        return self.answered.pop(request_id)

    def close(self, broker_id: int, connection: str = "m:1") -> None:
        """Close a connection."""
        self.brokers.requests[broker_id].on_closed("PLAINTEXT", connection)
        self.settle()


def share_fetch(
    topic: NewTopic,
    epoch: int = 0,
    *,
    numbers: tuple[int, ...] = (0,),
    acks: Ranges = (),
    group: str = "g",
    member: str = "m",
    wait_ms: int = 100,
    most: int = 500,
    batch_size: int = 500,
    **fields: Any,
) -> ShareFetchRequest:
    """A ShareFetch; the acknowledgements are of each partition."""
    batches = [FetchedBatch(first, last, types) for first, last, types in acks]
    partitions = [FetchPartition(number, batches) for number in numbers]
    values: dict[str, Any] = {"min_bytes": 1, "max_bytes": 1 << 20, **fields}
    return ShareFetchRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=wait_ms,
        max_records=most,
        batch_size=batch_size,
        topics=[FetchTopic(topic.id, partitions)] if epoch == 0 or acks else [],
        **values,
    )


def share_acknowledge(
    topic: NewTopic,
    epoch: int,
    *acks: tuple[int, int, list[int]],
    number: int = 0,
    group: str = "g",
    member: str = "m",
    **fields: Any,
) -> ShareAcknowledgeRequest:
    """A ShareAcknowledge of one partition."""
    batches = [AcknowledgementBatch(first, last, types) for first, last, types in acks]
    topics = [AcknowledgeTopic(topic.id, [AcknowledgePartition(number, batches)])] if acks else []
    return ShareAcknowledgeRequest(group_id=group, member_id=member, share_session_epoch=epoch, topics=topics, **fields)


def acquired(response: Any) -> list[tuple[int, int, int, int]]:
    """The number of the partition, and first, last and count, of what a member has been given."""
    return [
        (part.partition_index, one.first_offset, one.last_offset, one.delivery_count)
        for topic in response.responses
        for part in topic.partitions
        for one in part.acquired_records
    ]
