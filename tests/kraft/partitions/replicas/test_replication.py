"""Brokers with data replicate one partition in virtual time: watermark, ISR, failover, truncation, restarts."""

from __future__ import annotations

import pytest

from kraft.broker.request.reading import divergence
from kraft.broker.request.sessions import Wanted
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.replicas import HostedPartition, epoch_ends, followers
from kraft.partitions.replicas.epoch_ends import Truncation
from kraft.partitions.replicas.isr_changes import ISR_RETRY_MS
from kraft.partitions.replicas.leading import Leading
from kraft.partitions.replicas.watermarks import next_high_watermark
from metadata_log.log.epochs import EpochHistory
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.types import NEVER_MS, OffsetAndEpoch
from support.broker.data_brokers import KEY, LAG_MS, TOPIC, batch, part_of
from support.broker.wired_brokers import Wired
from transport.protocol.errors import Error
from transport.protocol.messages.alter_partition import (
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from transport.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

# Replication and the high watermark


def test_a_record_is_committed_once_all_followers_have_fetched_beyond_it() -> None:
    wired = Wired(3)
    wired.append(1, b"a", b"b")
    assert wired.watermarks() == {1: 0, 2: 0, 3: 0}
    wired.fetch(2)
    wired.fetch(3)
    assert wired.ends() == {1: 2, 2: 2, 3: 2}
    assert wired.watermarks()[1] == 0, "the fetches asked from offset 0"
    wired.fetch(2)
    assert wired.watermarks()[1] == 0, "broker 3 has not fetched beyond"
    wired.managers[1].hosting.watched = ((KEY,),)
    wired.fetch(3)
    assert wired.watermarks()[1] == 2
    assert list(wired.managers[1].hosting.take_changes()) == [KEY]
    wired.run(200)
    assert wired.watermarks() == {1: 2, 2: 2, 3: 2}
    wired.assert_equal()


def test_followers_write_the_bytes_of_the_leader() -> None:
    wired = Wired(3)
    for number in range(20):
        wired.append(1, *[b"%d" % number] * (number + 1))
        wired.run(100)
    wired.run(300)
    wired.assert_equal()
    assert wired.watermarks() == dict.fromkeys((1, 2, 3), 210)


def test_a_follower_learns_the_log_start_of_its_leader() -> None:
    wired = Wired(2)
    wired.append(1, b"a")
    wired.append(1, b"b")
    wired.run(300)
    assert wired.managers[1].leaders.delete_records(wired.managers[1].partitions[KEY], 1) == 1
    assert wired.managers[1].leaders.low_watermark(wired.managers[1].partitions[KEY]) == 0
    wired.run(200)
    assert part_of(wired.managers[2]).log.start_offset == 1
    assert wired.managers[1].leaders.low_watermark(wired.managers[1].partitions[KEY]) == 1


# The ISR


def maximal(part: HostedPartition) -> tuple[int, ...]:
    return part.maximal_isr


def test_a_follower_without_fetches_leaves_the_isr_after_the_lag_time_and_the_watermark_moves() -> None:
    """Between one and one and a half times `replica.lag.time.max.ms` after the follower fell behind."""
    wired = Wired(3)
    wired.run(200)
    wired.silent.add(3)
    wired.append(1, b"a")
    began_ms = wired.now_ms
    while len(wired.isr()) == 3:
        wired.run(1000)
    assert LAG_MS <= wired.now_ms - began_ms <= 1.5 * LAG_MS + 1000
    assert wired.isr() == (1, 2)
    wired.run(200)
    assert wired.watermarks()[1] == 1


def test_a_silent_follower_with_the_whole_log_stays_in_the_isr() -> None:
    """As in Kafka: nothing is missing, so only the controller fences the broker."""
    wired = Wired(2)
    wired.run(200)
    wired.silent.add(2)
    wired.run(2 * LAG_MS)
    assert wired.isr() == (1, 2)


def test_a_follower_that_has_caught_up_returns_to_the_isr_and_held_the_watermark_back() -> None:
    wired = Wired(2)
    wired.silent.add(2)
    wired.append(1, b"a")
    wired.run(2 * LAG_MS)
    assert wired.isr() == (1,)
    wired.silent.clear()
    wired.commit()
    # The first fetch brings the record, the second one shows that the follower has the record.
    wired.is_controller_silent = True
    wired.now_ms += 1000
    wired.fetch(2)
    assert part_of(wired.managers[1]).maximal_isr == (1,)
    wired.now_ms += 1000
    wired.fetch(2)
    assert part_of(wired.managers[1]).maximal_isr == (1, 2)
    assert part_of(wired.managers[1]).isr == (1,)
    wired.append(1, b"b", acks=1)
    assert wired.watermarks()[1] == 1, "a member of the maximal ISR does not have the record yet"
    wired.is_controller_silent = False
    wired.run(300)
    assert wired.isr() == (1, 2)
    assert wired.watermarks()[1] == 2


def test_a_follower_joins_only_beyond_the_start_of_the_leader_epoch() -> None:
    """The watermark of a new leader may be behind committed records, which the follower must have."""
    wired = Wired(3)
    wired.append(1, b"a")
    wired.run(300)
    wired.silent.add(3)
    wired.commit(records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1, 2)))
    wired.now_ms += LAG_MS + 1
    wired.append(1, b"b")
    wired.now_ms += 100
    wired.fetch(2)
    wired.now_ms += 100
    wired.fetch(2)
    assert wired.watermarks() == {1: 2, 2: 1, 3: 1}, "broker 2 does not know that its second record is committed"
    wired.kill(1)
    wired.elect(2, (2,))
    wired.silent.clear()
    wired.commit()
    leader = part_of(wired.managers[2])
    assert leader.leading is not None
    assert leader.leading.start_offset == 2
    leader.log.high_watermark = 1
    wired.fetch(3)
    assert maximal(leader) == (2,), "the follower has one record of two"
    wired.fetch(3)
    assert maximal(leader) == (2, 3)


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


def test_a_follower_that_joins_before_it_has_caught_up_becomes_a_leader_without_committed_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted bug: the test above finds an expansion of the ISR at the first fetch."""
    monkeypatch.setattr("kraft.partitions.replicas.leading.may_join", lambda *_: True)
    wired = late_follower()
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


def test_a_leader_that_counts_only_the_committed_isr_commits_what_the_next_leader_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted bug: the test above finds a leader that does not count the maximal ISR."""

    def planted(self: Leading, end: int, watermark: int, min_isr: int, *_: object) -> tuple[int, int]:
        ends = [remote.end_offset for one, remote in self.remotes.items() if one in self.isr]
        offset = next_high_watermark(watermark, end, ends, isr_size=len(self.isr), min_isr=min_isr)
        return offset, NEVER_MS

    monkeypatch.setattr(Leading, "high_watermark", planted)
    wired = lost_answer()
    assert wired.watermarks()[1] == 3
    wired.kill(1)
    wired.elect(2, (2,))
    assert wired.ends()[2] == 2


def refusal(error: Error) -> AlterPartitionResponse:
    data = AlterPartitionResponsePartitionData(partition_index=0, error_code=error)
    return AlterPartitionResponse(topics=[AlterPartitionResponseTopicData(topic_id=TOPIC, partitions=[data])])


def test_refused_proposals_are_handled_as_in_kafka() -> None:
    """Ineligible: back to the committed ISR. Newer metadata: wait for it. A failed request: send again."""
    wired = Wired(2)
    wired.silent.add(2)
    wired.append(1, b"a")
    wired.run(2 * LAG_MS)
    wired.silent.clear()
    wired.commit()
    wired.is_controller_silent = True
    wired.run(2000)
    leader = wired.managers[1]
    part = part_of(leader)
    assert maximal(part) == (1, 2)
    asked = leader.isr.request_due(wired.image, 1001, wired.now_ms)
    assert asked is not None
    [proposed] = asked.topics[0].partitions
    assert {one.broker_id: one.broker_epoch for one in proposed.new_isr_with_epochs} == {1: 1001, 2: 1002}
    leader.isr.on_answer(None, wired.now_ms)
    wired.now_ms += ISR_RETRY_MS
    assert leader.isr.request_due(wired.image, 1001, wired.now_ms) == asked
    leader.isr.on_answer(refusal(Error.INELIGIBLE_REPLICA), wired.now_ms)
    assert (maximal(part), part.isr) == ((1,), (1,))
    wired.run(100)
    assert maximal(part) == (1, 2), "the next fetch proposes again"
    assert leader.isr.request_due(wired.image, 1001, wired.now_ms) is not None
    leader.isr.on_answer(refusal(Error.INVALID_UPDATE_VERSION), wired.now_ms)
    assert leader.isr.unsent == {}
    wired.run(500)
    assert (maximal(part), leader.isr.unsent) == ((1, 2), {}), "only metadata replaces this proposal"
    wired.commit(records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1,)))
    assert maximal(part) == (1,)


# acks=all and min.insync.replicas


def test_a_write_with_acks_all_needs_the_min_isr_and_the_watermark_stands_below_it() -> None:
    wired = Wired(2, {"min.insync.replicas": "2"})
    wired.append(1, b"a")
    wired.run(300)
    wired.silent.add(2)
    wired.append(1, b"b")
    wired.run(2 * LAG_MS)
    assert wired.isr() == (1,)
    assert wired.refused(1, batch(b"c")) is Error.NOT_ENOUGH_REPLICAS
    assert wired.refused(1, batch(b"c"), acks=1) is None
    assert wired.watermarks()[1] == 1, "acks=1 is accepted and stays invisible (KIP-966)"
    wired.silent.clear()
    wired.commit()
    wired.run(3000)
    assert wired.isr() == (1, 2)
    assert wired.watermarks() == {1: 3, 2: 3}


def test_min_isr_is_at_most_the_number_of_replicas() -> None:
    wired = Wired(1, {"min.insync.replicas": "3"})
    wired.append(1, b"a")
    assert wired.watermarks() == {1: 1}


# Requests of followers


def follower_fetch(wired: Wired, broker_id: int, *, epoch: int) -> Error | None:
    leader = wired.managers[1]
    refused = leader.leaders.on_follower_fetch(part_of(leader), broker_id, epoch, 0, 0, wired.now_ms)
    assert refused is None or isinstance(refused, RefusedAppend)
    return None if refused is None else refused.error


def test_a_fetch_of_an_earlier_run_of_a_broker_is_refused_and_changes_nothing() -> None:
    wired = Wired(2)
    assert follower_fetch(wired, 2, epoch=1001) is Error.NOT_LEADER_OR_FOLLOWER
    leading = part_of(wired.managers[1]).leading
    assert leading is not None
    assert leading.remotes[2].end_offset == -1
    assert follower_fetch(wired, 2, epoch=1002) is None
    assert follower_fetch(wired, 2, epoch=-1) is None


def test_a_fetch_of_a_broker_without_a_replica_is_refused() -> None:
    assert follower_fetch(Wired(2), 3, epoch=1003) is Error.UNKNOWN_LEADER_EPOCH


def test_an_epoch_that_the_leader_does_not_know_is_out_of_range() -> None:
    assert divergence(part_of(Wired(1).managers[1]), Wanted(-1, 0, 5, 0, 1)) is Error.OFFSET_OUT_OF_RANGE


# Failover and truncation


def lost_tail() -> Wired:
    """Broker 1 led, has records that no other broker has, and is gone; broker 2 leads."""
    wired = Wired(3)
    wired.append(1, b"a")
    wired.run(300)
    wired.silent.update((2, 3))
    wired.append(1, b"lost", b"lost", acks=1)
    wired.kill(1)
    wired.silent.clear()
    wired.elect(2, (2, 3))
    wired.append(2, b"b")
    wired.run(300)
    return wired


def test_a_former_leader_truncates_the_records_that_no_other_replica_has() -> None:
    wired = lost_tail()
    wired.restart(1)
    assert wired.values(1) == [b"a", b"lost", b"lost"]
    wired.run(500)
    assert wired.values(1) == [b"a", b"b"]
    wired.assert_equal()
    assert wired.epochs_of(1) == [(0, 0), (1, 1)]
    assert wired.isr() == (1, 2, 3)


def restarted_before_it_knows_the_watermark() -> Wired:
    """The first scenario of KIP-101: a follower restarts before it knows that its last record is committed, and then
    becomes the leader because the leader is gone.
    """
    wired = Wired(2)
    wired.append(1, b"m1")
    wired.run(300)
    wired.append(1, b"m2")
    wired.now_ms += 100
    wired.fetch(2)
    wired.now_ms += 100
    wired.fetch(2)
    assert wired.watermarks() == {1: 2, 2: 1}, "m2 is committed, and the follower does not know"
    wired.managers.pop(2).close(broker_epoch=1002)
    wired.restart(2)
    wired.kill(1)
    wired.elect(2, (2,))
    return wired


def test_a_committed_record_survives_a_restart_of_a_follower_that_becomes_the_leader() -> None:
    wired = restarted_before_it_knows_the_watermark()
    assert wired.values(2) == [b"m1", b"m2"]
    assert wired.watermarks()[2] == 2


def test_a_follower_that_truncates_to_its_watermark_loses_a_committed_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug of KIP-101: the scenario above finds the bug."""
    follow = followers.Followers.follow

    def planted(self: followers.Followers, part: HostedPartition, now_ms: int) -> None:
        follow(self, part, now_ms)
        part.log.truncate(part.log.high_watermark, now_ms=now_ms)

    monkeypatch.setattr(followers.Followers, "follow", planted)
    assert restarted_before_it_knows_the_watermark().values(2) == [b"m1"]


def test_replicas_do_not_diverge_after_two_leaders_wrote_at_the_same_offset() -> None:
    """The second scenario of KIP-101: both replicas fail, and the one with fewer records leads and writes."""
    wired = Wired(2)
    wired.append(1, b"m1")
    wired.run(300)
    wired.silent.add(2)
    wired.append(1, b"m2 of the first leader", acks=1)
    wired.kill(1)
    wired.silent.clear()
    wired.elect(2, (2,))
    wired.append(2, b"m2 of the second leader")
    wired.restart(1)
    wired.run(500)
    wired.assert_equal()
    assert wired.values(1) == [b"m1", b"m2 of the second leader"]


def test_the_divergence_of_two_replicas_is_found_without_epochs_of_the_truncation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted bug: a leader that never names a diverging epoch leaves replicas with different records."""
    monkeypatch.setattr("kraft.broker.request.reading.divergence", lambda *_: None)
    wired = lost_tail()
    wired.restart(1)
    wired.run(500)
    assert wired.values(1) != wired.values(2)


def test_an_empty_epoch_of_a_former_leader_is_dropped_without_a_truncation() -> None:
    """The leader answers with the end of the follower's own log; without the drop both would ask for ever."""
    wired = Wired(3)
    wired.append(1, b"a")
    wired.run(300)
    wired.silent.update((1, 3))
    wired.elect(2)
    assert wired.epochs_of(2) == [(0, 0), (1, 1)]
    wired.silent.clear()
    wired.elect(3, (1, 2, 3))
    assert wired.epochs_of(3) == [(0, 0), (2, 1)]
    wired.run(300)
    assert wired.ends() == {1: 1, 2: 1, 3: 1}
    assert wired.epochs_of(2) == [(0, 0)]
    wired.append(3, b"b")
    wired.run(300)
    wired.assert_equal()
    assert wired.epochs_of(2) == [(0, 0), (2, 1)]


def test_replicas_agree_after_leaders_that_wrote_without_each_other() -> None:
    """Several rounds of truncation (KIP-279): no epoch of the one is known to the other."""
    wired = Wired(2)
    wired.append(1, b"common")
    wired.run(300)
    for round_ in range(4):
        leader, other = (1, 2) if round_ % 2 else (2, 1)
        wired.silent.add(other)
        wired.elect(leader, (leader,))
        wired.append(leader, *[b"%d of %d" % (round_, leader)] * (round_ + 1), acks=1)
        wired.silent.clear()
    assert wired.values(1) != wired.values(2)
    wired.commit()
    wired.run(1000)
    wired.assert_equal()
    assert wired.values(1)[0] == b"common"
    assert wired.values(1)[-1] == b"3 of 1"


def test_an_unclean_election_lowers_the_watermark_of_the_others() -> None:
    wired = Wired(2)
    wired.append(1, b"a")
    wired.run(300)
    wired.silent.add(2)
    wired.append(1, b"b", b"c")
    wired.run(2 * LAG_MS)
    assert wired.watermarks() == {1: 3, 2: 1}
    wired.kill(1)
    wired.silent.clear()
    wired.elect(2, (2,))
    wired.append(2, b"d")
    wired.restart(1)
    wired.run(500)
    wired.assert_equal()
    assert wired.watermarks() == {1: 2, 2: 2}
    assert any("below its high watermark" in each for each in wired.managers[1].findings)


def test_a_new_leader_has_the_watermark_once_its_followers_have_fetched() -> None:
    wired = lost_tail()
    wired.restart(1)
    wired.run(500)
    before = wired.watermarks()[1]
    wired.elect(1)
    assert wired.watermarks()[1] == before
    wired.append(1, b"c")
    wired.run(300)
    assert wired.watermarks() == {1: 3, 2: 3, 3: 3}


# Out of range


def test_a_follower_behind_the_start_of_the_leader_begins_anew_there() -> None:
    wired = Wired(2)
    wired.append(1, b"a")
    wired.run(300)
    wired.silent.add(2)
    wired.append(1, b"b")
    wired.append(1, b"c")
    wired.run(2 * LAG_MS)
    assert wired.managers[1].leaders.delete_records(wired.managers[1].partitions[KEY], 2) == 2
    wired.silent.clear()
    wired.commit()
    wired.run(5000)
    follower = part_of(wired.managers[2])
    assert (follower.log.start_offset, follower.log.end_offset, follower.log.high_watermark) == (2, 3, 3)
    assert wired.values(2) == [b"c"]
    assert wired.isr() == (1, 2)
    assert any("begins anew at offset 2" in each for each in wired.managers[2].findings)


def test_a_follower_beyond_the_end_of_a_leader_that_lost_its_disk_truncates() -> None:
    wired = Wired(2)
    wired.append(1, b"a", b"b")
    wired.run(300)
    wired.kill(1)
    wired.disks[1] = MemoryDisk()
    wired.restart(1)
    wired.elect(1, (1,))
    wired.run(5000)
    assert wired.ends() == {1: 0, 2: 0}
    wired.append(1, b"c")
    wired.run(2000)
    wired.assert_equal()


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


def test_batches_that_do_not_follow_the_log_stop_the_partition_until_the_next_leader_epoch() -> None:
    wired = Wired(2)
    wired.append(1, b"a")
    wired.append(1, b"b")
    wired.run(300)
    fetched(wired, wired.bytes_of(1))
    assert wired.ends()[2] == 2
    assert wired.managers[2].followers.leaders() == []
    wired.elect(1)
    wired.append(1, b"c")
    wired.run(500)
    wired.assert_equal()


def test_an_incomplete_batch_at_the_end_of_an_answer_is_left_out() -> None:
    wired = Wired(2)
    wired.append(1, b"a")
    whole = len(wired.bytes_of(1))
    wired.append(1, b"b")
    fetched(wired, wired.bytes_of(1)[: whole + 30])
    assert wired.ends()[2] == 1


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


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_follower_that_restarts_catches_up_and_returns_to_the_isr(loses_power: bool) -> None:
    wired = Wired(3)
    wired.append(1, b"a", b"b")
    wired.run(6000)
    (wired.cut_power if loses_power else wired.kill)(3)
    wired.append(1, b"c")
    wired.run(300)
    wired.restart(3)
    assert wired.ends()[3] == (0 if loses_power else 2), "an append is not flushed, as in Kafka"
    wired.run(3000)
    wired.assert_equal()
    assert wired.watermarks() == dict.fromkeys((1, 2, 3), 3)


def test_watermarks_are_on_disk_every_five_seconds() -> None:
    wired = Wired(2)
    wired.append(1, b"a")
    wired.run(300)
    wired.kill(2)
    wired.restart(2)
    assert wired.watermarks()[2] == 0
    wired.run(6000)
    wired.kill(2)
    wired.restart(2)
    assert wired.watermarks()[2] == 1


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
