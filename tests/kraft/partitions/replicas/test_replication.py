"""Brokers with data replicate one partition in virtual time: watermark, ISR, failover, truncation, restarts."""

from __future__ import annotations

import pytest

from kraft.partitions.replicas import epoch_ends
from kraft.partitions.replicas.epoch_ends import Truncation
from metadata_log.log.epochs import EpochHistory
from metadata_log.records import metadata as records
from metadata_log.types import OffsetAndEpoch
from support.broker.data_brokers import LAG_MS, TOPIC, part_of
from support.broker.wired_brokers import Wired
from transport.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

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
