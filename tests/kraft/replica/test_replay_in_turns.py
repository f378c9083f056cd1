"""Large batches and snapshots are replayed a portion at a time, and come to the same as at once."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kraft.controller import leftovers
from kraft.controller.leftovers import Leftovers
from metadata_log.image import MetadataDelta, MetadataImage, Partition, TopicImage, replaying
from metadata_log.image.persistent_map import RUN, Map, in_key_order, in_key_order_by_runs, with_changes
from metadata_log.image.records import records, records_by_steps
from metadata_log.image.replaying import BatchReplay, SnapshotReplay
from metadata_log.image.topics_delta import TopicsDelta
from metadata_log.records.metadata import ClearElrRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid
from support.random_metadata import RandomCluster

SEEDS = range(20)
TOPIC = Uuid(b"t" * 16)


def at_once(
    log: list[Message], image: MetadataImage, end: OffsetAndEpoch, *, is_snapshot: bool = False
) -> MetadataImage:
    delta = MetadataDelta(image, is_snapshot=is_snapshot)
    for offset, record in enumerate(log, image.end.offset):
        delta.replay(record, end.offset - 1 if is_snapshot else offset)
    return delta.apply(end)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_batch_replayed_in_portions_gives_the_same_image(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with transactions, changes of features, and images in between."""
    rng = Random(seed)
    monkeypatch.setattr(replaying, "RECORDS_PER_IMAGE", rng.randint(1, 7))
    cluster = RandomCluster(rng)
    for _ in range(200):
        cluster.step()
    cut = rng.randrange(len(cluster.log))
    before = at_once(cluster.log[:cut], MetadataImage(), OffsetAndEpoch(epoch=1, offset=cut))
    end = OffsetAndEpoch(epoch=2, offset=len(cluster.log))
    replay = BatchReplay(before, cut)
    batch = iter(cluster.log[cut:])
    while replay.go_on(batch, rng.randint(1, 20)) <= 0:
        pass
    assert replay.count == len(cluster.log) - cut
    assert replay.apply(end) == at_once(cluster.log[cut:], before, end)


def test_the_eligible_leaders_of_all_topics_are_cleared_topic_by_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """One record is about every partition of the cluster; the record after it waits for its end."""
    monkeypatch.setattr(replaying, "RECORDS_PER_IMAGE", 100)
    made: list[Message] = []
    for number in range(40):
        topic_id = Uuid(bytes([number + 1]) * 16)
        made.append(TopicRecord(name=f"t{number}", topic_id=topic_id))
        made += [
            PartitionRecord(
                partition_id=at,
                topic_id=topic_id,
                replicas=(1, 2, 3),
                isr=(1,),
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                eligible_leader_replicas=(2,),
            )
            for at in range(64)
        ]
    before = at_once(made, MetadataImage(), OffsetAndEpoch(epoch=1, offset=len(made)))
    own = Uuid(b"n" * 16)
    batch: list[Message] = [
        RemoveTopicRecord(topic_id=Uuid(bytes([1]) * 16)),
        TopicRecord(name="new", topic_id=own),
        ClearElrRecord(topic_name=""),
        RemoveTopicRecord(topic_id=own),
    ]
    end = OffsetAndEpoch(epoch=1, offset=len(made) + len(batch))
    replay = BatchReplay(before, len(made))
    source = iter(batch)
    cleared: list[int] = []
    clear = TopicsDelta._clear_elr

    def counted(*one: Any) -> Any:
        cleared.append(1)
        return clear(*one)

    monkeypatch.setattr(TopicsDelta, "_clear_elr", counted)
    turns, most = 0, 0
    while replay.go_on(source, 20) <= 0:
        turns, most = turns + 1, max(most, len(cleared))
        cleared.clear()
    assert turns >= 40 * 64 // replaying.PARTITIONS_PER_RECORD // 20
    assert most <= 20 * replaying.PARTITIONS_PER_RECORD // 64
    image = replay.apply(end)
    assert image == at_once(batch, before, end)
    assert {one.elr for topic in image.topics.by_id.values() for one in topic.partitions} == {()}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_snapshot_replayed_in_portions_gives_the_same_image(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the partitions of a topic come in any order, as the maps of a JVM give them out."""
    rng = Random(seed)
    monkeypatch.setattr(replaying, "RECORDS_PER_IMAGE", rng.randint(1, 7))
    cluster = RandomCluster(rng)
    for _ in range(200):
        cluster.step()
    snapshot = in_any_order([record for record, _ in records(cluster.image)], rng)
    end = OffsetAndEpoch(epoch=3, offset=1000)
    replay = SnapshotReplay(end)
    source = iter(snapshot)
    while replay.go_on(source, rng.randint(1, 20)) <= 0:
        pass
    assert replay.apply() == at_once(snapshot, MetadataImage(), end, is_snapshot=True)


def in_any_order(snapshot: list[Message], rng: Random) -> list[Message]:
    """The same records, with the partitions of each topic shuffled."""
    found: list[Message] = []
    partitions: list[Message] = []
    for record in snapshot:
        if isinstance(record, PartitionRecord):
            partitions.append(record)
            continue
        rng.shuffle(partitions)
        found += [*partitions, record]
        partitions = []
    return [*found, *partitions]


def topic_of(count: int) -> list[Message]:
    """A topic of so many partitions on one broker."""
    made = [
        PartitionRecord(
            partition_id=number, topic_id=TOPIC, replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0
        )
        for number in range(count)
    ]
    return [TopicRecord(name="t", topic_id=TOPIC), *made]


def test_removing_a_large_topic_counts_by_its_partitions() -> None:
    image = at_once(topic_of(3_200), MetadataImage(), OffsetAndEpoch(epoch=1, offset=3_201))
    replay = BatchReplay(image, 3_201)
    assert replay.go_on([RemoveTopicRecord(topic_id=TOPIC)], 1000) == 1000 - 201
    removed = replay.apply(OffsetAndEpoch(epoch=1, offset=3_202))
    assert not removed.topics.members, "the index has lost the topic, by way of its brokers"
    assert [len(topic.partitions) for topic in replay.removed_topics] == [3_200]


def test_removed_topics_are_freed_in_portions_after_their_commit() -> None:
    topic = TopicImage(
        "t", TOPIC, tuple(partition(number) for number in range(2 * leftovers.PARTITIONS_FREED_PER_TURN + 1))
    )
    kept = Leftovers()
    kept.keep([topic], 100)
    del topic
    assert not kept.is_due(99)
    assert not kept.free(99)
    assert kept.is_due(100)
    turns = 1
    while kept.free(100):
        turns += 1
    assert turns == 3
    assert not kept.is_due(100)


def partition(number: int) -> Partition:
    """A partition of its own."""
    return Partition((number,), (Uuid.ZERO,), (number,), (), (), (), (), number, 0, 0, 0)


@pytest.mark.parametrize("count", [0, 1, RUN, RUN + 1, 5 * RUN + 17])
def test_sorted_runs_are_in_key_order(count: int) -> None:
    keys = list(range(count))
    Random(count).shuffle(keys)
    entries: Map[int, str] = with_changes(Map(), {key: str(key) for key in keys})
    found = list(in_key_order_by_runs(entries))
    assert [entry for entry in found if entry is not None] == list(in_key_order(entries))
    pauses = found.count(None)
    assert pauses == (-(-count // RUN) if count > RUN else 0)


def test_a_snapshot_of_many_topics_pauses_while_they_are_sorted() -> None:
    made: list[Message] = [
        TopicRecord(name=str(number), topic_id=Uuid(number.to_bytes(16))) for number in range(3 * RUN)
    ]
    image = at_once(made, MetadataImage(), OffsetAndEpoch(epoch=1, offset=len(made)))
    steps = list(records_by_steps(image))
    assert steps.count(None) == 3
    assert [step for step in steps if step is not None] == list(records(image))


# Sessions
