"""A share partition at the leader of its partition: which records are whose, how often, and until when (Kafka:
`SharePartition`).

It decides alone: records, times, limits and the outcomes of writes are handed in, and what is to be written comes out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from msgspec import Struct

from kraft.coordinators.shares.in_flight import TERMINAL, Batch, Run, State
from kraft.coordinators.shares.persister import PersistedState, PersistedWrite, StateBatch
from metadata_log.types import NEVER_MS

RECORD_LIMIT: Final = 1
"""The mode in which a fetch acquires no record more than it asked for; any other mode hands out whole batches."""
_first: Final = attrgetter("first")
_ON_DISK: Final = frozenset((State.AVAILABLE, State.ACKNOWLEDGED, State.ARCHIVING, State.ARCHIVED))


class ShareLimits(Struct, frozen=True, gc=False):
    """The settings of a group, or else of the broker; they are read anew for each operation."""

    deliveries: int = 5
    """How often a record is delivered at most."""
    lock_ms: int = 30_000
    window: int = 2000
    """How many offsets may be on their way, those between two records included."""
    may_renew: bool = True
    is_committed: bool = False
    """Whether members read only what committed transactions, or none, have written."""
    has_letters: bool = False
    """Whether what no member accepts goes to a dead-letter queue before it is archived."""


class Span(Struct, frozen=True, gc=False):
    """The first and the last offset of a record batch in the log."""

    first: int
    last: int


class Acquired(Struct, frozen=True, gc=False):
    """Offsets that a member has been given, both ends included."""

    first: int
    last: int
    count: int


class Take(Struct, frozen=True, gc=False):
    """The wishes of a fetch."""

    member: str
    most: int
    """How many records it wants of this partition."""
    batch_size: int = 500
    mode: int = 0


class Letter(Struct, frozen=True, gc=False):
    """Offsets that go to the dead-letter queue, both ends included."""

    first: int
    last: int
    count: int
    is_rejected: bool | None
    """Whether a member has rejected them, or else they were delivered too often; None if nobody knows any more."""


class Move(Struct):
    """States that hold once the share coordinator has written them."""

    runs: list[Run] = []
    batches: list[Batch] = []
    letters: list[Letter] = []


class BadState(Exception):
    """The share coordinator's state of a share partition contradicts itself."""


class SharePartition:
    """The records of one partition for one group.

    Args:
        state: The state at the share coordinator.
        leader_epoch: The epoch of this leader of the partition.
        start: Where the group begins if the state does not say.

    Raises:
        BadState: The state contradicts itself.
    """

    def __init__(self, state: PersistedState, leader_epoch: int, start: int) -> None:
        self.state_epoch = state.state_epoch
        self.leader_epoch = leader_epoch
        self.start = state.start_offset if state.start_offset >= 0 else start
        """The first offset that is not done with."""
        self.next = self.start
        """The offset after all that were ever handed out."""
        self.batches: list[Batch] = []
        self.complete = 0
        """How many of the offsets from `start` on are done with."""
        self.lock_ms = NEVER_MS
        """The next lock ends at this time or later."""
        self.letters: list[Letter] = []
        """On its way to the dead-letter queue, and not sent yet."""
        self._searches = bool(state.batches)
        """Whether offsets before `next` may be free."""
        for each in state.batches:
            self._load(each)
        self.advance()

    def _load(self, each: StateBatch) -> None:
        first, last = each.first_offset, each.last_offset
        try:
            state = State(each.delivery_state)
        except ValueError:
            raise BadState(f"there is no state {each.delivery_state}") from None
        if state not in _ON_DISK:
            raise BadState(f"no record rests in state {each.delivery_state}")
        if not self.next <= first <= last:
            raise BadState(f"offsets {first} to {last} are below {self.next} or in the wrong order")
        if first > self.next:
            self._add(Batch(self.next, first - 1, [Run(self.next, first - 1, State.AVAILABLE, 0)], is_gap=True))
        self._add(Batch(first, last, [Run(first, last, state, each.delivery_count)]))
        if state in TERMINAL:
            self.complete += last - first + 1
        if state is State.ARCHIVING:
            self.letters.append(Letter(first, last, each.delivery_count, None))

    def _add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.next = batch.last + 1

    # What there is to fetch

    @property
    def in_flight(self) -> int:
        """How many offsets there are from the first that is not done with to the last that was handed out."""
        return self.next - self.start

    @property
    def runs(self) -> int:
        """How many runs there are: what an operation on all of them costs."""
        return sum(len(batch.runs) for batch in self.batches)

    def next_fetch(self) -> int:
        """The offset from which the next fetch reads: the first one that is free, or that nobody ever had."""
        if self._searches:
            for batch in self.batches:
                for run in batch.runs:
                    if run.is_free and run.last >= self.start:
                        return max(run.first, self.start)
            self._searches = False
        return self.next

    def has_room(self, limits: ShareLimits) -> bool:
        """Whether a fetch may acquire anything."""
        return self.in_flight < limits.window or self.next_fetch() < self.next

    # Acquisition

    def acquire(
        self, take: Take, offset: int, spans: Sequence[Span], limits: ShareLimits, now_ms: int
    ) -> list[Acquired]:
        """Give records to a member.

        Args:
            take: The wishes of the fetch.
            offset: Where the fetch has read from: what `next_fetch` has returned.
            spans: The record batches that it has read.
            limits: The limits.
            now_ms: The time in ms.
        """
        if not spans or take.most <= 0:
            return []
        last = spans[-1].last
        most = min(take.most, limits.window - self.in_flight)
        if most <= 0:
            # The window is full: what is in it may be delivered again.
            if offset >= self.next:
                return []
            most, last = min(take.most, self.next - offset), min(last, self.next - 1)
        base = spans[0].first
        if self._archive_free(offset, base - 1):
            self.advance()
        taking = _Taking(self, take, spans, limits, now_ms + limits.lock_ms)
        known = [each for each in self._around(base, last) if each.last >= self.start]
        for batch in known:
            left = most - taking.count
            if left <= 0:
                break
            if batch.is_gap:
                taking.fill(batch, max(batch.first, base, self.start), min(batch.last, last), left)
            elif not taking.again(batch, max(base, self.start), last, left):
                most = 0
                break
        after = known[-1].last + 1 if known else max(base, self.next)
        if taking.count < most and self.next <= after <= last:
            taking.new(after, last, most - taking.count)
        if taking.acquired:
            self.lock_ms = min(self.lock_ms, taking.lock_ms)
        return taking.acquired

    def take_back(self, member: str, acquired: Iterable[Acquired]) -> None:
        """Undo an acquisition, of which the member does not hear."""
        for each in acquired:
            for batch in self._around(each.first, each.last):
                for run in batch.cut(each.first, each.last):
                    if run.state is State.ACQUIRED and run.member == member:
                        run.count -= 1
                        run.rest(State.AVAILABLE)
                        self._searches = True
                batch.join()

    def insert(self, batch: Batch) -> None:
        """Add a batch where there is none."""
        if not self.batches:
            self.start = batch.first
        self.batches.insert(bisect_right(self.batches, batch.first, key=_first), batch)
        self.next = max(self.next, batch.last + 1)

    def search(self) -> None:
        """Offsets before `next` have become free."""
        self._searches = True

    def _around(self, first: int, last: int) -> list[Batch]:
        """The batches with offsets in a range."""
        begin = max(bisect_right(self.batches, first, key=_first) - 1, 0)
        found = self.batches[begin : bisect_right(self.batches, last, key=_first)]
        return found[1:] if found and found[0].last < first else found

    def _archive_free(self, first: int, last: int) -> bool:
        """Archive what was free and is not in the log any more; returns whether there was any."""
        if last < first:
            return False
        gone = False
        for batch in self._around(first, last):
            for run in batch.within(first, last):
                if run.is_free:
                    gone = True
                    for one in batch.cut(max(run.first, first), min(run.last, last)):
                        one.rest(State.ARCHIVED)
                        self.complete += one.size
        return gone

    def archive(self, spans: Iterable[Span], acquired: Sequence[Acquired]) -> list[Acquired]:
        """Archive the records of aborted transactions, which a member has just been given; returns what is left."""
        left = list(acquired)
        for span in spans:
            kept: list[Acquired] = []
            for each in left:
                first, last = max(each.first, span.first), min(each.last, span.last)
                if first > last:
                    kept.append(each)
                    continue
                for batch in self._around(first, last):
                    for run in batch.cut(first, last):
                        run.rest(State.ARCHIVED)
                        self.complete += run.size
                    batch.join()
                if each.first < first:
                    kept.append(Acquired(each.first, first - 1, each.count))
                if last < each.last:
                    kept.append(Acquired(last + 1, each.last, each.count))
            left = kept
        self.advance()
        return left

    # The start

    def advance(self) -> bool:
        """Move the start over offsets that are done with; returns whether it has moved."""
        before = self.start
        while self.batches:
            batch = self.batches[0]
            for run in batch.runs:
                if run.last < self.start:
                    continue
                if not run.is_over:
                    return self.start != before
                self.complete -= self._left_of(run)
                self.start = run.last + 1
            del self.batches[0]
            self.start = max(self.start, self.batches[0].first if self.batches else self.next)
        return self.start != before

    def raise_start(self, log_start: int) -> bool:
        """The log begins later: what was before is gone, whoever has it; returns whether the start has moved."""
        if log_start <= self.start:
            return False
        self.start, self.next = log_start, max(self.next, log_start)
        while self.batches and self.batches[0].last < log_start:
            del self.batches[0]
        if self.batches and self.batches[0].first < log_start:
            first = self.batches[0]
            if not any(run.is_moving for run in first.within(log_start, log_start)):
                first.cut(first.first, log_start - 1)
            for run in first.runs:
                if run.last < log_start and not run.is_moving:
                    run.rest(State.ARCHIVED)
        self.complete = sum(self._left_of(run) for batch in self.batches for run in batch.runs if run.state in TERMINAL)
        self.advance()
        return True

    def _left_of(self, run: Run) -> int:
        """How many offsets of a run there are from the start on."""
        return max(0, run.last - max(run.first, self.start) + 1)

    # Moves

    def around(self, first: int, last: int) -> list[Batch]:
        """The batches of a range from the one at or before its first offset on."""
        begin = bisect_right(self.batches, first, key=_first) - 1
        return self.batches[max(begin, 0) : bisect_right(self.batches, last, key=_first)] if begin >= 0 else []

    def begin(self, move: Move, run: Run, state: State, *, is_rejected: bool = False) -> None:
        """Change a state as soon as the share coordinator has written it."""
        run.state, run.is_moving = state, True
        move.runs.append(run)
        if state is State.ARCHIVING:
            move.letters.append(Letter(run.first, run.last, run.count, is_rejected))
        if state in TERMINAL:
            self.complete += self._left_of(run)

    def after_delivery(self, run: Run, limits: ShareLimits) -> State:
        """The state of records that were delivered and not acknowledged."""
        return self.after_rejection(limits) if run.count >= limits.deliveries else State.AVAILABLE

    @staticmethod
    def after_rejection(limits: ShareLimits) -> State:
        """The state of records that are not delivered again."""
        return State.ARCHIVING if limits.has_letters else State.ARCHIVED

    def written(self, runs: Iterable[Run]) -> PersistedWrite:
        """The write for some runs."""
        states = tuple(StateBatch(run.first, run.last, int(run.state), run.count) for run in runs)
        return PersistedWrite(self.state_epoch, self.leader_epoch, self.start, self.complete, states)

    def finish(self, move: Move) -> None:
        """The share coordinator has written a move."""
        for run in move.runs:
            run.rest(run.state)
            self._searches = self._searches or run.state is State.AVAILABLE
        for batch in move.batches:
            batch.join()
        self.letters += move.letters
        self.advance()

    def settle(self, letter: Letter) -> PersistedWrite | None:
        """Archive what the dead-letter queue has, or will never have; returns what is to be written, if anything is."""
        settled: list[Run] = []
        batches = self._around(letter.first, letter.last)
        for batch in batches:
            for run in batch.cut(letter.first, letter.last):
                if run.state is State.ARCHIVING and not run.is_moving:
                    run.rest(State.ARCHIVED)
                    self.complete += self._left_of(run)
                    settled.append(run)
        write = self.written(settled) if settled else None
        for batch in batches:
            batch.join()
        self.advance()
        return write

    def undo(self, move: Move, limits: ShareLimits, now_ms: int) -> None:
        """A move was not written: each lock goes on, unless it has ended meanwhile."""
        for run in move.runs:
            if run.state in TERMINAL:
                self.complete -= self._left_of(run)
            if run.lock_ms > now_ms:
                run.state, run.is_moving = State.ACQUIRED, False
                self.lock_ms = min(self.lock_ms, run.lock_ms)
            elif run.last < self.start:
                run.rest(State.ARCHIVED)
            elif self.after_delivery(run, limits) is State.AVAILABLE:
                run.rest(State.AVAILABLE)
                self._searches = True
            else:
                # It is not delivered again, and that is still to be written: its lock ends once more.
                run.state, run.is_moving = State.ACQUIRED, False
                self.lock_ms = min(self.lock_ms, run.lock_ms)
        for batch in move.batches:
            batch.join()
        self.advance()

    # Locks

    def release(self, member: str, limits: ShareLimits) -> Move:
        """Begin to give back all that a member has."""
        move = Move()
        for batch in self.batches:
            held = [run for run in batch.runs if run.state is State.ACQUIRED and run.member == member]
            for run in held:
                self.begin(move, run, self.after_delivery(run, limits))
            if held:
                move.batches.append(batch)
        return move

    def expire(self, limits: ShareLimits, now_ms: int) -> tuple[PersistedWrite, Move] | None:
        """End the locks that are over; returns what is to be written, if anything is.

        What is delivered again is free at once, whatever comes of the write. The rest holds the start until it is
        written: a member is told that anything before the start is done with.
        """
        if now_ms < self.lock_ms:
            return None
        following = NEVER_MS
        written: list[Run] = []
        move = Move()
        for batch in self.batches:
            for run in batch.runs:
                if run.state is not State.ACQUIRED:
                    continue
                if run.lock_ms > now_ms:
                    following = min(following, run.lock_ms)
                    continue
                state = self.after_delivery(run, limits)
                if state is State.AVAILABLE:
                    run.rest(state)
                    self._searches = True
                else:
                    self.begin(move, run, State.ARCHIVED if run.last < self.start else state)
                written.append(run)
        self.lock_ms = following
        if not written:
            return None
        write = self.written(written)
        for batch in self.batches:
            batch.join()
        move.batches = list(self.batches) if move.runs else []
        self.advance()
        return write, move


class _Taking:
    """One acquisition under way."""

    def __init__(
        self, partition: SharePartition, take: Take, spans: Sequence[Span], limits: ShareLimits, lock_ms: int
    ) -> None:
        self.acquired: list[Acquired] = []
        self.count = 0
        """How many offsets were acquired."""
        self.lock_ms = lock_ms
        self._partition = partition
        self._take = take
        self._spans = spans
        self._deliveries = limits.deliveries
        self._throttled_from = max(2, -(-limits.deliveries // 2))
        """The count of deliveries from which on fewer records are delivered together: one of them may be bad."""

    def again(self, batch: Batch, first: int, last: int, left: int) -> bool:
        """Deliver what is free in a batch again; returns whether the acquisition may go on."""
        free = [run for run in batch.within(first, last) if run.is_free]
        if not free:
            return True
        is_throttled = max(run.count for run in free) >= self._throttled_from
        if is_throttled and self.count:
            return False
        before = self.count
        self._deliver(batch, free, first, last, left if self._take.mode == RECORD_LIMIT else batch.size)
        batch.join()
        return not (is_throttled and self.count > before)

    def _deliver(self, batch: Batch, free: list[Run], first: int, last: int, most: int) -> None:
        """Deliver runs of a batch, fewer at a time the more often they were delivered, and alone at the last time."""
        limit, count, few = self._deliveries, 0, 0
        for run in free:
            begin, end = max(run.first, first), min(run.last, last)
            is_last_time = limit > 2 and run.count == limit - 1
            if is_last_time and count:
                break
            if run.count >= self._throttled_from and not few:
                few = max(1, batch.size >> (run.count - self._throttled_from + 1))
            size = 1 if is_last_time else min(end - begin + 1, most - count)
            if few > count:
                size = min(size, few - count)
            for one in batch.cut(begin, begin + size - 1):
                one.lock(self._take.member, self.lock_ms)
                self._note(one, joins=count > 0)
            count += size
            if is_last_time or count in (few, most):
                break
        self.count += count

    def _note(self, run: Run, *, joins: bool) -> None:
        last = self.acquired[-1] if joins else None
        if last is not None and last.last + 1 == run.first and last.count == run.count:
            self.acquired[-1] = Acquired(last.first, run.last, last.count)
        else:
            self.acquired.append(Acquired(run.first, run.last, run.count))

    def fill(self, gap: Batch, first: int, last: int, left: int) -> None:
        """Deliver the first free offsets of a gap."""
        free = next((run for run in gap.within(first, last) if run.is_free), None)
        if free is None:
            return
        begin = max(free.first, first)
        end = self._end(begin, min(free.last, last), left)
        gap.cut(begin, end)
        batches = self._partition.batches
        at = bisect_right(batches, gap.first, key=_first) - 1
        batches[at : at + 1] = [
            Batch(low, high, gap.within(low, high), is_gap=True)
            for low, high in ((gap.first, begin - 1), (end + 1, gap.last))
            if low <= high
        ]
        start = self._partition.start
        self.new(begin, end, left)
        self._partition.start = start

    def new(self, first: int, last: int, left: int) -> None:
        """Deliver offsets that nobody had before, up to the end of a record batch."""
        end = self._end(first, last, left)
        if self._take.mode == RECORD_LIMIT:
            self._add(first, min(end, first + left - 1), end)
            return
        begin = first
        if end - first + 1 > self._take.batch_size:
            for span in self._spans:
                if span.first > end:
                    break
                if span.first - begin >= max(1, self._take.batch_size):
                    self._add(begin, span.first - 1, span.first - 1)
                    begin = span.first
        self._add(begin, end, end)

    def _end(self, first: int, last: int, left: int) -> int:
        """Where new offsets end: a record batch is not cut in two, as it is handed out as a whole."""
        wanted = first + left - 1
        if wanted >= last:
            return last
        return min(last, next(span.last for span in self._spans if span.last >= wanted))

    def _add(self, first: int, last: int, end: int) -> None:
        runs = [Run(first, last, State.ACQUIRED, 1, self._take.member, self.lock_ms)]
        if end > last:
            runs.append(Run(last + 1, end, State.AVAILABLE, 0))
            self._partition.search()
        self._partition.insert(Batch(first, end, runs))
        self.acquired.append(Acquired(first, last, 1))
        self.count += last - first + 1
