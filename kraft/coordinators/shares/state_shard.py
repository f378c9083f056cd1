"""The share coordinator of one partition of `__share_group_state` (Kafka: `ShareCoordinatorShard`,
`ShareCoordinatorService`).

The log is not compacted. Once in a while a share partition without a recent snapshot gets one, and then the begin of
the log is deleted, up to the first snapshot that is still needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import islice
from typing import Final

from kraft.access.errors import ApiError
from kraft.config.share_coordinator_settings import ShareCoordinatorConfig
from kraft.coordinators.runtime.shard import NOTHING, Context, CoordinatorResult, Record
from kraft.coordinators.shares.persister import (
    NO_COUNT,
    NO_OFFSET,
    PersistedState,
    PersistedWrite,
    ShareKey,
    StateBatch,
    Summary,
)
from kraft.coordinators.shares.state import ShareState, ShareStates, replayed, tombstone_of
from kraft.coordinators.shares.state_changes import (
    check_initialize,
    check_partition,
    check_read,
    check_write,
    cold,
    initialized,
    is_repeated,
    led_by,
    written_by,
)
from kraft.limits import (
    COORDINATOR_UNITS_PER_TURN,
    GLANCES_PER_UNIT,
    LOADS_NOTED,
    SHARE_KEYS_PER_STEP,
    SHARE_SNAPSHOTS_AT_ONCE,
    SHARE_STATE_BATCHES,
)
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.lookup import is_known
from metadata_log.image import MetadataImage
from metadata_log.records.coordinator import SHARE_GROUP_STATE, RecordKind
from metadata_log.types import Uuid
from transport.protocol.errors import Error

UNKNOWN: Final = Summary(0, 0, NO_OFFSET, NO_COUNT)
"""The summary of a share partition that nobody has initialized."""
NEXT_PORTION_MS: Final = 1
SPREAD_MS: Final = 97
"""How far the upkeep of two partitions is apart at least: each may wait for the disk."""
RETRY_TIMER_MS: Final = 500
"""When tombstones are tried again that were not written."""
Walk = Generator[CoordinatorResult, Context, None]
"""Work over all share partitions in portions. Each is given the context of its turn, and yields what it writes."""


class Upkeep(Enum):
    """The timers of a partition."""

    DELETED_TOPICS = "deleted topics"
    COLD = "cold share partitions"
    PRUNE = "prune"


class StateCounts:
    """The counters of a broker's share coordinator, since its start."""

    def __init__(self) -> None:
        self.writes = 0
        self.latencies: deque[tuple[int, int]] = deque(maxlen=LOADS_NOTED)
        """When the last writes were committed, and how long each took, both in ms."""
        self.pruned: dict[int, int] = {}
        """The log start that the last prune has set, by partition."""


class ShareStateShard:
    """One partition of the share coordinator.

    Args:
        number: The partition.
        settings: The settings.
        counts: The counters of the broker.
        is_full: Whether the share partitions of this broker take as much memory as they may.
        prune: Deletes the log of a partition before an offset, which is committed.
    """

    kinds: Mapping[int, RecordKind] = SHARE_GROUP_STATE

    def __init__(
        self,
        number: int,
        settings: ShareCoordinatorConfig,
        counts: StateCounts,
        is_full: Callable[[], bool],
        prune: Callable[[int], int | RefusedAppend],
    ) -> None:
        self._number = number
        self._settings = settings
        self._counts = counts
        self._is_full = is_full
        self._prune = prune
        self._walks: dict[Upkeep, Walk] = {}
        """The work that goes on in portions."""

    # ------------------------------------------------------------------------------------------------ replicated state

    def empty(self) -> ShareStates:
        """The state without share partitions."""
        return ShareStates()

    def replay(self, state: ShareStates, record: Record, offset: int, producer_id: int) -> ShareStates:
        """The state after a record."""
        return replayed(state, record, offset, self._settings.updates_per_snapshot)

    def lacking(self, state: ShareStates, record: Record) -> str:
        """Nothing: the log is deleted only up to a snapshot of each share partition."""
        return ""

    def end_transaction(
        self, state: ShareStates, producer_id: int, *, is_commit: bool
    ) -> Generator[None, None, ShareStates]:
        """Return the state as it is: no record of this topic belongs to a transaction."""
        yield None
        return state

    # ------------------------------------------------------------------------------------------------------- decisions

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int, context: Context) -> CoordinatorResult:
        """Begin the state of a share partition anew."""
        check_partition(key)
        known = _known(context, key)
        check_initialize(known, state_epoch)
        _check_topic(context.image, key)
        if known is not None and is_repeated(known, state_epoch, start_offset):
            return NOTHING
        if known is None and self._is_full():
            raise ApiError(Error.POLICY_VIOLATION, "This broker coordinates as many share partitions as it can.")
        return CoordinatorResult([initialized(key, known, state_epoch, start_offset, context.now_ms)])

    def read(self, key: ShareKey, leader_epoch: int, context: Context) -> CoordinatorResult:
        """The state of a share partition, and the fence behind its leader."""
        check_partition(key)
        known = check_read(_known(context, key), leader_epoch)
        _check_topic(context.image, key)
        _charge(context, known.batches)
        record = led_by(key, known, leader_epoch, context.now_ms, self._settings.updates_per_snapshot)
        found = PersistedState(known.state_epoch, known.start_offset, known.batches)
        return CoordinatorResult([] if record is None else [record], found)

    def write(self, key: ShareKey, written: PersistedWrite, context: Context) -> CoordinatorResult:
        """Add a change to a share partition."""
        self._counts.writes += 1
        check_partition(key)
        known = check_write(_known(context, key), written)
        _check_topic(context.image, key)
        if written.batches and self._is_full():
            raise ApiError(Error.POLICY_VIOLATION, "This broker coordinates as many state batches as it can.")
        _charge(context, written.batches)
        record = written_by(key, known, written, context.now_ms, self._settings.updates_per_snapshot)
        return CoordinatorResult([record], on_end=partial(self._written, context.now_ms))

    def _written(self, began_ms: int, error: Error, context: Context) -> None:
        """Note how long a write took."""
        if error is Error.NONE:
            self._counts.latencies.append((context.now_ms, context.now_ms - began_ms))

    def summary(self, key: ShareKey, context: Context) -> CoordinatorResult:
        """How far a share partition is."""
        check_partition(key)
        _check_topic(context.image, key)
        known = _known(context, key)
        found = (
            UNKNOWN
            if known is None
            else Summary(known.state_epoch, known.leader_epoch, known.start_offset, known.delivery_complete_count)
        )
        return CoordinatorResult(result=found)

    def delete(self, key: ShareKey, context: Context) -> CoordinatorResult:
        """Forget a share partition."""
        check_partition(key)
        _check_topic(context.image, key)
        return NOTHING if _known(context, key) is None else CoordinatorResult([tombstone_of(key)])

    # ---------------------------------------------------------------------------------------------------------- upkeep

    def on_loaded(self, context: Context) -> Generator[None, None, None]:
        """Begin the upkeep. Topics may have been deleted while nobody coordinated the partition."""
        late_ms = context.now_ms + self._number * SPREAD_MS
        context.timers.set(Upkeep.DELETED_TOPICS, late_ms)
        context.timers.set(Upkeep.COLD, late_ms + self._settings.cold_interval_ms)
        context.timers.set(Upkeep.PRUNE, late_ms + self._settings.prune_interval_ms)
        yield

    def on_deleted_topics(self, topics: Mapping[str, Uuid], context: Context) -> None:
        """Forget the share partitions of deleted topics."""
        context.timers.set(Upkeep.DELETED_TOPICS, context.now_ms)
        # A walk that goes on may be past them already.
        self._walks.pop(Upkeep.DELETED_TOPICS, None)

    def on_unloaded(self, context: Context) -> Generator[None, None, None]:
        """Nobody waits here."""
        self._walks.clear()
        self._counts.pruned.pop(self._number, None)
        yield

    def on_timer(self, key: Hashable, context: Context) -> CoordinatorResult:
        """Go on with the upkeep."""
        assert isinstance(key, Upkeep), key
        walk = self._walks.get(key)
        if walk is None:
            walk = self._walks[key] = self._begin(key, context)
            next(walk)
        try:
            result = walk.send(context)
        except StopIteration:
            del self._walks[key]
            match key:
                case Upkeep.COLD:
                    context.timers.set(key, context.now_ms + self._settings.cold_interval_ms)
                case Upkeep.PRUNE:
                    context.timers.set(key, context.now_ms + self._settings.prune_interval_ms)
            return NOTHING
        context.timers.set(key, context.now_ms + NEXT_PORTION_MS)
        return result

    def _begin(self, key: Upkeep, context: Context) -> Walk:
        match key:
            case Upkeep.DELETED_TOPICS:
                return self._forget_deleted(context.state)
            case Upkeep.COLD:
                return self._refresh_cold(context.state)
            case Upkeep.PRUNE:
                return self._prune_log(context.state)

    def _forget_deleted(self, states: ShareStates) -> Walk:
        """Write tombstones for the share partitions of topics that do not exist."""
        context = yield NOTHING
        for portion in _portions(states):
            topics = context.image.topics.by_id
            gone = sorted(key for key, _ in portion if key.topic_id not in topics)
            for begin in range(0, len(gone), SHARE_SNAPSHOTS_AT_ONCE):
                some = gone[begin : begin + SHARE_SNAPSHOTS_AT_ONCE]
                records = [tombstone_of(key) for key in some if key in context.state.by_key]
                context = yield CoordinatorResult(records, on_end=self._forgotten, is_atomic=False)
            context = yield NOTHING

    def _forgotten(self, error: Error, context: Context) -> None:
        """Tombstones are committed, or not: then all of it begins again."""
        if error not in (Error.NONE, Error.REQUEST_TIMED_OUT):
            self._walks.pop(Upkeep.DELETED_TOPICS, None)
            context.timers.set(Upkeep.DELETED_TOPICS, context.now_ms + RETRY_TIMER_MS)

    def _refresh_cold(self, states: ShareStates) -> Walk:
        """Write snapshots of share partitions that had none for long. If nothing else was written since the last time,
        there is nothing that could be deleted then.
        """
        context = yield NOTHING
        due: list[ShareKey] = []
        is_quiet = True
        for portion in _portions(states):
            latest_ms = context.now_ms - self._settings.cold_interval_ms
            due += [key for key, one in portion if one.snapshot_ms <= latest_ms]
            is_quiet = is_quiet and all(one.is_cold for _, one in portion)
            context = yield NOTHING
        if is_quiet:
            return
        due.sort(reverse=True)
        while due:
            records, left = list[Record](), SHARE_STATE_BATCHES
            while due and len(records) < SHARE_SNAPSHOTS_AT_ONCE and left > 0:
                key = due.pop()
                known = _known(context, key)
                if known is not None:
                    records.append(cold(key, known, context.now_ms))
                    left -= len(known.batches)
            context = yield CoordinatorResult(records, is_atomic=False)

    def _prune_log(self, states: ShareStates) -> Walk:
        """Delete the log up to the first snapshot that is needed, once the state that tells it is committed."""
        context = yield NOTHING
        needed = states.last_offset
        for portion in _portions(states):
            needed = min(needed, *(one.snapshot_at for _, one in portion))
            context = yield NOTHING
        if needed > self._counts.pruned.get(self._number, 0):
            # The new start is written to the disk: no other partition does that in this turn.
            context.budget.take(COORDINATOR_UNITS_PER_TURN)
            yield CoordinatorResult(on_end=partial(self._delete, needed))

    def _delete(self, needed: int, error: Error, context: Context) -> None:
        if error is Error.NONE and not isinstance(self._prune(needed), RefusedAppend):
            self._counts.pruned[self._number] = needed


def _portions(states: ShareStates) -> Iterator[list[tuple[ShareKey, ShareState]]]:
    # The state is a value: what is looked at stays the same while others change theirs.
    left = iter(states.by_key.items())
    while portion := list(islice(left, SHARE_KEYS_PER_STEP)):
        yield portion


def _known(context: Context, key: ShareKey) -> ShareState | None:
    states: ShareStates = context.state
    return states.by_key.get(key)


def _check_topic(image: MetadataImage, key: ShareKey) -> None:
    if not is_known(image, (key.topic_id, key.partition)):
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION)


def _charge(context: Context, batches: Sequence[StateBatch]) -> None:
    """Count the work for state batches in the budget of the turn."""
    context.budget.take(len(batches) // GLANCES_PER_UNIT)
