"""A share coordinator forgets what is deleted, refreshes old snapshots, and deletes the log before them."""

from __future__ import annotations

from typing import Any

import pytest

from kraft import limits
from kraft.coordinators.shares import state_changes
from kraft.coordinators.shares.persister import ShareKey
from kraft.handling.coordinators import partition_of
from metadata_log.records.metadata import RemoveTopicRecord
from metadata_log.records.share_group_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from support.broker.coordinated_brokers import Coordinated
from support.broker.share_brokers import STATES, WORK, Caller, change, key, share_brokers, stored
from transport.protocol.errors import Error

ONE = ((101,),)
"""All share partitions at one broker."""


def wait(cluster: Coordinated, ms: int) -> None:
    """Let time pass; what goes on in portions has its turns."""
    cluster.settle(after_ms=ms)
    for _ in range(5):
        cluster.settle(after_ms=1)


def kinds(cluster: Coordinated) -> list[str]:
    """The groups of the records; a tombstone has a minus, an update a plus."""
    found = []
    for _, pair in stored(cluster.brokers, 101, 0):
        assert isinstance(pair.key, (ShareSnapshotKey, ShareUpdateKey))
        mark = "-" if pair.value is None else "+" if isinstance(pair.value, ShareUpdateValue) else ""
        found.append(f"{pair.key.group_id}{mark}")
    return found


def test_share_partitions_of_a_deleted_topic_are_forgotten() -> None:
    cluster = share_brokers(ONE)
    caller = Caller(cluster)
    for number in range(3):
        caller.initialize(key(number))
    cluster.brokers.change(RemoveTopicRecord(topic_id=WORK))
    wait(cluster, 1)
    assert kinds(cluster) == ["g", "g", "g", "g-", "g-", "g-"]
    [one] = cluster.brokers.requests[101].share_states.partitions.values()
    assert (len(one.state.by_key), one.state.bytes) == (0, 0)


def test_cold_share_partitions_get_snapshots_and_the_log_is_deleted() -> None:
    cluster = share_brokers(ONE, cold_interval_ms=10_000, prune_interval_ms=10_000)
    caller = Caller(cluster)
    for group in "abc":
        caller.initialize(key(0, group))
    created_ms = caller.now_ms
    caller.write(key(0, "a"), change((0, 4, 2, 1), start=0, count=5))
    wait(cluster, 9000)
    caller.initialize(key(0, "d"))
    assert kinds(cluster) == ["a", "b", "c", "a+", "d"]
    wait(cluster, 1500)
    assert kinds(cluster)[-3:] == ["a", "b", "c"], "the youngest one is left alone"
    snapshot = next(pair.value for offset, pair in stored(cluster.brokers, 101, 0) if offset == 5)
    assert isinstance(snapshot, ShareSnapshotValue)
    assert (snapshot.snapshot_epoch, snapshot.start_offset, snapshot.delivery_complete_count) == (1, 0, 5)
    assert snapshot.create_timestamp < created_ms < snapshot.write_timestamp
    part = cluster.brokers.part(101, (STATES, 0))
    wait(cluster, 10_000)
    assert part.log.start_offset == 4, "the log before the snapshot of d is not needed"
    assert cluster.brokers.requests[101].states_counted.pruned == {0: 4}
    before = {of: caller.read(of) for of in (key(0, group) for group in "abcd")}
    end = part.log.end_offset
    for _ in range(3):
        wait(cluster, 10_000)
    assert part.log.end_offset == end, "all are cold then, and nothing is written again"
    restarted = cluster.brokers.requests[101].share_states
    restarted.on_leaders([(STATES, 0)], caller.now_ms)
    assert {of: caller.read(of) for of in before} == before


def test_a_log_without_share_partitions_is_deleted_up_to_its_last_record() -> None:
    cluster = share_brokers(ONE, prune_interval_ms=10_000)
    caller = Caller(cluster)
    caller.initialize(key(0))
    caller.delete(key(0))
    wait(cluster, 11_000)
    assert cluster.brokers.part(101, (STATES, 0)).log.start_offset == 1


def test_a_replica_deletes_what_its_leader_has_deleted() -> None:
    cluster = share_brokers(((101, 102),), prune_interval_ms=10_000)
    caller = Caller(cluster)
    for epoch in range(4):
        caller.initialize(key(0), epoch)
    wait(cluster, 11_000)
    wait(cluster, 1)
    assert [cluster.brokers.part(one, (STATES, 0)).log.start_offset for one in (101, 102)] == [3, 3]


def test_a_share_partition_has_only_so_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_changes, "SHARE_STATE_BATCHES", 10)
    caller, of = Caller(share_brokers(ONE)), key(0)
    caller.initialize(of)
    apart = [(2 * at, 2 * at, 0, 1) for at in range(11)]
    assert caller.write(of, change(*apart)) is Error.POLICY_VIOLATION
    assert caller.write(of, change(*apart[:10])) is Error.NONE
    assert caller.write(of, change(apart[10])) is Error.POLICY_VIOLATION
    assert caller.write(of, change(apart[10], start=1)) is Error.NONE
    assert len(caller.read(of).batches) == 10


def test_a_full_coordinator_takes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = Caller(share_brokers(ONE))
    assert caller.initialize(key(0)) is Error.NONE
    monkeypatch.setattr(limits, "SHARE_STATE_BYTES", 1000)
    assert caller.initialize(key(1)) is Error.POLICY_VIOLATION
    assert caller.write(key(0), change((0, 0, 0, 1))) is Error.POLICY_VIOLATION
    assert caller.initialize(key(0), 1) is Error.NONE, "what is known goes on"
    assert caller.write(key(0), change(start=3, state_epoch=1)) is Error.NONE
    assert caller.delete(key(0)) is Error.NONE
    assert caller.initialize(key(1)) is Error.NONE


def test_a_late_copy_of_the_first_initialize_takes_nothing_back() -> None:
    """What was accepted since stays so (`share-cluster` seed 3). Kafka begins anew."""
    caller, of = Caller(share_brokers(ONE)), key(0)
    caller.initialize(of, 3, -1)
    assert caller.initialize(of, 3, -1) is Error.NONE
    caller.write(of, change((0, 4, 2, 1), state_epoch=3))
    before = caller.read(of)
    assert caller.initialize(of, 3, -1) is Error.NONE
    assert caller.read(of) == before
    assert caller.initialize(of, 3, 2) is Error.NONE, "an operator sets another begin at the same epoch"
    assert (caller.read(of).start_offset, caller.read(of).batches) == (2, ())
    assert caller.initialize(of, 4, -1) is Error.NONE
    assert caller.read(of).start_offset == -1
    caller.write(of, change(state_epoch=4))
    assert caller.initialize(of, 4, -1) is Error.NONE
    assert caller.read(of).start_offset == 0, "a begin at the first offset is one, too"


def test_a_write_that_makes_no_sense_changes_nothing() -> None:
    caller, of = Caller(share_brokers(ONE)), key(0)
    caller.initialize(of)
    assert caller.write(of, change((5, 4, 0, 1))) is Error.UNKNOWN_SERVER_ERROR
    assert caller.write(of, change(state_epoch=-1)) is Error.INVALID_REQUEST
    assert caller.write(of, change(leader_epoch=-1)) is Error.INVALID_REQUEST
    assert caller.write(key(-1), change()) is Error.INVALID_REQUEST
    assert caller.read(of).batches == ()


def test_the_name_of_a_share_partition_selects_its_coordinator() -> None:
    cluster = share_brokers(((101,), (101,), (101,)))
    caller = Caller(cluster)
    keys = [ShareKey(group, WORK, number) for group in ("g", "a:b", "Ä" * 300, "") for number in range(3)]
    found: dict[Any, Any] = {}
    for of in keys:
        assert caller.initialize(of) is Error.NONE
    for number in range(3):
        for _, pair in stored(cluster.brokers, 101, number):
            assert isinstance(pair.key, ShareSnapshotKey)
            found[ShareKey(pair.key.group_id, pair.key.topic_id, pair.key.partition)] = number
    assert found == {of: partition_of(of.name, 3) for of in keys}
