"""The coordinators of the partitions that this broker leads, of one internal topic (Kafka: `CoordinatorRuntime`).

The owner says which partitions may have a new leader, and of which the high watermark may have moved; then `due` does
what is due: loads, timers, and the append of what the operations of a turn have written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from random import Random
from typing import Any, Final, Generic, TypeVar

from kraft.access.errors import ApiError
from kraft.broker.coordinator.budget import Budget
from kraft.broker.coordinator.partition import CoordinatorPartition, CoordinatorSettings, Done, Status
from kraft.broker.coordinator.shard import Operate, Shard
from kraft.broker.handling.coordinators import partition_of
from kraft.broker.log.outcomes import Appended, Refused
from kraft.broker.log.transaction_markers import TransactionMarker
from kraft.broker.partitions.hosted_partition import HostedPartition
from kraft.broker.partitions.key import PartitionKey
from kraft.broker.partitions.manager import ReplicaManager
from kraft.limits import COORDINATOR_UNITS_PER_TURN, TOPICS_COMPARED_PER_STEP
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, Uuid
from transport.protocol.errors import Error

S = TypeVar("S")
LOADS: Final = 1000
"""The loads that are remembered for the metrics."""
TRANSLATED: Final[Mapping[Error, Error]] = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
    Error.NETWORK_EXCEPTION: Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.MESSAGE_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
    Error.RECORD_LIST_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
    Error.INVALID_FETCH_SIZE: Error.UNKNOWN_SERVER_ERROR,
}
"""What a client is told for an error of the log (`GroupCoordinatorService.handleOperationException`)."""


class CoordinatorRuntime(Generic[S]):
    """The coordinators of one topic at one broker.

    Args:
        topic: The name of the internal topic.
        manager: The replicas of this broker.
        new_shard: Makes the coordinator of a partition, which this broker leads.
        settings: The settings.
        rng: The randomness.
    """

    def __init__(
        self,
        topic: str,
        manager: ReplicaManager,
        new_shard: Callable[[HostedPartition], Shard[S]],
        settings: CoordinatorSettings,
        rng: Random,
    ) -> None:
        self.topic = topic
        self.partitions: dict[int, CoordinatorPartition[S]] = {}
        """The partitions that this broker coordinates, by number."""
        self.loads: deque[tuple[int, int]] = deque(maxlen=LOADS)
        """When the last partitions were loaded, and how long each took, both in ms."""
        self._manager = manager
        self._new_shard = new_shard
        self._settings = settings
        self._rng = rng
        self._image = MetadataImage()
        self._count = 0
        """How many partitions the topic has."""
        self._budget = Budget()
        self._closing: deque[CoordinatorPartition[S]] = deque()
        """The partitions that this broker coordinates no longer, of which some requests are still to be answered."""
        self._answers: deque[Answer] = deque()
        self._woken: list[Hashable] = []
        self._next_ms = NEVER_MS
        """Nothing is due before."""
        self._compared = self._image.topics.by_name
        """The names of the topics that existed when deleted ones were last looked for."""
        self._comparing: Generator[None, None, None] | None = None
        self._watched: dict[PartitionKey, CoordinatorPartition[S]] = {}
        """The partitions with operations that wait for the high watermark."""

    # ---------------------------------------------------------------------------------------------- what has happened

    def use(self, image: MetadataImage) -> None:
        """New metadata, by which the next operations act."""
        before, self._image = self._image, image
        if image.topics is before.topics:
            return
        topic_id = image.topics.by_name.get(self.topic)
        self._count = 0 if topic_id is None else len(image.topics.by_id[topic_id].partitions)
        for one in self.partitions.values():
            one.image = image
        if not self.partitions:
            self._compared = image.topics.by_name
        elif self._compared is not image.topics.by_name:
            self._next_ms = 0

    def on_leaders(self, keys: Iterable[PartitionKey], now_ms: int) -> None:
        """The leaders of these partitions may have changed: load what is led in a new epoch, unload what is not led."""
        for key in keys:
            part = self._manager.partitions.get(key)
            known = self.partitions.get(key[1])
            if known is not None and known.part.key == key:
                if part is known.part and part.is_leader and part.leader_epoch == known.leader_epoch:
                    continue
                self._close(known, now_ms)
            if part is not None and part.topic == self.topic and not part.is_offline and part.is_leader:
                self._open(part, now_ms)

    def _open(self, part: HostedPartition, now_ms: int) -> None:
        self.partitions[part.number] = CoordinatorPartition(
            part, self._manager, self._new_shard(part), self._settings, self._rng, self._answer, self._budget, now_ms
        )
        self._next_ms = now_ms

    def _close(self, known: CoordinatorPartition[S], now_ms: int) -> None:
        del self.partitions[known.part.number]
        self._watched.pop(known.part.key, None)
        known.close(now_ms)
        self._closing.append(known)
        self._next_ms = min(self._next_ms, now_ms)

    def is_watching(self, changed: Mapping[PartitionKey, int]) -> bool:
        """Whether operations wait for a change of one of these partitions."""
        return bool(self._watched) and not self._watched.keys().isdisjoint(changed)

    def on_changes(self, changed: Iterable[PartitionKey], now_ms: int) -> None:
        """The high watermarks of these partitions may have moved."""
        if not self._watched:
            return
        for key in changed:
            known = self._watched.get(key)
            if known is not None:
                known.advance(now_ms)
                self._note(known)

    # ------------------------------------------------------------------------------------------------------ operations

    def number_of(self, name: str) -> int:
        """The partition of a group or a transactional id; -1 while the topic is missing."""
        return partition_of(name, self._count) if self._count else -1

    def active(self, number: int) -> CoordinatorPartition[S] | Error:
        """The coordinator of a partition, or why it does not answer."""
        known = self.partitions.get(number)
        if known is None or known.status is Status.FAILED:
            return Error.NOT_COORDINATOR
        return known if known.status is Status.ACTIVE else Error.COORDINATOR_LOAD_IN_PROGRESS

    def readable(self, number: int) -> CoordinatorPartition[S] | Error:
        """The coordinator of a partition, for a look at what is committed.

        A new leader may be behind with the high watermark. Kafka's then tells less than was acknowledged before; here a
        client asks again.
        """
        known = self.active(number)
        if isinstance(known, Error) or known.is_readable:
            return known
        return Error.COORDINATOR_LOAD_IN_PROGRESS

    def run(self, number: int, operate: Operate, done: Done, now_ms: int) -> None:
        """Do an operation on a partition; `done` takes the result, or what a client is told of its error."""

        def ended(result: Any) -> None:
            done(result.error if isinstance(result, ApiError) else result)

        self._run(number, operate, ended, now_ms)

    def _run(self, number: int, operate: Operate, done: Done, now_ms: int) -> None:
        """As `run`, but `done` takes the refusal of a shard with its text."""
        known = self.active(number)
        if isinstance(known, Error):
            done(known)
            return

        def ended(result: Any) -> None:
            done(TRANSLATED.get(result, result) if isinstance(result, Error) else result)

        known.run(operate, ended, now_ms)
        self._note(known)

    def write(
        self, number: int, request: WireRequest, operate: Operate, refuse: Callable[[ApiError], Message], now_ms: int
    ) -> Answer | None:
        """Do an operation of which the result is the answer to a request.

        Args:
            number: The partition.
            request: The request.
            operate: The operation; its result is a message, or `HELD`.
            refuse: The answer with an error, and with the text that a shard has for it.
            now_ms: The time in ms since 1970.

        Returns:
            The answer; None if it comes later, from `due`.
        """
        found: list[Answer] = []
        is_later = False

        def done(result: Any) -> None:
            refused = ApiError(result) if isinstance(result, Error) else result
            message = refuse(refused) if isinstance(refused, ApiError) else refused
            (self._answers if is_later else found).append(Answer(request.request_id, message))

        self._run(number, operate, done, now_ms)
        is_later = True
        return found[0] if found else None

    def append_marker(self, part: HostedPartition, marker: TransactionMarker, now_ms: int) -> Appended | Refused | None:
        """Append the end of a transaction to a partition, and replay it; None if nobody has the partition in memory."""
        known = self.partitions.get(part.number) if part.topic == self.topic else None
        if known is None or known.part is not part or known.status is not Status.ACTIVE:
            return None
        done = known.append_marker(marker, now_ms)
        self._note(known)
        return done

    def _answer(self, request: WireRequest, message: Message) -> None:
        self._answers.append(Answer(request.request_id, message))

    def answer(self, request: WireRequest, message: Message) -> None:
        """Answer a request that takes several operations; `due` returns the answer."""
        self._answer(request, message)

    def wake(self, key: Hashable) -> None:
        """A request that waits for this key may go on."""
        self._woken.append(key)

    def take_changes(self) -> list[Hashable]:
        """The keys of requests that wait, and may go on."""
        woken, self._woken = self._woken, []
        return woken

    def _note(self, known: CoordinatorPartition[S]) -> None:
        """Something has happened to a partition."""
        self._next_ms = min(self._next_ms, known.deadline_ms())
        if known.is_uncommitted:
            self._watched[known.part.key] = known
        elif self._watched:
            self._watched.pop(known.part.key, None)

    # ------------------------------------------------------------------------------------------------------------ time

    def deadline_ms(self) -> int:
        """When `due` has something."""
        return 0 if self._answers or self._woken else self._next_ms

    def due(self, now_ms: int) -> Iterator[Answer]:
        """Do what is due, and return the answers to requests that waited."""
        if now_ms >= self._next_ms:
            self._work(now_ms)
        self._budget.renew()
        answers = self._answers
        for _ in range(min(len(answers), COORDINATOR_UNITS_PER_TURN)):
            yield answers.popleft()

    def _looking_for_deleted(self, now_ms: int) -> Generator[None, None, None]:
        """Tell the coordinators which topics do not exist any more."""
        before, self._compared = self._compared, self._image.topics.by_name
        after, deleted = self._compared, dict[str, Uuid]()
        for number, (name, topic_id) in enumerate(before.items(), 1):
            if after.get(name) != topic_id:
                deleted[name] = topic_id
            if number % TOPICS_COMPARED_PER_STEP == 0:
                yield None
        if deleted:
            for one in self.partitions.values():
                if one.status is Status.ACTIVE:
                    one.shard.on_deleted_topics(deleted, one.context(now_ms))

    def _work(self, now_ms: int) -> None:
        has_loaded, next_ms = False, NEVER_MS
        while self._closing and not self._budget.is_spent and self._closing[0].close_more():
            self._closing.popleft()
        if self._comparing is None and self._compared is not self._image.topics.by_name:
            self._comparing = self._looking_for_deleted(now_ms)
        if self._comparing is not None:
            try:
                next(self._comparing)
                next_ms = now_ms
            except StopIteration:
                self._comparing = None
                if self._compared is not self._image.topics.by_name:
                    # More has changed meanwhile.
                    next_ms = now_ms
        for number, one in list(self.partitions.items()):
            if one.status is Status.LOADING and not has_loaded:
                has_loaded = True
                if one.load_more(self._image, now_ms):
                    self.loads.append((now_ms, now_ms - one.began_ms))
                    # The high watermark may have moved meanwhile, and may still move.
                    one.advance(now_ms)
                    self._note(one)
                # The others go on before it does.
                self.partitions[number] = self.partitions.pop(number)
            elif one.status is Status.ACTIVE:
                one.tick(now_ms)
                if self._budget.is_spent:
                    # The others come first in the next turn.
                    self.partitions[number] = self.partitions.pop(number)
                one.flush(now_ms)
                if one.is_stale:
                    self._close(one, now_ms)
                    self.on_leaders([one.part.key], now_ms)
                    next_ms = 0
                    continue
                self._note(one)
            next_ms = min(next_ms, one.deadline_ms())
        if self._closing:
            next_ms = now_ms
        # Other requests have their turns between two steps.
        self._next_ms = max(next_ms, now_ms + 1) if has_loaded or self._budget.is_spent else next_ms
