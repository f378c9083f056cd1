"""A leader's records are checked a portion at a time; until the checks end, the core sees a slow network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from counted_turns import Counted, Quorum
from crashing_replica import Node, granted, leader_change, vote
from kraft.controller.server import ControllerServer
from kraft.process.hosting import host_controller
from kraft.quorum.events import BeginShutdown, Tick
from kraft.replica import applier
from kraft.replica.applier import Applier
from kraft.replica.interface.events import PeerRequest
from kraft.replica.interface.options import SnapshotOptions
from kraft.replica.peer_replies import HeldReply
from kraft.sim.state.fingerprints import fingerprint
from kraft.sim.state.forking import forked
from kraft.wire import WireReply
from metadata_log.disk import Disk
from metadata_log.log.log import MetadataLog
from metadata_log.log.retention import Retention
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import NoOpRecord
from metadata_log.records.quorum_batch import RECORDS_PER_PORTION
from metadata_log.serde import Message
from support.kraft.replica_net import START_MS, formatted_disk
from transport.protocol.messages import FetchRequest, FetchResponse

NOTHING = encode_record(NoOpRecord(), 0)
RECORDS = 20_000
ROOM = 2_000
"""How many records the nodes of these tests judge in a turn."""


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Values that are judged."""
    counter = Counted()
    check = ControllerServer.check

    def counted(host: ControllerServer, values: Sequence[bytes], *, in_snapshot: bool = False) -> Sequence[Message]:
        counter.now += len(values)
        counter.total += len(values)
        return check(host, values, in_snapshot=in_snapshot)

    monkeypatch.setattr(ControllerServer, "check", counted)
    return counter


class Follower(Node):
    """Node 1, which follows node 2 in epoch 1; its turns are counted, and are a millisecond apart."""

    def __init__(self, checks: Counted | None = None, **changes: Any) -> None:
        self.checks = checks
        super().__init__(formatted_disk(1), application=host_controller, **{"judged_per_turn": ROOM, **changes})
        self.follow(2, 1)
        self.fetched(2, 1, records=leader_change(0, 1, 2), high_watermark=1)
        while self.is_judging:
            self.turn()
        self.work()
        if checks is not None:
            checks.begin()

    def step(self, event: Any) -> None:
        super().step(event)
        if self.checks is not None:
            self.checks.step_over()

    def turn(self) -> None:
        """The next turn that the replica wants."""
        self.now_ms = max(self.now_ms, self.replica.deadline_ms())
        self.step(Tick())

    @property
    def is_judging(self) -> bool:
        """Whether an answer is held."""
        return bool(self.replica.replica.replies.held)

    @property
    def fetches(self) -> list[tuple[int, int]]:
        """The receiver and the offset of each Fetch that went out."""
        return [
            (one.target.node_id, one.message.topics[0].partitions[0].fetch_offset)
            for one in self.sent
            if isinstance(one.message, FetchRequest)
        ]


def large(base_offset: int = 1, epoch: int = 1) -> bytes:
    """A batch with more records than one turn judges."""
    return build_batch(base_offset, epoch, START_MS, [NOTHING] * RECORDS)


def test_a_large_fetched_batch_is_checked_in_turns_before_its_append(checks: Counted) -> None:
    node = Follower(checks)
    before = node.fetches
    node.fetched(2, 1, records=large(), high_watermark=1)
    turns = 1
    while node.is_judging:
        assert node.replica.replica.log.end_offset == 1, "nothing is appended before all is judged"
        assert node.fetches == before, "no other Fetch goes out meanwhile"
        assert node.replica.deadline_ms() == node.now_ms + 1
        node.turn()
        turns += 1
    assert turns >= RECORDS // ROOM
    assert checks.total == RECORDS
    assert checks.most <= ROOM + RECORDS_PER_PORTION
    assert node.replica.replica.log.end_offset == 1 + RECORDS
    node.work()
    assert node.fetches == [*before, (2, 1 + RECORDS)]
    assert not node.reports


def test_an_invalid_last_record_refuses_the_whole_batch() -> None:
    node = Follower()
    bad = build_batch(2, 1, START_MS, [*[NOTHING] * RECORDS, b"\x01\x7e\x00"])
    node.fetched(2, 1, records=build_batch(1, 1, START_MS, [NOTHING]) + bad, high_watermark=1)
    while node.is_judging:
        node.turn()
    assert node.replica.replica.log.end_offset == 2
    assert "record type 126" in node.reports[0]


def test_a_vote_is_granted_while_a_fetch_response_is_checked() -> None:
    """The voter leaves the epoch in which it fetched, and what it has judged is dropped."""
    node = Follower()
    node.fetched(2, 1, records=large(), high_watermark=1)
    assert node.is_judging
    asked = vote(3, 2)
    asked.topics[0].partitions[0] = replace(asked.topics[0].partitions[0], last_offset_epoch=1)
    node.receive(77, asked)
    assert granted(node.answers[77])
    assert node.replica.replica.core.epoch == 2
    node.turn()
    assert not node.is_judging
    assert node.replica.replica.log.end_offset == 1


def test_a_fetch_response_of_the_former_leader_is_dropped() -> None:
    node = Follower()
    node.fetched(2, 1, records=large(), high_watermark=1)
    node.turn()
    assert node.is_judging
    node.follow(3, 2)
    assert node.fetches[-1] == (3, 1)
    node.turn()
    assert not node.is_judging
    node.work()
    assert node.replica.replica.log.end_offset == 1
    node.fetched(3, 2, records=large(epoch=1) + leader_change(1 + RECORDS, 2, 3), high_watermark=1)
    while node.is_judging:
        node.turn()
    assert node.replica.replica.log.end_offset == 2 + RECORDS


def test_a_dropped_fetch_response_does_not_delay_the_new_leaders(checks: Counted) -> None:
    node = Follower(checks)
    node.fetched(2, 1, records=large(), high_watermark=1)
    node.follow(3, 2)
    node.fetched(3, 2, records=leader_change(1, 2, 3), high_watermark=1)
    assert node.replica.replica.log.end_offset == 1, "what arrived before has the turn"
    node.turn()
    assert node.replica.replica.log.end_offset == 2
    assert not node.is_judging
    assert checks.total <= ROOM + RECORDS_PER_PORTION


def test_checking_records_does_not_expire_the_fetch_timeout() -> None:
    """The checks take longer here than the fetch and request timeouts, which expire soon after the checks."""
    node = Follower(judged_per_turn=1)
    batches = b"".join(build_batch(offset, 1, START_MS, [NOTHING]) for offset in range(1, 1501))
    before, began_ms = node.fetches, node.now_ms
    node.fetched(2, 1, records=batches, high_watermark=1)
    while node.is_judging:
        node.turn()
        assert node.replica.replica.core.state_name == "Follower"
        if node.is_judging:
            assert node.fetches == before
    config = node.replica.options.replica.quorum
    assert node.now_ms - began_ms > max(config.fetch_timeout_ms, config.request_timeout_ms)
    assert node.replica.replica.log.end_offset == 1501


def test_refused_records_do_not_reset_the_fetch_timeout() -> None:
    node = Follower()
    bad = build_batch(1, 1, START_MS, [*[NOTHING] * RECORDS, b"\xff\xff\xff\xff"])
    end_ms = node.now_ms + 2 * node.replica.options.replica.quorum.fetch_timeout_ms
    answered = 0
    while node.replica.replica.core.state_name == "Follower":
        assert node.now_ms < end_ms, "the follower never looks for another leader"
        if not node.is_judging and len(node.fetches) > answered and node.fetches[-1][0] == 2:
            answered = len(node.fetches)
            node.fetched(2, 1, records=bad, high_watermark=1)
        node.turn()
    assert node.replica.replica.log.end_offset == 1


def test_a_stopping_node_appends_checked_records_and_fetches_no_more() -> None:
    node = Follower()
    node.fetched(2, 1, records=large(), high_watermark=1)
    before = node.fetches
    node.step(BeginShutdown())
    while node.is_judging:
        node.turn()
    node.work()
    assert node.replica.replica.log.end_offset == 1 + RECORDS
    assert node.fetches == before


def test_a_fork_continues_to_check_a_batch() -> None:
    node = Follower()
    node.fetched(2, 1, records=large(), high_watermark=1)
    node.turn()
    copy = forked(node.replica)
    assert fingerprint(copy) == fingerprint(node.replica)
    now_ms = node.now_ms
    while copy.replica.replies.held:
        assert node.is_judging
        now_ms += 1
        copy.step(Tick(), now_ms)
        node.turn()
        assert fingerprint(copy) == fingerprint(node.replica)
    assert copy.replica.log.end_offset == node.replica.replica.log.end_offset == 1 + RECORDS


def test_records_checked_against_another_log_are_checked_again() -> None:
    basis = "one log"
    begun: list[str] = []

    def begin() -> tuple[object, Iterator[int]]:
        def steps(of: str) -> Iterator[int]:
            begun.append(of)
            yield from (1, 1, 1)

        return basis, steps(basis)

    held = HeldReply(WireReply(1, FetchResponse()), PeerRequest(1, 2), begin)
    assert held.go_on(2) == 0
    basis = "another log"
    held.go_on(2)
    assert not held.is_judged
    held.go_on(2)
    assert held.is_judged
    assert begun == ["one log", "another log"]


def test_snapshot_pieces_are_checked_in_turns(checks: Counted) -> None:
    options = SnapshotOptions(max_bytes=200_000, retention=Retention(max_bytes=1, max_ms=0), clean_every_ms=100)
    quorum = Quorum(checks, snapshots=options, judged_per_turn=ROOM)
    net = quorum.net
    behind = next(node for node in net.processes if node != quorum.leader)
    net.cut.add(behind)
    quorum.create("one", "two")
    net.until_ms(
        lambda: net.processes[quorum.leader].replica.log.start_offset > net.processes[behind].replica.log.end_offset,
        20_000,
    )
    checks.begin()
    net.cut.clear()
    net.until_ms(lambda: "two" in quorum.controller(behind).history.committed.topics, 20_000)
    assert checks.total > 5 * ROOM
    assert checks.most <= ROOM + RECORDS_PER_PORTION


# What is committed


def test_a_batch_of_many_records_is_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower reads from its log what it applies."""
    monkeypatch.setattr(applier, "DECODED_RECORDS_PER_TURN", 1000)
    disk: Disk = MemoryDisk()
    values = [b"%d" % number for number in range(2500)]
    log = MetadataLog.open(disk, "/log")
    log.append(build_batch(0, 1, START_MS, [b"before"]))
    log.append(build_batch(1, 1, START_MS, values))
    log.append(build_batch(2501, 1, START_MS, [b"behind"]))
    reader = Applier(log, 0)
    calls = []
    while reader.next_offset < 2502:
        calls.append([batch.values for batch in reader.advance(2502)])
        reader = forked(reader)
    assert calls == [[(b"before",)], [], [tuple(values)], [(b"behind",)]]
