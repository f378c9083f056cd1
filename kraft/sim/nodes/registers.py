"""A small application with snapshots: every value is written to one of a few registers (Kafka: the counter of
`ReplicatedCounter`, which its simulation hosts).

The state of a node is the last value of each register, whether the node has read the log or loaded a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random

from kraft.invariants.registers import Registers
from kraft.replica.interface.application import RawLog
from kraft.replica.interface.events import Committed, CommittedBatch
from kraft.replica.interface.options import ReplicaOptions
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch


class RegisterLog(RawLog):
    """A raw log with registers as its state, and snapshots of the registers."""

    def __init__(self) -> None:
        super().__init__(reads_batches=True)
        self.registers = Registers()

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """Accept any bytes as values."""

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """Replace the registers by those of the snapshot."""
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


def host_registers(
    options: ReplicaOptions, cluster_id: str, bootstrap: tuple[Message, ...], rng: Random
) -> RegisterLog:
    """The factory of a log with registers."""
    return RegisterLog()
