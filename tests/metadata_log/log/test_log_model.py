"""The log against a model that is a list of batches: any sequence of operations, with restarts, gives the same."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kraft.sim.state.forking import forked
from metadata_log.log.log import MetadataLog
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch

OPTIONS = {"segment_bytes": 600, "segment_ms": 50, "index_interval_bytes": 200}


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.disk = MemoryDisk()
        self.log = MetadataLog.open(self.disk, "d", **OPTIONS)
        self.batches: list[bytes] = []
        self.ends = [0]
        self.epoch = 0
        self.time = 0

    @rule(
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=3),
        size=st.integers(0, 150),
        later=st.integers(0, 60),
        epoch=st.integers(0, 2),
    )
    def append(self, counts: list[int], size: int, later: int, epoch: int) -> None:
        self.time += later
        self.epoch += epoch
        data = b""
        for count in counts:
            batch = build_batch(self.ends[-1], self.epoch, self.time, [b"x" * size] * count)
            self.batches.append(batch)
            self.ends.append(self.ends[-1] + count)
            data += batch
        self.log.append(data)

    @rule(at=st.floats(0, 1))
    def truncate(self, at: float) -> None:
        kept = int(at * len(self.batches))
        assert self.log.truncate(self.ends[kept]) == self.ends[kept]
        del self.batches[kept:]
        del self.ends[kept + 1 :]

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.flushed_offset == self.log.end_offset

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log = MetadataLog.open(self.disk, "d", **OPTIONS)
        assert self.log.recovered == ()

    @rule()
    def lose_power(self) -> None:
        """Everything below the flushed offset is there after a crash."""
        flushed = self.log.flushed_offset
        self.disk.crash()
        self.log = MetadataLog.open(self.disk, "d", **OPTIONS)
        assert self.log.end_offset >= flushed
        kept = self.ends.index(self.log.end_offset)
        del self.batches[kept:]
        del self.ends[kept + 1 :]

    @rule()
    def go_on_with_a_fork(self) -> None:
        self.disk, self.log = forked((self.disk, self.log))

    @rule(at=st.floats(0, 1), max_bytes=st.integers(0, 700))
    def read(self, at: float, max_bytes: int) -> None:
        offset = int(at * self.ends[-1])
        data = self.log.read(offset, max_bytes)
        if offset == self.ends[-1]:
            assert data == b""
            return
        first = next(index for index, end in enumerate(self.ends[1:]) if end > offset)
        found = [batch.data for batch in scan(data)]
        assert found == self.batches[first : first + len(found)]
        assert found
        assert len(found) == 1 or len(data) <= max_bytes

    @invariant()
    def agrees(self) -> None:
        assert self.log.end_offset == self.ends[-1]
        assert self.log.size_bytes == sum(map(len, self.batches))
        epochs = [batch.epoch for batch in scan(b"".join(self.batches))]
        assert [entry.epoch for entry in self.log.epochs.entries] == sorted(set(epochs))


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=60, stateful_step_count=30)
