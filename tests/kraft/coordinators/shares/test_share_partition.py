"""A share partition: what is acquired, acknowledged, released and given up, by the rules of Kafka's brokers."""

from __future__ import annotations

import pytest

from kraft.coordinators.shares.acknowledging import Acknowledgement, acknowledging
from kraft.coordinators.shares.persister import PersistedState, PersistedWrite, StateBatch
from kraft.coordinators.shares.share_partition import (
    RECORD_LIMIT,
    Acquired,
    BadState,
    Move,
    ShareLimits,
    SharePartition,
    Span,
    Take,
)
from metadata_log.serde.codec import finished
from transport.protocol.errors import Error

LIMITS = ShareLimits()


def partition(*batches: StateBatch, start: int = 0) -> SharePartition:
    """A share partition that its leader has just loaded."""
    return SharePartition(PersistedState(1, start, batches), 0, 0)


def take(
    one: SharePartition,
    *spans: tuple[int, int],
    member: str = "m",
    most: int = 500,
    size: int = 500,
    mode: int = 0,
    limits: ShareLimits = LIMITS,
    now_ms: int = 0,
) -> list[tuple[int, int, int]]:
    """What a member gets of the record batches of a log."""
    at = one.next_fetch()
    read = [Span(*each) for each in spans if each[1] >= at]
    got = one.acquire(Take(member, most, size, mode), at, read, limits, now_ms)
    return [(each.first, each.last, each.count) for each in got]


def acknowledge(
    one: SharePartition,
    *ranges: tuple[int, int, list[int]],
    member: str = "m",
    limits: ShareLimits = LIMITS,
    now_ms: int = 0,
) -> Move | Error:
    """The move that a member begins, or why there is none."""
    asked = [Acknowledgement(*each) for each in ranges]
    return finished(acknowledging(one, member, asked, limits, now_ms))


def moved(
    one: SharePartition,
    *ranges: tuple[int, int, list[int]],
    member: str = "m",
    limits: ShareLimits = LIMITS,
    now_ms: int = 0,
) -> PersistedWrite:
    """The write of a move, which then succeeds."""
    move = acknowledge(one, *ranges, member=member, limits=limits, now_ms=now_ms)
    assert isinstance(move, Move), move
    write = one.written(move.runs)
    one.finish(move)
    return write


def released(one: SharePartition, member: str = "m", limits: ShareLimits = LIMITS) -> PersistedWrite:
    """The write of all that a member gives back, which then succeeds."""
    move = one.release(member, limits)
    write = one.written(move.runs)
    one.finish(move)
    return write


# Acquisition


def test_record_batches_are_handed_out_as_a_whole() -> None:
    one = partition()
    assert take(one, (0, 10), (11, 20), most=4) == [(0, 10, 1)]
    assert one.next_fetch() == 11


def test_a_large_acquisition_is_cut_at_record_batches() -> None:
    one = partition()
    assert take(one, (0, 3), (4, 8), (9, 13), most=5, size=2) == [(0, 3, 1), (4, 8, 1)]


def test_a_record_limit_leaves_the_rest_of_a_batch_undelivered() -> None:
    one = partition()
    assert take(one, (0, 9), most=4, mode=RECORD_LIMIT) == [(0, 3, 1)]
    assert (one.next, one.next_fetch()) == (10, 4)
    assert take(one, (0, 9), most=4, mode=RECORD_LIMIT) == [(4, 7, 1)]
    assert take(one, (0, 9), (10, 19), most=4, mode=RECORD_LIMIT) == [(8, 9, 1), (10, 11, 1)]


def test_nobody_gets_what_another_holds() -> None:
    one = partition()
    assert take(one, (0, 9)) == [(0, 9, 1)]
    assert take(one, (0, 9), member="other") == []


def test_twenty_bad_records_of_five_deliveries() -> None:
    one = partition()
    sizes = []
    while got := take(one, (0, 19)):
        sizes.append(sum(last - first + 1 for first, last, _ in got))
        released(one)
    assert sizes == [20, 20, 20, 10, *[1] * 10, 10, *[1] * 10]
    assert (one.start, one.complete) == (20, 0)


def test_twenty_bad_records_of_two_deliveries() -> None:
    one, limits = partition(), ShareLimits(deliveries=2)
    for count in (1, 2):
        assert take(one, (0, 19), limits=limits) == [(0, 19, count)]
        released(one, limits=limits)
    assert one.start == 20


def test_good_records_are_not_delivered_with_troubled_ones() -> None:
    one, limits = partition(StateBatch(2, 3, 0, 3), start=0), ShareLimits(deliveries=5)
    assert take(one, (0, 9), limits=limits) == [(0, 1, 1)]
    assert take(one, (0, 9), limits=limits) == [(2, 2, 4)]
    assert take(one, (0, 9), limits=limits) == [(3, 3, 4)]
    assert take(one, (0, 9), limits=limits) == [(4, 9, 1)]


def test_the_window_counts_from_the_oldest_record() -> None:
    one, limits = partition(), ShareLimits(window=100)
    assert take(one, (0, 102), (103, 110), limits=limits) == [(0, 102, 1)]
    assert not one.has_room(limits)
    moved(one, (1, 60, [1]))
    assert not one.has_room(limits)
    assert take(one, (0, 102), (103, 110), limits=limits) == []
    moved(one, (0, 0, [1]))
    assert (one.start, one.has_room(limits)) == (61, True)


def test_a_full_window_is_delivered_again() -> None:
    one, limits = partition(), ShareLimits(window=10)
    take(one, (0, 9), (10, 12), limits=limits)
    moved(one, (4, 5, [2]))
    assert one.has_room(limits)
    assert take(one, (0, 9), (10, 12), limits=limits) == [(4, 5, 2)]


# Load


def test_a_loaded_state_goes_on_where_it_was() -> None:
    one = partition(StateBatch(0, 1, 2, 1), StateBatch(2, 2, 0, 1), StateBatch(3, 4, 4, 5))
    assert (one.start, one.next, one.next_fetch(), one.complete) == (2, 5, 2, 2)
    assert take(one, (0, 4), (5, 6)) == [(2, 2, 2), (5, 6, 1)]


def test_gaps_of_a_loaded_state_come_first() -> None:
    one = partition(StateBatch(5, 9, 2, 1), start=0)
    assert (one.start, one.next_fetch(), one.next) == (0, 0, 10)
    assert take(one, (0, 4), (5, 9), (10, 12)) == [(0, 4, 1), (10, 12, 1)]
    moved(one, (0, 4, [1]))
    assert one.start == 10


def test_a_large_gap_is_handed_out_in_parts() -> None:
    one = partition(StateBatch(20, 29, 0, 1), start=0)
    spans = [(at, at + 4) for at in range(0, 30, 5)]
    assert take(one, *spans, most=3) == [(0, 4, 1)]
    assert take(one, *spans, most=12) == [(5, 19, 1)]
    assert take(one, *spans, most=3) == [(20, 29, 2)]


@pytest.mark.parametrize(
    "batches",
    [
        (StateBatch(3, 2, 0, 1),),
        (StateBatch(0, 3, 0, 1),),
        (StateBatch(7, 8, 0, 1), StateBatch(8, 9, 0, 1)),
        (StateBatch(7, 8, 1, 1),),
        (StateBatch(7, 8, 9, 1),),
    ],
)
def test_a_state_that_contradicts_itself_is_not_loaded(batches: tuple[StateBatch, ...]) -> None:
    with pytest.raises(BadState):
        partition(*batches, start=2)


def test_what_was_compacted_away_is_archived() -> None:
    one = partition()
    take(one, (0, 9))
    moved(one, (2, 5, [2]))
    assert take(one, (4, 9)) == [(4, 5, 2)]
    moved(one, (0, 1, [1]))
    assert (one.start, one.complete) == (4, 0)


# Acknowledgements


def test_a_write_has_the_start_before_and_the_count_after() -> None:
    one = partition()
    take(one, (0, 10))
    assert moved(one, (0, 10, [1])) == PersistedWrite(1, 0, 0, 11, (StateBatch(0, 10, 2, 1),))
    assert (one.start, one.next, one.complete) == (11, 11, 0)


def test_each_record_may_have_its_own_type() -> None:
    one = partition()
    take(one, (0, 5))
    assert moved(one, (0, 5, [1, 1, 2, 3, 3, 0])).batches == (
        StateBatch(0, 1, 2, 1),
        StateBatch(2, 2, 0, 1),
        StateBatch(3, 4, 4, 1),
        StateBatch(5, 5, 4, 1),
    )
    assert (one.start, one.complete, one.next_fetch()) == (2, 3, 2)
    assert take(one, (0, 5)) == [(2, 2, 2)]


def test_a_released_record_is_archived_at_the_limit() -> None:
    one, limits = partition(), ShareLimits(deliveries=1)
    take(one, (0, 0))
    assert moved(one, (0, 0, [2]), limits=limits).batches == (StateBatch(0, 0, 4, 1),)
    assert one.start == 1


@pytest.mark.parametrize(
    ("ranges", "error"),
    [
        (((0, 4, [1]), (2, 2, [1])), Error.INVALID_RECORD_STATE),
        (((0, 9, [1]), (10, 12, [1])), Error.INVALID_REQUEST),
        (((0, 10, [1]),), Error.INVALID_REQUEST),
        (((20, 20, [1]),), Error.INVALID_REQUEST),
    ],
)
def test_an_acknowledgement_counts_as_a_whole(ranges: tuple[tuple[int, int, list[int]], ...], error: Error) -> None:
    one = partition()
    take(one, (0, 9))
    assert acknowledge(one, *ranges) is error
    assert one.complete == 0
    assert moved(one, (0, 9, [1])).batches == (StateBatch(0, 9, 2, 1),)


def test_only_the_holder_acknowledges() -> None:
    one = partition()
    assert acknowledge(one, (0, 0, [1])) is Error.INVALID_RECORD_STATE
    take(one, (0, 9))
    assert acknowledge(one, (0, 9, [1]), member="other") is Error.INVALID_RECORD_STATE


def test_what_is_below_the_start_is_ignored() -> None:
    one = partition()
    take(one, (0, 9))
    moved(one, (0, 4, [1]))
    assert moved(one, (0, 4, [1])).batches == ()
    assert moved(one, (0, 9, [1] * 10)).batches == (StateBatch(5, 9, 2, 1),)


def test_a_renewed_lock_begins_anew_without_a_write() -> None:
    one = partition()
    take(one, (0, 3))
    assert moved(one, (0, 3, [4, 4, 1, 1]), now_ms=20_000).batches == (StateBatch(2, 3, 2, 1),)
    assert one.expire(LIMITS, 30_000) is None
    ended = one.expire(LIMITS, 50_000)
    assert ended is not None
    assert ended[0].batches == (StateBatch(0, 1, 0, 1),)


def test_a_group_may_forbid_to_renew() -> None:
    one, limits = partition(), ShareLimits(may_renew=False)
    take(one, (0, 3))
    assert acknowledge(one, (0, 3, [1, 1, 1, 4]), limits=limits) is Error.INVALID_RECORD_STATE
    assert moved(one, (0, 3, [1])).batches == (StateBatch(0, 3, 2, 1),)


def test_what_is_being_written_is_nobodys() -> None:
    one = partition()
    take(one, (0, 9))
    move = acknowledge(one, (0, 9, [2]))
    assert isinstance(move, Move)
    assert acknowledge(one, (0, 9, [1])) is Error.INVALID_RECORD_STATE
    assert take(one, (0, 9), member="other") == []
    assert one.expire(LIMITS, 30_000) is None
    one.finish(move)
    assert take(one, (0, 9), member="other") == [(0, 9, 2)]


@pytest.mark.parametrize("now_ms", [0, 30_000])
def test_a_write_that_fails_leaves_the_lock(now_ms: int) -> None:
    one = partition()
    take(one, (0, 9))
    move = acknowledge(one, (0, 9, [1]))
    assert isinstance(move, Move)
    one.undo(move, LIMITS, now_ms)
    assert (one.start, one.complete) == (0, 0)
    assert take(one, (0, 9), member="other", now_ms=now_ms) == ([(0, 9, 2)] if now_ms else [])


# The end of locks


def test_a_lock_that_ends_gives_the_records_back() -> None:
    one = partition()
    take(one, (0, 9))
    assert one.expire(LIMITS, 29_999) is None
    assert one.expire(LIMITS, 30_000) == (PersistedWrite(1, 0, 0, 0, (StateBatch(0, 9, 0, 1),)), Move())
    assert acknowledge(one, (0, 9, [1])) is Error.INVALID_RECORD_STATE
    assert take(one, (0, 9)) == [(0, 9, 2)]


def test_a_lock_that_ends_at_the_limit_archives() -> None:
    one, limits = partition(), ShareLimits(deliveries=1)
    take(one, (0, 9))
    ended = one.expire(limits, 30_000)
    assert ended is not None
    write, move = ended
    assert write == PersistedWrite(1, 0, 0, 10, (StateBatch(0, 9, 4, 1),))
    assert one.start == 0
    assert acknowledge(one, (0, 9, [1])) is Error.INVALID_RECORD_STATE
    one.finish(move)
    assert (one.start, one.complete) == (10, 0)


def test_what_could_not_be_archived_is_archived_later() -> None:
    """A member that acknowledges what is before the start is told that it is done with: that has to be written."""
    one, limits = partition(), ShareLimits(deliveries=1)
    take(one, (0, 9))
    ended = one.expire(limits, 30_000)
    assert ended is not None
    one.undo(ended[1], limits, 30_100)
    assert (one.start, one.complete) == (0, 0)
    assert take(one, (0, 9), member="other", now_ms=30_100) == []
    assert one.expire(limits, 30_100) == ended


def test_a_member_that_goes_gives_all_back() -> None:
    one = partition()
    take(one, (0, 9), (10, 19), most=5)
    take(one, (0, 9), (10, 19), most=5, member="other")
    assert released(one).batches == (StateBatch(0, 9, 0, 1),)
    assert take(one, (0, 9), (10, 19)) == [(0, 9, 2)]


# The log


def test_a_log_that_begins_later_takes_what_was_before() -> None:
    one = partition()
    take(one, (0, 9), (10, 19), most=5)
    take(one, (0, 9), (10, 19), most=5)
    moved(one, (0, 2, [2]))
    assert one.raise_start(12)
    assert (one.start, one.next_fetch()) == (12, 20)
    assert moved(one, (0, 9, [1]), (10, 19, [1])).batches == (StateBatch(12, 19, 2, 1),)
    assert one.raise_start(50)
    assert (one.start, one.next, one.next_fetch()) == (50, 50, 50)


def test_a_log_may_begin_within_what_is_being_written() -> None:
    one = partition()
    take(one, (0, 9))
    move = acknowledge(one, (0, 9, [1]))
    assert isinstance(move, Move)
    one.raise_start(5)
    assert one.complete == 5
    one.undo(move, LIMITS, 0)
    assert (one.complete, one.start) == (0, 5)
    assert moved(one, (0, 9, [1])).batches == (StateBatch(5, 9, 2, 1),)


def test_records_of_aborted_transactions_are_archived() -> None:
    one = partition()
    take(one, (0, 4), (5, 9), (10, 10))
    left = one.archive([Span(0, 4)], [Acquired(0, 10, 1)])
    assert left == [Acquired(5, 10, 1)]
    assert one.start == 5
    assert one.archive([Span(7, 8)], left) == [Acquired(5, 6, 1), Acquired(9, 10, 1)]
    assert (one.start, one.complete) == (5, 2)
