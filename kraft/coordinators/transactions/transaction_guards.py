"""The guards of a leader against records of transactions that are over (KIP-890).

Kafka: `VerificationStateEntry`, `VerificationGuard`. A guard lasts from the verification of a producer's transaction to
its first record. A record that a producer sent before the end of a transaction may arrive after the marker. Without a
verification since then the leader refuses such a record, which would otherwise begin a transaction that no coordinator
ends.
"""

from __future__ import annotations

from msgspec import Struct

from kraft.limits import TRANSACTION_GUARDS
from kraft.partitions.replicas.key import PartitionKey


class Guard(Struct):
    """A producer that is being verified: the smallest sequence number that it has sent in its epoch.

    `adds` tells whether the verification also adds the partition to the transaction (transaction version 2).
    """

    lowest_sequence: int
    epoch: int
    adds: bool


class TransactionGuards:
    """The guards of all partitions of a broker."""

    def __init__(self) -> None:
        self._guards: dict[tuple[PartitionKey, int], Guard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def begin(self, key: PartitionKey, producer_id: int, epoch: int, sequence: int, *, adds: bool) -> Guard:
        """The guard of a producer for a partition: the one that exists, or a new one."""
        guard = self._guards.get((key, producer_id))
        if guard is None:
            guard = self._guards[key, producer_id] = Guard(sequence, epoch, adds)
            if len(self._guards) > TRANSACTION_GUARDS:
                del self._guards[next(iter(self._guards))]
        if epoch > guard.epoch:
            guard.epoch, guard.lowest_sequence = epoch, sequence
        elif epoch == guard.epoch:
            # A later batch may overtake the first one on the way to this broker.
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        return guard

    def holds(self, key: PartitionKey, producer_id: int, guard: Guard) -> bool:
        """Whether neither a record nor a marker of the producer has been appended since the guard was made."""
        return self._guards.get((key, producer_id)) is guard

    def on_records(self, key: PartitionKey, producer_id: int, epoch: int) -> None:
        """Remove the guard of a producer whose records were appended: their transaction is open."""
        guard = self._guards.get((key, producer_id))
        if guard is not None and guard.epoch <= epoch:
            del self._guards[key, producer_id]

    def on_marker(self, key: PartitionKey, producer_id: int, epoch: int, *, is_bumped: bool) -> None:
        """Remove the guard of a producer after a marker: a verification from before that counts no longer.

        With transaction version 2 (`is_bumped`) a marker has a higher epoch than the records of its transaction.
        A guard of that epoch belongs to the next transaction: the producer may begin that before the marker is here.
        """
        guard = self._guards.get((key, producer_id))
        if guard is not None and not (is_bumped and guard.epoch >= epoch):
            del self._guards[key, producer_id]
