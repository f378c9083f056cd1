"""The transactions that a cleaner meets on its way through a log (Kafka: `CleanedTransactionMetadata`).

A marker goes only after all data of its transaction: a reader of committed records needs the marker until then.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from kraft.partitions.log.producers import ABORT, MARKER_KEY
from kraft.partitions.log.transaction_markers import COMMIT
from metadata_log.errors import CorruptBatch
from metadata_log.records.aborted_txn import AbortedTxn
from metadata_log.records.batch import RecordBatch
from metadata_log.records.record import records


class CleanedTransactions:
    """The open transactions at one position of a log. `read` is called with every batch, in order."""

    def __init__(self) -> None:
        self.kept: list[AbortedTxn] = []
        """The aborted transactions with data before their markers: they stay in the index of the cleaned segment."""
        self._aborted: list[tuple[int, int, AbortedTxn]] = []
        """The aborted transactions that have not begun yet, as a heap by their first offsets."""
        self._added = 0
        self._ongoing: dict[int, AbortedTxn] = {}
        self._observed: set[int] = set()
        """The producers of ongoing aborted transactions of which a batch was there."""
        self._committed: set[int] = set()

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        """Learn the aborted transactions of the next segment, from the index files."""
        for each in transactions:
            heappush(self._aborted, (each.first_offset, self._added, each))
            self._added += 1

    def read(self, batch: RecordBatch, *, where: str) -> bool:
        """Go on after a batch.

        Args:
            batch: The batch, with its bytes.
            where: The file, for errors.

        Returns:
            Whether all records of the batch may go: they were aborted, or the batch is the marker of a transaction
            without data.

        Raises:
            CorruptBatch: The batch is damaged.
        """
        while self._aborted and self._aborted[0][0] <= batch.last_offset:
            _, _, begun = heappop(self._aborted)
            self._ongoing.setdefault(begun.producer_id, begun)
        if batch.is_control:
            return self._end(batch, where)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._ongoing:
            self._observed.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def _end(self, batch: RecordBatch, where: str) -> bool:
        record = next(records(batch, where=where), None)
        if record is None:
            return True  # the cleaner has emptied this batch before
        key = record.key or b""
        if len(key) < MARKER_KEY.size:
            raise CorruptBatch("a control record has no type", where=where, position=batch.position)
        _, kind = MARKER_KEY.unpack_from(key)
        producer_id = batch.producer_id
        if kind == ABORT:
            ended = self._ongoing.pop(producer_id, None)
            if ended is not None and producer_id in self._observed:
                self._observed.remove(producer_id)
                self.kept.append(ended)
                return False
            return True
        if kind == COMMIT:
            had_data = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_data
        return False
