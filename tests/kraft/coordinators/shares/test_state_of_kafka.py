"""The logs of the share coordinators of Kafka 4.4.0 and 4.3.1 are read as Kafka reads them, and written the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from kraft.coordinators.runtime.shard import Record
from kraft.coordinators.shares.persister import ShareKey, StateBatch
from kraft.coordinators.shares.state import (
    ShareState,
    ShareStates,
    replayed,
    snapshot_of,
    tombstone_of,
    update_of,
    weight,
)
from kraft.coordinators.shares.state_batches import combined
from metadata_log.records.batch import scan
from metadata_log.records.coordinator import SHARE_GROUP_STATE, CoordinatorRecord, decode_pair, encode_key, encode_value
from metadata_log.records.record import records
from metadata_log.records.share_group_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from metadata_log.types import Uuid
from support.real_data import archive

UPDATES = 500
LOGS = "share/state_logs"
VERSIONS = ("4.4.0", "4.3.1")


def pairs_of(data: bytes) -> list[tuple[int, CoordinatorRecord]]:
    found = []
    for batch in scan(data):
        for record in records(batch):
            pair = decode_pair(SHARE_GROUP_STATE, record.key or b"", record.value)
            assert pair is not None
            assert encode_key(pair.key) == record.key
            if pair.value is not None:
                assert encode_value(pair.value) == record.value
            found.append((record.offset, pair))
    return found


def partitions(version: str) -> list[list[tuple[int, CoordinatorRecord]]]:
    files = archive(LOGS)
    return [pairs_of(data) for path, data in sorted(files.items()) if path.startswith(f"{version}/logs/")]


def after(pairs: list[tuple[int, CoordinatorRecord]]) -> ShareStates:
    states = ShareStates()
    for offset, pair in pairs:
        states = replayed(states, Record(pair.key, pair.value, pair.version), offset, UPDATES)
    assert states.bytes == sum(weight(key, one) for key, one in states.by_key.items())
    return states


def told(key: ShareKey, one: ShareState) -> dict[str, Any]:
    """A state as `final.json` has it: the answers to ReadSummary and to Read."""
    same = {"partition": key.partition, "errorCode": 0, "errorMessage": None, "stateEpoch": one.state_epoch}
    return {
        "groupId": key.group_id,
        "topicId": str(key.topic_id),
        "partition": key.partition,
        "summary": {
            **same,
            "leaderEpoch": one.leader_epoch,
            "startOffset": one.start_offset,
            "deliveryCompleteCount": one.delivery_complete_count,
        },
        "read": {**same, "startOffset": one.start_offset, "stateBatches": [shown(each) for each in one.batches]},
    }


def shown(one: StateBatch) -> dict[str, int]:
    return {
        "firstOffset": one.first_offset,
        "lastOffset": one.last_offset,
        "deliveryState": one.delivery_state,
        "deliveryCount": one.delivery_count,
    }


def joined(state: dict[str, Any]) -> dict[str, Any]:
    """A state of 4.3.1, which leaves neighbours apart that are equal, as 4.4.0 would tell it."""
    batches = [
        StateBatch(one["firstOffset"], one["lastOffset"], one["deliveryState"], one["deliveryCount"])
        for one in state["read"]["stateBatches"]
    ]
    return {**state, "read": {**state["read"], "stateBatches": [shown(one) for one in combined(batches)]}}


@pytest.mark.parametrize(("version", "count"), [("4.4.0", 79), ("4.3.1", 43)])
def test_the_logs_lead_to_the_states_that_kafka_has_told(version: str, count: int) -> None:
    states = {key: one for log in partitions(version) for key, one in after(log).by_key.items()}
    known = set()
    for expected in json.loads(archive(LOGS)[f"{version}/final.json"]):
        key = ShareKey(expected["groupId"], Uuid.parse(expected["topicId"]), expected["partition"])
        if "read" in expected:
            assert told(key, states[key]) == joined(expected)
        elif key in states:
            assert told(key, states[key])["summary"] == expected["summary"]
        else:
            # It was deleted, or its topic.
            assert expected["summary"]["startOffset"] in {-1, 0}
            continue
        known.add(key)
    assert len(known) == count
    assert known == set(states)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_snapshot_of_each_state_tells_all_of_it(version: str) -> None:
    """A coordinator that begins with the last snapshots alone knows the same: the log before them may be deleted."""
    for log in partitions(version):
        states = after(log)
        again = ShareStates()
        for at, (key, one) in enumerate(sorted(states.by_key.items())):
            made = snapshot_of(key, None, one)
            again = replayed(again, Record(made.key, made.value), at, UPDATES)
        assert {key: one.batches for key, one in again.by_key.items()} == {
            key: one.batches for key, one in states.by_key.items()
        }
        for key in sorted(states.by_key):
            again = replayed(again, tombstone_of(key), 0, UPDATES)
        assert (len(again.by_key), again.bytes) == (0, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_written_as_kafka_has_written_them(version: str) -> None:
    kinds = set()
    for log in partitions(version):
        states = ShareStates()
        for offset, pair in log:
            before = states
            states = replayed(states, Record(pair.key, pair.value, pair.version), offset, UPDATES)
            assert isinstance(pair.key, (ShareSnapshotKey, ShareUpdateKey))
            key = ShareKey(pair.key.group_id, pair.key.topic_id, pair.key.partition)
            known = before.by_key.get(key)
            match pair.value:
                case ShareSnapshotValue():
                    made = snapshot_of(key, known, states.by_key[key])
                case ShareUpdateValue() as value:
                    assert known is not None
                    batches = tuple(
                        StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
                        for one in value.state_batches
                    )
                    made = update_of(key, known, states.by_key[key], batches)
                case _:
                    made = tombstone_of(key)
                    assert key not in states.by_key
            written = made.value
            if isinstance(written, ShareUpdateValue) and isinstance(pair.value, ShareUpdateValue):
                # 4.3.1 writes the start offset of a Write as it comes.
                start = {written.start_offset, pair.value.start_offset}
                assert len(start) == 1 or version == "4.3.1"
                written = structs.replace(written, start_offset=pair.value.start_offset)
            assert (made.key, written) == (pair.key, pair.value)
            kinds.add((pair.kind.name, pair.value is None))
    assert kinds == {("ShareSnapshot", False), ("ShareSnapshot", True), ("ShareUpdate", False)}


def test_the_log_can_be_deleted_up_to_the_first_snapshot_that_is_needed() -> None:
    """What remains leads to the same states, though it begins with updates of share partitions without a snapshot."""
    begun = 0
    for log in partitions("4.4.0"):
        states = after(log)
        first = min(one.snapshot_at for one in states.by_key.values())
        rest = [pair for pair in log if pair[0] >= first]
        begun += len(log) - len(rest)
        assert {key: told(key, one) for key, one in after(rest).by_key.items()} == {
            key: told(key, one) for key, one in states.by_key.items()
        }
    assert begun > 0


def test_an_update_without_a_snapshot_is_the_state() -> None:
    key = ShareKey("g", Uuid(bytes([7]) * 16), 0)
    value = ShareUpdateValue(snapshot_epoch=3, leader_epoch=4, start_offset=5, delivery_complete_count=2)
    states = replayed(ShareStates(), Record(ShareUpdateKey("g", key.topic_id, 0), value), 9, UPDATES)
    one = states.by_key[key]
    assert (one.snapshot_epoch, one.state_epoch, one.leader_epoch, one.start_offset) == (3, 0, 4, 5)
    assert (one.fenced_leader_epoch, one.snapshot_at, one.updates) == (4, 9, 1)
