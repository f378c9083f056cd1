"""Share groups as brokers of Kafka 4.4.0 and 4.3.1 left them in their logs, and as they answered heartbeats."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from kraft.cli.files.dump import dump_command
from kraft.coordinators.groups.shares.describe import described
from kraft.coordinators.groups.shares.group import ShareGroup
from kraft.coordinators.groups.state import GroupsState, lacking_before, replay_groups, share_group
from kraft.coordinators.runtime.shard import Record
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.records import consumer_offsets as keys
from metadata_log.records import metadata
from metadata_log.records.batch import scan
from metadata_log.records.coordinator import CONSUMER_OFFSETS, decode_pair, encode_key, encode_value
from metadata_log.records.record import records
from metadata_log.serde import to_json
from metadata_log.serde.codec import finished
from metadata_log.types import OffsetAndEpoch, Uuid
from support import DATA
from support.broker.share_world import LEVELS, START_MS, ShareWorld, plain
from support.real_data import archive
from transport.protocol.errors import Error
from transport.protocol.messages.share_group_describe import ShareGroupDescribeResponse

FILES: Final = archive("share/group/logs")
RELEASES: Final = ("4.4.0", "4.3.1")
SHARE_TYPES: Final = range(10, 16)
UNREADY: Final = (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR)
APART: Final = {"crash", "restart", "alter"}
"""The sessions in which the coordinator moves, and is away for a while; and the one of administrators."""


def json_of(name: str) -> list[dict[str, Any]]:
    """The rows of a file of this folder."""
    return [json.loads(line) for line in gzip.decompress((DATA / "share" / "group" / name).read_bytes()).splitlines()]


@cache
def final(release: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILES[f"{release}/final.json"])
    return found


def read(release: str, number: int) -> list[list[Record]]:
    """The batches of a partition."""
    path = f"{release}/__consumer_offsets-{number}.log"
    batches = []
    for batch in scan(FILES[path], where=path):
        found = []
        for one in () if batch.is_control else records(batch, where=path):
            assert one.key is not None
            pair = decode_pair(CONSUMER_OFFSETS, one.key, one.value)
            assert pair is not None
            found.append(Record(pair.key, pair.value, pair.version))
        batches.append(found)
    return batches


@cache
def state_of(release: str, number: int) -> GroupsState:
    state, offset = GroupsState(), 0
    for batch in read(release, number):
        for record in batch:
            assert lacking_before(state, record) == "", record
            state = replay_groups(state, record, offset, -1)
            offset += 1
    return state


def image_of(topics: dict[str, Any]) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for name, topic in topics.items():
        topic_id = Uuid.parse(topic["id"])
        delta.replay(metadata.TopicRecord(name=name, topic_id=topic_id), 1)
        for number in range(topic["partitions"]):
            delta.replay(metadata.PartitionRecord(partition_id=number, topic_id=topic_id, replicas=(1,), leader=1), 1)
    return delta.apply(OffsetAndEpoch(epoch=1, offset=2))


# ----------------------------------------------------------------------------------------------------------------- logs


@pytest.mark.parametrize("release", RELEASES)
def test_the_groups_in_kafkas_logs_are_those_that_it_described(release: str) -> None:
    told, compared = final(release), 0
    image = image_of(told["topics"])
    groups = {
        group_id: group
        for number in range(4)
        for group_id, group in state_of(release, number).groups.items()
        if isinstance(group, ShareGroup)
    }
    assert set(groups) == {one["groupId"] for one in told["groups"] if one["groupType"] == "share"}
    for theirs in told["describe"]:
        found = finished(described(groups[theirs["groupId"]], image, -(2**31)))
        answer: Any = to_json(ShareGroupDescribeResponse(groups=[found]), 1)
        ours = answer["groups"][0]
        for group in (ours, theirs):
            for member in group["members"]:
                member["subscribedTopicNames"].sort()
        assert ours == theirs
        compared += 1
    assert compared > 15


@pytest.mark.parametrize("release", RELEASES)
def test_the_states_in_kafkas_logs_are_those_that_it_described_offsets_of(release: str) -> None:
    """DescribeShareGroupOffsets without topics names what is initialized."""
    compared = 0
    for theirs in final(release)["offsets"]:
        group = next(
            one for number in range(4) if (one := share_group(state_of(release, number), theirs["groupId"])) is not None
        )
        ours = {(one.name, number) for one in group.states.initialized.values() for number in one.partitions}
        named = {
            (topic["topicName"], part["partitionIndex"]) for topic in theirs["topics"] for part in topic["partitions"]
        }
        assert ours == named, theirs["groupId"]
        compared += len(named)
    assert compared > 25


@pytest.mark.parametrize("release", RELEASES)
def test_every_record_of_kafkas_logs_is_read_and_written_the_same(release: str) -> None:
    compared = 0
    for number in range(4):
        for line in FILES[f"{release}/__consumer_offsets-{number}.jsonl"].splitlines():
            for theirs in json.loads(line):
                if theirs["type"] not in SHARE_TYPES:
                    continue
                compared += compare(theirs)
    assert compared > 400


def compare(theirs: dict[str, Any]) -> int:
    """Read a record as Kafka's tool does, and write the same bytes."""
    key = bytes.fromhex(theirs["key_hex"])
    value = None if theirs["value_hex"] is None else bytes.fromhex(theirs["value_hex"])
    record = decode_pair(CONSUMER_OFFSETS, key, value)
    assert record is not None
    assert (record.kind.type, record.kind.name) == (theirs["type"], theirs["name"])
    assert to_json(record.key, 0) == theirs["key"]
    assert encode_key(record.key) == key
    if record.value is not None:
        assert {"assignmentTimestamp": 0, **theirs["value"]} == {"assignmentTimestamp": 0, **to_json(record.value, 0)}
        assert encode_value(record.value) == value
    return 1


def test_the_vectors_of_every_type_of_record() -> None:
    assert sum(map(compare, json_of("records.jsonl.gz"))) > 80


@pytest.mark.parametrize("release", RELEASES)
def test_the_memory_of_groups_is_counted_the_same_by_record_and_as_a_whole(release: str) -> None:
    """Groups that are loaded, and end, leave nothing counted."""
    for number in range(4):
        state = state_of(release, number)
        held = state.bytes
        for group_id in list(state.groups):
            state = replay_groups(state, Record(_end_of(state, group_id)), 10_000, -1)
        assert 0 <= state.bytes < held
        offsets = sum(len(one) for one in state.offsets.values())
        assert state.bytes == 400 * offsets + sum(
            len(one.metadata) + 80 for of in state.offsets.values() for one in of.values() if one.metadata
        )


def _end_of(state: GroupsState, group_id: str) -> Any:
    match state.groups[group_id]:
        case ShareGroup():
            return keys.ShareGroupMetadataKey(group_id)
        case keys.GroupMetadataValue():
            return keys.GroupMetadataKey(group_id)
    return keys.ConsumerGroupMetadataKey(group_id)


# ------------------------------------------------------------------------------------------------------------- sessions


@cache
def sessions() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The heartbeats of recorded clients, with what happened to topics, settings and states, by release and session."""
    rows = json_of("sessions.jsonl.gz")
    return {key: list(of) for key, of in groupby(rows, lambda row: (row["release"], row["session"]))}


class Replay:
    """A recorded session, at its times, at one coordinator of ours."""

    def __init__(self, release: str, rows: list[dict[str, Any]]) -> None:
        # As the recorded brokers were configured.
        self.world = ShareWorld(level=LEVELS[release])
        self.rows = rows
        self.told: set[tuple[str, int, int, int]] = set()

    def run(self) -> int:
        """Compare each answer; returns how many there were."""
        compared = 0
        for row in self.rows:
            late_ms = START_MS + int(row["t_ms"]) - self.world.now_ms
            self.world.wait(max(0, late_ms))
            if "topic" in row:
                self.world.topic(row["topic"], row["partitions"], Uuid.parse(row["id"]))
            elif "configs" in row:
                self.world.configs(row["group"], row["configs"])
            elif row["api"] == "InitializeShareGroupState":
                self.initialized(row)
            else:
                self.heartbeat(row)
                compared += 1
        return compared

    def initialized(self, row: dict[str, Any]) -> None:
        """The brokers asked the share coordinators the same."""
        asked = row["request"]
        if [one.group_id for one in self.world.asked] != [asked["groupId"]]:
            return
        (ours,) = self.world.asked
        self.told |= {
            (topic["topicId"], part["partition"], part["stateEpoch"], part["startOffset"])
            for topic in asked["topics"]
            for part in topic["partitions"]
        }
        found = {(str(one.topic_id), one.partition, ours.epoch, one.start_offset) for one in ours.beginnings}
        # A persister splits what it is asked, by coordinator.
        assert self.told <= found, (row, found)
        if self.told == found:
            self.told = set()
            self.world.answer()

    def heartbeat(self, row: dict[str, Any]) -> None:
        asked, theirs = row["request"], row["response"]
        if theirs["errorCode"] in UNREADY:
            return
        assert theirs["errorCode"] == 0, row
        answer = self.world.send(
            asked["memberId"],
            asked["memberEpoch"],
            asked["subscribedTopicNames"],
            client_id=row["client"],
            group_id=asked["groupId"],
            rack_id=asked["rackId"],
        )
        ours: dict[str, Any] = to_json(answer, 1)
        for name in ("memberId", "memberEpoch", "heartbeatIntervalMs"):
            assert ours[name] == theirs[name], (name, row, ours)
        assert counts(ours) == counts(theirs), (row, ours)


def counts(answer: dict[str, Any]) -> dict[str, int] | None:
    """How many partitions of each topic an answer assigns."""
    if answer["assignment"] is None:
        return None
    return {one["topicId"]: len(one["partitions"]) for one in answer["assignment"]["topicPartitions"]}


@pytest.mark.parametrize(("release", "session"), [key for key in sessions() if key[1] not in APART])
def test_heartbeats_of_java_clients_are_answered_as_by_kafka(release: str, session: str) -> None:
    """Epochs, intervals, how many partitions, and the records of each batch; which of several members gets which
    partition is free.
    """
    replay = Replay(release, sessions()[release, session])
    assert replay.run() > 2
    ours = [plain(batch) for batch in replay.world.batches]
    group_ids = {row["request"]["groupId"] for row in replay.rows if row.get("api") == "ShareGroupHeartbeat"}
    for group_id in group_ids:
        theirs = of_group(group_id, [plain(one) for number in range(4) for one in read(release, number)])
        mine = of_group(group_id, ours)
        # Other sessions follow with some groups; those that begin with `h-` are of a cluster without these logs.
        assert group_id.startswith("h-") or theirs[: len(mine)] == mine


def of_group(group_id: str, batches: Iterable[list[tuple[int, Any, Any]]]) -> list[Any]:
    """The records of a group, in their order: operations of one moment may share a batch."""
    return [one for batch in batches for one in sized(batch) if one[1].get("groupId") == group_id]


def sized(batch: Iterable[tuple[int, Any, Any]]) -> list[Any]:
    """A batch with the sizes of assignments, and without times; equal members come in any order."""
    found = []
    for kind, key, value in batch:
        kept: Any = value
        if isinstance(value, dict):
            kept = {name: one for name, one in value.items() if name != "assignmentTimestamp"}
            for name in ("topicPartitions", "assignedPartitions"):
                if name in kept:
                    kept[name] = sorted((one["topicId"], len(one["partitions"])) for one in kept[name])
            for name in ("initializingTopics", "initializedTopics"):
                if name in kept:
                    kept[name] = sorted((one["topicName"], tuple(one["partitions"])) for one in kept[name])
        found.append((kind, key, kept))
    return found


# ----------------------------------------------------------------------------------------------------------------- dump


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("number", range(4))
def test_the_dumped_lines_are_those_of_kafkas_tool(
    release: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = FILES[f"{release}/__consumer_offsets-{number}.dump.txt"].decode()
    path = Path(expected.partition("\n")[0].removeprefix("Dumping "))
    path.parent.mkdir(parents=True)
    path.write_bytes(FILES[f"{release}/__consumer_offsets-{number}.log"])
    result = CliRunner().invoke(dump_command, ["--records", "--offsets-decoder", str(path)])
    assert result.exit_code == 0
    assert result.output == expected
