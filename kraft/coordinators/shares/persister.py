"""The interface by which a broker keeps the delivery state of share partitions at the share coordinator (Kafka:
`Persister`).

The share coordinator is some broker of the cluster. An answer comes in a later turn of this broker, as a call of
`then`, whose last argument is the time of that turn in ms since 1970. Each call is answered exactly once, also when the
coordinator cannot be reached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from metadata_log.types import Uuid
from transport.protocol.errors import Error

NO_OFFSET: Final = -1
"""The start offset of a share partition that its leader has not chosen yet."""
NO_COUNT: Final = -1
"""The count of ended records where nobody knows it."""


class ShareKey(Struct, frozen=True, gc=False, order=True):
    """A share partition: a partition as one group consumes it."""

    group_id: str
    topic_id: Uuid
    partition: int

    @property
    def name(self) -> str:
        """The name of which the hash selects the coordinator, as FindCoordinator takes it."""
        return f"{self.group_id}:{self.topic_id}:{self.partition}"


class StateBatch(Struct, frozen=True, gc=False, order=True):
    """The state of some offsets, both ends included.

    `delivery_state` is that of the wire: 0 available, 2 acknowledged, 3 archiving, 4 archived. The share coordinator
    keeps any other number, too.
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class PersistedState(Struct, frozen=True):
    """The answer to Read. It has neither the leader epoch nor the count of ended records: the batches tell the latter.

    The batches are sorted and do not overlap. The start offset is `NO_OFFSET` until the first Write.
    """

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]


class PersistedWrite(Struct, frozen=True):
    """The content of a Write: what has changed, as the batches of changed offsets."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class Summary(Struct, frozen=True):
    """The answer to ReadSummary; an unknown share partition has the start offset `NO_OFFSET` and the epochs 0."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


class Persister(Protocol):
    """The share coordinators of the cluster, as seen from one broker."""

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: int, now_ms: int, then: Callable[[Error, int], None]
    ) -> None:
        """Begin the state of a share partition anew; FENCED_STATE_EPOCH if a newer state is known."""

    def read(
        self, key: ShareKey, leader_epoch: int, now_ms: int, then: Callable[[PersistedState | Error, int], None]
    ) -> None:
        """Read the state at the begin of a leadership, which fences the leaders before; INVALID_REQUEST for a share
        partition that was not initialized.
        """

    def write(self, key: ShareKey, written: PersistedWrite, now_ms: int, then: Callable[[Error, int], None]) -> None:
        """Add a change to the state. Writes of a key are carried out in the order of the calls."""

    def summary(
        self, key: ShareKey, leader_epoch: int, now_ms: int, then: Callable[[Summary | Error, int], None]
    ) -> None:
        """Read how far a share partition is. Fences nobody; the leader epoch may be -1."""

    def delete(self, key: ShareKey, now_ms: int, then: Callable[[Error, int], None]) -> None:
        """Forget a share partition; one that is not known is no error."""
