"""The coordinator of one partition: load, operations, batches, answers at the high watermark (Kafka:
`CoordinatorRuntime.CoordinatorContext`).

An operation runs at once: its records are replayed into the state at the offsets that they will have, and join the open
batch, which `flush` appends. Its result is delivered when the high watermark has passed them. When an append fails, the
state goes back to the one before the batch. An operation without records waits for those before it, so that no answer
tells of something that may still be undone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Hashable, Iterator, Mapping
from random import Random
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct, structs

from kraft.access.errors import ApiError
from kraft.coordinators.runtime.budget import Budget
from kraft.coordinators.runtime.loading import Lacking, loading
from kraft.coordinators.runtime.settings import CoordinatorSettings, Status
from kraft.coordinators.runtime.shard import HELD, Context, CoordinatorResult, Operation, Shard
from kraft.coordinators.runtime.timers import Timers
from kraft.limits import GLANCES_PER_UNIT, GROUPS_FREED_PER_UNIT, TIMERS_CLEARED_PER_STEP, UNITS_PER_ENDED_GROUP
from kraft.partitions.log.outcomes import Appended, RefusedAppend
from kraft.partitions.log.transaction_markers import TransactionMarker
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer, WireRequest
from metadata_log.compression import Compression
from metadata_log.errors import EncodeError, MetadataLogError
from metadata_log.image import MetadataImage
from metadata_log.image.persistent_map import Map
from metadata_log.records.batch import HEADER_BYTES
from metadata_log.records.batch_builder import batch_of
from metadata_log.records.coordinator import encode_key, encode_value
from metadata_log.records.record import encode_record
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, NO_PRODUCER, NO_SEQUENCE
from transport.protocol.errors import Error

S = TypeVar("S")
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
"""The error that a client is told for one of the log (`GroupCoordinatorService.handleOperationException`)."""
FIRST_SEQUENCE: Final = 0
"""Every batch of a group coordinator has it, also without a producer, as in Kafka."""
RETRY_TIMER_MS: Final = 500
"""When a timer ends again whose records were not written (`EventBasedCoordinatorTimer`)."""
_RECORD_OVERHEAD: Final = 32
"""The bytes that a record takes at most besides its key and its value."""


class _Batch(Struct, Generic[S]):
    """The batch that operations add to."""

    base_offset: int
    before: S
    """The state without the batch."""
    base_ms: int
    newest_ms: int
    bodies: list[bytes]
    """The records, encoded."""
    size: int


class _Deferred(Struct, gc=False):
    """The end of an operation that waits for the high watermark."""

    offset: int
    deadline_ms: int
    found: CoordinatorResult
    operation: Operation | None
    """The request that has asked; None for a timer, and for what follows another operation."""
    timer: Hashable | None
    """The timer that the operation came from, if nobody has asked."""


class CoordinatorPartition(Generic[S]):
    """One partition, from the begin of a leadership of this broker to its end.

    Args:
        part: The replica, which this broker leads.
        manager: The replicas of this broker.
        shard: The coordinator.
        settings: The settings.
        rng: The randomness.
        answers: Where the answers go that do not come at once.
        budget: What the present turn may still do.
        now_ms: The time in ms since 1970.
    """

    def __init__(
        self,
        part: HostedPartition,
        manager: ReplicaManager,
        shard: Shard[S],
        settings: CoordinatorSettings,
        rng: Random,
        answers: deque[Answer],
        budget: Budget,
        now_ms: int,
    ) -> None:
        self.part = part
        self.leader_epoch = part.leader_epoch
        self.shard = shard
        self.status = Status.LOADING
        self.began_ms = now_ms
        """When the load began."""
        self.state: S = shard.empty()
        """The state with everything that was written."""
        self.lacking = Lacking()
        """The records that the load has found to be missing from the log."""
        self.timers = Timers()
        self.image = MetadataImage()
        self._committed: S = self.state
        self._manager = manager
        self._settings = settings
        self._rng = rng
        self._answers = answers
        self._budget = budget
        self._codec = Compression(settings.codec)
        self._first_sequence = FIRST_SEQUENCE if settings.shares_batches else NO_SEQUENCE
        self._now_ms = 0
        """The time of the step of the load."""
        self._load: Generator[None, None, None] | None = self._loading()
        self._snapshots: deque[tuple[int, S]] = deque()
        """The states after the batches that are not committed yet, with the offsets after them."""
        self._deferred: deque[_Deferred] = deque()
        self._is_behind = False
        """Whether some of them are committed, and end in the next turn."""
        self._closing: Generator[None, None, None] | None = None
        self._batch: _Batch[S] | None = None
        self._loaded_offset = 0
        """The end of the log when it was loaded."""
        self._end_offset = 0
        """The end of the log, as this coordinator knows it."""
        self.is_stale = False
        """Whether somebody else has written to the log, so that it must be loaded again."""

    # ------------------------------------------------------------------------------------------------------------ load

    def load_more(self, image: MetadataImage, now_ms: int) -> bool:
        """Make a step of the load, and return whether it is complete; an error leaves the partition failed until the
        next leadership.
        """
        self.image = image
        self._now_ms = now_ms
        assert self._load is not None, self.part
        try:
            next(self._load)
        except StopIteration:
            self._load, self.status = None, Status.ACTIVE
        except MetadataLogError as bad:
            self._load, self.status = None, Status.FAILED
            self._manager.hosting.report(f"{self.part} is not coordinated here: {bad}")
        return self.status is Status.ACTIVE

    def _loading(self) -> Generator[None, None, None]:
        hosting = self._manager.hosting
        snapshots = yield from loading(hosting, self.part, self.shard, self.lacking)
        if self.lacking.count:
            hosting.report(
                f"{self.part} lacks tombstones before {self.lacking.count} records, which cleaning has removed; the "
                f"groups are as their last records say ({'; '.join(self.lacking.told)})"
            )
        self._committed, self.state = snapshots[0][1], snapshots[-1][1]
        self._snapshots = deque(snapshots[1:])
        self._end_offset = self._loaded_offset = snapshots[-1][0]
        yield from self.shard.on_loaded(self.context(self._now_ms))

    def close(self, now_ms: int) -> None:
        """The leadership is over: everything that waits fails, by `close_more`."""
        was_active, self.status = self.status is Status.ACTIVE, Status.CLOSED
        self._batch = None
        if self._load is not None:
            self._load.close()
            self._load = None
        unloading = self.shard.on_unloaded(self.context(now_ms)) if was_active else iter(())
        # What the shard has told others of its own is over at once: another leadership may begin in this turn.
        next(unloading, None)
        self._closing = self._close_in_steps(unloading, now_ms)

    def close_more(self) -> bool:
        """Go on as far as the turn allows; returns whether all is done."""
        assert self._closing is not None, self.part
        while not self._budget.is_spent:
            if next(self._closing, self) is self:
                return True
        return False

    def _close_in_steps(self, unloading: Iterator[None], now_ms: int) -> Generator[None, None, None]:
        while self._deferred:
            self._finish(self._deferred.popleft(), Error.NOT_LEADER_OR_FOLLOWER, now_ms, is_last=True)
            yield None
        for _ in unloading:
            yield None
        # To free a hundred thousand groups takes long, too.
        states: list[Any] = [self.state, self._committed, *(one for _, one in self._snapshots)]
        self.state = self._committed = self.shard.empty()
        self._snapshots.clear()
        for _ in self.timers.clear():
            self._budget.take(TIMERS_CLEARED_PER_STEP // GLANCES_PER_UNIT)
            yield None
        maps = [one for state in states for one in structs.astuple(state) if isinstance(one, Map)]
        del states
        while maps:
            held = list(maps.pop().values())
            self._budget.take(len(held) // GLANCES_PER_UNIT)
            yield None
            while held:
                del held[-GROUPS_FREED_PER_UNIT:]
                self._budget.take()
                yield None

    # ------------------------------------------------------------------------------------------------------ operations

    def context(self, now_ms: int) -> Context:
        """The state, the metadata, the timers and so on for an operation that begins now."""
        return Context(self.state, now_ms, self.image, self.timers, self._rng, self._tell, self._budget)

    def _tell(self, request: WireRequest, message: Message) -> None:
        self._budget.take()
        self._answers.append(Answer(request.request_id, message))

    @property
    def committed(self) -> S:
        """The state up to the high watermark."""
        return self._committed

    @property
    def is_readable(self) -> bool:
        """Whether the high watermark has passed what the log had when this broker became its leader: some of that was
        acknowledged by the leader before.
        """
        return self.status is Status.ACTIVE and (not self._snapshots or self._snapshots[0][0] > self._loaded_offset)

    def run(self, operation: Operation, now_ms: int) -> Message | None:
        """Do an operation; returns its answer if that need not wait."""
        try:
            found = operation.decide(self.shard, self.context(now_ms))
        except ApiError as refused:
            return operation.refuse(refused)
        if not found.records and found.on_end is None and self._is_all_committed:
            # A heartbeat, most of the time: nothing is written, and nothing is waited for.
            return None if found.result is HELD else operation.tell(found.result)
        self._take(found, operation, now_ms)
        return None

    def _take(
        self, found: CoordinatorResult, operation: Operation | None, now_ms: int, timer: Hashable | None = None
    ) -> None:
        error = self._add(found, now_ms) if found.records else Error.NONE
        batch = self._batch
        offset = self._end_offset if batch is None else batch.base_offset + len(batch.bodies)
        one = _Deferred(offset, now_ms + self._settings.write_timeout_ms, found, operation, timer)
        if error is not Error.NONE or self._is_all_committed:
            self._finish(one, error, now_ms)
        elif operation is not None or found.on_end is not None or timer is not None:
            self._deferred.append(one)
        if found.records and self._batch is None:
            self.advance(now_ms)

    @property
    def _is_all_committed(self) -> bool:
        """Whether nothing is written that may still be undone, and nobody waits."""
        return self._batch is None and not self._snapshots and not self._is_behind

    def _finish(self, one: _Deferred, error: Error, now_ms: int, *, is_last: bool = False) -> None:
        """End an operation; `is_last` if nothing can follow."""
        found, operation = one.found, one.operation
        self._budget.take(1 + len(found.records) // GLANCES_PER_UNIT)
        if operation is not None and found.result is not HELD:
            if error is Error.NONE:
                message = operation.tell(found.result)
            else:
                message = operation.refuse(ApiError(TRANSLATED.get(error, error)))
            if message is not None:
                assert operation.request is not None, operation
                self._answers.append(Answer(operation.request.request_id, message))
        if one.timer is not None and error is not Error.NONE and error is not Error.REQUEST_TIMED_OUT:
            self._set_again(one.timer, now_ms)
        if found.on_end is not None:
            following = found.on_end(error, self.context(now_ms))
            if following is not None and not is_last:
                self._take(following, None, now_ms)

    def tick(self, now_ms: int) -> None:
        """End the waits and the timers that are due, as far as the turn allows."""
        budget = self._budget
        if self._is_behind:
            self.advance(now_ms)
        while self._deferred and self._deferred[0].deadline_ms <= now_ms and not budget.is_spent:
            self._finish(self._deferred.popleft(), Error.REQUEST_TIMED_OUT, now_ms)
        while not budget.is_spent and (key := self.timers.take_due(now_ms)) is not None:
            budget.take()
            self._fire(key, now_ms)

    def _fire(self, key: Hashable, now_ms: int) -> None:
        try:
            operation = self.shard.on_timer(key, self.context(now_ms))
        except ApiError:
            self._set_again(key, now_ms)
        else:
            self._take(operation, None, now_ms, key)

    def _set_again(self, key: Hashable, now_ms: int) -> None:
        """Set a timer again, as its operation has failed; unless it was set in the meantime."""
        if key not in self.timers:
            self.timers.set(key, now_ms + RETRY_TIMER_MS)

    def deadline_ms(self) -> int:
        """When something is due."""
        if self.status is Status.LOADING or self._batch is not None or self.is_stale or self._is_behind:
            return 0
        waits_ms = self._deferred[0].deadline_ms if self._deferred else NEVER_MS
        return min(waits_ms, self.timers.deadline_ms()) if self.status is Status.ACTIVE else NEVER_MS

    # --------------------------------------------------------------------------------------------------------- writing

    def _add(self, operation: CoordinatorResult, now_ms: int) -> Error:
        """Replay the records of an operation, and add them to the batch; returns why they are refused."""
        if self.part.is_offline:
            return Error.KAFKA_STORAGE_ERROR
        try:
            pairs = [
                one.encoded
                or (encode_key(one.key), None if one.value is None else encode_value(one.value, one.version))
                for one in operation.records
            ]
        except EncodeError:
            return Error.INVALID_REQUEST
        size = sum([len(key) + len(value or b"") + _RECORD_OVERHEAD for key, value in pairs])
        room = min(self.part.log.options.max_message_bytes, self.part.log.options.segment_bytes) - HEADER_BYTES
        if size > room:
            half = len(pairs) // 2
            if operation.is_atomic or not half:
                return Error.MESSAGE_TOO_LARGE
            first, second = operation.records[:half], operation.records[half:]
            error = self._add(structs.replace(operation, records=first), now_ms)
            return error if error is not Error.NONE else self._add(structs.replace(operation, records=second), now_ms)
        self._budget.take(len(pairs))
        is_alone = operation.producer is not None or not self._settings.shares_batches
        if self._batch is not None and (is_alone or self._batch.size + size > room):
            error = self._write(now_ms)
            if error is not Error.NONE:
                # The operation was decided on a state that is undone.
                return error
        batch = self._batch
        if batch is None:
            batch = self._batch = _Batch(self._end_offset, self.state, now_ms, now_ms, [], 0)
        elif now_ms > batch.newest_ms:
            batch.newest_ms = now_ms
        producer_id = NO_PRODUCER if operation.producer is None else operation.producer[0]
        held, late_ms, replay = len(batch.bodies), now_ms - batch.base_ms, self.shard.replay
        state = self.state
        for at, one in enumerate(operation.records, batch.base_offset + held):
            state = replay(state, one, at, producer_id)
        self.state = state
        batch.bodies += [encode_record(late_ms, at, key, value, ()) for at, (key, value) in enumerate(pairs, held)]
        batch.size += size
        return self._write(now_ms, operation.producer) if is_alone else Error.NONE

    def flush(self, now_ms: int) -> None:
        """Append the open batch, and end what is committed by that."""
        if self._batch is not None:
            self._write(now_ms)
            self.advance(now_ms)

    def _write(self, now_ms: int, producer: tuple[int, int] | None = None) -> Error:
        """Append the open batch; returns why that failed, which has ended every operation of the batch before.

        What is committed by it ends later: the operations that follow then must not come between an operation that was
        decided and its records.
        """
        batch, self._batch = self._batch, None
        if batch is None:
            return Error.NONE
        error = self._append(batch, now_ms, producer)
        if error is Error.NONE:
            self._end_offset = batch.base_offset + len(batch.bodies)
            self._snapshots.append((self._end_offset, self.state))
            return error
        self.state = batch.before
        failed = [one for one in self._deferred if one.offset > batch.base_offset]
        self._deferred = deque([one for one in self._deferred if one.offset <= batch.base_offset])
        for one in failed:
            self._finish(one, error, now_ms)
        return error

    def _append(self, batch: _Batch[S], now_ms: int, producer: tuple[int, int] | None) -> Error:
        part, leaders = self.part, self._manager.leaders
        if part.is_offline:
            return Error.KAFKA_STORAGE_ERROR
        if part.leading is None or part.log.end_offset != batch.base_offset:
            self.is_stale = True
            return Error.NOT_LEADER_OR_FOLLOWER
        refused = leaders.too_few_in_sync(part)
        if refused is not None:
            return refused.error
        made = batch_of(
            batch.bodies,
            base_offset=batch.base_offset,
            epoch=self.leader_epoch,
            timestamps=(batch.base_ms, batch.newest_ms),
            compression=self._codec,
            transactional=producer is not None,
            producer=(*(producer or (NO_PRODUCER, -1)), self._first_sequence),
        )
        # Other batches than most are checked as those of producers, which begin at offset 0, and changed as the
        # settings of the topic want it.
        data = made if part.log.takes_as_is(made) else bytes(8) + made.data[8:]
        done = leaders.append(part, data, now_ms, is_client=False)
        return done.error if isinstance(done, RefusedAppend) else Error.NONE

    def append_marker(self, marker: TransactionMarker, now_ms: int) -> Appended | RefusedAppend:
        """Append the end of a transaction, and replay it; the caller waits for the high watermark."""
        self._write(now_ms)
        done = self._manager.leaders.append_marker(self.part, marker, now_ms)
        if isinstance(done, Appended):
            ending = self.shard.end_transaction(self.state, marker.producer_id, is_commit=marker.is_commit)
            units = 1
            try:
                while True:
                    next(ending)
                    self._budget.left -= units
                    units = UNITS_PER_ENDED_GROUP
            except StopIteration as ended:
                self.state = ended.value
            self.is_stale |= done.first_offset != self._end_offset
            self._end_offset = done.last_offset + 1
            self._snapshots.append((self._end_offset, self.state))
        self.advance(now_ms)
        return done

    def advance(self, now_ms: int) -> None:
        """The high watermark may have moved: what waited for it ends, as far as the turn allows."""
        self._is_behind = False
        if self.part.is_offline:
            return
        watermark = self.part.log.high_watermark
        while self._snapshots and self._snapshots[0][0] <= watermark:
            self._committed = self._snapshots.popleft()[1]
        while self._deferred and self._deferred[0].offset <= watermark:
            if self._budget.is_spent:
                self._is_behind = True
                return
            self._finish(self._deferred.popleft(), Error.NONE, now_ms)

    @property
    def is_uncommitted(self) -> bool:
        """Whether something waits for the high watermark."""
        return bool(self._snapshots)
