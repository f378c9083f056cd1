"""The coordinators of the partitions that this broker leads, of one internal topic (Kafka: `CoordinatorRuntime`).

The owner says which partitions may have a new leader, and of which the high watermark may have moved; then `due` does
what is due: loads, timers, and the append of what the operations of a turn have written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable
from random import Random
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kraft.access.errors import ApiError
from kraft.agenda import Agenda, Slot
from kraft.coordinators.runtime.budget import Budget
from kraft.coordinators.runtime.settings import CoordinatorSettings, Status
from kraft.handling.coordinators import partition_of, partition_of_hash
from kraft.limits import (
    COORDINATOR_RECORDS_PER_STEP,
    COORDINATOR_UNITS_PER_TURN,
    LOADS_NOTED,
    REMEMBERED_CHARACTERS,
    REMEMBERED_NAMES,
    TOPICS_COMPARED_PER_STEP,
)
from kraft.partitions.log.outcomes import Appended, RefusedAppend
from kraft.partitions.log.transaction_markers import TransactionMarker
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer
from metadata_log.image import MetadataImage
from metadata_log.types import NEVER_MS, Uuid
from transport.protocol.errors import Error

if TYPE_CHECKING:
    from kraft.coordinators.runtime.partition import CoordinatorPartition
    from kraft.coordinators.runtime.shard import Operation, Shard

S = TypeVar("S")
_UNITS_PER_LOAD: Final = 2 * COORDINATOR_RECORDS_PER_STEP
"""The units of a turn that a step of a load takes."""


def refused(operation: Operation, error: Error) -> Answer | None:
    """The answer to the request of an operation that is refused before any partition has seen it."""
    message = operation.refuse(ApiError(error))
    return None if message is None or operation.request is None else Answer(operation.request.request_id, message)


class CoordinatorRuntime(Generic[S]):
    """The coordinators of one topic at one broker.

    Args:
        agenda: What is due at the broker.
        topic: The name of the internal topic.
        manager: The replicas of this broker.
        new_shard: Makes the coordinator of a partition, which this broker leads.
        settings: The settings.
        rng: The randomness.
        budget: What the coordinators of the broker, of all topics, may still do in this turn. The owner renews it when
            `due` has been called.
    """

    def __init__(
        self,
        agenda: Agenda,
        topic: str,
        manager: ReplicaManager,
        new_shard: Callable[[HostedPartition], Shard[S]],
        settings: CoordinatorSettings,
        rng: Random,
        budget: Budget,
    ) -> None:
        self.topic = topic
        self.partitions: dict[int, CoordinatorPartition[S]] = {}
        """The partitions that this broker coordinates, by number."""
        self.loads: deque[tuple[int, int]] = deque(maxlen=LOADS_NOTED)
        """When the last partitions were loaded, and how long each took, both in ms."""
        self._agenda = agenda
        self._manager = manager
        self._new_shard = new_shard
        self._settings = settings
        self._rng = rng
        self._image = MetadataImage()
        self._count = 0
        """How many partitions the topic has."""
        self._budget = budget
        self._closing: deque[CoordinatorPartition[S]] = deque()
        """The partitions that this broker coordinates no longer, of which some requests are still to be answered."""
        self._answers: deque[Answer] = deque()
        self._woken: list[Hashable] = []
        self._touched: dict[int, CoordinatorPartition[S]] = {}
        """The partitions with something to do at once, by number; whoever has waited longest comes first."""
        self._timed_ms = NEVER_MS
        """No other partition has something to do before."""
        self.next_ms = NEVER_MS
        """When `due` has something, as the agenda knows it too: a time in the past for at once."""
        self._numbers: dict[str, int] = {}
        """The partitions of names that clients have used."""
        self._compared = self._image.topics.by_name
        """The names of the topics that existed when deleted ones were last looked for."""
        self._comparing: Generator[None, None, None] | None = None
        self.is_spent = False
        """Whether the last marker has left no room in its turn."""
        self.watched: dict[PartitionKey, CoordinatorPartition[S]] = {}
        """The partitions with operations that wait for the high watermark."""

    # ---------------------------------------------------------------------------------------------- what has happened

    def use(self, image: MetadataImage) -> None:
        """New metadata, by which the next operations act."""
        before, self._image = self._image, image
        # Settings of groups and levels of features change while the topics stay.
        for one in self.partitions.values():
            one.image = image
        if image.topics is before.topics:
            return
        topic_id = image.topics.by_name.get(self.topic)
        count = 0 if topic_id is None else len(image.topics.by_id[topic_id].partitions)
        if count != self._count:
            self._count = count
            self._numbers.clear()
        if not self.partitions:
            self._compared = image.topics.by_name
        elif self._compared is not image.topics.by_name:
            self._hasten()

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
        # Loaded here, because most brokers start without a partition of a coordinator.
        from kraft.coordinators.runtime.partition import CoordinatorPartition

        self.partitions[part.number] = self._touched[part.number] = CoordinatorPartition(
            part, self._manager, self._new_shard(part), self._settings, self._rng, self._answers, self._budget, now_ms
        )
        self._hasten()

    def _close(self, known: CoordinatorPartition[S], now_ms: int) -> None:
        del self.partitions[known.part.number]
        self._touched.pop(known.part.number, None)
        self.watched.pop(known.part.key, None)
        known.close(now_ms)
        self._closing.append(known)
        self._hasten()

    def on_changes(self, changed: Iterable[PartitionKey], now_ms: int) -> None:
        """The high watermarks of these partitions may have moved."""
        if not self.watched:
            return
        for key in changed:
            known = self.watched.get(key)
            if known is not None:
                known.advance(now_ms)
                self._note(known)

    # ------------------------------------------------------------------------------------------------------ operations

    def number_of(self, name: str) -> int:
        """The partition of a group or a transactional id; -1 while the topic is missing."""
        number = self._numbers.get(name)
        if number is None:
            number = partition_of(name, self._count) if self._count else -1
            if len(name) <= REMEMBERED_CHARACTERS:
                if len(self._numbers) >= REMEMBERED_NAMES:
                    self._numbers.clear()
                self._numbers[name] = number
        return number

    def number_of_hash(self, value: int) -> int:
        """The partition of a name with this hash; -1 while the topic is missing."""
        return partition_of_hash(value, self._count) if self._count else -1

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

    def write(self, number: int, operation: Operation, now_ms: int) -> Answer | None:
        """Do an operation on a partition.

        Returns:
            The answer to its request; None if there is none, or if it comes later, from `due`.
        """
        known = self.active(number)
        if isinstance(known, Error):
            return refused(operation, known)
        answers, asked = self._answers, operation.request
        before = len(answers)
        message = known.run(operation, now_ms)
        answer: Answer | None = None
        if asked is not None:
            if message is not None:
                answer = Answer(asked.request_id, message)
            elif len(answers) == before + 1 and answers[-1].request_id == asked.request_id:
                answer = answers.pop()
        self._note(known)
        return answer

    def go_on(self, number: int, operation: Operation, now_ms: int) -> None:
        """As `write`, for an operation by which something goes on that began before: its answer is among those of
        `due`.
        """
        answer = self.write(number, operation, now_ms)
        if answer is not None:
            self._answers.append(answer)
            self._hasten()

    def append_marker(
        self, part: HostedPartition, marker: TransactionMarker, now_ms: int
    ) -> Appended | RefusedAppend | None:
        """Append the end of a transaction to a partition, and replay it; None if nobody has the partition in memory."""
        known = self.partitions.get(part.number) if part.topic == self.topic else None
        if known is None or known.part is not part or known.status is not Status.ACTIVE:
            return None
        done = known.append_marker(marker, now_ms)
        self.is_spent = self._budget.left <= 0
        self._note(known)
        return done

    def wake(self, key: Hashable) -> None:
        """A request that waits for this key may go on."""
        self._woken.append(key)
        self._hasten()

    def take_changes(self) -> list[Hashable]:
        """The keys of requests that wait, and may go on."""
        woken, self._woken = self._woken, []
        return woken

    def _note(self, known: CoordinatorPartition[S]) -> None:
        """Bring the times of the next work up to date after a change of a partition."""
        deadline_ms = known.deadline_ms()
        if not deadline_ms:
            self._touched[known.part.number] = known
            if self.next_ms:
                self._hasten()
        elif deadline_ms < self._timed_ms:
            self._timed_ms = deadline_ms
            if deadline_ms < self.next_ms:
                self._hasten(deadline_ms)
        if (self._answers or self._budget.is_low) and self.next_ms:
            # The turn ends with `due`, which returns the answers; then the budget is renewed.
            self._hasten()
        if known.is_uncommitted:
            self.watched[known.part.key] = known
        elif self.watched:
            self.watched.pop(known.part.key, None)

    # ------------------------------------------------------------------------------------------------------------ time

    def _hasten(self, next_ms: int = 0) -> None:
        """There is something to do at this time, before what was next: at once if no time is given."""
        self.next_ms = next_ms
        self._agenda.by(Slot.COORDINATORS, next_ms)

    def due(self, now_ms: int) -> list[Answer]:
        """Do what is due, and return the answers to requests that waited. Then `take_changes` has what it has woken."""
        work_ms = self._work(now_ms)
        answers = self._answers
        if len(answers) <= COORDINATOR_UNITS_PER_TURN:
            taken = list(answers)
            answers.clear()
            self.next_ms = work_ms
        else:
            taken = [answers.popleft() for _ in range(COORDINATOR_UNITS_PER_TURN)]
            self.next_ms = 0
        return taken

    def _looking_for_deleted(self, now_ms: int) -> Generator[None, None, None]:
        """Tell the coordinators which topics do not exist any more."""
        before, self._compared = self._compared, self._image.topics.by_name
        after, deleted = self._compared, dict[str, Uuid]()
        for number, (name, topic_id) in enumerate(before.items(), 1):
            if after.get(name) != topic_id:
                deleted[name] = topic_id
            if number % TOPICS_COMPARED_PER_STEP == 0:
                yield None
        active = [one for one in self.partitions.values() if deleted and one.status is Status.ACTIVE]
        for number, one in enumerate(active):
            if number:
                # There may be very many topics, and a broker may coordinate all partitions.
                yield None
            if one.status is Status.ACTIVE:
                one.shard.on_deleted_topics(deleted, one.context(now_ms))

    def _work(self, now_ms: int) -> int:
        """Do what is due; returns when there is more."""
        while self._closing and not self._budget.is_spent and self._closing[0].close_more():
            self._closing.popleft()
        has_more = bool(self._closing)
        if self._comparing is None and self._compared is not self._image.topics.by_name:
            self._comparing = self._looking_for_deleted(now_ms)
        if self._comparing is not None:
            has_more = True
            if next(self._comparing, self) is self:
                self._comparing = None
                # Each partition may have a new timer.
                self._timed_ms = 0
        if now_ms >= self._timed_ms:
            every = list(self.partitions.values())
            self._timed_ms = NEVER_MS
        else:
            every = list(self._touched.values())
        self._touched = {}
        has_loaded = self._do(every, now_ms)
        next_ms = 0 if self._touched else self._timed_ms
        if has_more:
            next_ms = min(next_ms, now_ms)
        # Other requests have their turns between two steps.
        return max(next_ms, now_ms + 1) if has_loaded or self._budget.is_spent else next_ms

    def _do(self, every: list[CoordinatorPartition[S]], now_ms: int) -> bool:
        """Do what is due of partitions, of which one makes a step of its load; returns whether there is such a one.

        Whoever had no room in this turn comes first in the next one.
        """
        loaded: list[CoordinatorPartition[S]] = []
        first: list[CoordinatorPartition[S]] = []
        last: list[CoordinatorPartition[S]] = []
        for one in every:
            if one.status is Status.LOADING:
                if loaded:
                    first.append(one)
                    continue
                loaded.append(one)
                self._budget.take(_UNITS_PER_LOAD)
                if one.load_more(self._image, now_ms):
                    self.loads.append((now_ms, now_ms - one.began_ms))
                    # The high watermark may have moved meanwhile, and may still move.
                    one.advance(now_ms)
                continue
            if one.status is Status.ACTIVE:
                one.tick(now_ms)
                one.flush(now_ms)
                if one.is_stale:
                    self._close(one, now_ms)
                    self.on_leaders([one.part.key], now_ms)
                    continue
            first.append(one)
            if not last and self._budget.is_spent:
                last, first = first, []
        for one in (*first, *last, *loaded):
            self._note(one)
        return bool(loaded)
