"""Answers and events that come rarely: about a log that diverges, a snapshot that is named again, a peer that ended."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kraft.quorum.core import CoreStart
from kraft.quorum.effects import (
    AbandonDownload,
    AppendDownload,
    BeginDownload,
    InstallSnapshot,
    SendRequest,
    TruncateLog,
)
from kraft.quorum.events import BeginShutdown, FailureCause, Resumed, SnapshotChecked
from kraft.quorum.messages import (
    AddVoter,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchSnapshot,
    FetchSnapshotReply,
)
from kraft.quorum.peers import Peers
from kraft.quorum.values import ElectionState, QuorumConfig, ReplicaKey, VersionRange
from kraft.quorum.voters import QuorumChange, Voter, VoterSet
from metadata_log.log.epochs import EpochHistory
from metadata_log.records.control import VotersRecord
from metadata_log.types import Uuid
from support.kraft.one_core import START_MS, VOTERS, OneCore, at, endpoints, records_of_the_leader
from transport.protocol.errors import Error

DEFAULTS = QuorumConfig()
SNAPSHOT = at(200, 5)


def directory(node: int) -> ReplicaKey:
    return ReplicaKey(node, Uuid(bytes(15) + bytes([node])))


def voter(node: int) -> Voter:
    return Voter(directory(node), endpoints(node), VersionRange(0, 1))


# Logs that diverge


@pytest.mark.parametrize("splits_batch", [False, True])
def test_a_log_is_cut_between_batches_only(splits_batch: bool) -> None:
    """The host of the core says whether the cut would be inside a batch: then the leader is at fault."""
    one = OneCore()
    one.answer(records_of_the_leader(high_watermark=-1, diverging=at(60, 5), splits_batch=splits_batch))
    assert one.all(TruncateLog) == ([] if splits_batch else [TruncateLog(60)])
    assert one.core.log.end_offset == (100 if splits_batch else 60)
    assert len(one.suspicions) == splits_batch


# Downloads


def follower_that_downloads() -> OneCore:
    one = OneCore()
    one.answer(records_of_the_leader(snapshot=SNAPSHOT))
    piece = FetchSnapshotReply(epoch=5, leader_id=1, snapshot=SNAPSHOT, size=10, position=0, data=b"abcd")
    one.answer(piece, peer=1)
    return one


def test_a_download_goes_on_when_the_same_snapshot_is_named_again() -> None:
    """While the leader's address is silent, another address of the leader answers a Fetch with the same snapshot."""
    one = follower_that_downloads()
    one.fail(FailureCause.TIMEOUT, peer=1)
    one.now_ms = START_MS + 1000
    assert isinstance(one.asked().message, Fetch)
    assert one.asked().peer_id == 3
    before = one.asked(1)
    one.answer(records_of_the_leader(snapshot=SNAPSHOT))
    request = one.asked(1).message
    assert one.asked(1) is not before
    assert isinstance(request, FetchSnapshot)
    assert (request.snapshot, request.position) == (SNAPSHOT, 4)
    assert (one.all(BeginDownload), one.all(AbandonDownload)) == ([BeginDownload(SNAPSHOT)], [])
    state = one.core._quorum.state
    assert state.deadline_ms() == one.now_ms + DEFAULTS.fetch_timeout_ms, "the leader was heard"


def test_another_snapshot_begins_another_download() -> None:
    one = follower_that_downloads()
    one.fail(FailureCause.TIMEOUT, peer=1)
    one.now_ms = START_MS + 1000
    one.answer(records_of_the_leader(snapshot=at(300, 5)))
    assert one.all(BeginDownload) == [BeginDownload(SNAPSHOT), BeginDownload(at(300, 5))]
    request = one.asked(1).message
    assert isinstance(request, FetchSnapshot)
    assert (request.snapshot, request.position) == (at(300, 5), 0)


@pytest.mark.parametrize("downloads", [False, True])
def test_a_check_of_another_snapshot_than_the_downloaded_one_installs_nothing(downloads: bool) -> None:
    """The follower has given up that download meanwhile."""
    one = follower_that_downloads() if downloads else OneCore()
    before = len(one.effects)
    one.step(SnapshotChecked(at(150, 5), None, ()))
    assert one.effects[before:] == []
    assert one.all(InstallSnapshot) == []
    assert len(one.all(AppendDownload)) == downloads


# Timers and endings


def test_a_pause_of_the_process_does_not_end_a_round_of_pre_votes() -> None:
    one = OneCore(election=ElectionState(epoch=5))
    while one.core.state_name != "Prospective":
        one.advance(10)
    deadline_ms = one.core._quorum.state.deadline_ms()
    for grace_ms, expected_ms in ((1, deadline_ms), (10_000, one.now_ms + 10_000)):
        one.step(Resumed(grace_ms))
        assert one.core._quorum.state.deadline_ms() == expected_ms


def test_a_leader_that_shuts_down_does_not_wait_for_a_voter_that_has_ended() -> None:
    one = OneCore(election=ElectionState(epoch=5))
    one.elect(1)
    one.step(BeginShutdown())
    one.fail(FailureCause.REFUSED, peer=1)
    asked = len(one.all(SendRequest))
    one.advance(DEFAULTS.retry_backoff_ms)
    again = [request for request in one.all(SendRequest)[asked:] if isinstance(request.message, EndQuorumEpoch)]
    assert [request.peer_id for request in again] == []
    assert not one.core.may_stop
    one.answer(EndQuorumEpochReply(epoch=one.core.epoch, leader_id=2), peer=3)
    one.advance(1000)
    assert one.core.may_stop


def test_a_request_that_has_timed_out_is_forgotten_and_a_pause_is_not() -> None:
    peers = Peers(request_timeout_ms=2000, retry_backoff_ms=20)
    late, early = peers.sent(1, 100), peers.sent(2, 101)
    peers.back_off(3, 100)
    peers.forget_late(2100)
    assert (peers.is_expected(1, late), peers.is_expected(2, early)) == (False, True)
    assert peers.is_ready(1, 100)
    assert peers.is_backing_off(3, 119)


# Voters


def test_a_node_may_have_the_id_0() -> None:
    zero = Voter(ReplicaKey(0), endpoints(0))
    one = OneCore(voters=VoterSet.of((zero, *VOTERS.voters[1:])), election=ElectionState(epoch=5))
    begin = BeginQuorumEpoch(epoch=6, leader_id=0, voter=ReplicaKey(2), endpoints=endpoints(0))
    assert one.ask(begin).error is Error.NONE
    assert (one.core.state_name, one.core.leader.leader_id) == ("Follower", 0)
    for invalid in (-1, -7):
        assert one.ask(replace(begin, epoch=7, leader_id=invalid)).error is Error.INVALID_REQUEST
    record = VoterSet.of((voter(1), replace(voter(2), key=directory(0)))).to_record()
    assert VoterSet.of_record(record).ids == (0, 1)
    wrong = VotersRecord(voters=tuple(replace(one, voter_id=-1) for one in record.voters[:1]))
    with pytest.raises(ValueError, match="no valid id"):
        VoterSet.of_record(wrong)


def test_a_replica_that_joins_by_itself_does_not_wait_for_the_commit() -> None:
    """The replica sees the commit in its own log, and the leader's answer must not wait for the replica's fetches."""
    known = VoterSet((voter(1), voter(3)))
    start = CoreStart(
        election=ElectionState(epoch=5, leader_id=1),
        log_start_offset=0,
        log_end_offset=100,
        epochs=EpochHistory((at(0, 5),)),
        changes=(QuorumChange(-1, 1), QuorumChange(-1, known)),
    )
    one = OneCore(local=directory(2), voters=VoterSet(()), start=start, config=QuorumConfig(auto_join=True))
    for _ in range(2):
        one.now_ms += DEFAULTS.fetch_timeout_ms // 2
        one.answer(records_of_the_leader(), peer=1)
    request = one.asked(1).message
    assert isinstance(request, AddVoter)
    assert (request.voter.key, request.ack_when_committed) == (directory(2), False)
