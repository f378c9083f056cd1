"""The facts that a follower needs of the log before its leader's local start, which is in tiered storage alone.

Kafka's follower reads the leader epochs and the producers in the remote store (`TierStateMachine`). Here the leader is
asked for both: its epochs reach back to the log start, and its producers are those of the same log (decision 0129).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.log.epochs import EpochHistory
from metadata_log.log.producer_snapshot import StoredProducer
from metadata_log.types import NO_EPOCH, NO_SEQUENCE, OffsetAndEpoch

if TYPE_CHECKING:
    from transport.protocol.messages.describe_producers import ProducerState

_MOST_EPOCH: Final = 2**15 - 1


class TierState(Struct, frozen=True):
    """The answers of the leader so far."""

    log_start: int = 0
    """Where the log of the leader begins in tiered storage."""
    local_start: int = -1
    """Where it begins on the leader's disk; -1 before that is known."""
    epoch: int = -1
    """The oldest epoch that is known; the leader is asked for the end of the one before."""
    entries: tuple[OffsetAndEpoch, ...] = ()
    """The epochs before the local start with their first offsets, the newest first."""

    def begun(self, local_start: int, epoch: int) -> TierState | None:
        """The state after the local start and its epoch; None if no sound leader says so."""
        if not 0 <= self.log_start <= local_start or epoch < 0:
            return None
        return TierState(self.log_start, local_start, epoch)

    def ended(self, epoch: int, offset: int) -> TierState | None:
        """The state after the epoch before the oldest known one and its end; None if no sound leader says so."""
        first = self.entries[-1].offset - 1 if self.entries else self.local_start
        if not 0 <= epoch < self.epoch or not 0 <= offset <= first:
            return None
        entry = OffsetAndEpoch(epoch=self.epoch, offset=max(offset, self.log_start))
        return replace(self, epoch=epoch, entries=(*self.entries, entry))

    @property
    def epochs(self) -> EpochHistory | None:
        """All epochs from the log start to the local start; None while some are unknown.

        No epoch is before the first one, and an epoch that begins at the log start has none before that counts.
        """
        if self.local_start < 0:
            return None
        if self.entries and self.entries[-1].offset == self.log_start:
            known = self.entries
        elif self.epoch == 0:
            known = (*self.entries, OffsetAndEpoch(epoch=0, offset=self.log_start))
        else:
            return None
        return EpochHistory(tuple(reversed(known)))

    def producers(self, told: Sequence[ProducerState]) -> list[StoredProducer] | None:
        """The producers at the local start, or None if a sound leader does not say so.

        Those that have written since are found again in the log. Of a last batch before the local start only the last
        sequence number is known, so that it passes for one record. No transaction is open there: Kafka copies nothing
        that a consumer of committed records may not read.
        """
        found = []
        for one in told:
            is_sound = (
                one.producer_id >= 0
                and NO_EPOCH <= one.producer_epoch <= _MOST_EPOCH
                and one.last_sequence >= NO_SEQUENCE
                and not 0 <= one.current_txn_start_offset < self.local_start
            )
            if not is_sound:
                return None
            has_batch = one.last_sequence >= 0
            found.append(
                StoredProducer(
                    one.producer_id,
                    one.producer_epoch,
                    one.last_sequence,
                    self.local_start - 1 if has_batch else -1,
                    0,
                    one.last_timestamp,
                    one.coordinator_epoch,
                    -1,
                )
            )
        return found
