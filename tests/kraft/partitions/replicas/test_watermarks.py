"""The arithmetic of watermark and ISR, against definitions that try every offset and every member."""

from __future__ import annotations

from random import Random

import pytest

from kraft.partitions.replicas.leading import RemoteReplica
from kraft.partitions.replicas.watermarks import (
    effective_min_isr,
    is_caught_up,
    maximal_isr,
    may_join,
    next_high_watermark,
)
from metadata_log.types import NO_OFFSET


def brute_high_watermark(current: int, leader_end: int, ends: list[int], isr_size: int, min_isr: int) -> int:
    """The largest offset with all records below it on the leader and on each follower; never below the present one."""
    candidates = [current]
    if isr_size >= min_isr:
        candidates += [
            offset
            for offset in range(leader_end + 1)
            if all(record < end for end in (leader_end, *ends) for record in range(offset))
        ]
    return max(candidates)


@pytest.mark.parametrize("seed", range(20))
def test_the_watermark_is_the_largest_offset_that_all_replicas_have(seed: int) -> None:
    rng = Random(seed)
    for _ in range(100):
        leader_end = rng.randrange(12)
        ends = [rng.choice([NO_OFFSET, *range(14)]) for _ in range(rng.randrange(4))]
        current, isr_size, min_isr = rng.randrange(leader_end + 1), rng.randrange(1, 5), rng.randrange(1, 4)
        found = next_high_watermark(current, leader_end, ends, isr_size=isr_size, min_isr=min_isr)
        expected = brute_high_watermark(current, leader_end, ends, isr_size, min_isr)
        assert found == expected, (seed, current, leader_end, ends, isr_size, min_isr)
        assert current <= found <= max(current, leader_end)


@pytest.mark.parametrize("seed", range(5))
def test_the_maximal_isr_has_every_broker_that_the_controller_may_have_committed(seed: int) -> None:
    """Of a proposal the controller has committed either the former or the proposed ISR."""
    rng = Random(seed)
    for _ in range(100):
        isr = tuple(rng.sample(range(6), rng.randrange(1, 6)))
        proposed = rng.choice([None, tuple(rng.sample(range(6), rng.randrange(1, 6)))])
        found = maximal_isr(isr, proposed)
        outcomes = [isr, *([] if proposed is None else [proposed])]
        assert [one for one in range(6) if any(one in outcome for outcome in outcomes)] == list(found), (
            seed,
            isr,
            proposed,
        )


@pytest.mark.parametrize(("setting", "replicas", "expected"), [(1, 3, 1), (2, 3, 2), (3, 3, 3), (4, 3, 3), (2, 1, 1)])
def test_the_min_isr_is_at_most_the_number_of_replicas(setting: int, replicas: int, expected: int) -> None:
    assert effective_min_isr(setting, replicas) == expected


@pytest.mark.parametrize(
    ("end", "caught_up_ms", "expected"), [(10, 0, True), (9, 970, True), (9, 969, False), (NO_OFFSET, 999, True)]
)
def test_a_follower_is_caught_up_at_the_end_or_within_the_lag_time(end: int, caught_up_ms: int, expected: bool) -> None:
    assert is_caught_up(end, 10, caught_up_ms, now_ms=1000, lag_time_max_ms=30) is expected


@pytest.mark.parametrize(("end", "expected"), [(7, True), (6, False), (4, False), (8, True)])
def test_a_follower_joins_at_the_watermark_and_at_the_start_of_the_epoch(end: int, expected: bool) -> None:
    assert may_join(end, high_watermark=5, epoch_start=7) is expected
    assert may_join(end, high_watermark=7, epoch_start=5) is expected


def test_a_follower_that_has_lost_records_ends_where_it_fetches() -> None:
    """The leader must not let a follower into the ISR by an end that a power failure has taken."""
    remote = RemoteReplica()
    remote.on_fetch(5, 0, 5, 1, 1000)
    remote.on_fetch(3, 0, 6, 1, 2000)
    assert remote.end_offset == 3
    assert not may_join(remote.end_offset, high_watermark=5, epoch_start=0)
