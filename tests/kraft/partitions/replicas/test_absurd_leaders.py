"""A leader that answers with numbers that no sound leader gives: a follower keeps its log, and says why it stops."""

from __future__ import annotations

import struct

import pytest
from google_crc32c import value as crc32c
from msgspec.structs import replace

from kraft.partitions.replicas import ReplicaManager
from metadata_log.image import MetadataImage
from metadata_log.records import metadata as records
from support.broker.data_brokers import (
    KEY,
    NOW_MS,
    TOPIC,
    append_to,
    batch,
    cluster,
    new_topic,
    part_of,
    replayed,
    started,
)
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LEADER, FOLLOWER = 1, 2
EPOCH = 1000 + FOLLOWER
TOP = 2**63 - 1


def image() -> MetadataImage:
    return replayed(cluster(LEADER, FOLLOWER), *new_topic((LEADER, FOLLOWER)))


def stored(*values: bytes, offset: int, epoch: int = 0, last_offset_delta: int | None = None) -> bytes:
    """A batch as a leader stores it, with the numbers that it says it has."""
    made = bytearray(batch(*values))
    made[:8], made[12:16] = struct.pack(">q", offset), struct.pack(">i", epoch)
    if last_offset_delta is not None:
        made[23:27] = struct.pack(">i", last_offset_delta)
        made[17:21] = struct.pack(">I", crc32c(bytes(made[21:])))
    return bytes(made)


def answer(manager: ReplicaManager, data: PartitionData, now_ms: int = NOW_MS) -> None:
    """Let the follower fetch, and answer."""
    assert isinstance(manager.followers.request(LEADER, EPOCH, now_ms), FetchRequest)
    topic = FetchableTopicResponse(topic_id=TOPIC, partitions=[data])
    manager.followers.on_answer(LEADER, FetchResponse(responses=[topic]), now_ms)


SOUND = PartitionData(partition_index=0, high_watermark=2, log_start_offset=0, aborted_transactions=None, records=b"")
"""The answer of a sound leader without records."""


def with_records() -> ReplicaManager:
    """A follower with the offsets 0 to 3, of which 2 are committed."""
    manager = started(FOLLOWER, image())
    answer(manager, replace(SOUND, records=stored(b"a", b"b", offset=0) + stored(b"c", b"d", offset=2)))
    manager.findings.clear()
    return manager


def state(manager: ReplicaManager) -> tuple[int, int, int, int]:
    log = part_of(manager).log
    return log.start_offset, log.high_watermark, log.end_offset, log.size_bytes


def diverging(epoch: int, offset: int) -> PartitionData:
    return replace(SOUND, diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=offset))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (diverging(0, -100), "ends epoch 0 at offset -100"),
        (diverging(0, -(2**63)), "ends epoch 0 at offset -9223372036854775808"),
        (diverging(2**31 - 1, TOP), "answers with epoch 2147483647, and the last record here has 0"),
        (diverging(1, 0), "answers with epoch 1, and the last record here has 0"),
        (replace(SOUND, records=stored(b"x", offset=-10)), "begins at offset -10, where the log ends at 4"),
        (
            replace(SOUND, records=stored(b"x", offset=3)),
            "begins at offset 3, where the log ends at 4",
        ),
        (replace(SOUND, records=stored(b"x", offset=4, epoch=-7)), "a fetched batch of epoch -7 begins at offset 4"),
        (replace(SOUND, records=stored(b"x", offset=TOP)), "begins at offset 9223372036854775807, where"),
        (
            replace(SOUND, records=stored(b"x", offset=TOP - 1, last_offset_delta=2**31 - 1)),
            "begins at offset 9223372036854775806, where",
        ),
        (
            replace(SOUND, records=stored(b"x", offset=4, last_offset_delta=-(2**31))),
            "begins at offset 4, where",
        ),
    ],
)
def test_an_absurd_answer_changes_nothing_and_the_partition_waits_for_another_epoch(
    data: PartitionData, reason: str
) -> None:
    manager = with_records()
    before = state(manager)
    answer(manager, data)
    assert state(manager) == before
    [finding] = manager.findings
    assert reason in finding
    assert "t-0 is not fetched until its next leader epoch" in finding
    assert manager.followers.leaders() == []
    later = replayed(image(), records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=LEADER))
    manager.on_image(later)
    manager.on_partition(KEY, later.topics.by_id[TOPIC].partitions[0], NOW_MS)
    assert manager.followers.leaders() == [LEADER]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (replace(SOUND, high_watermark=-(2**63), log_start_offset=-(2**63)), (0, 2, 4)),
        (replace(SOUND, high_watermark=TOP), (0, 4, 4)),
        (replace(SOUND, log_start_offset=TOP), (2, 2, 4)),
        (replace(SOUND, error_code=32767), (0, 2, 4)),
        (replace(SOUND, records=stored(b"x", offset=4, epoch=2**31 - 1)), (0, 2, 4)),
    ],
)
def test_watermark_and_log_start_of_a_leader_are_bounded_by_the_log(
    data: PartitionData, expected: tuple[int, int, int]
) -> None:
    """A follower cannot know that these are wrong, and takes them as far as its own log goes."""
    manager = with_records()
    answer(manager, data)
    assert state(manager)[:3] == expected
    assert manager.findings == []


def test_a_leader_with_records_that_do_not_fit_is_not_asked_in_a_loop() -> None:
    """Records of a later epoch than the leader's, which the follower leaves out."""
    manager = with_records()
    answer(manager, replace(SOUND, records=stored(b"x", offset=4, epoch=7)))
    assert manager.followers.request(LEADER, EPOCH, NOW_MS) is None
    later_ms = NOW_MS + manager.settings.replication.fetch_backoff_ms
    answer(manager, replace(SOUND, records=stored(b"x", offset=4)), later_ms)
    assert state(manager)[2] == 5


def offset_of(manager: ReplicaManager, offset: int, now_ms: int) -> None:
    """Answer the ListOffsets request of the follower."""
    assert isinstance(manager.followers.request(LEADER, EPOCH, now_ms), ListOffsetsRequest)
    part = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
    answered = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[part])])
    manager.followers.on_answer(LEADER, answered, now_ms)


def lost() -> ReplicaManager:
    """A follower whose offset is out of range at its leader."""
    manager = with_records()
    answer(manager, replace(SOUND, error_code=Error.OFFSET_OUT_OF_RANGE))
    return manager


@pytest.mark.parametrize("ends", [(-5,), (4, -5), (-(2**63),)])
def test_a_negative_end_or_start_of_a_leaders_log_is_refused(ends: tuple[int, ...]) -> None:
    manager = lost()
    before = state(manager)
    for offset in ends:
        offset_of(manager, offset, NOW_MS)
    assert state(manager) == before
    [finding] = manager.findings
    assert f"its log ends or begins at offset {ends[-1]}" in finding
    assert manager.followers.leaders() == []


def test_a_start_behind_the_end_of_the_leaders_log_is_asked_for_again() -> None:
    """Between the two answers the log may have grown, and its older records may be gone."""
    manager = lost()
    before = state(manager)
    offset_of(manager, 10, NOW_MS)
    offset_of(manager, TOP, NOW_MS)
    assert state(manager) == before
    later_ms = NOW_MS + 2000
    offset_of(manager, TOP, later_ms)
    offset_of(manager, 20, later_ms)
    assert state(manager)[:3] == (20, 20, 20)


# Fetches in the name of a follower


def leader_with(*, metadata_version: int = 30) -> ReplicaManager:
    """A leader with a record that its follower lacks."""
    level = records.FeatureLevelRecord(name="metadata.version", feature_level=metadata_version)
    manager = started(LEADER, replayed(image(), level))
    append_to(manager, KEY, batch(b"a"), acks=1, now_ms=NOW_MS)
    return manager


def fetched_in_its_name(manager: ReplicaManager, replica_epoch: int) -> int:
    """The high watermark after a Fetch that says it is of the follower and has the record."""
    manager.leaders.on_follower_fetch(part_of(manager), FOLLOWER, replica_epoch, 1, 0, NOW_MS)
    return part_of(manager).log.high_watermark


@pytest.mark.parametrize(
    ("replica_epoch", "watermark"),
    [(EPOCH, 1), (-1, 0), (EPOCH + 1, 0), (TOP, 0), (EPOCH - 1, 0)],
)
def test_only_the_registered_epoch_of_a_broker_acknowledges_records(replica_epoch: int, watermark: int) -> None:
    assert fetched_in_its_name(leader_with(), replica_epoch) == watermark


def test_brokers_that_do_not_send_their_epochs_yet_are_believed() -> None:
    """Before metadata.version 3.5-IV1."""
    assert fetched_in_its_name(leader_with(metadata_version=9), -1) == 1
