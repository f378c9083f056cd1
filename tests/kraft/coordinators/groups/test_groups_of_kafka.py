"""Partitions of `__consumer_offsets` that brokers of Kafka wrote give the groups and the offsets that Kafka saw."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.classic import ClassicGroups
from kraft.coordinators.groups.shard import GroupShard
from kraft.coordinators.groups.state import NO_OFFSETS, GroupsState
from kraft.coordinators.runtime.loading import Lacking, loading
from kraft.handling.coordinators import Counted
from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.hosting import Hosting
from kraft.partitions.replicas.settings import DataDirectory, DataSettings
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.consumer_offsets import GroupMetadataValue
from metadata_log.serde.codec import finished
from metadata_log.types import Uuid
from support.real_data import archive

NOW_MS: Final = 1_795_387_500_000
TOPIC: Final = "__consumer_offsets"
DIRECTORY: Final = Uuid(bytes(range(16)))
PARTITIONS: Final = range(5)
FILES: Final = archive("coordinators")
FINAL: Final[dict[str, Any]] = json.loads(FILES["final.json"])


def state_of(number: int) -> GroupsState:
    """The state of groups in the log of a partition."""
    disk, prefix = MemoryDisk(), f"logs/{TOPIC}-{number}/"
    disk.mkdir(f"{TOPIC}-{number}")
    for path, data in FILES.items():
        if path.startswith(prefix) and not path.endswith("/"):
            file = disk.open(f"{TOPIC}-{number}/{path.removeprefix(prefix)}", create=True)
            file.append(data)
            file.close()
    log = PartitionLog.open(disk, f"{TOPIC}-{number}", LogOptions(is_compacted=True), now_ms=NOW_MS)
    log.raise_high_watermark(log.end_offset)
    hosting = Hosting(disk, DataSettings(broker_id=1, directories=(DataDirectory(DIRECTORY, ".", is_clean=True),)))
    part = HostedPartition((DIRECTORY, number), TOPIC, DIRECTORY, log, 1)
    hosting.partitions[part.key] = part
    found = finished(loading(hosting, part, GroupShard(GroupConfig(), Counted()), Lacking()))
    assert [offset for offset, _ in found] == [log.end_offset]
    return found[0][1]


STATES: Final = [state_of(number) for number in PARTITIONS]


@pytest.mark.parametrize("theirs", FINAL["describe"], ids=lambda one: one["groupId"])
def test_classic_groups(theirs: dict[str, Any]) -> None:
    group_id = theirs["groupId"]
    found = [one for state in STATES if (one := ClassicGroups(GroupConfig(), Counted()).find(group_id, state))]
    assert len(found) == 1
    (group,) = found
    assert (group.state.value, group.protocol_type, group.protocol or "") == (
        theirs["groupState"],
        theirs["protocolType"],
        theirs["protocolData"],
    )
    assert {one.member_id: one.instance_id for one in group.members.values()} == {
        one["memberId"]: one["groupInstanceId"] for one in theirs["members"]
    }


def test_deleted_groups_are_gone() -> None:
    left = [one.groups.items() for one in STATES]
    ours = {name for each in left for name, one in each if isinstance(one, GroupMetadataValue) and one.protocol_type}
    assert ours == {one["groupId"] for one in FINAL["describe"] if one["protocolType"]}


@pytest.mark.parametrize("theirs", FINAL["offsets"], ids=lambda one: one["groupId"])
def test_offsets(theirs: dict[str, Any]) -> None:
    ours = {
        (topic, number): (one.offset, one.leader_epoch, one.metadata)
        for state in STATES
        for (topic, number), one in state.offsets.get(theirs["groupId"], NO_OFFSETS).items()
    }
    assert ours == {
        (topic["name"], one["partitionIndex"]): (one["committedOffset"], one["committedLeaderEpoch"], one["metadata"])
        for topic in theirs["topics"]
        for one in topic["partitions"]
    }
