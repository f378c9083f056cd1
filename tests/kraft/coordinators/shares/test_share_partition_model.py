"""What must hold of a share partition whatever happens, judged record by record."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kraft.coordinators.shares.acknowledging import Acknowledgement, acknowledging
from kraft.coordinators.shares.persister import PersistedState, PersistedWrite, StateBatch
from kraft.coordinators.shares.share_partition import Move, ShareLimits, SharePartition, Span, Take
from metadata_log.serde.codec import finished

LIMITS = ShareLimits(deliveries=5, lock_ms=100, window=30)
END = 60
MEMBERS = st.sampled_from(("a", "b"))


class Coordinator:
    """The share coordinator, record by record: more deliveries win, then the larger state."""

    def __init__(self) -> None:
        self.start = -1
        self.states: dict[int, tuple[int, int]] = {}

    def write(self, write: PersistedWrite) -> None:
        """Take a write."""
        self.start = max(self.start, write.start_offset)
        for each in write.batches:
            for offset in range(each.first_offset, each.last_offset + 1):
                known = self.states.get(offset, (-1, -1))
                self.states[offset] = max(known, (each.delivery_count, each.delivery_state))

    def read(self) -> PersistedState:
        """What a new leader reads."""
        kept = sorted((at, one) for at, one in self.states.items() if at >= self.start)
        return PersistedState(0, self.start, tuple(StateBatch(at, at, one[1], one[0]) for at, one in kept))


class Shares(RuleBasedStateMachine):
    """Members fetch, acknowledge, go away and are late, leaders change, and the log loses its front."""

    def __init__(self) -> None:
        super().__init__()
        self.partition = SharePartition(PersistedState(0, -1, ()), 0, 0)
        self.coordinator = Coordinator()
        self.moves: list[tuple[Move, PersistedWrite]] = []
        self.now_ms = 0
        self.holders: dict[int, tuple[str, int]] = {}
        self.deliveries: dict[int, int] = {}
        self.ended: set[int] = set()
        self.start = self.log_start = 0

    @rule(
        member=MEMBERS,
        most=st.integers(1, 12),
        size=st.integers(1, 12),
        mode=st.integers(0, 1),
        widths=st.lists(st.integers(1, 6), max_size=6),
    )
    def fetch(self, member: str, most: int, size: int, mode: int, widths: Sequence[int]) -> None:
        """Acquire some of the next records."""
        at = self.partition.next_fetch()
        spans, first = [], at
        for width in widths:
            spans.append(Span(first, min(first + width, END) - 1))
            first += width
            if first >= END:
                break
        spans = [each for each in spans if each.first <= each.last]
        for each in self.partition.acquire(Take(member, most, size, mode), at, spans, LIMITS, self.now_ms):
            for offset in range(each.first, each.last + 1):
                assert offset >= self.log_start
                assert offset not in self.ended, "a record that is done with is delivered"
                assert offset not in self.holders or self.holders[offset][1] <= self.now_ms, "a record has two holders"
                self.holders[offset] = member, self.now_ms + LIMITS.lock_ms
                self.deliveries[offset] = self.deliveries.get(offset, 0) + 1
                assert self.deliveries[offset] >= each.count
                assert each.count <= LIMITS.deliveries
        assert self.partition.in_flight <= LIMITS.window + 12

    @rule(member=MEMBERS, first=st.integers(0, END), types=st.lists(st.integers(0, 4), min_size=1, max_size=8))
    def acknowledge(self, member: str, first: int, types: list[int]) -> None:
        """Acknowledge some records, which the member may hold or not."""
        asked = [Acknowledgement(first, first + len(types) - 1, types)]
        move = finished(acknowledging(self.partition, member, asked, LIMITS, self.now_ms))
        if isinstance(move, Move):
            for run in move.runs:
                for offset in range(run.first, run.last + 1):
                    assert self.holders[offset][0] == member, "a record is acknowledged that another holds"
            for offset, kind in enumerate(types, first):
                if kind == 4 and offset >= self.start and offset in self.holders:
                    self.holders[offset] = member, self.now_ms + LIMITS.lock_ms
            self.moves.append((move, self.partition.written(move.runs)))

    @precondition(lambda self: self.moves)
    @rule(is_written=st.booleans())
    def answer(self, *, is_written: bool) -> None:
        """The share coordinator answers the first write, or it is lost."""
        move, write = self.moves.pop(0)
        if not is_written:
            self.partition.undo(move, LIMITS, self.now_ms)
            return
        self.coordinator.write(write)
        moved = [(offset, run.state) for run in move.runs for offset in range(run.first, run.last + 1)]
        self.partition.finish(move)
        for offset, state in moved:
            self.holders.pop(offset, None)
            if state != 0:
                self.ended.add(offset)

    @rule(member=MEMBERS)
    def go(self, member: str) -> None:
        """A member gives everything back."""
        move = self.partition.release(member, LIMITS)
        if move.runs:
            self.moves.append((move, self.partition.written(move.runs)))

    @rule(elapsed_ms=st.integers(1, 60))
    def wait(self, elapsed_ms: int) -> None:
        """Time goes by, and locks end."""
        self.now_ms += elapsed_ms
        ended = self.partition.expire(LIMITS, self.now_ms)
        if ended is not None:
            write, move = ended
            for each in write.batches:
                for offset in range(each.first_offset, each.last_offset + 1):
                    assert self.holders[offset][1] <= self.now_ms, "a lock has ended early"
                    if each.delivery_state == 0:
                        del self.holders[offset]
            self.moves.append((move, write))

    @rule(ahead=st.integers(1, 10))
    def trim(self, ahead: int) -> None:
        """The log loses its front."""
        self.log_start = min(self.start + ahead, END)
        self.partition.raise_start(self.log_start)

    @rule()
    def change_leader(self) -> None:
        """A new leader loads what was written."""
        for _ in range(len(self.moves)):
            self.coordinator.write(self.moves.pop(0)[1])
        start = self.log_start
        self.partition = SharePartition(self.coordinator.read(), 0, start)
        self.partition.raise_start(start)
        self.holders.clear()
        self.ended = {at for at, (_, state) in self.coordinator.states.items() if state != 0}
        self.start = self.partition.start

    @invariant()
    def holds(self) -> None:
        """The start never goes back while a leader leads, and the bookkeeping is right."""
        one = self.partition
        assert self.start <= one.start <= one.next
        self.start = one.start
        assert one.complete == sum(
            run.state in (2, 4)
            for batch in one.batches
            for run in batch.runs
            for offset in range(run.first, run.last + 1)
            if offset >= one.start
        )
        at = one.next_fetch()
        free = [
            offset
            for batch in one.batches
            for run in batch.runs
            for offset in range(run.first, run.last + 1)
            if run.is_free and offset >= one.start
        ]
        assert at == min(free, default=one.next)
        for before, after in zip(one.batches, one.batches[1:], strict=False):
            assert before.last < after.first
        for batch in one.batches:
            assert batch.runs[0].first == batch.first
            assert batch.runs[-1].last == batch.last
            for left, right in zip(batch.runs, batch.runs[1:], strict=False):
                assert left.last + 1 == right.first

    def teardown(self) -> None:
        """In the end every record is done with, if somebody accepts all."""
        while self.moves:
            self.answer(is_written=True)
        self.now_ms += LIMITS.lock_ms
        self.wait(1)
        while self.moves:
            self.answer(is_written=True)
        one = self.partition
        for _ in range(30 * END):
            at = one.next_fetch()
            if at >= END:
                break
            spans = [Span(each, each) for each in range(at, END)]
            got = one.acquire(Take("a", 500), at, spans, LIMITS, self.now_ms)
            assert got, "nothing goes on"
            for each in got:
                asked = [Acknowledgement(each.first, each.last, [1])]
                move = finished(acknowledging(one, "a", asked, LIMITS, self.now_ms))
                assert isinstance(move, Move)
                one.finish(move)
        assert one.start == max(END, one.start)
        assert one.complete == 0


TestShares = Shares.TestCase
TestShares.settings = settings(max_examples=8, stateful_step_count=40, deadline=None)
