"""The interface of a coordinator to the runtime of its partitions (Kafka: `CoordinatorShard`, `CoordinatorResult`).

The replicated state is an immutable value, so that a snapshot of it is a reference. What the log does not have (who
waits, timers) is the shard's own, and is gone with it when the partition moves to another broker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from random import Random
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct, field

from kraft.access.errors import ApiError
from kraft.coordinators.runtime.budget import Budget
from kraft.coordinators.runtime.timers import Timers
from kraft.handling.api import M
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.records.coordinator import RecordKind
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.errors import Error

S = TypeVar("S")


class Record(Struct, frozen=True, gc=False):
    """A record of a coordinator's topic; without a value it is a tombstone."""

    key: Message
    value: Message | None = None
    version: int | None = None
    """The version of the encoded value; None for the one that Kafka writes."""
    found: tuple[Any, Any] | None = None
    """If the shard has replayed the record when it made it: the part of the state that it changes, before and after it.
    A large record is not replayed twice."""
    encoded: tuple[bytes, bytes | None] | None = None
    """The bytes of key and value, if the shard has encoded them: a turn may have no time for more than the append."""


class _Held:
    """The type of `HELD`."""


HELD: Final = _Held()
"""The result of an operation whose request is answered later, by `Context.answer`."""


class CoordinatorResult(Struct, frozen=True, gc=False):
    """The outcome of an operation on a partition: records to write, and a result to tell once these are committed.

    Args:
        records: What is written. Without records the operation waits for the records of the ones before it.
        result: What `Operation.tell` makes the answer of, unless the records fail. `HELD` if the shard itself answers
            later, also after an error (see `on_end`).
        on_end: What follows when the records are committed (NONE), not written, or not committed in time
            (REQUEST_TIMED_OUT, and then the records stay). It may return another operation, which nobody waits for.
        producer: The producer id and epoch of records that belong to a transaction.
        is_atomic: Whether all records go into one batch, or none is written.
    """

    records: Sequence[Record] = ()
    result: Any = None
    on_end: Callable[[Error, Context], CoordinatorResult | None] | None = None
    producer: tuple[int, int] | None = None
    is_atomic: bool = True


NOTHING: Final = CoordinatorResult()
"""An operation that changes nothing."""


class Context(Struct, frozen=True, gc=False):
    """All that an operation may read, and the ways to act besides its records."""

    state: Any
    """The replicated state, with everything that was written before."""
    now_ms: int
    image: MetadataImage
    timers: Timers
    """The timers of the partition; each ends in `Shard.on_timer`."""
    rng: Random
    answer: Callable[[WireRequest, Message], None]
    """Answer a request that an earlier operation has held."""
    budget: Budget = field(default_factory=Budget)
    """How much the turn may still do. An operation takes from it what it costs besides its records."""


class Operation(Protocol):
    """An operation on a partition, for a request, a part of one, or nobody (Kafka: `CoordinatorWriteOperation`)."""

    @property
    def request(self) -> WireRequest | None:
        """The request that is answered; None if nobody asks."""

    def decide(self, shard: Any, context: Context) -> CoordinatorResult:
        """Find what is written, and the result. Raises `ApiError` to refuse, before anything has changed."""

    def tell(self, result: Any) -> Message | None:
        """The answer, once everything is committed; None if there is none, or not before other operations end."""

    def refuse(self, refused: ApiError) -> Message | None:
        """As `tell`, where nothing was done, or it cannot be told whether it was."""


def refusing(make: Callable[[WireRequest[M]], Operation]) -> Callable[[WireRequest[M], ApiError], Answer | None]:
    """The refusal of a request as a whole, by its operation."""

    def refuse(request: WireRequest[M], error: ApiError) -> Answer | None:
        message = make(request).refuse(error)
        return None if message is None else Answer(request.request_id, message)

    return refuse


class Shard(Protocol[S]):
    """The coordinator of one partition."""

    kinds: Mapping[int, RecordKind]
    """The types of records in the topic. A record of another type is skipped."""

    def empty(self) -> S:
        """The state before the first record."""

    def replay(self, state: S, record: Record, offset: int, producer_id: int) -> S:
        """The state after a record at an offset; `producer_id` is -1 outside of transactions. Raises `MetadataLogError`
        if the record makes no sense, which fails the load.
        """

    def lacking(self, state: S, record: Record) -> str:
        """The part of the log that was removed before a record on which it follows, in words; empty if nothing was."""

    def end_transaction(self, state: S, producer_id: int, *, is_commit: bool) -> Generator[None, None, S]:
        """Find the state after the end of a producer's transaction, in steps."""

    def on_loaded(self, context: Context) -> Generator[None, None, None]:
        """Start the timers after the state was loaded, in steps of less than a millisecond."""

    def on_timer(self, key: Hashable, context: Context) -> CoordinatorResult:
        """Act on a timer that has ended. If the records are not written, it ends again after a pause."""

    def on_deleted_topics(self, topics: Mapping[str, Uuid], context: Context) -> None:
        """Topics were deleted, by name; one with the same name may exist again. What is to be written goes into a
        timer.
        """

    def on_unloaded(self, context: Context) -> Generator[None, None, None]:
        """This broker coordinates the partition no longer: answer every request that was held, in steps. The first one
        is made at once.
        """
