"""Brokers replicate one partition in virtual time: watermark and ISR, their arithmetic, failover, restarts."""

from __future__ import annotations

from random import Random

import pytest

from kraft.partitions.replicas import epoch_ends
from kraft.partitions.replicas.epoch_ends import Truncation
from kraft.partitions.replicas.leading import RemoteReplica
from kraft.partitions.replicas.watermarks import (
    effective_min_isr,
    is_caught_up,
    maximal_isr,
    may_join,
    next_high_watermark,
)
from metadata_log.log.epochs import EpochHistory
from metadata_log.records import metadata as records
from metadata_log.types import NO_OFFSET, OffsetAndEpoch
from support.broker.data_brokers import LAG_MS, TOPIC, part_of
from transport.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from wired_brokers import Wired

# Replication and the high watermark


# The ISR


def late_follower() -> Wired:
    """A follower outside of the ISR lacks two committed records, and has fetched once."""
    wired = Wired(2)
    wired.silent.add(2)
    wired.append(1, b"a")
    wired.run(2 * LAG_MS)
    wired.append(1, b"b")
    assert (wired.isr(), wired.watermarks()[1]) == ((1,), 2)
    wired.silent.clear()
    wired.commit()
    wired.now_ms += 1000
    wired.fetch(2)
    wired.answer_proposals()
    return wired


def test_a_follower_below_the_watermark_does_not_join_the_isr() -> None:
    wired = late_follower()
    assert wired.isr() == (1,)
    wired.fetch(2)
    wired.answer_proposals()
    assert wired.isr() == (1, 2)


def lost_answer() -> Wired:
    """The controller has committed that broker 2 joins the ISR, and the leader has not heard of that."""
    wired = late_follower()
    wired.fetch(2)
    leader = wired.managers.pop(1)
    wired.commit(records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1, 2)))
    wired.managers[1] = leader
    wired.append(1, b"c")
    return wired


def test_a_leader_counts_a_member_that_the_controller_may_have_committed() -> None:
    wired = lost_answer()
    assert (part_of(wired.managers[1]).isr, wired.isr()) == ((1,), (1, 2))
    assert wired.watermarks()[1] == 2


# acks=all and min.insync.replicas


# Requests of followers


# Failover and truncation


# Out of range


# Damage


def fetched(wired: Wired, records_: bytes) -> None:
    """Broker 2 gets these bytes as the answer of its leader."""
    manager = wired.managers[2]
    request = manager.followers.request(1, 1002, wired.now_ms)
    assert isinstance(request, FetchRequest)
    answer = PartitionData(partition_index=0, high_watermark=0, log_start_offset=0, records=records_)
    topic = FetchableTopicResponse(topic_id=TOPIC, partitions=[answer])
    manager.followers.on_answer(1, FetchResponse(responses=[topic]), wired.now_ms)


@pytest.mark.parametrize("damage", ["checksum", "magic", "length"])
def test_damaged_records_of_a_leader_are_not_appended_and_are_fetched_again(damage: str) -> None:
    wired = Wired(2)
    wired.append(1, b"a")
    sound = wired.bytes_of(1)
    changed = bytearray(sound)
    if damage == "checksum":
        changed[-1] ^= 1
    elif damage == "magic":
        changed[16] = 3
    else:
        changed[8:12] = (3).to_bytes(4, "big")
    fetched(wired, bytes(changed))
    assert wired.ends()[2] == 0
    assert wired.managers[2].followers.request(1, 1002, wired.now_ms + 999) is None
    wired.run(1500)
    assert wired.bytes_of(2) == sound
    assert not part_of(wired.managers[2]).is_offline


def test_damage_that_a_truncation_meets_takes_this_replica_offline_and_no_other() -> None:
    wired = Wired(2, {"internal.segment.bytes": "150"})
    for number in range(6):
        wired.append(1, b"%d" % number)
    wired.run(300)
    manager = wired.managers[2]
    last = part_of(manager).log.segments[-1]
    assert last.base_offset == 4
    wired.disks[2].overwrite(last.path(".log"), 8, b"\xff" * 4)
    request = manager.followers.request(1, 1002, wired.now_ms)
    assert isinstance(request, FetchRequest)
    end = EpochEndOffset(epoch=0, end_offset=5)
    answer = PartitionData(partition_index=0, diverging_epoch=end, records=b"")
    topic = FetchableTopicResponse(topic_id=TOPIC, partitions=[answer])
    manager.followers.on_answer(1, FetchResponse(session_id=0, responses=[topic]), wired.now_ms)
    assert part_of(manager).is_offline
    assert manager.failed_directories == {}
    assert any("t-0 is offline" in finding for finding in manager.findings)
    manager.shrink(wired.now_ms + 300_000)
    manager.close(broker_epoch=1002)
    assert not wired.disks[2].exists("d/.kafka_cleanshutdown"), "the next start looks at every log"
    assert manager.failed_directories == {}


# Restarts


def test_records_with_flush_messages_one_survive_a_power_failure_of_all_brokers() -> None:
    wired = Wired(3, {"flush.messages": "1"})
    wired.append(1, b"a")
    wired.append(1, b"b")
    wired.run(300)
    assert wired.watermarks()[1] == 2
    for one in (1, 2, 3):
        wired.cut_power(one)
    for one in (1, 2, 3):
        wired.restart(one)
    wired.elect(3, (1, 2, 3))
    wired.run(500)
    assert wired.watermarks() == dict.fromkeys((1, 2, 3), 2)
    assert wired.values(3) == [b"a", b"b"]


def test_the_truncation_of_a_follower_is_that_of_the_leaders_epoch_and_of_its_own() -> None:
    """The rows of KIP-279: an epoch that the follower knows, one that it does not, and a log without epochs."""
    history = EpochHistory(tuple(OffsetAndEpoch(epoch=epoch, offset=start) for epoch, start in ((1, 0), (3, 10))))
    assert epoch_ends.truncation(history, 20, OffsetAndEpoch(epoch=3, offset=15)) == Truncation(15, is_complete=True)
    assert epoch_ends.truncation(history, 20, OffsetAndEpoch(epoch=1, offset=15)) == Truncation(10, is_complete=True)
    assert epoch_ends.truncation(history, 20, OffsetAndEpoch(epoch=2, offset=15)) == Truncation(10, is_complete=False)
    assert epoch_ends.truncation(history, 20, OffsetAndEpoch(epoch=5, offset=15)) == Truncation(15, is_complete=True)
    assert epoch_ends.truncation(EpochHistory(), 20, OffsetAndEpoch(epoch=1, offset=30)) == Truncation(
        20, is_complete=True
    )


# The arithmetic of watermark and ISR, against definitions that try every offset and every member.


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
