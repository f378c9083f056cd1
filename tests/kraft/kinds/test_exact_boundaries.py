"""Each boundary of an offset, a size and a time, one below, at and one above, against definitions over plain lists.

A comparison that has `<` for `<=` is right everywhere but at one value, which random numbers of a large range never
meet. So the ranges are small here, and each value is tried: an offset that is the limit, the log start, the log end,
the high watermark, the base of a segment, a marker, or within a batch.
"""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from msgspec import structs

from kraft.controller.decision.broker_sessions import BrokerSessions
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.log.producers import Producer, ProducerStates
from kraft.partitions.log.retention import expired_segments
from kraft.partitions.replicas.epoch_ends import end_of_epoch, truncation
from kraft.partitions.replicas.leading import RemoteReplica
from kraft.quorum.accumulator import BatchAccumulator
from kraft.quorum.states import LeaderState
from kraft.quorum.states.leader import Progress
from kraft.quorum.values import Endpoints, ReplicaKey
from kraft.quorum.voters import VoterSet
from metadata_log.log.epochs import EpochHistory
from metadata_log.records.batch_builder import build_batch
from metadata_log.serde.codec import finished
from metadata_log.types import NEVER_MS, OffsetAndEpoch
from support.broker.request_brokers import Brokers, NewTopic, epoch_of, topic_id
from support.differential.controller_sides import InProcess, registration
from support.kraft.plain_logs import (
    NOW_MS,
    OPTIONS,
    Entry,
    History,
    aborted,
    as_told,
    bases,
    check,
    cut,
    epochs,
    new_log,
    stable,
    stored,
    write,
)
from transport.protocol.errors import Error
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from transport.protocol.messages.broker_registration import BrokerRegistrationResponse
from transport.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

SEEDS = range(6)


def a_log(seed: int, count: int = 24) -> tuple[PartitionLog, History]:
    """A log of several segments, with transactions and leader epochs."""
    log, history = new_log(), list[Entry]()
    write(log, Random(seed), history, count)
    assert len(bases(log)) > 2
    return log, history


def with_holes(log: PartitionLog, history: History, seed: int) -> tuple[PartitionLog, History]:
    """A follower's log without some of the batches, as after a compaction."""
    rng = Random(seed)
    kept = [entry for entry in history if rng.random() < 0.7] or history
    follower = new_log()
    for entry in kept:
        follower.append_as_follower(entry.data, leader_epoch=entry.epoch, now_ms=NOW_MS)
    return follower, kept


# ----------------------------------------------------------------------------------------------------------- reading


def expected_read(
    log: PartitionLog, history: History, offset: int, most: int, bound: int, *, at_least_one: bool
) -> bytes | None:
    """The definition of a read; None for a refusal."""
    if offset < log.start_offset or offset > log.end_offset:
        return None
    limit = min(bound, log.end_offset)
    following = [entry for entry in history if entry.last >= offset]
    if offset >= limit or not following:
        return b""
    ends = [*bases(log)[1:], log.end_offset + 1]
    segment_end = next(end for end in ends if following[0].first < end)
    found = b""
    for entry in following:
        is_too_much = bool(found) and len(found) + len(entry.data) > most
        if entry.last >= limit or entry.first >= segment_end or is_too_much:
            break
        found += entry.data
    return found if at_least_one or len(found) <= most else b""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("has_holes", [False, True])
def test_a_read_at_each_offset_up_to_each_bound_of_each_size(seed: int, has_holes: bool) -> None:
    log, history = a_log(seed, 16)
    if has_holes:
        log, history = with_holes(log, history, seed)
    log.raise_high_watermark(log.end_offset)
    log.raise_start(history[0].last)
    one, two = len(history[2].data), len(history[2].data) + len(history[3].data)
    sizes = [0, 1, one - 1, one, one + 1, two - 1, two, two + 1, 10_000]
    for offset, bound in product(range(-1, log.end_offset + 2), range(log.end_offset + 2)):
        for size in sizes:
            for at_least_one in (True, False):
                found = log.read(offset, size, end_offset=bound, at_least_one=at_least_one)
                expected = expected_read(log, history, offset, size, bound, at_least_one=at_least_one)
                where = offset, bound, size, at_least_one, bases(log)
                assert (None if isinstance(found, RefusedAppend) else found) == expected, where


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_stable_offset_at_each_high_watermark(seed: int) -> None:
    """At a high watermark that is equal to a marker, the marker is not replicated: its transaction is not stable."""
    log, history = a_log(seed)
    for watermark in range(log.end_offset + 1):
        log.raise_high_watermark(watermark)
        assert (log.high_watermark, log.last_stable_offset) == (watermark, stable(history, watermark))
    assert any(entry.ends for entry in history)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_aborted_transactions_of_each_range(seed: int) -> None:
    log, history = a_log(seed)
    assert aborted(history, 0, log.end_offset)
    for offset in range(log.end_offset + 1):
        # A range ends at the last stable offset at most: beyond, no reader of committed records asks.
        for end in range(offset, stable(history, log.end_offset) + 1):
            assert as_told(log.aborted(offset, end)) == aborted(history, offset, end), (offset, end)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_record_of_each_time_from_each_log_start(seed: int) -> None:
    """Times rise with the offsets here, two apart, so that half of the times are between two records."""
    log, times = new_log(), dict[int, int]()
    rng = Random(seed)
    while len(bases(log)) < 4:
        at, count = log.end_offset, rng.randrange(1, 4)
        # All records of a batch have one time.
        log.append_as_leader(build_batch(0, -1, NOW_MS + 2 * at, [b"v" * 40] * count), epoch=1, now_ms=NOW_MS)
        times |= dict.fromkeys(range(at, at + count), NOW_MS + 2 * at)
    log.raise_high_watermark(log.end_offset)
    for start in range(log.end_offset + 1):
        log.raise_start(start)
        for time in range(NOW_MS - 1, NOW_MS + 2 * log.end_offset + 2):
            found = finished(log.finding_time(time))
            expected = next((at for at in times if at >= start and times[at] >= time), None)
            assert (None if found is None else found.offset) == expected, (start, time - NOW_MS)
            assert found is None or found.timestamp == times[found.offset]


# ------------------------------------------------------------------------------------------- ends, starts, retention


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("flushed", [0, 12])
def test_a_truncation_to_each_offset(seed: int, flushed: int) -> None:
    _, whole = a_log(seed)
    end = whole[-1].last + 1
    for offset in range(end + 2):
        for watermark in {0, offset - 1, offset, offset + 1, end}:
            log, history = new_log(), list[Entry]()
            rng = Random(seed)
            write(log, rng, history, flushed)
            log.flush()
            recovery_point = log.end_offset if flushed else log.recovery_point
            write(log, rng, history, 24 - flushed)
            log.raise_high_watermark(watermark)
            recovery_point = max(recovery_point, log.recovery_point)
            before, former = bases(log), log.high_watermark
            log.truncate(offset, now_ms=NOW_MS)
            where = seed, offset, watermark
            # The epoch of a batch that is cut within has begun all the same, as in Kafka.
            begun = [one for one in epochs(history) if one[1] < offset]
            check(log, cut(history, offset), where, begun=begun)
            assert log.end_offset == min(offset, end), where
            assert log.high_watermark == min(former, offset), where
            assert log.recovery_point == min(recovery_point, offset), where
            assert bases(log) == [base for base in before if base <= offset], where
            if offset == end // 2:
                # The log goes on after the cut.
                rest = cut(history, offset)
                log.append_as_follower(structs.replace(whole[-1]).data, leader_epoch=whole[-1].epoch, now_ms=NOW_MS)
                assert stored(log) == [*(entry.data for entry in rest), whole[-1].data]


@pytest.mark.parametrize("seed", range(3))
def test_a_log_start_at_each_offset(seed: int) -> None:
    """The epoch of the first record begins at the log start, wherever the epoch began."""
    log, history = a_log(seed)
    log.raise_high_watermark(log.end_offset)
    of_offset = {at: entry.epoch for entry in history for at in range(entry.first, entry.last + 1)}
    for start in range(log.end_offset + 1):
        log.raise_start(start)
        assert log.start_offset == start
        known = [one for one in range(start, log.end_offset) if log.epochs.epoch_at(one) != of_offset[one]]
        assert known == [], start
        offsets = [one.offset for one in log.epochs.entries]
        assert offsets == sorted(set(offsets))
        assert offsets[0] == start or start == log.end_offset


def expected_expired(log: PartitionLog, now_ms: int) -> int:
    """Segments go one by one from the front, for one of three reasons; the reasons take turns, each until it ends."""
    options, gone = log.options, 0
    rows = [(each.base_offset, each.batches.size_bytes, each.batches.max_timestamp) for each in log.segments]
    ends = [base for base, _, _ in rows[1:]] + [log.end_offset]
    for reason in ("time", "size", "start"):
        while gone < len(rows):
            left = sum(size for _, size, _ in rows[gone:])
            is_last = gone == len(rows) - 1
            applies = {
                "time": options.retention_ms >= 0 and now_ms - options.retention_ms > rows[gone][2],
                "size": options.retention_bytes >= 0 and left - rows[gone][1] >= options.retention_bytes,
                "start": not is_last and ends[gone] <= log.start_offset,
            }[reason]
            if not applies or ends[gone] > log.high_watermark or (is_last and rows[gone][1] == 0):
                break
            gone += 1
    return gone


@pytest.mark.parametrize("seed", range(4))
def test_retention_at_each_size_time_and_watermark(seed: int) -> None:
    log, _ = a_log(seed)
    sizes = [segment.batches.size_bytes for segment in log.segments]
    sums = [sum(sizes[at:]) for at in range(len(sizes) + 1)]
    near_sizes = sorted({max(0, total + by) for total in sums for by in (-1, 0, 1)} | {-1})
    times = [segment.batches.max_timestamp for segment in log.segments]
    near_times = sorted({time + by for time in times for by in (-1, 0, 1)})
    seen = set[int]()
    near_ends = sorted(
        {base + by for base in bases(log)[1:] for by in (-1, 0, 1)} | {log.end_offset - 1, log.end_offset}
    )
    for watermark in near_ends:
        log.raise_high_watermark(watermark)
        for size in near_sizes:
            log.options = structs.replace(OPTIONS, retention_bytes=size, retention_ms=-1)
            seen.add(expired_segments(log, now_ms=NOW_MS))
            assert expired_segments(log, now_ms=NOW_MS) == expected_expired(log, NOW_MS), (watermark, size, sums)
        for now_ms in near_times:
            log.options = structs.replace(OPTIONS, retention_ms=10)
            for now in (now_ms + 9, now_ms + 10, now_ms + 11):
                assert expired_segments(log, now_ms=now) == expected_expired(log, now), (watermark, now - NOW_MS)
    log.options = structs.replace(OPTIONS, retention_ms=-1)
    for start in near_ends:
        log.raise_start(start)
        assert expired_segments(log, now_ms=NOW_MS) == expected_expired(log, NOW_MS), start
    assert seen >= {0, 1, 2}


def test_a_segment_rolls_above_each_of_its_limits() -> None:
    """By its size, by its time, and by the largest distance from its base: at the limit it does not roll."""
    data = build_batch(0, -1, NOW_MS, [b"v"])
    for by in (-1, 0, 1):
        log = new_log(options=LogOptions(segment_bytes=3 * len(data) + by))
        for _ in range(3):
            log.append_as_leader(data, epoch=0, now_ms=NOW_MS)
        assert bases(log) == ([0, 2] if by < 0 else [0]), by
        log = new_log(options=LogOptions(segment_ms=1000))
        log.append_as_leader(data, epoch=0, now_ms=NOW_MS)
        log.append_as_leader(build_batch(0, -1, NOW_MS + 1000 + by, [b"v"]), epoch=0, now_ms=NOW_MS)
        assert bases(log) == ([0, 1] if by > 0 else [0]), by
        log = new_log()
        log.append_as_follower(build_batch(0, 0, NOW_MS, [b"v"]), leader_epoch=0, now_ms=NOW_MS)
        log.append_as_follower(build_batch(2**31 - 1 + by, 0, NOW_MS, [b"v"]), leader_epoch=0, now_ms=NOW_MS)
        assert len(bases(log)) == (2 if by > 0 else 1), by


def test_a_producer_is_forgotten_when_its_time_is_over() -> None:
    for age, open_offset in product((99, 100, 101), (None, 0, 5)):
        states = ProducerStates()
        states.producers[7] = Producer(7, timestamp=NOW_MS, open_offset=open_offset)
        states.expire(NOW_MS + age, 100)
        assert (7 in states.producers) is (age < 100 or open_offset is not None), (age, open_offset)


# ------------------------------------------------------------------------------------------------------------- epochs

Epochs = list[int | None]
"""The epoch of each offset of a log."""


def every_log(most: int) -> list[list[int]]:
    """The epochs of all records, of each log up to this length: epochs rise."""
    drawn = (list(each) for size in range(most + 1) for each in product((1, 2, 4, 5), repeat=size))
    return [each for each in drawn if each == sorted(each)]


def history_of(log: list[int]) -> EpochHistory:
    history = EpochHistory()
    for offset, epoch in enumerate(log):
        history = history.assign(epoch, offset)
    return history


def test_each_question_to_each_small_epoch_history() -> None:
    for log in every_log(5):
        history = history_of(log)
        end = len(log)
        assert [history.epoch_at(offset) for offset in range(end)] == log
        for offset in range(end + 2):
            shorter = history.truncate_end(offset)
            assert [shorter.epoch_at(at) for at in range(min(offset, end))] == log[:offset]
            assert shorter == history_of(log[:offset]), (log, offset)
            later = history.truncate_start(offset)
            assert [later.epoch_at(at) for at in range(offset, end)] == log[offset:], (log, offset)
            assert (
                len({one.offset for one in later.entries})
                == len(later.entries)
                == len({one.epoch for one in later.entries})
            )
        for epoch in range(7):
            ends = end_of_epoch(history, epoch, end)
            below = [at for at, each in enumerate(log) if each <= epoch]
            if not log or epoch > log[-1]:
                assert ends is None, (log, epoch)
            else:
                known = log[below[-1]] if below else epoch
                assert ends == OffsetAndEpoch(epoch=known, offset=len(below)), (log, epoch)


def may_meet(mine: list[int], other: list[int]) -> bool:
    """Whether two replicas can have these logs: an epoch has one leader, and so one first offset and one past."""
    for epoch in {*mine} & {*other}:
        begin = mine.index(epoch)
        if other.index(epoch) != begin or mine[:begin] != other[:begin]:
            return False
    return True


def test_two_small_logs_agree_after_truncations() -> None:
    """A follower that asks, truncates and asks again ends with the common history, and loses nothing of that."""
    logs = every_log(4)
    met = [(mine, other) for mine, other in product(logs, logs) if may_meet(mine, other)]
    assert len(met) > 500
    for mine, other in met:
        follower = list(mine)
        common = sum(1 for length in range(1, min(len(mine), len(other)) + 1) if mine[:length] == other[:length])
        for _ in range(6):
            ends = end_of_epoch(history_of(other), follower[-1], len(other)) if follower else None
            if ends is None or (ends.epoch == follower[-1] and ends.offset >= len(follower)):
                break
            follower = follower[: truncation(history_of(follower), len(follower), ends).offset]
        else:
            pytest.fail(f"{mine} and {other} do not come to an end")
        assert len(follower) >= common, (mine, other)
        if other and (not follower or follower[-1] <= other[-1]):
            # A follower with a later epoch than the leader's fetches nothing from it.
            assert follower == other[: len(follower)], (mine, other)


# ----------------------------------------------------------------------------------------------- requests of clients

KEY = topic_id(1), 0


def led(values: int, watermark: int, *, new_epoch_at: int | None = None) -> Brokers:
    """Broker 101 leads two replicas: one batch for each record, and a high watermark that the follower has moved."""
    brokers = Brokers([NewTopic("t", KEY[0], ((101, 102),))])
    part = brokers.part(101, KEY)
    for number in range(values):
        data = build_batch(0, -1, NOW_MS + 10 * number, [b"%d" % number])
        part.log.append_as_leader(data, epoch=0, now_ms=NOW_MS)
    assert part.leading is not None
    part.log.raise_high_watermark(watermark)
    if new_epoch_at is not None:
        part.leading.start_offset = new_epoch_at
    return brokers


def test_offsets_by_time_at_each_watermark_and_start_of_the_epoch() -> None:
    """A consumer is told nothing after the watermark. While the watermark is behind the start of the leader epoch, a
    record after the watermark may be committed.
    """
    count = 4
    for watermark, epoch_start in product(range(count + 1), range(count + 1)):
        brokers = led(count, watermark, new_epoch_at=epoch_start)
        asked = [-1, -2, *(10 * at + by + NOW_MS for at in range(count) for by in (-1, 0, 1))]
        for time, replica in product(asked, (-1, 102)):
            parts = [ListOffsetsPartition(partition_index=0, timestamp=time)]
            request = ListOffsetsRequest(replica_id=replica, topics=[ListOffsetsTopic(name="t", partitions=parts)])
            answer = brokers.ask(101, request, 7)
            found = answer.topics[0].partitions[0]
            is_behind = replica == -1 and watermark < epoch_start
            bound = watermark if replica == -1 else count
            first = next((at for at in range(count) if NOW_MS + 10 * at >= time), None)
            if time == -2:
                expected = 0, 0
            elif time == -1:
                expected = (Error.OFFSET_NOT_AVAILABLE, -1) if is_behind else (0, bound)
            elif first is not None and first < bound:
                expected = 0, first
            else:
                expected = (Error.OFFSET_NOT_AVAILABLE, -1) if is_behind else (0, -1)
            assert (found.error_code, found.offset) == expected, (watermark, epoch_start, time, replica)


def test_records_are_deleted_up_to_each_offset() -> None:
    for watermark in range(4):
        for offset in range(-3, 6):
            brokers = led(4, watermark)
            done = brokers.managers[101].leaders.delete_records(brokers.managers[101].partitions[KEY], offset)
            log = brokers.part(101, KEY).log
            wanted = watermark if offset == -1 else offset
            if 0 <= wanted <= watermark:
                assert (done, log.start_offset) == (wanted, wanted), (watermark, offset)
            else:
                assert isinstance(done, RefusedAppend)
                assert (done.error, log.start_offset) == (Error.OFFSET_OUT_OF_RANGE, 0), (watermark, offset)


def test_a_follower_joins_and_leaves_the_isr_at_exact_offsets_and_times() -> None:
    lag_ms = 30_000
    for end, watermark, epoch_start in product(range(5), range(4), range(4)):
        brokers = led(4, watermark, new_epoch_at=epoch_start)
        part = brokers.part(101, KEY)
        assert part.leading is not None
        part.leading.accept((101,), part.leading.partition_epoch)
        part.leading.remotes[102] = RemoteReplica()
        leaders = brokers.managers[101].leaders
        assert leaders.on_follower_fetch(part, 102, epoch_of(102), end, 0, NOW_MS) is None
        assert (part.leading.proposed is not None) is (end >= watermark and end >= epoch_start), (end, watermark)
    for end, age in product((3, 4), (lag_ms - 1, lag_ms, lag_ms + 1)):
        brokers = led(4, 0)
        part = brokers.part(101, KEY)
        assert part.leading is not None
        part.leading.remotes[102] = RemoteReplica(-1, 0, end, NOW_MS, 4, NOW_MS)
        slow = part.leading.out_of_sync(part.log.end_offset, NOW_MS + age, lag_ms)
        assert (slow == (102,)) is (end < 4 and age > lag_ms), (end, age)


# ----------------------------------------------------------------------------------------- sessions of brokers, quorum


def test_a_session_ends_when_more_than_its_time_has_passed() -> None:
    """`expiry_ms` names the first millisecond at which a session ends, not an earlier and not a later one."""
    rng = Random(1)
    for _ in range(300):
        timeout_ms = rng.randrange(1, 6)
        sessions, last = BrokerSessions(timeout_ms), dict[tuple[int, int], int]()
        for now_ms in range(100, 130):
            for broker in range(3):
                if rng.random() < 0.25:
                    sessions.contact(broker, 1, now_ms)
                    last[broker, 1] = now_ms
            over = {key for key, at in last.items() if now_ms - at > timeout_ms}
            promised = sessions.expiry_ms
            assert promised == NEVER_MS or promised <= min(last.values()) + timeout_ms + 1
            if now_ms < promised:
                assert over == set()
            found = set[tuple[int, int]]()
            while (expired := sessions.take_expired(now_ms)) is not None:
                found.add(expired)
            assert found == over, (timeout_ms, now_ms)
            for key in over:
                del last[key]


def test_a_broker_stops_when_each_active_one_has_its_offset_exactly() -> None:
    """All offsets of two other brokers, active, fenced or about to stop, around the offset of the shutdown."""
    states = ("active", "fenced", "stopping")
    wanted = 5
    for offsets, kinds in product(product((-1, 4, 5, 6), repeat=2), product(states, repeat=2)):
        sessions = BrokerSessions(9000)
        sessions.touch(1, fenced=False, metadata_offset=5)
        sessions.begin_shutdown(1, wanted)
        sessions.begin_shutdown(1, wanted + 1)
        for broker, (offset, kind) in enumerate(zip(offsets, kinds, strict=True), 2):
            sessions.touch(broker, fenced=kind == "fenced", metadata_offset=offset)
            if kind == "stopping":
                sessions.begin_shutdown(broker, 100)
        waits = any(offset < wanted and kind == "active" for offset, kind in zip(offsets, kinds, strict=True))
        assert sessions.may_stop(1) is not waits, (offsets, kinds)


def beat(side: InProcess, broker: int, epoch: int, offset: int, *, stops: bool = False) -> BrokerHeartbeatResponse:
    """A heartbeat of a broker that has the metadata up to an offset."""
    request = BrokerHeartbeatRequest(
        broker_id=broker, broker_epoch=epoch, current_metadata_offset=offset, want_fence=False, want_shut_down=stops
    )
    answer = side.ask(request, 1)
    assert isinstance(answer, BrokerHeartbeatResponse)
    assert answer.error_code == Error.NONE
    return answer


def test_a_controlled_shutdown_waits_for_the_last_record_of_its_decision() -> None:
    """The other broker has the log up to an offset: one before the last record that moves the leaderships away is not
    enough, the last one is.
    """
    for by in (-1, 0, 1):
        side = InProcess()
        epochs = dict[int, int]()
        for broker in (5, 6):
            answer = side.ask(registration(broker), 4)
            assert isinstance(answer, BrokerRegistrationResponse)
            epochs[broker] = answer.broker_epoch

        for broker in (5, 6):
            assert not beat(side, broker, epochs[broker], side.end).is_fenced
        topics = [
            CreatableTopic(
                name=f"t{number}",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[5, 6])],
            )
            for number in range(3)
        ]
        side.ask(CreateTopicsRequest(topics=topics), 7)
        beat(side, 6, epochs[6], side.end - 1)
        assert not beat(side, 5, epochs[5], side.end - 1, stops=True).should_shut_down
        last = side.end - 1
        assert len(side.batches[-1]) > 3, "the leaderships are moved away by this decision"
        beat(side, 6, epochs[6], last + by)
        assert beat(side, 5, epochs[5], last, stops=True).should_shut_down is (by >= 0), by


def test_the_quorum_commits_what_a_majority_has() -> None:
    """Each set of offsets of one to four voters, around the first record of the leader's epoch."""
    for count in range(1, 5):
        voters = VoterSet.parse(",".join(f"{one}@h:{one}" for one in range(1, count + 1)))
        for ends in product(range(-1, 5), repeat=count):
            for epoch_start, watermark in product((0, 1, 3), (-1, 2)):
                leader = LeaderState(
                    epoch=1,
                    local=ReplicaKey(1),
                    endpoints=Endpoints(()),
                    voters=voters,
                    epoch_start_offset=epoch_start,
                    accumulator=BatchAccumulator(next_offset=0, linger_ms=0, max_batch_bytes=0),
                    progress={one: Progress(ReplicaKey(one), end) for one, end in enumerate(ends, 1)},
                    observers={},
                    check_quorum_deadline_ms=0,
                    begin_deadline_ms=0,
                    high_watermark=watermark,
                )
                common = [at for at in range(6) if 2 * sum(end >= at for end in ends) > count]
                best = max(common, default=-1)
                expected = best if best > max(epoch_start, watermark) else None
                assert leader.committable() == expected, (ends, epoch_start, watermark)
