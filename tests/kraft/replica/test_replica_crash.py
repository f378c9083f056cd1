"""A process that dies, or loses power, before any one of the disk operations of a vote, an append and a truncation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from kraft.committed import Noted
from kraft.process.hosting import host_raw_log, host_silent_raw_log
from kraft.process.opening import open_process
from kraft.process.parts import ApplicationFactory, Input
from kraft.quorum.effects import AppendBatch, FlushLog, PeerFault
from kraft.quorum.events import LogFlushed, Tick
from kraft.replica.interface.events import (
    FlushDone,
    LogState,
    MakeSnapshot,
    Output,
    SnapshotMade,
    StartFlush,
    Submit,
    SubmitDone,
    Trace,
)
from kraft.replica.storage.storage import Storage
from kraft.state_machine.raw_snapshot import raw_snapshot_values, state_of
from kraft.wire import Answer, WireReply, WireRequest, WireSend
from metadata_log.errors import MetadataLogError
from metadata_log.log.quorum_state_file import read_quorum_state
from metadata_log.log.snapshot import values_of_snapshot
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch, build_control_batch
from metadata_log.records.control import LeaderChangeMessage
from metadata_log.records.frame import encode_control
from metadata_log.serde import Message
from metadata_log.serde.codec import finished
from metadata_log.types import METADATA_TOPIC, NO_NODE, Uuid
from support.kraft.replica_net import DIRECTORY, START_MS, formatted_disk, options, voter_set
from transport.protocol.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from transport.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
)
from transport.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData
from transport.protocol.messages.vote import (
    VoteRequestPartitionData,
    VoteRequestTopicData,
    VoteResponsePartitionData,
    VoteResponseTopicData,
)

PARTITION = f"{DIRECTORY}/__cluster_metadata-0"
LOG = f"{PARTITION}/00000000000000000000.log"


class PowerFailure(Exception):
    """The process ends here."""


class Node:
    """Node 1 of three, driven by hand. Its flushes are run when `flush` says so."""

    def __init__(
        self, disk: MemoryDisk, voters: int = 3, application: ApplicationFactory = host_raw_log, **changes: Any
    ) -> None:
        self.disk = disk
        self.now_ms = START_MS
        self.sent: list[WireSend] = []
        self.answers: dict[int, Message] = {}
        self.done: dict[int, SubmitDone] = {}
        self.made: list[SnapshotMade] = []
        self.flushes: list[StartFlush] = []
        self.reports: list[str] = []
        """What it says of its peers."""
        self.replica, outputs = open_process(
            options=options(1, voter_set(voters), **changes),
            disk=disk,
            rng=Random(7),
            application=application,
            now_ms=self.now_ms,
        )
        self._note(outputs)

    def _note(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case WireSend():
                    self.sent.append(output)
                case StartFlush():
                    self.flushes.append(output)
                case SubmitDone():
                    self.done[output.submit_id] = output
                case Noted(SnapshotMade() as made):
                    self.made.append(made)
                case Trace(effect=PeerFault(what=what)):
                    self.reports.append(what)
                case Answer():
                    self.answers[output.request_id] = output.message

    def step(self, event: Input) -> None:
        self._note(self.replica.step(event, self.now_ms))

    def work(self) -> None:
        """Tick and flush until nothing is left to do now."""
        while self.flushes or self.replica.deadline_ms() <= self.now_ms:
            if self.flushes:
                flush = self.flushes.pop(0)
                flush.run()
                self.step(FlushDone(flush.ticket))
            else:
                self.step(Tick())

    def receive(self, request_id: int, message: Message) -> None:
        schema = type(message).__schema__
        self.step(
            WireRequest(
                request_id=request_id,
                api_key=schema.api_key or 0,
                version=schema.versions.highest,
                message=message,
                listener="CONTROLLER",
            )
        )

    @property
    def last_fetch(self) -> tuple[int, int]:
        """The request id and the offset of the last Fetch that went out."""
        sent = next(one for one in reversed(self.sent) if isinstance(one.message, FetchRequest))
        assert isinstance(sent.message, FetchRequest)
        return sent.request_id, sent.message.topics[0].partitions[0].fetch_offset

    def follow(self, leader: int, epoch: int) -> None:
        part = BeginQuorumEpochRequestPartitionData(leader_id=leader, leader_epoch=epoch)
        topic = BeginQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
        self.receive(1000 + epoch, BeginQuorumEpochRequest(topics=[topic]))
        self.work()

    def fetched(self, leader: int, epoch: int, **part: Any) -> None:
        """The leader answers the last Fetch."""
        data = PartitionData(
            current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
            aborted_transactions=None,
            **{"records": b"", "high_watermark": -1, **part},
        )
        topic = FetchableTopicResponse(topic_id=Uuid.METADATA_TOPIC, partitions=[data])
        self.step(WireReply(self.last_fetch[0], FetchResponse(responses=[topic])))
        self.work()


def vote(candidate: int, epoch: int) -> VoteRequest:
    part = VoteRequestPartitionData(replica_epoch=epoch, replica_id=candidate, last_offset_epoch=0, last_offset=100)
    return VoteRequest(voter_id=1, topics=[VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])])


def granted(answer: Message | None) -> bool:
    return isinstance(answer, VoteResponse) and answer.topics[0].partitions[0].vote_granted


def leader_change(offset: int, epoch: int, leader: int) -> bytes:
    kind, _, value = encode_control(LeaderChangeMessage(leader_id=leader))
    return build_control_batch(offset, epoch, START_MS, [(kind, value)])


def crash_everywhere(
    prepare: Callable[[], Node], act: Callable[[Node], None], check: Callable[[Node, MemoryDisk], None]
) -> int:
    """Run `act` with the power failing before its 1st, 2nd, … disk operation, and once after all of them.

    Each time the disk keeps nothing but what was fsynced, then also some of the rest, torn. Returns how many operations
    there were.
    """
    operations = 0
    while True:
        seeds = [None, *range(6)]
        for seed in seeds:
            node = prepare()
            left = operations

            def fail_at(operation: str, path: str) -> None:
                nonlocal left
                if left == 0:
                    raise PowerFailure(operation, path)
                left -= 1

            node.disk.on_operation = fail_at
            finished = True
            try:
                act(node)
            except PowerFailure:
                finished = False
            node.disk.on_operation = None
            print("operation", operations, "seed", seed)
            node.disk.crash(None if seed is None else Random(seed))
            check(node, node.disk)
        if finished:
            return operations
        operations += 1


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
        left = kept

        def fail_at(operation: str, path: str) -> None:
            nonlocal left
            if left == 0:
                raise PowerFailure(operation, path)
            left -= 1

        disk.on_operation = fail_at
        try:
            Node(disk)
        except PowerFailure:
            pass
        else:
            break
        disk.on_operation = None
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
