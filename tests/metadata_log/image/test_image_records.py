"""Images as records: against the checkpoints that Kafka wrote, and there and back."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from metadata_log import replay
from metadata_log.image import ConfigsImage, MetadataDelta, MetadataImage, Resource, ResourceType
from metadata_log.image.persistent_map import Map
from metadata_log.image.records import records
from metadata_log.log.snapshot import parse_snapshot_name
from metadata_log.reading.damage import Damage
from metadata_log.reading.timeline import At, Base, read_timeline
from metadata_log.records import metadata
from metadata_log.records.frame import decode_record, encode_record
from metadata_log.serde import Message
from replayed_logs import disk_of
from support.random_metadata import RandomCluster
from support.real_data import archive

ARCHIVES = ("static3", "clusters", "brokers", "big")


def checkpoints() -> list[tuple[str, str]]:
    """Each snapshot of a real node: archive and path."""
    return [
        (name, f"/{path}")
        for name in ARCHIVES
        for path in sorted(archive(name))
        if parse_snapshot_name(path.rpartition("/")[2])
    ]


def snapshot_records(name: str, path: str) -> list[tuple[Message, int]]:
    [base] = read_timeline(disk_of(name), path)
    assert isinstance(base, Base)
    return list(data_of(base))


def data_of(item: Base) -> Iterator[tuple[Message, int]]:
    for entry in item.entries:
        assert not isinstance(entry, Damage)
        if not entry.is_control:
            assert entry.record is not None
            yield entry.record, entry.version


def in_sorted_fields(record: Message) -> Message:
    """Listeners and features come out of a hash map."""
    if isinstance(record, metadata.RegisterBrokerRecord | metadata.RegisterControllerRecord):
        return replace(
            record,
            end_points=tuple(sorted(record.end_points, key=lambda one: one.name)),
            features=tuple(sorted(record.features, key=lambda one: one.name)),
        )
    return record


def encoded(contents: list[tuple[Message, int]]) -> list[bytes]:
    return [encode_record(in_sorted_fields(record), version) for record, version in contents]


def order(contents: list[tuple[Message, int]]) -> list[object]:
    """The part of Kafka's order that no hash map decides: the families, metadata.version first, the nodes by id."""
    shown: list[object] = []
    for record, _ in contents:
        match record:
            case metadata.FeatureLevelRecord(name="metadata.version"):
                shown.append("metadata.version")
            case metadata.RegisterBrokerRecord(broker_id=node) | metadata.RegisterControllerRecord(controller_id=node):
                shown.append((type(record).__name__, node))
            case metadata.TopicRecord() | metadata.PartitionRecord():
                shown.append("topics")
            case _:
                shown.append(type(record).__name__)
    return [one for one, before in zip(shown, [None, *shown], strict=False) if one != before]


def check_partitions_follow_their_topic(contents: list[tuple[Message, int]]) -> None:
    topic, number = None, 0
    for record, _ in contents:
        if isinstance(record, metadata.TopicRecord):
            topic, number = record.topic_id, 0
        elif isinstance(record, metadata.PartitionRecord):
            assert (record.topic_id, record.partition_id) == (topic, number)
            number += 1


@pytest.mark.parametrize(("name", "path"), checkpoints())
def test_an_image_has_the_records_of_kafkas_own_checkpoint(name: str, path: str) -> None:
    theirs = snapshot_records(name, path)
    ours = list(records(replay(path, disk=disk_of(name))))
    assert order(ours) == order(theirs)
    check_partitions_follow_their_topic(theirs)
    check_partitions_follow_their_topic(ours)
    assert sorted(encoded(ours)) == sorted(encoded(theirs))


def replay_log(name: str, path: str) -> MetadataImage | None:
    """The image that the log before a snapshot makes, without that snapshot; None if the log does not reach back."""
    snapshot = parse_snapshot_name(path.rpartition("/")[2])
    assert snapshot is not None
    delta, end = MetadataDelta(MetadataImage()), None
    until = At(offset=snapshot.offset - 1)
    for item in read_timeline(disk_of(name), path.rpartition("/")[0], until=until, from_base="earliest"):
        assert not isinstance(item, Damage)
        if isinstance(item, Base) and item.end == snapshot:
            return None
        end = item.end
        for entry in item.entries if isinstance(item, Base) else item.entries():
            assert not isinstance(entry, Damage)
            if not entry.is_control:
                assert entry.record is not None
                delta.replay(entry.record, entry.offset)
    assert end == snapshot
    return delta.apply(snapshot)


def without_orphans(image: MetadataImage) -> tuple[MetadataImage, list[str]]:
    """The image without the configurations of topics that are not there, and the names of those."""
    orphans = [
        name for kind, name in image.configs.by_resource if kind == ResourceType.TOPIC and name not in image.topics
    ]
    left: Map[Resource, Map[str, str]] = Map(
        (key, one) for key, one in image.configs.by_resource.items() if key[1] not in orphans
    )
    return replace(image, configs=ConfigsImage(left)), orphans


REACHED = {
    *(("static3", "/nodes/c1"), ("clusters", "/dynamic3/nodes/c1"), ("big", "")),
    *(("clusters", f"/old39/nodes/c{number}") for number in (1, 2, 3)),
    *(("brokers", f"/nodes/b{number}") for number in (101, 102, 103)),
}
"""Nodes of which at least one checkpoint lies behind a log that still has its beginning, or an older checkpoint."""


def test_the_log_up_to_a_checkpoint_makes_the_image_of_the_checkpoint() -> None:
    """Kafka 4.3.1 forgets to remove a topic's configuration where the topic came and went before it published anything,
    as on the restarted nodes of old39: that is the only difference.
    """
    reached, orphaned = set(), set()
    for name, path in checkpoints():
        ours = replay_log(name, path)
        if ours is None:
            continue
        theirs, orphans = without_orphans(replay(path, disk=disk_of(name)))
        node = path.rpartition("/__cluster")[0]
        reached.add((name, node))
        if orphans:
            assert orphans == ["returns-1"]
            orphaned.add(node)
        assert replace(ours, features_offset=theirs.features_offset) == theirs, path
    assert orphaned == {f"/old39/nodes/c{number}" for number in (1, 2, 3)}
    assert reached == REACHED


LEVELS = st.sampled_from([7, 8, 10, 11, 13, 14, 15, 17, 21, 23, 25, 29, 30])


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(0, 150), LEVELS)
def test_an_image_survives_encoding_at_any_metadata_version(seed: int, steps: int, level: int) -> None:
    """Encoded and decoded in between. What a metadata.version cannot express is lost once, and then no more."""
    cluster = RandomCluster(Random(seed), level, elr=level >= 23)
    for _ in range(steps):
        cluster.step()
    image = cluster.image.stable
    back = loaded(image)
    if level == 30:
        assert replace(back, features_offset=image.features_offset) == image
    assert list(records(back)) == list(records(image))
    assert loaded(back) == back


def loaded(image: MetadataImage) -> MetadataImage:
    delta = MetadataDelta(MetadataImage(), is_snapshot=True)
    for offset, (record, version) in enumerate(records(image)):
        framed = decode_record(encode_record(record, version))
        assert framed.record is not None
        delta.replay(framed.record, offset)
    return delta.apply(image.end)
