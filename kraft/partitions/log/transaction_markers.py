"""The markers that end transactions, as a coordinator has them written (Kafka: `EndTransactionMarker`,
`MemoryRecords.withEndTransactionMarker`, `ProducerAppendInfo.appendEndTxnMarker`).
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from kraft.partitions.log.producers import ABORT, MARKER_KEY, ProducerRefusal, ProducerStates
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from transport.protocol.errors import Error

EPOCH_BUMPS_SINCE: Final = 2
"""The transaction version in which each end of a transaction raises the producer's epoch (KIP-890)."""
_VALUE: Final = Layout(">hi")
HIGHEST_EPOCH: Final = 32767
"""The highest epoch of a producer."""
_VERSION: Final = 0
COMMIT: Final = 1


class TransactionMarker(Struct, frozen=True, kw_only=True):
    """The end of a producer's transaction in a partition.

    Args:
        producer_id: The producer.
        producer_epoch: Its epoch, which transaction version 2 has raised.
        is_commit: Whether the transaction is committed; else it is aborted.
        coordinator_epoch: The leader epoch of the coordinator's partition.
        transaction_version: The level of the feature `transaction.version` at the coordinator.
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0

    def batch(self, now_ms: int) -> bytes:
        """The control batch, with the bytes that Kafka writes; `now_ms` is the time in ms since 1970."""
        key = MARKER_KEY.pack(_VERSION, COMMIT if self.is_commit else ABORT)
        record = Record(0, now_ms, 0, key, _VALUE.pack(_VERSION, self.coordinator_epoch))
        return write_batch(
            [record],
            epoch=-1,
            transactional=True,
            control=True,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
        )


def marker_refusal(states: ProducerStates, marker: TransactionMarker) -> ProducerRefusal | None:
    """Why a marker may not be appended; None if it may.

    With transaction version 2 a marker has a higher epoch than the records of the transaction. A marker that was
    appended before, and is sent again, has an equal epoch, and so has one where no epoch is higher
    (`ProducerAppendInfo.checkProducerEpoch`).
    """
    known = states.producers.get(marker.producer_id)
    if known is None:
        return None
    name = f"producer {marker.producer_id}"
    is_last = marker.producer_epoch == HIGHEST_EPOCH
    is_again = marker.producer_epoch == known.epoch and (known.open_offset is None or is_last)
    is_bumped = marker.transaction_version >= EPOCH_BUMPS_SINCE and not is_again
    if marker.producer_epoch < known.epoch + is_bumped:
        text = f"{name} has epoch {known.epoch}; the marker has epoch {marker.producer_epoch}"
        return ProducerRefusal(Error.INVALID_PRODUCER_EPOCH, text)
    if marker.coordinator_epoch < known.coordinator_epoch:
        text = f"{name} has a marker of coordinator epoch {known.coordinator_epoch}, above {marker.coordinator_epoch}"
        return ProducerRefusal(Error.TRANSACTION_COORDINATOR_FENCED, text)
    return None
