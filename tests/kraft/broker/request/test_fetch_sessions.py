"""Fetch sessions: what an incremental answer holds, in which order partitions get data, which session gives way."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kraft.broker.request.sessions import (
    FetchContext,
    FetchSessions,
    FullFetch,
    IncrementalFetch,
    SessionRefused,
    next_epoch,
)
from kraft.limits import SESSION_CONSUMER_PARTITIONS, SESSION_PARTITION_BYTES, SESSIONS_BYTES
from kraft.wire import Answer
from metadata_log.serde.codec import finished
from metadata_log.types import Uuid
from support.broker.request_brokers import (
    SESSION_MS,
    Brokers,
    NewTopic,
    batch,
    fetch,
    only_partition,
    produce,
    topic_id,
)
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

TOPIC = topic_id(1)
KEYS = [(TOPIC, number) for number in range(4)]


def one_broker(**settings: Any) -> Brokers:
    return Brokers([NewTopic("t", TOPIC, ((101,),) * 4)], **settings)


def opened(
    sessions: FetchSessions, request: FetchRequest, version: int, *, is_follower: bool, now_ms: int
) -> FetchContext | SessionRefused:
    """The session that a request begins, at once or in steps."""
    found = sessions.open(request, version, is_follower=is_follower, now_ms=now_ms)
    return found if isinstance(found, (FullFetch, IncrementalFetch, SessionRefused)) else finished(found)


def seen(response: Any) -> list[int]:
    """The partitions of an answer, in order."""
    return [part.partition_index for topic in response.responses for part in topic.partitions]


@pytest.mark.parametrize(("epoch", "told"), [(3, []), (4, [(TOPIC, 0)])], ids=["same", "next"])
def test_a_watermark_is_told_again_in_a_new_leader_epoch(epoch: int, told: list[tuple[Uuid, int]]) -> None:
    """A follower drops an answer to a request of the epoch before, and its watermark stayed low until the next record
    (`data-cluster` seed 5007).
    """

    def ask(session_id: int, session_epoch: int, leader_epoch: int, offset: int) -> FetchContext | SessionRefused:
        part = FetchPartition(partition=0, current_leader_epoch=leader_epoch, fetch_offset=offset)
        topics = [FetchTopic(topic_id=TOPIC, partitions=[part])]
        request = FetchRequest(session_id=session_id, session_epoch=session_epoch, topics=topics)
        return opened(sessions, request, 17, is_follower=True, now_ms=0)

    sessions = FetchSessions(1000, 120_000, Random(1).randrange)
    data = PartitionData(partition_index=0, high_watermark=19)
    first = ask(0, 0, 3, 17)
    assert isinstance(first, FullFetch)
    session_id = sessions.close_small(first, {(TOPIC, 0): data}, 0).session_id
    following = ask(session_id, 1, epoch, 19)
    assert isinstance(following, IncrementalFetch)
    assert list(sessions.close_small(following, {(TOPIC, 0): data}, 0).partitions) == told


def test_forgetting_all_partitions_ends_the_session() -> None:
    brokers = one_broker()
    session = brokers.ask(101, fetch((KEYS[0], 0), session_epoch=0)).session_id
    forgotten = [ForgottenTopic(topic_id=TOPIC, partitions=[0])]
    emptied = brokers.ask(101, fetch(session_id=session, session_epoch=1, forgotten_topics_data=forgotten))
    assert (emptied.session_id, emptied.error_code) == (0, 0)
    gone = brokers.ask(101, fetch(session_id=session, session_epoch=2))
    assert gone.error_code == Error.FETCH_SESSION_ID_NOT_FOUND


def test_a_request_that_overtakes_one_that_waits_ends_the_older_one_with_an_error() -> None:
    brokers = one_broker()
    session = brokers.ask(101, fetch((KEYS[0], 0), session_epoch=0)).session_id
    _, outcome = brokers.send(101, fetch(session_id=session, session_epoch=1, wait_ms=500))
    assert outcome is None
    assert brokers.ask(101, fetch(session_id=session, session_epoch=2)).error_code == 0
    [late] = brokers.poll(101, after_ms=500)
    assert isinstance(late, Answer)
    assert isinstance(late.message, FetchResponse)
    assert late.message.error_code == Error.INVALID_FETCH_SESSION_EPOCH


def test_a_topic_id_that_is_unknown_at_first_is_found_later_without_being_asked_again() -> None:
    brokers = one_broker()
    other = (topic_id(2), 0)
    first = brokers.ask(101, fetch((other, 0), session_epoch=0))
    assert only_partition(first).error_code == Error.UNKNOWN_TOPIC_ID
    brokers.publish(Brokers([NewTopic("t", TOPIC, ((101,),) * 4), NewTopic("new", other[0], ((101,),))]).image)
    found = brokers.ask(101, fetch(session_id=first.session_id, session_epoch=1))
    assert (only_partition(found).error_code, only_partition(found).high_watermark) == (0, 0)


def made_again(brokers: Brokers) -> tuple[Uuid, int]:
    """Make the topic again, under its name and with another id; returns the key of its first partition."""
    again = topic_id(7), 0
    brokers.publish(Brokers([NewTopic("t", again[0], ((101,),))]).image)
    return again


def test_a_fetch_that_waits_for_a_topic_that_is_made_again_is_answered_with_that() -> None:
    brokers = one_broker()
    _, outcome = brokers.send(101, fetch((KEYS[0], 0), wait_ms=60_000))
    assert outcome is None
    made_again(brokers)
    [answer] = brokers.poll(101)
    assert isinstance(answer, Answer)
    assert only_partition(answer.message).error_code == Error.INCONSISTENT_TOPIC_ID


def test_a_session_remembers_no_more_names_than_it_has_partitions() -> None:
    brokers = Brokers([NewTopic(f"t{number}", topic_id(number), ((101,),)) for number in range(50)])
    session = brokers.ask(101, fetch(((topic_id(0), 0), 0), session_epoch=0)).session_id
    for number in range(1, 50):
        forgotten = [ForgottenTopic(topic_id=topic_id(number - 1), partitions=[0])]
        wanted = fetch(
            ((topic_id(number), 0), 0), session_id=session, session_epoch=number, forgotten_topics_data=forgotten
        )
        assert brokers.ask(101, wanted).error_code == Error.NONE
    sessions = brokers.requests[101].rooms.fetch.sessions
    [names] = [one.names for shard in sessions._shards for one in shard.sessions.values()]
    assert len(names) <= 2


def test_the_epoch_after_the_largest_is_1() -> None:
    assert (next_epoch(1), next_epoch(2**31 - 2), next_epoch(2**31 - 1)) == (2, 2**31 - 1, 1)


# Which session gives way


def full(count: int) -> FetchRequest:
    """A full request for a session with some partitions."""
    parts = [FetchPartition(number) for number in range(count)]
    return FetchRequest(session_epoch=0, topics=[FetchTopic(topic_id=TOPIC, partitions=parts)])


class OneSlot:
    """Sessions with one place in each of the eight shards, which take turns."""

    def __init__(self, *, slots: int = 8, budget_bytes: int = SESSIONS_BYTES) -> None:
        ids = iter(range(1, 10**6))
        self.sessions = FetchSessions(slots, SESSION_MS, lambda first, _: first + next(ids), budget_bytes)

    def make(self, count: int, now_ms: int, *, is_follower: bool = False) -> list[int]:
        """Ask for a session in each shard; returns the ids, 0 for those that were refused."""
        made = []
        for _ in range(8):
            context = opened(self.sessions, full(count), 18, is_follower=is_follower, now_ms=now_ms)
            assert isinstance(context, FullFetch)
            answered = {key: PartitionData() for key in context.partitions}
            made.append(finished(self.sessions.close(context, answered, now_ms)).session_id)
        return made

    def use(self, session_ids: list[int], now_ms: int) -> None:
        """Go on in each session."""
        for session_id in session_ids:
            request = FetchRequest(session_id=session_id, session_epoch=1)
            assert isinstance(opened(self.sessions, request, 18, is_follower=False, now_ms=now_ms), IncrementalFetch)


def test_a_full_cache_gives_no_session_while_all_are_young() -> None:
    cache = OneSlot()
    assert all(cache.make(1, 0))
    assert cache.make(9, SESSION_MS) == [0] * 8
    assert len(cache.sessions) == 8


def test_a_session_that_was_not_used_for_a_while_gives_way() -> None:
    cache = OneSlot()
    old = cache.make(9, 0)
    made = cache.make(1, SESSION_MS + 1)
    assert all(made)
    assert set(made).isdisjoint(old)
    assert len(cache.sessions) == 8


def test_a_consumer_gives_way_to_a_follower_and_not_the_other_way_round() -> None:
    cache = OneSlot()
    assert all(cache.make(9, 0))
    followers = cache.make(1, 1, is_follower=True)
    assert all(followers)
    assert cache.make(9, 2) == [0] * 8
    assert cache.make(9, 3, is_follower=True) == [0] * 8


def test_an_old_session_gives_way_to_a_larger_one_only() -> None:
    cache = OneSlot()
    old = cache.make(3, 0)
    cache.use(old, SESSION_MS + 1)
    assert cache.make(2, SESSION_MS + 2) == [0] * 8
    assert all(cache.make(4, SESSION_MS + 3))


# A client with a session knows what a client without one is told


@pytest.mark.parametrize("seed", range(12))
def test_a_session_tells_a_client_the_same_as_full_requests(seed: int) -> None:
    rng = Random(seed)
    brokers = one_broker()
    offsets: dict[int, int] = {}
    known: dict[int, tuple[int, int, int]] = {}
    session, epoch = 0, 0
    for _ in range(60):
        for _ in range(rng.randrange(3)):
            brokers.ask(101, produce(KEYS[rng.randrange(4)], batch(*[b"v"] * rng.randrange(1, 4))))
        changed, forgotten = {}, []
        for number in range(4):
            if rng.random() < 0.3:
                changed[number] = offsets[number] = rng.choice([0, brokers.part(101, KEYS[number]).log.end_offset, 99])
            elif epoch and number in offsets and len(offsets) > 1 and rng.random() < 0.1:
                del offsets[number]
                known.pop(number, None)
                forgotten.append(number)
        if rng.random() < 0.05:
            session, epoch = 0, 0
        asked = offsets if epoch == 0 else changed
        if epoch == 0:
            known.clear()
        response = brokers.ask(
            101,
            fetch(
                *[(KEYS[number], at) for number, at in asked.items()],
                session_id=session,
                session_epoch=epoch,
                forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC, partitions=forgotten)] if epoch else [],
            ),
        )
        assert response.error_code == 0, seed
        session, epoch = response.session_id, epoch + 1 if response.session_id else 0
        for topic in response.responses:
            for part in topic.partitions:
                known[part.partition_index] = part.error_code, part.high_watermark, len(part.records)
        alone = brokers.ask(101, fetch(*[(KEYS[number], at) for number, at in offsets.items()]))
        told = {
            part.partition_index: (part.error_code, part.high_watermark, len(part.records))
            for topic in alone.responses
            for part in topic.partitions
        }
        # What a session leaves out is unchanged, and has no records.
        stale = {number: told[number] for number in told if known.get(number, (0, 0, 0))[:2] != told[number][:2]}
        assert stale == {}, seed
        unseen = [number for number, each in told.items() if each[2] and number not in seen(response)]
        assert unseen == [], seed


def test_the_ids_of_sessions_are_those_of_their_shards() -> None:
    cache = FetchSessions(1000, SESSION_MS, Random(3).randrange)
    made = []
    for _ in range(16):
        context = opened(cache, full(1), 18, is_follower=False, now_ms=0)
        assert isinstance(context, FullFetch)
        made.append(finished(cache.close(context, {}, 0)).session_id)
    assert all(0 < each < 2**31 for each in made)
    assert [each // ((2**31 - 1) // 8) for each in made] == [*range(1, 8), 0] * 2


# A budget of bytes


def test_sessions_have_a_budget_of_bytes_of_which_consumers_leave_half_to_followers() -> None:
    """Sessions outlive their connections, and Kafka bounds only their number."""
    cache = OneSlot(budget_bytes=8 * 100 * SESSION_PARTITION_BYTES, slots=800)
    made = cache.make(100, 0)
    assert [one > 0 for one in made] == [True] * 4 + [False] * 4
    followers = cache.make(100, 1, is_follower=True)
    assert all(followers)
    assert cache.sessions.size_bytes <= 8 * 100 * SESSION_PARTITION_BYTES
    assert len(cache.sessions) == 8
    opened(cache.sessions, FetchRequest(session_id=followers[0], session_epoch=-1), 18, is_follower=True, now_ms=2)
    assert cache.sessions.size_bytes == 7 * 100 * SESSION_PARTITION_BYTES


def test_unused_sessions_give_way_when_the_bytes_are_used() -> None:
    cache = OneSlot(budget_bytes=8 * 100 * SESSION_PARTITION_BYTES, slots=800)
    cache.make(100, 0)
    assert all(cache.make(50, SESSION_MS + 1))
    assert cache.sessions.size_bytes <= 4 * 100 * SESSION_PARTITION_BYTES


def test_a_session_that_grows_beyond_the_budget_ends() -> None:
    cache = OneSlot(budget_bytes=1000 * SESSION_PARTITION_BYTES, slots=800)
    session_id = cache.make(50, 0)[0]
    more = FetchRequest(session_id=session_id, session_epoch=1, topics=full(900).topics)
    refused = opened(cache.sessions, more, 18, is_follower=False, now_ms=1)
    assert refused == SessionRefused(Error.FETCH_SESSION_ID_NOT_FOUND)
    assert len(cache.sessions) == 7
    assert cache.sessions.size_bytes == 7 * 50 * SESSION_PARTITION_BYTES


def test_names_that_a_client_has_chosen_count_as_their_bytes() -> None:
    cache = OneSlot(budget_bytes=100_000, slots=800)
    parts = [FetchPartition(0)]
    request = FetchRequest(session_epoch=0, topics=[FetchTopic(topic="x" * 32_000, partitions=parts)])
    context = opened(cache.sessions, request, 12, is_follower=True, now_ms=0)
    assert isinstance(context, FullFetch)
    assert (
        finished(cache.sessions.close(context, {key: PartitionData() for key in context.partitions}, 0)).session_id == 0
    )


def test_a_consumer_of_very_many_partitions_names_them_in_each_request() -> None:
    cache = OneSlot(slots=800)
    assert cache.make(SESSION_CONSUMER_PARTITIONS + 1, 0) == [0] * 8
    assert all(cache.make(SESSION_CONSUMER_PARTITIONS + 1, 0, is_follower=True))
