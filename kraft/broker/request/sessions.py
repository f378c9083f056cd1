"""Fetch sessions: a client names its partitions once, and later only what changes (KIP-227; Kafka: `FetchSession`,
`FetchManager`, `FetchSessionCache`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

from kraft.handling.steps import Handling
from kraft.limits import (
    PARTITIONS_PER_STEP,
    SESSION_CONSUMER_PARTITIONS,
    SESSION_PARTITION_BYTES,
    SESSION_UNKNOWN_PARTITIONS,
    SESSIONS_BYTES,
)
from metadata_log.serde.codec import finished
from metadata_log.types import NO_OFFSET, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest, FetchTopic, PartitionData

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
TOPIC_IDS_SINCE: Final = 13
NO_DIVERGENCE: Final = EpochEndOffset()
_LARGEST: Final = 2**31 - 1
_SHARDS: Final = 8

FetchKey = tuple[str | Uuid, int]
"""A partition as the client names it: the topic by name, or by id since version 13, and the number."""
DrawId = Callable[[int, int], int]
"""A random number from the first one to before the second one."""


class Wanted(Struct, frozen=True, gc=False):
    """A client's request for one partition: the fields of `FetchPartition`."""

    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class SessionPartition(Struct):
    """A partition of a session, with what the client was last told of it (Kafka: `CachedPartition`)."""

    wanted: Wanted
    high_watermark: int = NO_OFFSET
    log_start: int = NO_OFFSET

    def take(self, data: PartitionData) -> bool:
        """Whether an incremental answer has to hold this partition; the client then knows it."""
        is_changed = bool(
            data.records
            or self.high_watermark != data.high_watermark
            or self.log_start != data.log_start_offset
            or data.preferred_read_replica >= 0
            or data.diverging_epoch != NO_DIVERGENCE
            or data.error_code != Error.NONE
        )
        self.high_watermark, self.log_start = _known_watermark(data), data.log_start_offset
        return is_changed


class Session(Struct):
    """One session; `epoch` is that of the next request."""

    id: int
    is_privileged: bool
    """Whether a follower fetches: followers keep their sessions before consumers."""
    uses_topic_ids: bool
    partitions: dict[FetchKey, SessionPartition]
    created_ms: int
    used_ms: int
    names: dict[Uuid, str]
    """The names of topics when the client last fetched them by id: a topic may be deleted and made again."""
    epoch: int = 1
    size_bytes: int = 0
    """How many bytes of the budget the session takes."""
    is_old: bool = False
    """Whether the session was older than the eviction time at its last use."""

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The order in which sessions give way: the smallest first."""
        return self.is_privileged, len(self.partitions), self.id


class SessionRefused(Struct, frozen=True):
    """The session of a request cannot go on: the answer has this error, and no partitions."""

    error: Error


class FullFetch(Struct, frozen=True):
    """A request that names all of its partitions."""

    partitions: dict[FetchKey, Wanted]
    makes_session: bool
    is_follower: bool
    uses_topic_ids: bool
    names: dict[Uuid, str]
    """The names of the topics that the handler has found by their ids."""


class IncrementalFetch(Struct, frozen=True):
    """A request that goes on in a session; `epoch` is the session's next epoch."""

    session: Session
    epoch: int

    @property
    def partitions(self) -> dict[FetchKey, Wanted]:
        """All partitions of the session, in its order."""
        return {key: each.wanted for key, each in self.session.partitions.items()}

    @property
    def names(self) -> dict[Uuid, str]:
        """The names of the topics that the session knows by their ids."""
        return self.session.names


FetchContext = FullFetch | IncrementalFetch


class SessionAnswer(Struct, frozen=True):
    """The part of an answer that goes to the client of a session: the session id, and the partitions with news."""

    session_id: int
    partitions: Mapping[FetchKey, PartitionData]
    error: Error = Error.NONE


class FetchSessions:
    """The sessions of one broker.

    Args:
        slots: `max.incremental.fetch.session.cache.slots`.
        eviction_ms: How long an unused session, or a young one, keeps its place.
        draw_id: The source of random session ids.
        budget_bytes: What all sessions may take.
    """

    def __init__(self, slots: int, eviction_ms: int, draw_id: DrawId, budget_bytes: int = SESSIONS_BYTES) -> None:
        self._shards = [_Shard(at, slots // _SHARDS, eviction_ms, draw_id) for at in range(_SHARDS)]
        self._next = 0
        self._budget_bytes = budget_bytes

    def __len__(self) -> int:
        """The number of sessions."""
        return sum(len(shard.sessions) for shard in self._shards)

    @property
    def size_bytes(self) -> int:
        """The bytes that all sessions take of the budget."""
        return sum(sum(shard.sizes) for shard in self._shards)

    def open(
        self, request: FetchRequest, version: int, *, is_follower: bool, now_ms: int
    ) -> FetchContext | SessionRefused | Handling[FetchContext | SessionRefused]:
        """Begin a fetch request, in its session if it has one (`FetchManager.newContext`).

        Args:
            request: The request.
            version: The version of the request: since 13 topics have ids.
            is_follower: Whether a broker fetches.
            now_ms: The time in ms.

        Returns:
            The partitions to fetch, or why the session cannot go on. For a request that names many partitions: the
            steps that end with one of these.
        """
        uses_topic_ids = version >= TOPIC_IDS_SINCE
        session_id, epoch = request.session_id, request.session_epoch
        shard = self._shard_of(session_id)
        is_small = _is_small(request)
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            shard.remove(session_id)
            if is_small:
                named = {
                    (_name(topic, version), part.partition): _wanted(part)
                    for topic in request.topics
                    for part in topic.partitions
                }
                return FullFetch(named, epoch == INITIAL_EPOCH, is_follower, uses_topic_ids, {})
            return _opening_full(request, version, is_follower=is_follower)
        session = shard.sessions.get(session_id)
        if session is None:
            return SessionRefused(Error.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return SessionRefused(Error.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return SessionRefused(Error.FETCH_SESSION_TOPIC_ID_ERROR)
        following = session.epoch = next_epoch(epoch)
        shard.touch(session, now_ms)
        before = session.size_bytes
        if not is_small:
            return self._going_on(shard, session, request, version, is_follower=is_follower)
        wanted: dict[FetchKey, Wanted] = {}
        for topic in request.topics:
            name = topic.topic_id if uses_topic_ids else topic.topic
            for part in topic.partitions:
                key = name, part.partition
                wanted[key] = one = _wanted(part)
                shard.want(session, key, one)
        if request.forgotten_topics_data:
            for key in _forgotten(request, version):
                shard.unwant(session, key)
        shard.trim_names(session)
        return self._opened(shard, session, wanted, before, following, is_follower=is_follower)

    def _going_on(
        self, shard: _Shard, session: Session, request: FetchRequest, version: int, *, is_follower: bool
    ) -> Handling[FetchContext | SessionRefused]:
        following, before = session.epoch, session.size_bytes
        wanted = yield from shard.update(session, request, version)
        return self._opened(shard, session, wanted, before, following, is_follower=is_follower)

    def _opened(
        self,
        shard: _Shard,
        session: Session,
        wanted: dict[FetchKey, Wanted],
        before: int,
        following: int,
        *,
        is_follower: bool,
    ) -> FetchContext | SessionRefused:
        """The fetch of a session that a request has opened or changed; `following` is the epoch of the next request."""
        if session.size_bytes > before and (
            not self._has_room(session.is_privileged, 0) or _is_too_large(session.is_privileged, session.partitions)
        ):
            # The client names all of its partitions again, and gets no session then.
            shard.remove(session.id)
            return SessionRefused(Error.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            shard.remove(session.id)
            return FullFetch(wanted, False, is_follower, session.uses_topic_ids, session.names)
        return IncrementalFetch(session, following)

    def close_small(
        self, context: FetchContext, answered: Mapping[FetchKey, PartitionData], now_ms: int, *, unknown: int = 0
    ) -> SessionAnswer:
        """As `close`, at once, for a few partitions."""
        if isinstance(context, IncrementalFetch) and unknown <= SESSION_UNKNOWN_PARTITIONS:
            if context.session.epoch != context.epoch:
                return SessionAnswer(context.session.id, {}, Error.INVALID_FETCH_SESSION_EPOCH)
            seen: dict[FetchKey, PartitionData] = {}
            for key, data in answered.items():
                _tell(context.session, key, data, seen)
            return SessionAnswer(context.session.id, seen)
        return finished(self.close(context, answered, now_ms, unknown=unknown))

    def close(
        self, context: FetchContext, answered: Mapping[FetchKey, PartitionData], now_ms: int, *, unknown: int = 0
    ) -> Handling[SessionAnswer]:
        """End a request, in steps: the partitions that the client has to see
        (`FetchContext.updateAndGenerateResponseData`).

        Args:
            context: What `open` returned.
            answered: The result of each partition, in the order of the answer.
            now_ms: The time in ms.
            unknown: How many of these partitions the broker does not know, or the client may not read.
        """
        if isinstance(context, IncrementalFetch):
            if unknown > SESSION_UNKNOWN_PARTITIONS:
                session_id = context.session.id
                self._shard_of(session_id).remove(session_id)
                return SessionAnswer(NO_SESSION, {}, Error.FETCH_SESSION_ID_NOT_FOUND)
            return (yield from _incremental(context, answered))
        if (
            not context.makes_session
            or unknown > SESSION_UNKNOWN_PARTITIONS
            or _is_too_large(context.is_follower, answered)
        ):
            return SessionAnswer(NO_SESSION, answered)
        self._next = (self._next + 1) % _SHARDS
        partitions = {}
        for at, (key, data) in enumerate(answered.items(), 1):
            if at % PARTITIONS_PER_STEP == 0:
                yield None
            partitions[key] = SessionPartition(context.partitions[key], _known_watermark(data), data.log_start_offset)
        size = _size(partitions)
        rank = context.is_follower, len(partitions), 0
        while not self._has_room(context.is_follower, size):
            if not any(shard.evict(rank, now_ms) for shard in self._shards):
                return SessionAnswer(NO_SESSION, answered)
        made = self._shards[self._next].add(partitions, size, context, now_ms)
        return SessionAnswer(made, answered)

    def _has_room(self, is_privileged: bool, size: int) -> bool:
        """Whether the sessions may take so many bytes more."""
        of_consumers, of_followers = (sum(shard.sizes[kind] for shard in self._shards) for kind in (False, True))
        if of_consumers + of_followers + size > self._budget_bytes:
            return False
        return is_privileged or of_consumers + size <= self._budget_bytes // 2

    def _shard_of(self, session_id: int) -> _Shard:
        return self._shards[min(max(session_id, 0) // _ids_of_a_shard(), _SHARDS - 1)]


class _Shard:
    """A part of the sessions, with a range of ids of its own."""

    def __init__(self, number: int, slots: int, eviction_ms: int, draw_id: DrawId) -> None:
        self.sessions: dict[int, Session] = {}
        """The sessions by their ids, the least recently used first."""
        self.sizes = [0, 0]
        """How many bytes the sessions of consumers take, and those of followers."""
        self._number = number
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._draw_id = draw_id

    def touch(self, session: Session, now_ms: int) -> None:
        """Note the use of a session."""
        session.used_ms = now_ms
        session.is_old = now_ms - session.created_ms > self._eviction_ms
        del self.sessions[session.id]
        self.sessions[session.id] = session

    def remove(self, session_id: int) -> None:
        """Remove a session, if it exists."""
        session = self.sessions.pop(session_id, None)
        if session is not None:
            self.sizes[session.is_privileged] -= session.size_bytes

    def update(self, session: Session, request: FetchRequest, version: int) -> Handling[dict[FetchKey, Wanted]]:
        """Add, change and remove partitions (`FetchSession.update`); returns those that the request names."""
        named = yield from wanted_of(request, version)
        for at, (key, wanted) in enumerate(named.items(), 1):
            if at % PARTITIONS_PER_STEP == 0:
                yield None
            self.want(session, key, wanted)
        for at, key in enumerate(_forgotten(request, version), 1):
            if at % PARTITIONS_PER_STEP == 0:
                yield None
            self.unwant(session, key)
        self.trim_names(session)
        return named

    def want(self, session: Session, key: FetchKey, wanted: Wanted) -> None:
        """Add a partition to a session, or change what the client wants of it."""
        known = session.partitions.get(key)
        if known is None:
            session.partitions[key] = SessionPartition(wanted)
            self._charge(session, _size((key,)))
        else:
            if known.wanted.current_leader_epoch != wanted.current_leader_epoch:
                # A follower drops an answer that a new leader epoch has overtaken: it is told the watermark again.
                known.high_watermark = NO_OFFSET
            known.wanted = wanted

    def unwant(self, session: Session, key: FetchKey) -> None:
        """Remove a partition from a session."""
        if session.partitions.pop(key, None) is not None:
            self._charge(session, -_size((key,)))

    def trim_names(self, session: Session) -> None:
        """Forget the names of topics that a session has no more."""
        if len(session.names) > len(session.partitions):
            kept = {topic for topic, _ in session.partitions}
            session.names = {topic: name for topic, name in session.names.items() if topic in kept}

    def _charge(self, session: Session, change: int) -> None:
        """Count bytes of a session, which may have given way since its request began."""
        session.size_bytes += change
        if self.sessions.get(session.id) is session:
            self.sizes[session.is_privileged] += change

    def add(self, partitions: dict[FetchKey, SessionPartition], size: int, context: FullFetch, now_ms: int) -> int:
        """Make a session, if there is room or a session gives way; returns its id or `NO_SESSION`."""
        is_privileged = context.is_follower
        if len(self.sessions) >= self._slots and not self.evict((is_privileged, len(partitions), 0), now_ms):
            return NO_SESSION
        first = self._number * _ids_of_a_shard()
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self.sessions:
            session_id = self._draw_id(first, first + _ids_of_a_shard())
        self.sessions[session_id] = Session(
            session_id,
            is_privileged,
            context.uses_topic_ids,
            partitions,
            now_ms,
            now_ms,
            context.names,
            size_bytes=size,
        )
        self.sizes[is_privileged] += size
        return session_id

    def evict(self, rank: tuple[bool, int, int], now_ms: int) -> bool:
        """Remove a session for a new one of this rank (`FetchSessionCacheShard.tryEvict`): one that was not used for a
        while, else the smallest one that is old, or that is no follower's if a follower needs the place.
        """
        oldest = next(iter(self.sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms > self._eviction_ms:
            self.remove(oldest.id)
            return True
        is_privileged = rank[0]
        candidates = [
            each for each in self.sessions.values() if each.is_old or (is_privileged and not each.is_privileged)
        ]
        smallest = min(candidates, key=lambda each: each.rank, default=None)
        if smallest is None or rank < smallest.rank:
            return False
        self.remove(smallest.id)
        return True


def throttled_session(context: FetchContext) -> tuple[int, Error]:
    """The session id and the error in the empty answer to a throttled consumer (`FetchContext.getThrottledResponse`).

    Only an incremental answer names a session. No session is made, and none is changed but for its epoch.
    """
    if not isinstance(context, IncrementalFetch):
        return NO_SESSION, Error.NONE
    is_next = context.session.epoch == context.epoch
    return context.session.id, Error.NONE if is_next else Error.INVALID_FETCH_SESSION_EPOCH


def next_epoch(epoch: int) -> int:
    """The epoch after this one; 1 follows the largest."""
    return 1 if epoch == _LARGEST else epoch + 1


def wanted_of(request: FetchRequest, version: int) -> Handling[dict[FetchKey, Wanted]]:
    """The partitions that a request names, in its order; of one that is named twice, the later entry counts."""
    wanted: dict[FetchKey, Wanted] = {}
    count = 0
    for topic in request.topics:
        name = _name(topic, version)
        for part in topic.partitions:
            count += 1
            if count % PARTITIONS_PER_STEP == 0:
                yield None
            wanted[name, part.partition] = _wanted(part)
    return wanted


def _name(topic: FetchTopic, version: int) -> str | Uuid:
    return topic.topic_id if version >= TOPIC_IDS_SINCE else topic.topic


def _wanted(part: FetchPartition) -> Wanted:
    return Wanted(
        part.current_leader_epoch,
        part.fetch_offset,
        part.last_fetched_epoch,
        part.log_start_offset,
        part.partition_max_bytes,
    )


def _is_small(request: FetchRequest) -> bool:
    """Whether a request names so few partitions that a step looks at all of them."""
    topics, forgotten = request.topics, request.forgotten_topics_data
    if len(topics) + len(forgotten) >= PARTITIONS_PER_STEP:
        return False
    named = sum([len(topic.partitions) for topic in topics]) + sum([len(topic.partitions) for topic in forgotten])
    return named < PARTITIONS_PER_STEP


def _opening_full(request: FetchRequest, version: int, *, is_follower: bool) -> Handling[FetchContext | SessionRefused]:
    wanted = yield from wanted_of(request, version)
    makes_session = request.session_epoch == INITIAL_EPOCH
    return FullFetch(wanted, makes_session, is_follower, version >= TOPIC_IDS_SINCE, {})


def _forgotten(request: FetchRequest, version: int) -> Iterable[FetchKey]:
    for topic in request.forgotten_topics_data:
        name: str | Uuid = topic.topic_id if version >= TOPIC_IDS_SINCE else topic.topic
        for number in topic.partitions:
            yield name, number


def _size(keys: Iterable[FetchKey]) -> int:
    """The bytes that partitions take of the budget of sessions."""
    return sum(SESSION_PARTITION_BYTES + (4 * len(topic) if isinstance(topic, str) else 0) for topic, _ in keys)


def _is_too_large(is_follower: bool, partitions: Collection[FetchKey]) -> bool:
    return not is_follower and len(partitions) > SESSION_CONSUMER_PARTITIONS


def _incremental(context: IncrementalFetch, answered: Mapping[FetchKey, PartitionData]) -> Handling[SessionAnswer]:
    session = context.session
    if session.epoch != context.epoch:
        # Another request has gone on in the session while this one waited.
        return SessionAnswer(session.id, {}, Error.INVALID_FETCH_SESSION_EPOCH)
    seen: dict[FetchKey, PartitionData] = {}
    for at, (key, data) in enumerate(answered.items(), 1):
        if at % PARTITIONS_PER_STEP == 0:
            yield None
            if session.epoch != context.epoch:
                return SessionAnswer(session.id, {}, Error.INVALID_FETCH_SESSION_EPOCH)
        _tell(session, key, data, seen)
    return SessionAnswer(session.id, seen)


def _tell(session: Session, key: FetchKey, data: PartitionData, seen: dict[FetchKey, PartitionData]) -> None:
    """Add the result of a partition to an incremental answer, if the client does not know it yet."""
    known = session.partitions[key]
    if not known.take(data):
        return
    seen[key] = data
    if data.records and len(session.partitions) > 1:
        # A partition that got data goes to the end, so that the others get their turn within the size limit.
        del session.partitions[key]
        session.partitions[key] = known


def _known_watermark(data: PartitionData) -> int:
    """The watermark that a client knows after an answer.

    An error comes without a watermark, so that the end of the error is a change, too. A follower with another history
    truncates its log and takes no watermark, which is therefore told again. A leader of Kafka does not tell it again:
    there the watermark of such a follower stays low until the next record.
    """
    return NO_OFFSET if data.diverging_epoch != NO_DIVERGENCE else data.high_watermark


def _ids_of_a_shard() -> int:
    return _LARGEST // _SHARDS
