"""A process that dies, or loses power, before any one of the disk operations of a vote, an append and a truncation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from crashing_replica import Node, crash_everywhere, granted, leader_change, vote
from kraft.process.hosting import host_silent_raw_log
from kraft.quorum.effects import AppendBatch, FlushLog
from kraft.quorum.events import LogFlushed, Tick
from kraft.replica.interface.events import (
    LogState,
    MakeSnapshot,
    Submit,
)
from kraft.replica.storage.storage import Storage
from kraft.state_machine.raw_snapshot import raw_snapshot_values, state_of
from kraft.wire import WireReply
from metadata_log.errors import MetadataLogError
from metadata_log.log.quorum_state_file import read_quorum_state
from metadata_log.log.snapshot import values_of_snapshot
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch
from metadata_log.serde.codec import finished
from metadata_log.types import METADATA_TOPIC, NO_NODE
from support.kraft.replica_net import DIRECTORY, START_MS, formatted_disk, options, voter_set
from support.power import failing_after
from transport.protocol.messages import (
    VoteRequest,
    VoteResponse,
)
from transport.protocol.messages.fetch import EpochEndOffset
from transport.protocol.messages.vote import (
    VoteResponsePartitionData,
    VoteResponseTopicData,
)

PARTITION = f"{DIRECTORY}/__cluster_metadata-0"
LOG = f"{PARTITION}/00000000000000000000.log"


def operations_of(node: Node, act: Callable[[Node], None]) -> list[str]:
    """The disk operations of an act, each with the name of its file."""
    operations: list[str] = []
    node.disk.on_operation = lambda operation, path: operations.append(f"{operation} {path.rpartition('/')[2]}")
    act(node)
    node.disk.on_operation = None
    return operations


def test_a_vote_in_a_higher_epoch_is_one_write_of_two_syncs() -> None:
    """The file and its directory are synced once each, and the answer follows both."""
    node = Node(formatted_disk(1))
    operations = operations_of(node, lambda node: node.receive(1, vote(2, 5)))
    assert granted(node.answers.get(1))
    synced = [operation for operation in operations if "sync" in operation]
    assert synced == ["fsync quorum-state.tmp", "fsync_dir __cluster_metadata-0"]


def test_a_candidate_that_votes_in_a_higher_epoch_keeps_one_of_its_two_votes() -> None:
    """A crash between the two epochs leaves the vote for itself, and its answer to another candidate is a refusal."""

    def prepare() -> Node:
        node = Node(formatted_disk(1))
        node.now_ms += 60_000
        node.step(Tick())
        for request in [one for one in node.sent if isinstance(one.message, VoteRequest)]:
            part = VoteResponsePartitionData(vote_granted=True, leader_id=NO_NODE)
            topic = VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])
            node.step(WireReply(request.request_id, VoteResponse(topics=[topic])))
        assert node.replica.replica.core.state_name == "Candidate"
        return node

    def check(before: Node, disk: MemoryDisk) -> None:
        stored = read_quorum_state(disk, PARTITION)
        assert stored is not None
        assert (stored.leader_epoch, stored.voted_id) in ((1, 1), (5, 2))
        again = Node(disk)
        again.receive(2, vote(3, stored.leader_epoch))
        assert not granted(again.answers.get(2)), "two votes in one epoch"
        if granted(before.answers.get(1)):
            again.receive(3, vote(2, 5))
            assert granted(again.answers.get(3))

    assert crash_everywhere(prepare, lambda node: node.receive(1, vote(2, 5)), check) >= 4


def test_an_only_voter_is_elected_with_one_write_that_precedes_its_record() -> None:
    """The leader's epoch is on disk before the log holds a record of this epoch, wherever the power fails."""

    def check(before: Node, disk: MemoryDisk) -> None:
        stored = read_quorum_state(disk, PARTITION)
        epochs = []
        with suppress(MetadataLogError):  # the tail may be torn
            for batch in scan(disk.read(LOG)) if disk.exists(LOG) else ():
                epochs.append(batch.epoch)  # noqa: PERF401 - those before the torn tail count
        if epochs:
            assert stored is not None
            assert stored.leader_epoch >= max(epochs)
        assert Node(disk, voters=1).replica.replica.core.epoch >= (0 if stored is None else stored.leader_epoch)

    def prepare() -> Node:
        node = Node(formatted_disk(1))
        node.replica.close()
        return node

    def act(node: Node) -> None:
        again = Node(node.disk, voters=1)
        again.work()

    operations = operations_of(prepare(), act)
    assert sum(one.startswith("fsync quorum-state") for one in operations) == 1, operations
    crash_everywhere(prepare, act, check)


def test_a_start_may_be_interrupted_anywhere() -> None:
    """Also the first one, which makes the log, its directory and quorum-state."""
    for kept in range(40):
        disk = formatted_disk(1)
        with failing_after(disk, kept) as power:
            Node(disk)
        if not power.failed:
            break
        disk.crash(Random(kept))
        assert Node(disk).replica.replica.core.epoch == 0
    else:
        pytest.fail("a start takes more than 40 disk operations")


def test_records_acknowledged_by_a_follower_survive_a_power_failure() -> None:
    """Its next Fetch is the acknowledgement: nothing below its offset may be lost."""
    batches = [leader_change(0, 1, 2), build_batch(1, 1, START_MS, [b"a", b"b"]), build_batch(3, 1, START_MS, [b"c"])]
    log = b"".join(batches)

    def prepare() -> Node:
        node = Node(formatted_disk(1))
        node.follow(2, 1)
        return node

    def act(node: Node) -> None:
        for batch in batches:
            node.fetched(2, 1, records=batch, high_watermark=0)

    def check(before: Node, disk: MemoryDisk) -> None:
        acknowledged = before.last_fetch[1]
        again = Node(disk)
        assert again.replica.replica.core.log.end_offset >= acknowledged
        recovered = disk.read(LOG)
        assert log.startswith(recovered), "the recovered log is a prefix of the leader's"
        assert again.replica.replica.core.epoch == 1

    assert crash_everywhere(prepare, act, check) >= 6


def test_a_truncation_is_atomic_across_a_power_failure() -> None:
    first = leader_change(0, 1, 2) + build_batch(1, 1, START_MS, [b"kept"])
    lost = build_batch(2, 1, START_MS, [b"lost"]) + build_batch(3, 1, START_MS, [b"lost, too"])
    new = leader_change(2, 2, 3) + build_batch(3, 2, START_MS, [b"new"])

    def prepare() -> Node:
        node = Node(formatted_disk(1))
        node.follow(2, 1)
        node.fetched(2, 1, records=first + lost, high_watermark=2)
        node.follow(3, 2)
        return node

    def act(node: Node) -> None:
        node.fetched(3, 2, diverging_epoch=EpochEndOffset(epoch=1, end_offset=2), high_watermark=2)
        node.fetched(3, 2, records=new, high_watermark=2)

    def check(before: Node, disk: MemoryDisk) -> None:
        again = Node(disk)
        recovered = disk.read(LOG)
        assert (first + lost).startswith(recovered) or (first + new).startswith(recovered)
        assert recovered.startswith(first), "what was acknowledged and not cut is there"
        if before.last_fetch[1] == 2:
            assert (first + new).startswith(recovered), "the leader was told that the tail is gone"
        epochs = {batch.epoch for batch in scan(recovered)}
        assert {entry.epoch for entry in again.replica.replica.log.epochs.entries} == epochs

    assert crash_everywhere(prepare, act, check) >= 8


def test_records_acknowledged_by_a_leader_survive_a_power_failure() -> None:
    """The only voter commits as soon as its own flush is done, and not before."""

    def prepare() -> Node:
        node = Node(formatted_disk(1), voters=1)
        node.work()
        return node

    def act(node: Node) -> None:
        for number in range(3):
            node.step(Submit(number, [b"%d" % number]))
            node.work()

    def check(before: Node, disk: MemoryDisk) -> None:
        epoch = before.replica.replica.core.epoch
        Node(disk, voters=1).work()
        recovered = disk.read(LOG)
        ends = [batch.next_offset for batch in scan(recovered)]
        for done in before.done.values():
            assert done.last_offset < ends[-1], "an acknowledged value is lost"
            assert b"%d" % done.submit_id in recovered
        assert max(batch.epoch for batch in scan(recovered)) > epoch, "a restarted leader leads in a higher epoch"

    assert crash_everywhere(prepare, act, check) >= 6


def test_the_snapshot_of_a_raw_log_survives_a_power_failure() -> None:
    """Whenever the power fails: what was acknowledged is there, and a snapshot is whole or not there."""

    def prepare() -> Node:
        node = Node(formatted_disk(1), voters=1, application=host_silent_raw_log)
        node.work()
        for number in range(2):
            node.step(Submit(number, [b"%d" % number]))
            node.work()
        return node

    def act(node: Node) -> None:
        ends = [done.last_offset + 1 for done in node.done.values()]
        for call_id, end in enumerate(ends):
            node.step(MakeSnapshot(call_id, LogState(end, raw_snapshot_values(b"%d" % end))))
        while len(node.made) < len(ends):
            node.now_ms += 1
            node.work()

    def check(before: Node, disk: MemoryDisk) -> None:
        again = Node(disk, voters=1, application=host_silent_raw_log)
        newest = again.replica.replica.newest_snapshot
        assert newest.offset >= max((made.snapshot.offset for made in before.made if made.snapshot), default=0)
        if newest.offset:
            assert state_of(values_of_snapshot(again.replica.replica.open_snapshot(newest))) == b"%d" % newest.offset
        for done in before.done.values():
            assert done.last_offset < again.replica.replica.core.log.end_offset

    assert crash_everywhere(prepare, act, check) >= 8


def test_a_completed_fsync_acknowledges_only_the_records_that_it_covered() -> None:
    """Records that are appended while an fsync runs need the next fsync."""
    storage = finished(Storage.opening(formatted_disk(1), options(1, voter_set(3)).replica, Random(7), START_MS))
    storage.append_batch(AppendBatch(0, 1, START_MS, (b"a",)))
    first = storage.request_flush(FlushLog(1, 1))
    assert first is not None
    storage.append_batch(AppendBatch(1, 1, START_MS, (b"b",)))
    assert storage.request_flush(FlushLog(2, 1)) is None
    first.run()
    flushed, second = storage.flush_done(first.ticket)
    assert flushed == LogFlushed(1, 1)
    assert storage.log.flushed_offset == 1
    assert second is not None
    second.run()
    assert storage.flush_done(second.ticket) == (LogFlushed(2, 1), None)
    assert storage.log.flushed_offset == 2
