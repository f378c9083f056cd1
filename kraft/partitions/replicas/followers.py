"""The work of followers: they fetch from their leaders, append and truncate.

One request to each leader is open at a time. A follower's next fetch is its acknowledgement of the records before.
Kafka: `ReplicaFetcherThread`, `AbstractFetcherThread`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kraft.partitions.replicas.epoch_ends import absurdity, truncation
from kraft.partitions.replicas.fetch_session import FetchSession
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.hosting import Hosting
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.tier_state import TierState
from metadata_log.errors import CorruptBatch, UnsupportedVersion
from metadata_log.image.topics import NO_LEADER
from metadata_log.log.partition_names import PartitionName
from metadata_log.records.batch import scan
from metadata_log.serde import Message
from metadata_log.types import EARLIEST_LOCAL_TIMESTAMP, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, OffsetAndEpoch
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from transport.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from transport.protocol.messages.describe_producers import PartitionResponse

NO_FETCHED_EPOCH: Final = -1


Asked = tuple[int, int]
"""The fetch offset and the leader epoch of a partition in a request."""
_ORDER: Final = "order"
"""The field of `CorruptBatch` for an offset that does not follow the log."""
_OF_SESSIONS: Final = (Error.FETCH_SESSION_ID_NOT_FOUND, Error.INVALID_FETCH_SESSION_EPOCH)


class Phase(Enum):
    """The next thing that a follower wants from its leader."""

    FETCHING = "records from the end of its log"
    ASKING_END = "the end of the leader's log, after OFFSET_OUT_OF_RANGE"
    ASKING_START = "the start of the leader's log, after OFFSET_OUT_OF_RANGE"
    ASKING_LOCAL = "the start of the leader's local log, after OFFSET_MOVED_TO_TIERED_STORAGE"
    ASKING_EPOCHS = "the leader epochs before that"
    ASKING_PRODUCERS = "the producers there"


_TIMES: Final = {
    Phase.ASKING_END: LATEST_TIMESTAMP,
    Phase.ASKING_START: EARLIEST_TIMESTAMP,
    Phase.ASKING_LOCAL: EARLIEST_LOCAL_TIMESTAMP,
}
"""The times that ListOffsets is asked for."""


class Exchange:
    """The state of a broker's requests to one leader. A request costs as much as its changes, not its partitions."""

    def __init__(self) -> None:
        self.session = FetchSession()
        self.asked: dict[PartitionKey, Asked] = {}
        """The partitions of the session, with what the leader was last asked for."""
        self.changed: dict[PartitionKey, None] = {}
        """The partitions to look at for the next request."""
        self.late: dict[PartitionKey, None] = {}
        """The partitions that wait for their backoff."""
        self.lost: dict[PartitionKey, None] = {}
        """The partitions that need an offset of the leader before they fetch on."""


class Fetching(Struct):
    """The fetch state of one followed partition (`PartitionFetchState`)."""

    leader: int
    leader_epoch: int
    exchange: Exchange
    """The requests to this leader."""
    phase: Phase = Phase.FETCHING
    not_before_ms: int = 0
    leader_end: int = 0
    """The end of the leader's log, after OFFSET_OUT_OF_RANGE: its log begins there at the latest."""
    lag: int | None = None
    """How many committed records it lacked at the last answer; None before the first."""
    tier: TierState = TierState()
    """The answers of the leader about its log in tiered storage, after OFFSET_MOVED_TO_TIERED_STORAGE."""
    is_reported: bool = False
    """Whether it was reported that this follower waits for what is in tiered storage."""
    is_failed: bool = False
    """Whether only a new leader epoch can start the partition again."""


Lost = Mapping[PartitionKey, tuple[Fetching, HostedPartition]]
"""The partitions that need to know something before they fetch on."""


def _offset_of(one: Fetching, part: HostedPartition) -> ListOffsetsPartition:
    return ListOffsetsPartition(part.number, one.leader_epoch, _TIMES[one.phase])


def _epoch_before(one: Fetching, part: HostedPartition) -> OffsetForLeaderPartition:
    return OffsetForLeaderPartition(part.number, one.leader_epoch, one.tier.epoch - 1)


def _about_producers(topics: Mapping[str, list[int]]) -> Message:
    # Loaded with the first log that has moved to tiered storage: a start does without.
    from transport.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest

    return DescribeProducersRequest([TopicRequest(name, numbers) for name, numbers in topics.items()])


def _told_of_producers(response: Message) -> list[tuple[str, PartitionResponse]] | None:
    """The producers that a leader tells, by topic; None if this is another answer."""
    from transport.protocol.messages.describe_producers import DescribeProducersResponse

    if not isinstance(response, DescribeProducersResponse):
        return None
    return [(topic.name, partition) for topic in response.topics for partition in topic.partitions]


class Followers:
    """The followed partitions of one broker, and the requests to their leaders."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._settings = hosting.settings
        self._fetching: dict[PartitionKey, Fetching] = {}
        """The state of each partition with a leader, in the order in which the partitions have their turns."""
        self._leaders: list[int] | None = None
        """The answer of `leaders`; None where a partition has come, gone or failed since."""
        self._exchanges: dict[int, Exchange] = {}
        self._asked: dict[int, dict[PartitionKey, Asked]] = {}
        """The partitions in the open request to each leader, those of its session that it does not name included."""
        self._sent_ms: dict[int, int] = {}

    # ---------------------------------------------------------------------------------------------- begin and end

    def follow(self, part: HostedPartition, now_ms: int) -> None:
        """Follow the leader that the metadata names; raises `OSError`.

        A partition with the same leader epoch goes on where it is. A log without any epoch cannot find the point where
        it differs from that of the leader: it begins at its high watermark, below which all logs are equal.
        """
        known = self._fetching.get(part.key)
        if part.leader_id == NO_LEADER:
            self.stop(part.key)
            return
        if known is not None and (known.leader, known.leader_epoch) == (part.leader_id, part.leader_epoch):
            return
        log = part.log
        if log.epochs.last_epoch is None:
            log.truncate(log.high_watermark, now_ms=now_ms)
        self.stop(part.key)
        self._leaders = None
        exchange = self._exchange(part.leader_id)
        self._fetching[part.key] = Fetching(part.leader_id, part.leader_epoch, exchange)
        exchange.changed[part.key] = None
        exchange.lost.pop(part.key, None)

    def stop(self, key: PartitionKey) -> None:
        """Fetch a partition no more."""
        self._look_at(key)
        if self._fetching.pop(key, None) is not None:
            self._leaders = None

    def _exchange(self, leader: int) -> Exchange:
        exchange = self._exchanges.get(leader)
        if exchange is None:
            exchange = self._exchanges[leader] = Exchange()
        return exchange

    def _look_at(self, key: PartitionKey) -> None:
        """Look at a partition again before the next request to its leader."""
        one = self._fetching.get(key)
        if one is not None:
            one.exchange.changed[key] = None

    def leaders(self) -> list[int]:
        """The leaders with partitions that this broker fetches, in order of their ids."""
        if self._leaders is None:
            self._leaders = sorted({one.leader for one in self._fetching.values() if not one.is_failed})
        return self._leaders

    # --------------------------------------------------------------------------------------------------- requests

    def request(self, leader: int, broker_epoch: int, now_ms: int) -> Message | None:
        """The next request to a leader: a Fetch, or a question about a log of which it does not have the offset.

        Args:
            leader: The leader.
            broker_epoch: The epoch of this broker's registration.
            now_ms: The time in ms since 1970.

        Returns:
            The request; the caller passes exactly one answer to `on_answer`. None with nothing to fetch now.
        """
        moved, self._hosting.moved = self._hosting.moved, {}
        for key in moved:
            self._look_at(key)
        exchange = self._exchange(leader)
        if exchange.late:
            for key in [key for key in exchange.late if self._is_due(key, now_ms)]:
                del exchange.late[key]
                exchange.changed[key] = None
        if exchange.lost:
            lost = {
                key: both
                for key in exchange.lost
                if (both := self._ready(key, leader, now_ms)) is not None and both[0].phase is not Phase.FETCHING
            }
            if lost:
                self._sent_ms[leader] = now_ms
                return self._question(lost, leader)
        session, changed = exchange.session, exchange.changed
        ready: dict[PartitionKey, tuple[Fetching, HostedPartition]] = {}
        for key in list(self._fetching) if session.is_full else changed:
            both = self._ready(key, leader, now_ms)
            if both is not None:
                ready[key] = both
        unwanted = [key for key in changed if key not in ready] if len(ready) < len(changed) or session.is_full else []
        if session.is_full:
            exchange.asked = {}
        asked = exchange.asked
        if not ready and asked.keys() <= set(unwanted):
            return None
        for key in unwanted:
            asked.pop(key, None)
        wanted: dict[PartitionKey, FetchPartition] = {}
        for key, (one, part) in ready.items():
            log = part.log
            asked[key] = log.end_offset, one.leader_epoch
            wanted[key] = FetchPartition(
                partition=part.number,
                current_leader_epoch=one.leader_epoch,
                fetch_offset=log.end_offset,
                last_fetched_epoch=NO_FETCHED_EPOCH if log.last_epoch is None else log.last_epoch,
                log_start_offset=log.start_offset,
                partition_max_bytes=self._settings.replication.fetch_max_bytes,
            )
        exchange.changed = {}
        self._sent_ms[leader] = now_ms
        self._asked[leader] = asked
        settings = self._settings
        session_id, session_epoch = session.id, session.epoch
        topics, forgotten = session.topics(wanted, unwanted)
        return FetchRequest(
            replica_state=ReplicaState(replica_id=settings.broker_id, replica_epoch=broker_epoch),
            max_wait_ms=settings.replication.fetch_wait_max_ms,
            min_bytes=settings.replication.fetch_min_bytes,
            max_bytes=settings.replication.fetch_response_max_bytes,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    def _is_due(self, key: PartitionKey, now_ms: int) -> bool:
        one = self._fetching.get(key)
        return one is None or now_ms >= one.not_before_ms

    def _ready(self, key: PartitionKey, leader: int, now_ms: int) -> tuple[Fetching, HostedPartition] | None:
        """The state of a partition that may be in a request to a leader now."""
        one = self._fetching.get(key)
        if one is None or one.leader != leader or one.is_failed or now_ms < one.not_before_ms:
            return None
        part = self._hosting.partitions[key]
        if part.follows_throttled and one.lag != 0 and self._hosting.follower_throttle.look(now_ms):
            # Kafka's thread waits for the whole backoff, and so may fall behind the rate.
            backoff_ms = self._settings.replication.fetch_backoff_ms
            self._delay(key, now_ms, self._hosting.follower_throttle.wait_ms(backoff_ms, now_ms))
            return None
        return None if part.is_offline else (one, part)

    def _question(self, lost: Lost, leader: int) -> Message:
        """A request about the partitions of which the first one has its turn; the others wait for the next one."""
        first = next(iter(lost.values()))[0].phase
        alike = _TIMES if first in _TIMES else {first}
        asked = {key: both for key, both in lost.items() if both[0].phase in alike}
        self._asked[leader] = {key: (part.log.end_offset, one.leader_epoch) for key, (one, part) in asked.items()}
        topics: dict[str, list[tuple[Fetching, HostedPartition]]] = {}
        for one, part in asked.values():
            topics.setdefault(part.topic, []).append((one, part))
        replica_id = self._settings.broker_id
        match first:
            case Phase.ASKING_EPOCHS:
                return OffsetForLeaderEpochRequest(
                    replica_id=replica_id,
                    topics=[
                        OffsetForLeaderTopic(name, [_epoch_before(*one) for one in of]) for name, of in topics.items()
                    ],
                )
            case Phase.ASKING_PRODUCERS:
                return _about_producers({name: [part.number for _, part in of] for name, of in topics.items()})
            case _:
                offsets = [ListOffsetsTopic(name, [_offset_of(*one) for one in of]) for name, of in topics.items()]
                return ListOffsetsRequest(replica_id=replica_id, topics=offsets)

    # ----------------------------------------------------------------------------------------------------- answers

    def on_answer(self, leader: int, response: Message | None, now_ms: int) -> int:
        """Take the answer of a leader: append, truncate, follow the high watermark.

        Args:
            leader: The leader.
            response: The answer; None if the request failed. Then its partitions wait `replica.fetch.backoff.ms`.
            now_ms: The time in ms since 1970.

        Returns:
            When the next request to this leader is due, in ms since 1970.
        """
        asked = self._asked.pop(leader, {})
        match response:
            case FetchResponse():
                return self._on_fetch(leader, response, asked, now_ms)
            case ListOffsetsResponse():
                for topic in response.topics:
                    for offset in topic.partitions:
                        key = self._hosting.by_name.get(PartitionName(topic.name, offset.partition_index))
                        self._on_offset(key, offset, asked, now_ms)
                return now_ms
            case OffsetForLeaderEpochResponse():
                for result in response.topics:
                    for end in result.partitions:
                        key = self._hosting.by_name.get(PartitionName(result.topic, end.partition))
                        self._on_epoch(self._still(key, asked), end, now_ms)
                return now_ms
        if response is not None and (producers := _told_of_producers(response)) is not None:
            for name, told in producers:
                key = self._hosting.by_name.get(PartitionName(name, told.partition_index))
                self._on_producers(self._still(key, asked), told, now_ms)
            return now_ms
        self._exchange(leader).session.on_failure()
        return self._delay_all(asked, now_ms)

    def _on_fetch(self, leader: int, response: FetchResponse, asked: dict[PartitionKey, Asked], now_ms: int) -> int:
        if not self._exchange(leader).session.on_response(response):
            is_session = response.error_code in _OF_SESSIONS
            return now_ms if is_session else self._delay_all(asked, now_ms)
        is_empty = True
        for topic in response.responses:
            for data in topic.partitions:
                is_empty = False
                key = (topic.topic_id, data.partition_index)
                part = self._still(key, asked)
                if part is not None:
                    self._hosting.guarded(part, partial(self._on_partition, part, data, now_ms))
        # A leader answers an idle follower after the longest wait; one that answers earlier is not asked in a loop.
        return max(now_ms, self._sent_ms[leader] + self._settings.replication.fetch_wait_max_ms) if is_empty else now_ms

    def _delay_all(self, asked: dict[PartitionKey, Asked], now_ms: int) -> int:
        for key in asked:
            self._delay(key, now_ms)
        return now_ms + self._settings.replication.fetch_backoff_ms

    def _delay(self, key: PartitionKey, now_ms: int, wait_ms: int | None = None) -> None:
        """Fetch a partition no more for a time, by default `replica.fetch.backoff.ms`."""
        one = self._fetching.get(key)
        if one is not None:
            one.not_before_ms = now_ms + (self._settings.replication.fetch_backoff_ms if wait_ms is None else wait_ms)
            exchange = one.exchange
            exchange.changed[key] = exchange.late[key] = None

    def _still(self, key: PartitionKey | None, asked: dict[PartitionKey, Asked]) -> HostedPartition | None:
        """The partition, if its log and its leader are still those of the request."""
        if key is None or key not in asked or key not in self._fetching:
            return None
        part, one = self._hosting.partitions[key], self._fetching[key]
        if part.is_offline or one.is_failed or asked[key] != (part.log.end_offset, one.leader_epoch):
            return None
        return part

    # ------------------------------------------------------------------------------------------ one fetched partition

    def _on_partition(self, part: HostedPartition, data: PartitionData, now_ms: int) -> None:
        key = part.key
        match Error.of(data.error_code):
            case Error.NONE:
                if data.diverging_epoch.epoch >= 0:
                    end = OffsetAndEpoch(epoch=data.diverging_epoch.epoch, offset=data.diverging_epoch.end_offset)
                    absurd = absurdity(part.log.epochs, end)
                    if absurd is not None:
                        self._fail(part, absurd)
                        return
                    self._truncate(part, end, now_ms)
                else:
                    self._take(part, data, now_ms)
                # The next request begins with the partitions that wait longest for records.
                self._fetching[key] = self._fetching.pop(key)
                self._look_at(key)
            case Error.OFFSET_OUT_OF_RANGE:
                self._ask(part, Phase.ASKING_END)
            case Error.FENCED_LEADER_EPOCH:
                # The leader knows a later epoch, which the metadata brings soon.
                self._give_up(key)
            case Error.KAFKA_STORAGE_ERROR as error:
                self._fail(part, f"its leader answers {error.name}")
            case Error.OFFSET_MOVED_TO_TIERED_STORAGE:
                self._ask_for_tier(part, data)
            case _:
                self._delay(key, now_ms)

    def _ask(self, part: HostedPartition, phase: Phase) -> None:
        """Ask the leader a question before the next fetch."""
        one = self._fetching[part.key]
        one.phase = phase
        one.exchange.changed[part.key] = one.exchange.lost[part.key] = None

    def _give_up(self, key: PartitionKey) -> None:
        self._fetching[key].is_failed = True
        self._leaders = None
        self._look_at(key)

    def _fail(self, part: HostedPartition, reason: str) -> None:
        """Fetch a partition no more until the metadata has a new leader epoch."""
        self._give_up(part.key)
        self._hosting.report(f"{part} is not fetched until its next leader epoch: {reason}")

    def _take(self, part: HostedPartition, data: PartitionData, now_ms: int) -> None:
        """Append what was fetched, and follow the watermark and the log start of the leader."""
        log = part.log
        before = (log.end_offset, log.high_watermark, log.start_offset)
        try:
            self._append(part, data.records or b"", now_ms)
        except (CorruptBatch, UnsupportedVersion) as bad:
            if bad.field == _ORDER:
                self._fail(part, str(bad))
            else:
                # The bytes were damaged on their way, or on the disk of the leader, which may recover.
                self._hosting.report(f"{part} is fetched again: {bad}")
                self._delay(part.key, now_ms)
            return
        if part.follows_throttled:
            self._hosting.follower_throttle.note(len(data.records or b""), now_ms)
        self._fetching[part.key].lag = max(0, data.high_watermark - log.end_offset)
        log.raise_high_watermark(data.high_watermark)
        log.raise_start(min(data.log_start_offset, log.high_watermark))
        if (log.end_offset, log.high_watermark, log.start_offset) != before:
            self._hosting.touch(part)
        if data.records and log.end_offset == before[0]:
            # Records of a later epoch than the leader's, or a piece of a batch: the same question has the same answer.
            self._delay(part.key, now_ms)

    def _append(self, part: HostedPartition, records: bytes, now_ms: int) -> None:
        log = part.log
        try:
            log.append_as_follower(records, leader_epoch=part.leader_epoch, now_ms=now_ms)
        except CorruptBatch as bad:
            is_empty = log.start_offset == log.end_offset
            first = next(scan(records), None) if bad.field == _ORDER and is_empty else None
            if first is None or not 0 <= first.base_offset < log.end_offset <= first.last_offset:
                raise
            # The log start of the leader is within its first batch: an empty log begins where that batch does.
            log.reset(first.base_offset, now_ms=now_ms)
            log.append_as_follower(records, leader_epoch=part.leader_epoch, now_ms=now_ms)

    def _truncate(self, part: HostedPartition, leader: OffsetAndEpoch, now_ms: int) -> None:
        """Remove the records that the leader does not have (`truncateOnFetchResponse`)."""
        log = part.log
        before, watermark = (log.end_offset, log.epochs), log.high_watermark
        cut = truncation(log.epochs, log.end_offset, leader)
        log.truncate(cut.offset, now_ms=now_ms)
        self._hosting.touch(part)
        if cut.offset < watermark:
            self._hosting.report(
                f"{part} is truncated to offset {cut.offset}, below its high watermark {watermark}: the leader ends "
                f"epoch {leader.epoch} at offset {leader.offset}"
            )
        if (log.end_offset, log.epochs) == before:
            # The same question would get the same answer.
            self._delay(part.key, now_ms)

    # ------------------------------------------------------------------------------------------------- out of range

    def _on_offset(
        self,
        key: PartitionKey | None,
        data: ListOffsetsPartitionResponse,
        asked: dict[PartitionKey, Asked],
        now_ms: int,
    ) -> None:
        """Take an end or a start of the leader's log (`fetchOffsetAndTruncate`)."""
        part = self._still(key, asked)
        if part is None:
            return
        one = self._fetching[part.key]
        match Error.of(data.error_code):
            case Error.NONE if one.phase is Phase.ASKING_LOCAL:
                self._go_on(part, one.tier.begun(data.offset, data.leader_epoch), Error.NONE, now_ms)
            case Error.NONE:
                self._hosting.guarded(part, lambda: self._move(part, one, data.offset, now_ms))
            case Error.FENCED_LEADER_EPOCH:
                self._give_up(part.key)
            case _:
                self._delay(part.key, now_ms)

    def _move(self, part: HostedPartition, one: Fetching, offset: int, now_ms: int) -> None:
        log = part.log
        if offset < 0:
            self._fail(part, f"its leader answers that its log ends or begins at offset {offset}")
            return
        if one.phase is Phase.ASKING_END and offset >= log.end_offset:
            one.phase, one.leader_end = Phase.ASKING_START, offset
            return
        if one.phase is Phase.ASKING_END:
            self._hosting.report(f"{part} is truncated to offset {offset}, where the log of its leader ends")
            log.truncate(offset, now_ms=now_ms)
        elif offset > one.leader_end:
            # The log of the leader has grown meanwhile, or the leader answers at random: ask for both ends again.
            one.phase = Phase.ASKING_END
            self._delay(part.key, now_ms)
            return
        elif offset > log.end_offset:
            self._hosting.report(f"{part} begins anew at offset {offset}, where the log of its leader begins")
            log.reset(offset, now_ms=now_ms)
        else:
            # The log is within that of the leader: the range was another one when the leader refused it.
            self._delay(part.key, now_ms)
        self._fetch_on(part)
        self._hosting.touch(part)

    def _fetch_on(self, part: HostedPartition) -> None:
        one = self._fetching[part.key]
        one.phase = Phase.FETCHING
        one.exchange.lost.pop(part.key, None)
        self._look_at(part.key)

    # ----------------------------------------------------------------------------------------------- tiered storage

    def _ask_for_tier(self, part: HostedPartition, data: PartitionData) -> None:
        """Begin to ask what is needed to begin the log at the local start of the leader."""
        self._fetching[part.key].tier = TierState(data.log_start_offset)
        self._ask(part, Phase.ASKING_LOCAL)

    def _go_on(self, part: HostedPartition, tier: TierState | None, error: int, now_ms: int) -> None:
        """Ask the next question about tiered storage, or wait if the leader does not say what is needed."""
        one = self._fetching[part.key]
        if tier is None or not part.log.options.is_tiered:
            self._wait_for_tier(part, error, now_ms)
            return
        one.tier = tier
        one.phase = Phase.ASKING_EPOCHS if tier.epochs is None else Phase.ASKING_PRODUCERS

    def _wait_for_tier(self, part: HostedPartition, error: int, now_ms: int) -> None:
        """Fetch again later, as Kafka's follower does while its remote store is down (`TierStateMachine`).

        Without the epochs and the producers a later leader here would find no common end, and accept duplicates.
        """
        one = self._fetching[part.key]
        if not one.is_reported:
            one.is_reported = True
            self._hosting.report(
                f"{part} waits at offset {part.log.end_offset}: its leader has what follows in tiered storage alone, "
                f"and does not tell what is needed to follow its local log ({Error.of(error).name})"
            )
        self._fetch_on(part)
        self._delay(part.key, now_ms)

    def _on_epoch(self, part: HostedPartition | None, data: EpochEndOffset, now_ms: int) -> None:
        if part is not None:
            tier = self._fetching[part.key].tier
            known = tier.ended(data.leader_epoch, data.end_offset) if data.error_code == Error.NONE else None
            self._go_on(part, known, data.error_code, now_ms)

    def _on_producers(self, part: HostedPartition | None, data: PartitionResponse, now_ms: int) -> None:
        """Begin the log where the local log of the leader begins."""
        if part is None:
            return
        tier = self._fetching[part.key].tier
        producers = tier.producers(data.active_producers) if data.error_code == Error.NONE else None
        epochs = tier.epochs
        if producers is None or epochs is None:
            self._wait_for_tier(part, data.error_code, now_ms)
            return
        self._hosting.report(
            f"{part} begins anew at offset {tier.local_start}: what its leader has before, from offset "
            f"{tier.log_start}, is in tiered storage"
        )
        begin = partial(part.log.begin_behind_tier, tier.local_start, tier.log_start, epochs, producers, now_ms=now_ms)
        self._hosting.guarded(part, begin)
        self._fetch_on(part)
        self._hosting.touch(part)
