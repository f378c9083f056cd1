"""The id of an idempotent or transactional producer, and its sequence numbers (Kafka: `TransactionManager`, KIP-98).

A transactional producer has one `Identity` for each of its topics, and gives all of them the same id and epoch.
"""

from __future__ import annotations

from typing import Final

from kraft.client.state.batches import Batch, Sequence
from kraft.client.state.errors import ClientError, cannot_connect, refused
from kraft.client.state.requests import pause_ms
from metadata_log.serde.fields import OPEN_END
from metadata_log.types import NEVER_MS, NO_PRODUCER
from transport.protocol.errors import Error
from transport.protocol.inbound import LASTING_OF_A_NODE, Cause, Failed
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_INT_MAX: Final = 2**31 - 1
LAST_PRODUCE_OF_V1: Final = 11
"""The last version of Produce by which the leader only verifies that the partition is in the transaction (KIP-890)."""
_WITHOUT: Final = "Without idempotence a repetition may write a record twice: --no-idempotence."


class Identity:
    """The id and the epoch of a producer, and the next sequence number of each partition of a topic.

    Args:
        transactional_id: The id of a transactional producer, whose owner asks for the producer id: see `begin`.
    """

    def __init__(self, transactional_id: str | None = None) -> None:
        self.due_ms = 0 if transactional_id is None else NEVER_MS
        """When the id may be requested; never once it is known."""
        self.last_failure = ""
        self.transactional_id = transactional_id
        self.is_broken = False
        """Whether a transactional producer needs a new epoch before its next batch."""
        self.adds_itself = True
        """Whether the leader of a partition adds it to the transaction (version 2 of transactions)."""
        self.added: set[int] = set()
        """The partitions in the transaction, where the leaders do not add them."""
        self._id = NO_PRODUCER
        self._epoch = 0
        self._failures = 0
        self._next: dict[int, int] = {}

    @property
    def is_known(self) -> bool:
        """Whether batches can have sequence numbers."""
        return self._id != NO_PRODUCER

    @property
    def highest_produce(self) -> int:
        """The highest version of Produce: with a higher one the leader adds the partition to the transaction."""
        return OPEN_END if self.adds_itself else LAST_PRODUCE_OF_V1

    def begin(self, producer_id: int, epoch: int) -> None:
        """Go on by this id and epoch, and number the records of each partition anew."""
        self._id, self._epoch = producer_id, epoch
        self._next.clear()
        self._failures, self.due_ms = 0, NEVER_MS
        self.is_broken = False

    def may_write(self, partition: int) -> bool:
        """Whether the partition is part of the transaction, or becomes so by the first batch."""
        return self.transactional_id is None or self.adds_itself or partition in self.added

    def request(self) -> InitProducerIdRequest:
        """The request for an id; any broker answers."""
        return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_INT_MAX)

    def on_outcome(self, outcome: InitProducerIdResponse | Failed, now_ms: int) -> None:
        """Take the answer; raises `ClientError` if the user may not have an id."""
        if isinstance(outcome, InitProducerIdResponse):
            error = Error.of(outcome.error_code)
            if error is Error.NONE:
                self.begin(outcome.producer_id, outcome.producer_epoch)
                return
            if not error.retriable:
                bad = refused("no producer id", error)
                raise ClientError(str(bad), hint=_WITHOUT, error=error)
            self.last_failure = f"no producer id: {error.name}"
        elif outcome.cause is Cause.UNSUPPORTED_VERSION:
            raise ClientError(outcome.detail, hint=_WITHOUT, cause=outcome.cause)
        elif outcome.cause in LASTING_OF_A_NODE:
            raise cannot_connect(outcome)
        else:
            self.last_failure = outcome.detail
        self.due_ms = now_ms + pause_ms(self._failures)
        self._failures += 1

    def forget(self, now_ms: int) -> None:
        """Request a new id, as the sequence of a partition is broken. Batches on their way keep their numbers."""
        if self.transactional_id is not None:
            self.is_broken = True
            return
        self._id = NO_PRODUCER
        self.due_ms = now_ms

    def next_sequence(self, batch: Batch) -> Sequence:
        """The id, the epoch and the first sequence number for a batch that is sent for the first time."""
        assert self.is_known, batch.partition
        first = self._next.get(batch.partition, 0)
        # After the largest number comes 0.
        self._next[batch.partition] = (first + len(batch.entries)) & _INT_MAX
        return Sequence(self._id, self._epoch, first)

    def take_back(self, batch: Batch) -> None:
        """The leader did not append this batch: its numbers are free."""
        used = batch.sequence
        if used is not None and used.producer_id == self._id:
            self._next[batch.partition] = used.first
