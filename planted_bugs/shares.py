"""Mutants of share groups: of the leaders of partitions, and of the share coordinators (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from kraft.coordinators.runtime.partition import CoordinatorPartition
from kraft.coordinators.runtime.shard import Context, Record
from kraft.coordinators.shares import acknowledging, share_fetch, share_reading, state_changes, state_shard
from kraft.coordinators.shares.acknowledging import AckType
from kraft.coordinators.shares.in_flight import Run, State
from kraft.coordinators.shares.leader import Led, ShareLeader
from kraft.coordinators.shares.persister import PersistedState, ShareKey, StateBatch
from kraft.coordinators.shares.share_partition import Acquired, Move, ShareLimits, SharePartition, Span, Take
from kraft.coordinators.shares.state import ShareState
from kraft.coordinators.shares.state import snapshot_of as snapshot_of_state
from kraft.coordinators.shares.state_batches import merged as merged_batches
from kraft.coordinators.shares.state_shard import ShareStateShard
from planted_bugs.registry import Patches, Scope, mutant
from transport.protocol.errors import Error

# Leaders of share partitions


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def accepted_records_are_free_again(code: Patches) -> None:
    """A record that a member accepts is released."""
    code.replace(acknowledging, "_AFTER", {AckType.GAP: State.ARCHIVED, AckType.ACCEPT: State.AVAILABLE})


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def acknowledgements_count_before_they_are_written(code: Patches) -> None:
    """A member is told that its acknowledgement is done before the share coordinator has written it."""
    sound = ShareLeader.write

    def write(
        leader: ShareLeader, led: Led, move: Move, now_ms: int, then: Callable[[Error, int], None] | None = None
    ) -> None:
        sound(leader, led, move, now_ms, None)
        if then is not None:
            then(Error.NONE, now_ms)

    code.replace(ShareLeader, "write", write)


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def anybody_acknowledges(code: Patches) -> None:
    """A member may acknowledge what another member has."""
    sound = acknowledging._move

    def move(partition: SharePartition, member: str, first: int, last: int, *given: Any) -> Error:
        for batch in partition.around(first, last):
            for run in batch.within(first, last):
                run.member = member if run.state is State.ACQUIRED else run.member
        return sound(partition, member, first, last, *given)

    code.replace(acknowledging, "_move", move)


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def locks_never_end(code: Patches) -> None:
    """A record stays with a member that has gone silent."""
    code.replace(SharePartition, "expire", lambda partition, limits, now_ms: None)


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def locks_end_early(code: Patches) -> None:
    """A lock ends after a quarter of its time."""
    sound = SharePartition.acquire

    def acquire(
        partition: SharePartition, take: Take, offset: int, spans: Sequence[Span], limits: ShareLimits, now_ms: int
    ) -> list[Acquired]:
        limits = structs.replace(limits, lock_ms=limits.lock_ms // 4)
        return sound(partition, take, offset, spans, limits, now_ms)

    code.replace(SharePartition, "acquire", acquire)


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def deliveries_are_not_counted(code: Patches) -> None:
    """A record that is delivered again has the count that it had before."""

    def lock(run: Run, member: str, lock_ms: int) -> None:
        run.state, run.count, run.member, run.lock_ms = State.ACQUIRED, max(run.count, 1), member, lock_ms

    code.replace(Run, "lock", lock)


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def deliveries_have_no_limit(code: Patches) -> None:
    """A record is delivered again however often that was done."""
    code.replace(SharePartition, "after_delivery", lambda partition, run, limits: State.AVAILABLE)


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def rejected_records_come_again(code: Patches) -> None:
    """A rejected record is released."""
    code.replace(SharePartition, "after_rejection", staticmethod(lambda limits: State.AVAILABLE))


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def members_get_what_is_not_replicated(code: Patches) -> None:
    """A member is given records above the high watermark."""

    def bound_of(led: Led, limits: ShareLimits) -> int:
        return led.part.log.end_offset

    code.replace(share_reading, "bound_of", bound_of)
    code.replace(share_fetch, "bound_of", bound_of)


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def new_leaders_begin_at_the_end(code: Patches) -> None:
    """A leader that loads a share partition begins behind the last record."""
    sound = ShareLeader._on_read

    def on_read(leader: ShareLeader, led: Led, read: PersistedState | Error, now_ms: int) -> None:
        if isinstance(read, PersistedState) and read.start_offset >= 0:
            read = structs.replace(read, start_offset=max(read.start_offset, led.part.log.high_watermark), batches=())
        sound(leader, led, read, now_ms)

    code.replace(ShareLeader, "_on_read", on_read)


# Share coordinators


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def share_coordinators_answer_before_the_watermark(code: Patches) -> None:
    """A share coordinator answers as soon as it has decided, before its records are written and replicated."""
    code.replace(CoordinatorPartition, "_is_all_committed", property(lambda _: True))


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def copies_of_initialize_begin_anew(code: Patches) -> None:
    """A late copy of the request that has begun a share partition begins it anew."""
    code.replace(state_shard, "is_repeated", lambda known, state_epoch, start_offset: False)


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def snapshots_of_shares_lack_states(code: Patches) -> None:
    """The snapshot of a share partition has no state of any record."""
    sound = snapshot_of_state

    def snapshot_of(key: ShareKey, before: ShareState | None, after: ShareState) -> Record:
        return sound(key, before, structs.replace(after, batches=()))

    code.replace(state_changes, "snapshot_of", snapshot_of)


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def needed_snapshots_are_pruned(code: Patches) -> None:
    """The log of a share coordinator is deleted up to the last record, whatever snapshots are needed."""
    sound = ShareStateShard._delete

    def delete(shard: ShareStateShard, needed: int, error: Error, context: Context) -> None:
        sound(shard, context.state.last_offset, error, context)

    code.replace(ShareStateShard, "_delete", delete)


@mutant(Scope.SHARE_CLUSTER, budget=200, faults=None)
def fewer_deliveries_win(code: Patches) -> None:
    """Of two states of a record the share coordinator keeps the one with the smaller count."""
    sound = merged_batches

    def merged(known: Any, added: Sequence[StateBatch], start_offset: int) -> Any:
        turned = [structs.replace(one, delivery_count=-one.delivery_count) for one in added]
        before = [structs.replace(one, delivery_count=-one.delivery_count) for one in known]
        return tuple(
            structs.replace(one, delivery_count=-one.delivery_count)
            for one in sound(tuple(before), turned, start_offset)
        )

    code.replace(state_changes, "merged", merged)
