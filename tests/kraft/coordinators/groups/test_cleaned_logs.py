"""Logs from which cleaning has taken what records followed on: they load, and end as the whole log does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

import pytest
from msgspec import Struct
from msgspec.structs import replace

from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.consumer.draft import tombstones
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.shard import GroupShard
from kraft.coordinators.groups.shares.group import ShareGroup
from kraft.coordinators.groups.state import SIMPLE, Group, GroupsState, end_transaction, lacking_before, replay_groups
from kraft.coordinators.runtime.loading import Lacking, loading
from kraft.coordinators.runtime.shard import Record
from kraft.handling.coordinators import Counted
from kraft.operate.doctor.checks.replicas import groups_lack_tombstones
from kraft.operate.doctor.facts.node import Facts, Node
from kraft.operate.doctor.read_nodes import Source, read_directory
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.log.producers import marker_of
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.hosting import Hosting
from kraft.partitions.replicas.settings import DataDirectory, DataSettings
from metadata_log.image.persistent_map import Map
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import batch_of
from metadata_log.records.consumer_offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from metadata_log.records.coordinator import CONSUMER_OFFSETS, decode_pair, encode_key, encode_value
from metadata_log.records.record import encode_record, records
from metadata_log.serde import Message
from metadata_log.serde.codec import finished
from metadata_log.types import Uuid
from support.real_data import archive

G: Final = "g1"
Pair = tuple[Message, Message | None]


def classic(generation: int, *, is_empty: bool = False) -> Pair:
    one = MemberMetadata(member_id="m1", client_id="c", client_host="/127.0.0.1", session_timeout=1000)
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol=None if is_empty else "range",
        leader=None if is_empty else "m1",
        members=() if is_empty else (one,),
    )
    return GroupMetadataKey(group=G), value


MEMBER: Final[Pair] = (
    ConsumerGroupMemberMetadataKey(G, "m1"),
    ConsumerGroupMemberMetadataValue(client_host="/127.0.0.1", subscribed_topic_names=("t",)),
)
EPOCH: Final[Pair] = ConsumerGroupMetadataKey(G), ConsumerGroupMetadataValue(epoch=4)
TARGET: Final[Pair] = ConsumerGroupTargetAssignmentMemberKey(G, "m1"), ConsumerGroupTargetAssignmentMemberValue()
TARGET_EPOCH: Final[Pair] = (
    ConsumerGroupTargetAssignmentMetadataKey(G),
    ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=4),
)
CURRENT: Final[Pair] = (
    ConsumerGroupCurrentMemberAssignmentKey(G, "m1"),
    ConsumerGroupCurrentMemberAssignmentValue(member_epoch=4, previous_member_epoch=3),
)
WHOLE: Final = (MEMBER, EPOCH, TARGET, TARGET_EPOCH, CURRENT)
GONE: Final[tuple[Pair, ...]] = tuple((key, None) for key, _ in (CURRENT, TARGET, TARGET_EPOCH, MEMBER, EPOCH))
OTHER: Final[Pair] = OffsetCommitKey("g2", "t", 0), OffsetCommitValue(offset=7)


@pytest.mark.parametrize(
    ("log", "left", "lacking"),
    [
        pytest.param((classic(3), *WHOLE, *GONE, classic(5)), "classic", 1, id="an upgrade and a downgrade"),
        pytest.param((classic(3), *GONE), "classic", 5, id="a classic group and the end of a consumer group"),
        pytest.param((classic(3, is_empty=True), *WHOLE), "consumer", 1, id="an empty classic group"),
        pytest.param((*WHOLE, classic(5)), "classic", 1, id="a downgrade"),
        pytest.param((*WHOLE, GONE[3], GONE[0], GONE[1], GONE[2], GONE[4]), "", 1, id="a member before its assignment"),
        pytest.param((*WHOLE, GONE[4]), "", 1, id="a group with a member left"),
        pytest.param((*WHOLE, GONE[0], GONE[1], GONE[3], GONE[4]), "", 1, id="a group with its target epoch left"),
        pytest.param((CURRENT, *GONE[:3]), "", 0, id="an assignment without its member"),
        pytest.param((MEMBER, *GONE[:4]), "", 0, id="a member without its group"),
    ],
)
def test_a_record_without_its_forerunner_is_borne(log: Sequence[Pair], left: str, lacking: int) -> None:
    state, found = GroupsState(), 0
    for offset, (key, value) in enumerate((*log, OTHER)):
        record = Record(key, value)
        found += bool(lacking_before(state, record))
        state = replay_groups(state, record, offset, -1)
    group = state.groups.get(G)
    kind = {ConsumerGroup: "consumer", GroupMetadataValue: "classic", type(None): ""}[type(group)]
    assert (kind, found) == (left, lacking)
    assert [one.offset for one in state.offsets["g2"].values()] == [7]
    ended = Record(GroupMetadataKey(group=G)) if kind == "classic" else Record(ConsumerGroupMetadataKey(G))
    assert replay_groups(state, ended, 99, -1).bytes == replay_groups(GroupsState(), Record(*OTHER), 0, -1).bytes


class Step(Struct, frozen=True):
    """A record of a log, or the end of a transaction."""

    offset: int
    producer_id: int = -1
    record: Record | None = None
    key: bytes = b""
    is_commit: bool = False


def steps_of(partition: int) -> Iterator[Step]:
    path = f"logs/__consumer_offsets-{partition}/00000000000000000000.log"
    for batch in scan(archive("coordinators")[path], where=path):
        if batch.is_control:
            marker = marker_of(batch, where=path)
            if marker is not None:
                yield Step(batch.base_offset, batch.producer_id, is_commit=not marker.is_abort)
            continue
        producer_id = batch.producer_id if batch.is_transactional else -1
        for one in records(batch, where=path):
            assert one.key is not None
            pair = decode_pair(CONSUMER_OFFSETS, one.key, one.value)
            if pair is not None:
                yield Step(one.offset, producer_id, Record(pair.key, pair.value, pair.version), one.key)


def replayed(steps: Sequence[Step]) -> GroupsState:
    state = GroupsState()
    for one in steps:
        if one.record is None:
            state = finished(end_transaction(state, one.producer_id, is_commit=one.is_commit))
        else:
            state = replay_groups(state, one.record, one.offset, one.producer_id)
    return state


def again(steps: Sequence[Step]) -> list[Step]:
    """The log, the end of all its groups, and the same once more: names and members return."""
    state, offset = replayed(steps), steps[-1].offset + 1
    ends: list[Record] = []
    for group_id, offsets in state.offsets.items():
        ends += [Record(OffsetCommitKey(group_id, topic, number)) for topic, number in offsets]
    for group_id, group in state.groups.items():
        ends += tombstones(group) if isinstance(group, ConsumerGroup) else [Record(GroupMetadataKey(group=group_id))]
    middle = [Step(offset + at, -1, one, encode_key(one.key)) for at, one in enumerate(ends)]
    offset += len(middle)
    later = [Step(offset + one.offset, one.producer_id, one.record, one.key, one.is_commit) for one in steps]
    return [*steps, *middle, *later]


def cleaned(steps: Sequence[Step], rng: Random) -> list[Step]:
    """The log without some of the records that the cleaner may take: aborted, superseded, and old tombstones."""
    ends: dict[int, bool] = {}
    counts: dict[int, bool | None] = {}
    for at in reversed(range(len(steps))):
        one = steps[at]
        if one.record is None:
            ends[one.producer_id] = one.is_commit
        elif one.producer_id != -1:
            counts[at] = ends.get(one.producer_id)
    by_key: dict[bytes, list[int]] = {}
    gone = {at for at, is_committed in counts.items() if is_committed is False and rng.random() < 0.7}
    for at, one in enumerate(steps):
        if one.record is not None and counts.get(at, True):
            by_key.setdefault(one.key, []).append(at)
    share = rng.choice((0.3, 0.7, 1.0))
    for places in by_key.values():
        gone |= {at for at in places[:-1] if rng.random() < share}
        last = steps[places[-1]].record
        if last is not None and last.value is None and gone.issuperset(places[:-1]) and rng.random() < share:
            gone.add(places[-1])
    return [one for at, one in enumerate(steps) if at not in gone]


def without_order(group: Group) -> Group:
    """The group without the order in which its members came."""
    match group:
        case ConsumerGroup():
            return replace(group, joins=0, members=Map({k: replace(one, joined=0) for k, one in group.members.items()}))
        case ShareGroup():
            return replace(group, joins=0, members=Map({k: replace(one, joined=0) for k, one in group.members.items()}))
    return group


def meaning(state: GroupsState) -> tuple[dict[str, Group], object, object]:
    """What a client can see: of a group that has only offsets, its offsets. The order of members that one place of a
    hash table holds is that of the records that are left, as in Kafka.
    """
    groups = {name: without_order(one) for name, one in state.groups.items() if one != SIMPLE}
    offsets = {name: dict(one) for name, one in state.offsets.items() if one}
    return groups, offsets, {key: {name: dict(one) for name, one in of.items()} for key, of in state.open.items()}


@pytest.mark.parametrize("partition", range(5))
def test_whatever_the_cleaner_takes_the_state_is_that_of_the_whole_log(partition: int) -> None:
    whole = list(steps_of(partition))
    for steps, rounds in ((whole, 12), (again(whole), 12)):
        expected = meaning(replayed(steps))
        for seed in range(rounds):
            left = cleaned(steps, Random(f"{partition} {seed}"))
            state = replayed(left)
            assert meaning(state) == expected, f"partition {partition}, seed {seed}"
            for name in list(state.groups):
                one = state.groups[name]
                if isinstance(one, ConsumerGroup):
                    for record in tombstones(one):
                        state = replay_groups(state, record, 0, -1)
                else:
                    state = replay_groups(state, Record(GroupMetadataKey(group=name)), 0, -1)
            every = [some for of in (state.offsets, *state.open.values()) for some in of.items()]
            for name, offsets in every:
                for topic, number in offsets:
                    state = replay_groups(state, Record(OffsetCommitKey(name, topic, number)), 0, -1)
            assert state == GroupsState(), f"partition {partition}, seed {seed}"


def test_the_log_and_a_metric_tell_what_is_missing_and_doctor_finds_it() -> None:
    disk, name = MemoryDisk(), "__consumer_offsets-0"
    log = PartitionLog.open(disk, name, LogOptions(is_compacted=True), now_ms=0)
    pairs = (classic(3), *GONE, OTHER)
    bodies = [
        encode_record(0, delta, encode_key(key), None if value is None else encode_value(value), ())
        for delta, (key, value) in enumerate(pairs)
    ]
    log.append_as_leader(
        batch_of(bodies, base_offset=0, epoch=0, timestamps=(0, 0)), epoch=0, now_ms=0, is_client=False
    )
    log.raise_high_watermark(log.end_offset)
    directory = Uuid(bytes(range(16)))
    hosting = Hosting(disk, DataSettings(broker_id=1, directories=(DataDirectory(directory, ".", is_clean=True),)))
    part = HostedPartition((directory, 0), "__consumer_offsets", directory, log, 1)
    hosting.partitions[part.key] = part
    lacking = Lacking()
    found = finished(loading(hosting, part, GroupShard(GroupConfig(), Counted()), lacking))
    assert [one.offset for one in found[-1][1].offsets["g2"].values()] == [7]
    what = "group g1 is a classic group, and has a ConsumerGroupCurrentMemberAssignmentKey"
    assert (lacking.count, lacking.told[0], len(lacking.told)) == (5, f"offset 1: {what}", 3)
    directories = (read_directory(Source(disk=disk), ".", lambda batches: None),)
    facts = Facts(nodes=(Node(name="node 1", directories=directories),))
    (finding,) = groups_lack_tombstones(facts)
    assert (finding.subjects, finding.evidence) == ((name,), f"{name}: offset 1: {what} and 4 more")
