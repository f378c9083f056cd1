"""The state of a consumer that reads chosen partitions of one topic (Kafka: `Fetcher`, `OffsetFetcher`).

The consumer belongs to no group: the caller assigns the partitions and keeps the offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import count, islice
from typing import Final

from msgspec import Struct

from kraft.client.state.errors import ClientError, cannot_connect, refused
from kraft.client.state.positions import AtOffset, AtTime, Beginning, ConsumedRecord, End, Isolation, Position, Start
from kraft.client.state.reading import ReadAnswer, read_answer
from kraft.client.state.requests import REQUEST_TIMEOUT_MS, Address, Ask, pause_ms
from kraft.client.state.topic_view import Leader, TopicView
from metadata_log.errors import MetadataLogError
from metadata_log.serde import Message
from metadata_log.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from transport.protocol.errors import Error
from transport.protocol.inbound import Failed
from transport.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

MAX_WAIT_MS: Final = 500
"""How long a leader may wait for the next record (Kafka: `fetch.max.wait.ms`)."""
MAX_BYTES: Final = 8 << 20
"""The most bytes of one answer (Kafka: `fetch.max.bytes`, 50 MiB)."""
PARTITION_BYTES: Final = 1 << 20
"""Kafka: `max.partition.fetch.bytes`."""
BUFFERED_RECORDS: Final = 10_000
"""With so many records that the caller has not taken, nothing more is fetched."""
LEADERLESS_MS: Final = 5_000
"""How long the cluster may name no leader for the partitions that are left to read. It names one until a broker's
session is over, and the next one then, if a replica in sync runs.
"""
_NO_SESSION: Final = -1
_CONSUMER: Final = -1


class ConsumerSettings(Struct, frozen=True, kw_only=True):
    """The partitions that a consumer reads, from where, and in which portions.

    `partitions` None means all. `follows` means that the end of a partition is no end. A partition that no broker
    serves for `timeout_ms` milliseconds is an error. Without `follows`, partitions for which the cluster has no leader
    are one sooner, once the others are read.
    """

    start: Start = Beginning()
    partitions: tuple[int, ...] | None = None
    follows: bool = False
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    timeout_ms: int = 30_000


class _Asked(Struct, frozen=True):
    """A request on its way: the partitions, and the time that a ListOffsets asks for; None for a Fetch."""

    partitions: tuple[int, ...]
    leader: Leader
    timestamp: int | None


class ConsumerState:
    """The engine of a consumer; see `Engine`."""

    def __init__(self, topic: str, bootstrap: Sequence[Address], settings: ConsumerSettings) -> None:
        self._tokens = count(1)
        self.view = TopicView(topic, bootstrap, self._tokens, may_create=False)
        self.positions: dict[int, Position] = {}
        """By partition; empty until the partitions of the topic are known."""
        self.notices: deque[str] = deque()
        """The warnings for the user; the caller empties this."""
        self.paused: frozenset[int] = frozenset()
        """The partitions that are neither asked for nor given to the user."""
        self._settings = settings
        self._asked: dict[int, _Asked] = {}
        self._busy: set[Address] = set()
        self._answers: deque[ReadAnswer] = deque()
        """The answers that have arrived and were not taken yet."""
        self._since_ms: int | None = None

    # What the user does

    def take_records(self) -> list[ConsumedRecord]:
        """Take records that have arrived, at most `BUFFERED_RECORDS`; those of a partition are in order."""
        taken: list[ConsumedRecord] = []
        try:
            for answer in [one for one in self._answers if one.partition not in self.paused]:
                wanted = BUFFERED_RECORDS - len(taken)
                if not wanted:
                    break
                some = list(islice(answer.records, wanted))
                taken += some
                answer.most -= len(some)
                if len(some) < wanted or answer.most <= 0:
                    self._answers.remove(answer)
        except MetadataLogError as bad:
            raise damaged(bad) from bad
        return taken

    @property
    def is_done(self) -> bool:
        """Whether each partition was read to its end."""
        return bool(self.positions) and all(one.is_done for one in self.positions.values())

    # The engine

    def deadline_ms(self) -> int:
        """The time of the next request, or of the end of a wait, in ms."""
        moments = [self.view.deadline_ms()]
        if self._since_ms is not None and not self.view.is_known:
            moments.append(self._since_ms + self._settings.timeout_ms)
        for number, position in self.positions.items():
            if number in self.paused:
                continue
            if position.waits_since_ms is not None and not position.is_asked:
                moments.append(position.waits_since_ms + self._settings.timeout_ms)
                leader = self.view.leader_of(number)
                if not self.view.is_stale and (leader is None or leader.address not in self._busy):
                    moments.append(position.due_ms)
        return min(moments)

    def poll(self, now_ms: int) -> list[Ask]:
        """The requests that are due."""
        asks = self.view.poll(now_ms)
        if not self.view.is_known:
            self._since_ms = now_ms if self._since_ms is None else self._since_ms
            if now_ms - self._since_ms >= self._settings.timeout_ms:
                raise self._silence(f"topic {self.view.topic}")
            return asks
        if not self.positions:
            self._assign()
        asks += self._ask_leaders(now_ms)
        return asks

    def on_outcome(self, token: int, outcome: Message | Failed, now_ms: int) -> None:
        """Take the outcome of a request."""
        if self.view.awaits(token):
            self.view.on_outcome(outcome, now_ms)
            return
        asked = self._asked.pop(token)
        self._busy.discard(asked.leader.address)
        for number in asked.partitions:
            self.positions[number].is_asked = False
        match outcome:
            case Failed():
                if self.view.lasts(outcome, asked.leader.address, now_ms):
                    raise cannot_connect(outcome)
                for number in asked.partitions:
                    self._retry(number, outcome.detail, now_ms)
            case ListOffsetsResponse():
                offsets = {one.partition_index: one for topic in outcome.topics for one in topic.partitions}
                for number in asked.partitions:
                    assert asked.timestamp is not None
                    self._on_offset(number, asked.timestamp, offsets.get(number), now_ms)
            case FetchResponse():
                self._on_fetched(asked, outcome, now_ms)
            case other:
                raise AssertionError(other)

    # Requests

    def _assign(self) -> None:
        """Begin with the partitions, now that the topic is known."""
        known = self.view.leaders
        wanted = self._settings.partitions if self._settings.partitions is not None else tuple(known)
        for number in wanted:
            if number not in known:
                last = len(known) - 1
                raise ClientError(f"{self.view.topic} has no partition {number}", hint=f"The last one is {last}.")
            self.positions[number] = Position(self._settings.start, needs_end=not self._settings.follows)

    def _ask_leaders(self, now_ms: int) -> list[Ask]:
        """The requests to leaders that are due. Each leader has at most one on its way."""
        wanted: dict[tuple[Address, int | None], list[int]] = {}
        leaders: dict[Address, Leader] = {}
        self._check_leaders(now_ms)
        for number, position in sorted(self.positions.items(), key=lambda item: item[1].asked_last):
            if position.is_asked or position.is_done or number in self.paused:
                continue
            since_ms = position.waits_since_ms
            if since_ms is not None and now_ms - since_ms >= self._settings.timeout_ms:
                raise self._silence(f"partition {self.view.topic}-{number}")
            if now_ms < position.due_ms or (position.attempts and self.view.is_stale):
                continue
            leader = self.view.leader_of(number)
            if leader is None:
                if position.leaderless_since_ms is None:
                    position.leaderless_since_ms = now_ms
                self._retry(number, f"partition {self.view.topic}-{number} has no leader", now_ms)
                continue
            position.leaderless_since_ms = None
            if leader.address not in self._busy:
                leaders[leader.address] = leader
                wanted.setdefault((leader.address, _time_wanted(position)), []).append(number)
        asks = []
        for (address, timestamp), numbers in wanted.items():
            if timestamp is None and self._buffered >= BUFFERED_RECORDS:
                continue
            if address in self._busy:
                continue
            message: Message = self._fetch(numbers) if timestamp is None else self._list_offsets(numbers, timestamp)
            token = next(self._tokens)
            self._busy.add(address)
            self._asked[token] = _Asked(tuple(numbers), leaders[address], timestamp)
            for number in numbers:
                self.positions[number].is_asked = True
                self.positions[number].asked_last = token
            asks.append(Ask(token, address, message))
        return asks

    def _check_leaders(self, now_ms: int) -> None:
        """Raise `ClientError` if only partitions without a leader are left, and none has come for a while."""
        left = [number for number, one in self.positions.items() if not one.is_done and number not in self.paused]
        if self._settings.follows or not left:
            return
        for number in left:
            since_ms = self.positions[number].leaderless_since_ms
            if since_ms is None or now_ms - since_ms < min(LEADERLESS_MS, self._settings.timeout_ms):
                return
        named = ", ".join(f"{self.view.topic}-{number}" for number in left)
        raise ClientError(
            f"no leader for {named}: no replica in sync runs",
            hint="Start the brokers that have the replicas. All other partitions were read to their ends.",
        )

    @property
    def _buffered(self) -> int:
        """The records that the user may take, at most."""
        return sum(one.most for one in self._answers if one.partition not in self.paused)

    def _epoch_of(self, number: int) -> int:
        leader = self.view.leader_of(number)
        return -1 if leader is None else leader.epoch

    def _list_offsets(self, numbers: Sequence[int], timestamp: int) -> ListOffsetsRequest:
        partitions = [
            ListOffsetsPartition(
                partition_index=number, current_leader_epoch=self._epoch_of(number), timestamp=timestamp
            )
            for number in numbers
        ]
        return ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=self._settings.isolation,
            topics=[ListOffsetsTopic(name=self.view.topic, partitions=partitions)],
            timeout_ms=REQUEST_TIMEOUT_MS,
        )

    def _fetch(self, numbers: Sequence[int]) -> FetchRequest:
        partitions = [
            FetchPartition(
                partition=number,
                current_leader_epoch=self._epoch_of(number),
                fetch_offset=self.positions[number].offset or 0,
                partition_max_bytes=PARTITION_BYTES,
            )
            for number in numbers
        ]
        return FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=self._settings.isolation,
            session_epoch=_NO_SESSION,
            topics=[FetchTopic(topic=self.view.topic, topic_id=self.view.topic_id, partitions=partitions)],
        )

    # Outcomes

    def _retry(self, number: int, why: str, now_ms: int) -> None:
        position = self.positions[number]
        if position.waits_since_ms is None:
            position.waits_since_ms = now_ms
        position.due_ms = now_ms + pause_ms(position.attempts)
        position.attempts += 1
        self.view.refresh(why, now_ms)

    def _served(self, position: Position) -> None:
        position.waits_since_ms, position.attempts, position.due_ms = None, 0, 0
        self.view.on_progress()

    def _silence(self, what: str) -> ClientError:
        seconds = self._settings.timeout_ms / 1000
        asked = ", ".join(f"{host}:{port}" for host, port in self.view.addresses)
        return ClientError(
            f"{what}: no answer within {seconds:g} s: {self.view.last_failure or 'no broker answered'}",
            hint=f"Asked: {asked}. Do these brokers run?",
        )

    def _error(self, number: int, error: Error, now_ms: int) -> None:
        """An error that may pass leads to a repetition, each other one ends the work."""
        what = f"partition {self.view.topic}-{number}"
        if not error.retriable:
            raise refused(what, error)
        self._retry(number, f"{what}: {error.name}", now_ms)

    def _on_offset(self, number: int, timestamp: int, found: ListOffsetsPartitionResponse | None, now_ms: int) -> None:
        position = self.positions[number]
        if found is None:
            self._retry(number, f"the answer lacks partition {self.view.topic}-{number}", now_ms)
            return
        error = Error.of(found.error_code)
        if error is not Error.NONE:
            self._error(number, error, now_ms)
            return
        self._served(position)
        if timestamp == LATEST_TIMESTAMP:
            if position.offset is not None and not position.is_checked:
                self._check(number, position.offset, found.offset)
            position.needs_end = False
            if not self._settings.follows:
                position.end = found.offset
            if isinstance(position.start, End) and position.offset is None:
                position.offset = found.offset
        elif timestamp == EARLIEST_TIMESTAMP:
            if position.offset is None or position.offset < found.offset:
                if position.offset is not None:
                    self.notices.append(
                        f"{self.view.topic}-{number} begins at offset {found.offset} by now: "
                        f"the records from {position.offset} on were deleted"
                    )
                position.offset = found.offset
            position.is_checked = True
        elif found.offset < 0:
            position.start, position.needs_end = End(), True  # no record is so late
        else:
            position.offset = found.offset

    def _check(self, number: int, offset: int, end: int) -> None:
        """Compare the offset with the end of the partition; its beginning comes next."""
        if offset > end:
            raise ClientError(
                f"offset {offset} is beyond the end of {self.view.topic}-{number}, which is {end}",
                hint="After an unclean election the end may have moved back. --from beginning reads what is there.",
            )

    def _on_fetched(self, asked: _Asked, answer: FetchResponse, now_ms: int) -> None:
        top = Error.of(answer.error_code)
        partitions = {one.partition_index: one for topic in answer.responses for one in topic.partitions}
        for number in asked.partitions:
            if top is not Error.NONE:
                self._error(number, top, now_ms)
            elif number not in partitions:
                self._retry(number, f"the answer lacks partition {self.view.topic}-{number}", now_ms)
            else:
                self._on_partition(number, asked.leader, partitions[number], now_ms)

    def _on_partition(self, number: int, leader: Leader, data: PartitionData, now_ms: int) -> None:
        position = self.positions[number]
        error = Error.of(data.error_code)
        if error is Error.OFFSET_OUT_OF_RANGE:
            position.is_checked, position.needs_end = False, True
            self._retry(number, f"partition {self.view.topic}-{number}: {error.name}", now_ms)
            return
        if error is not Error.NONE:
            self._error(number, error, now_ms)
            return
        self._served(position)
        assert position.offset is not None
        where = f"{self.view.topic}-{number} of broker {leader.id}"
        aborted = data.aborted_transactions or [] if self._settings.isolation is Isolation.READ_COMMITTED else []
        try:
            read = read_answer(data.records or b"", number, position.offset, aborted, where=where)
        except MetadataLogError as bad:
            raise damaged(bad) from bad
        position.offset = read.following
        end = position.end
        if end is not None:
            read.records = (one for one in read.records if one.offset < end)
        self._answers.append(read)


def damaged(bad: MetadataLogError) -> ClientError:
    """The error for records that cannot be read."""
    return ClientError(str(bad), hint="The log of that broker is damaged: see `kraft dump --verify`.")


def _time_wanted(position: Position) -> int | None:
    """The timestamp to ask ListOffsets for; None if the records themselves are next."""
    if position.needs_end:
        return LATEST_TIMESTAMP
    if position.offset is None:
        match position.start:
            case Beginning() | AtOffset():
                return EARLIEST_TIMESTAMP
            case AtTime(timestamp_ms):
                return timestamp_ms
            case End():
                return LATEST_TIMESTAMP
    return None if position.is_checked else EARLIEST_TIMESTAMP
