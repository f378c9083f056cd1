"""The logs of simulated nodes: a raw log with reads, and a log with a state and snapshots.

`RegisterLog` writes every value to one of a few registers (Kafka: the counter of `ReplicatedCounter`, which its
simulation hosts). The state of a node is the last value of each register, whether the node has read the log or loaded
a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kraft.calls import Call, CancelCall, Returned
from kraft.committed import Committed, CommittedBatch
from kraft.invariants.snapshots import Registers
from kraft.process.parts import Opening
from kraft.replica.interface.actions import Action, Confirm
from kraft.replica.interface.events import Submit
from kraft.state_machine.raw_log import RawLog
from kraft.state_machine.server import ReadReady
from metadata_log.types import NEVER_MS, OffsetAndEpoch

_READS: Final = 0
"""The one slot of the agenda of a raw log."""


class ReadableLog(RawLog):
    """A raw log that a leader lets its host read, once a majority has confirmed the leader."""

    def __init__(self) -> None:
        super().__init__(reads_batches=True)
        self.applied_offset = 0
        """The host has every committed batch below this offset."""
        self._asked: list[int] = []
        self._returned: list[Returned] = []

    def on_call(self, call: Call | CancelCall | Submit, now_ms: int) -> Action | None:
        """The host reads or submits; no host cancels a read."""
        if not isinstance(call, Call):
            return super().on_call(call, now_ms)
        self._asked.append(call.call_id)
        self.agenda.now(_READS)
        return None

    def on_confirmed(self, token: int, *, is_leader: bool) -> None:
        """Return from the read, unless the leadership is lost."""
        if is_leader:
            self._returned.append(Returned(token, ReadReady()))
            self.agenda.now(_READS)

    def on_committed(self, batch: CommittedBatch) -> tuple[Committed, ...]:
        """Hand the batch to the host."""
        self.applied_offset = batch.next_offset
        return super().on_committed(batch)

    def on_tick(self, now_ms: int) -> tuple[Action, ...]:
        """Return from reads, and have other reads confirmed."""
        self.agenda.at(_READS, NEVER_MS)
        returned, self._returned = self._returned, []
        asked, self._asked = self._asked, []
        return (*returned, *map(Confirm, asked))


class RegisterLog(ReadableLog):
    """A log with registers as its state, and snapshots of the registers."""

    def __init__(self) -> None:
        super().__init__()
        self.registers = Registers()

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """Accept any bytes as values."""

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """Replace the registers by those of the snapshot."""
        self.applied_offset = end.offset
        self.registers = Registers()
        self.registers.apply(values)

    def on_committed(self, batch: CommittedBatch) -> tuple[Committed, ...]:
        """Write the values to the registers, and report the batch."""
        self.registers.apply(batch.values)
        return super().on_committed(batch)

    def snapshot(self) -> Callable[[], Iterator[bytes]]:
        """The registers as they are now."""
        values = self.registers.values()
        return lambda: iter(values)


def host_readable_log(opening: Opening) -> ReadableLog:
    """The factory of a raw log with reads."""
    return ReadableLog()


def host_registers(opening: Opening) -> RegisterLog:
    """The factory of a log with registers."""
    return RegisterLog()
