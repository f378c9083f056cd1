"""Effects of a commit, a probe or a failure, at once and after a wait."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kraft.limits import LISTENERS_PER_VOTER
from kraft.quorum.effects import SendRecords, SendReply, SendRequest
from kraft.quorum.epoch_limit import highest_epoch
from kraft.quorum.events import AnswerHeld, BeginShutdown, FailureCause, Received, RequestFailed, Tick, UpgradeQuorum
from kraft.quorum.membership import CAUGHT_UP_WITHIN_MS, _is_caught_up
from kraft.quorum.messages import (
    AddVoter,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshotReply,
    ProbeVersions,
    ProbeVersionsReply,
    RemoveVoter,
    UpdateVoter,
)
from kraft.quorum.states.leader import LeaderState, Progress
from kraft.quorum.values import ElectionState, Endpoints, ListenerAddress, QuorumConfig, ReplicaKey
from leading_core import fetch_all, key, leader_of, voter
from metadata_log.types import OffsetAndEpoch
from support.kraft.one_core import START_MS, OneCore, records_of_the_leader
from transport.protocol.errors import Error

DEFAULTS = QuorumConfig()


def waiting(one: OneCore, request_id: int, replica: ReplicaKey) -> None:
    """Let a replica fetch from the end of the leader's log, and wait there."""
    epoch, end = one.core.epoch, one.core.log.end_offset
    fetch = Fetch(
        epoch=epoch,
        replica=replica,
        offset=end,
        last_epoch=epoch,
        max_wait_ms=500,
        high_watermark=one.core.log.high_watermark,
    )
    one.step(Received(request_id, fetch))
    assert answer_to(one, request_id) is None


def answer_to(one: OneCore, request_id: int) -> SendReply | SendRecords | None:
    found = [one for one in one.effects if isinstance(one, SendReply | SendRecords) and one.request_id == request_id]
    return found[-1] if found else None


# Commits


def test_a_commit_by_fewer_voters_is_told_with_the_records_that_made_them_fewer() -> None:
    """Two of four voters have a value, and two of three are a majority."""
    one = leader_of(1, 2, 3, 4)
    assert one.core.append((b"value",), one.now_ms) is not None
    one.step(Tick())
    end = one.core.log.end_offset
    waiting(one, 50, key(1))
    assert one.core.log.high_watermark == end - 1
    one.step(Received(51, RemoveVoter(key(4))))
    answer = answer_to(one, 50)
    assert isinstance(answer, SendRecords)
    assert answer.reply.high_watermark == one.core.log.high_watermark == end


def test_a_commit_is_told_to_waiting_fetches_after_a_delay_if_one_is_set() -> None:
    config = QuorumConfig(append_linger_ms=0, high_watermark_propagation_delay_ms=50)
    one = OneCore(election=ElectionState(epoch=5), config=config)
    one.elect(1)
    waiting(one, 60, ReplicaKey(9))
    one.now_ms += 100
    fetch_all(one, ReplicaKey(1))
    end = one.core.log.end_offset
    assert one.core.log.high_watermark == end
    assert answer_to(one, 60) is None
    one.now_ms += 49
    one.step(Tick())
    assert answer_to(one, 60) is None
    one.now_ms += 1
    one.step(Tick())
    answer = answer_to(one, 60)
    assert isinstance(answer, SendReply)
    assert isinstance(answer.message, FetchReply)
    assert answer.message.high_watermark == end


def test_a_raised_level_is_sent_to_waiting_fetches_at_once() -> None:
    one = OneCore(local=key(2), election=ElectionState(epoch=5))
    one.elect(1)
    fetch_all(one)
    for node in (1, 3):
        assert one.ask(UpdateVoter(epoch=one.core.epoch, voter=voter(node))).error is Error.NONE
    waiting(one, 70, ReplicaKey(1))
    one.step(UpgradeQuorum(one.core.epoch, 1))
    assert isinstance(answer_to(one, 70), SendRecords)


# Voters


@pytest.mark.parametrize(("count", "is_asked"), [(LISTENERS_PER_VOTER, True), (LISTENERS_PER_VOTER + 1, False)])
def test_a_voter_has_at_most_so_many_listeners(count: int, is_asked: bool) -> None:
    one = leader_of(1, 2, 3)
    more = [ListenerAddress(f"L{at}", "n4", 9000 + at) for at in range(count - 1)]
    wide = replace(voter(4), endpoints=Endpoints((*voter(4).endpoints.listeners, *more)))
    one.step(Received(77, AddVoter(wide)))
    probes = [request for request in one.all(SendRequest) if isinstance(request.message, ProbeVersions)]
    assert len(probes) == is_asked


def test_a_probe_that_failed_is_repeated_after_a_pause() -> None:
    one = leader_of(1, 2, 3)
    one.step(Received(77, AddVoter(voter(4))))
    one.answer(ProbeVersionsReply(None, Error.UNKNOWN_SERVER_ERROR), peer=4)
    answers = []
    for request_id, pause_ms in ((78, 0), (79, DEFAULTS.retry_backoff_ms)):
        one.now_ms += pause_ms
        one.step(Received(request_id, AddVoter(voter(4))))
        answers.append(answer_to(one, request_id))
    assert isinstance(answers[0], SendReply)
    assert answers[0].message.error is Error.REQUEST_TIMED_OUT
    assert answers[1] is None, "the voter is asked again"


def test_a_voter_change_ends_at_its_deadline() -> None:
    one = leader_of(1, 2, 3)
    one.now_ms += 10
    one.step(Received(77, AddVoter(voter(4))))
    deadline_ms = one.now_ms + DEFAULTS.request_timeout_ms
    for at_ms, is_answered in ((deadline_ms - 300, False), (deadline_ms - 1, False), (deadline_ms, True)):
        one.now_ms = at_ms
        if at_ms == deadline_ms - 300:
            for node in (1, 3):
                fetch_all(one, key(node))
        one.step(Tick())
        assert (answer_to(one, 77) is not None) is is_answered


@pytest.mark.parametrize(
    ("silent_ms", "is_caught_up"), [(0, True), (CAUGHT_UP_WITHIN_MS, True), (CAUGHT_UP_WITHIN_MS + 1, False)]
)
def test_a_replica_counts_as_caught_up_for_an_hour(silent_ms: int, is_caught_up: bool) -> None:
    one = leader_of(1, 2, 3)
    leader = one.core._quorum.state
    assert isinstance(leader, LeaderState)
    leader.observers[key(4)] = Progress(key(4), last_fetch_ms=1000, last_caught_up_ms=1000)
    assert _is_caught_up(leader, key(4), 1000 + silent_ms) is is_caught_up


# Failures and pauses


def test_a_late_failure_of_a_former_request_ends_no_other() -> None:
    one = OneCore()
    former = one.asked(1)
    one.answer(records_of_the_leader())
    present = one.asked(1)
    one.step(RequestFailed(former.request_id, 1, FailureCause.REFUSED))
    assert one.core.awaits(1, present.request_id)
    assert one.core.state_name == "Follower"
    one.step(RequestFailed(present.request_id, 1, FailureCause.REFUSED))
    assert not one.core.awaits(1, present.request_id)


def test_a_leader_that_shuts_down_is_acknowledged_in_its_own_epoch_only() -> None:
    one = OneCore(election=ElectionState(epoch=5))
    one.elect(1)
    one.step(BeginShutdown())
    one.answer(EndQuorumEpochReply(epoch=one.core.epoch - 1, leader_id=-1), peer=1)
    before = one.asked(1)
    one.advance(DEFAULTS.retry_backoff_ms)
    assert one.asked(1) is not before
    assert isinstance(one.asked(1).message, EndQuorumEpoch)


def test_the_time_in_which_an_answer_is_judged_is_no_silence_of_the_leader() -> None:
    one = OneCore()
    one.now_ms = START_MS + DEFAULTS.fetch_timeout_ms - 10
    one.step(AnswerHeld(one.asked(1).request_id, 1, 50))
    assert one.core._quorum.state.deadline_ms() == one.now_ms + 50
    one.advance(49)
    assert one.core.state_name == "Follower"


def test_a_leader_without_the_snapshot_any_more_was_heard() -> None:
    snapshot = OffsetAndEpoch(epoch=5, offset=200)
    one = OneCore()
    one.answer(records_of_the_leader(snapshot=snapshot))
    one.now_ms += 1000
    one.answer(FetchSnapshotReply(epoch=5, leader_id=1, snapshot=snapshot, error=Error.SNAPSHOT_NOT_FOUND), peer=1)
    assert one.core._quorum.state.deadline_ms() == one.now_ms + DEFAULTS.fetch_timeout_ms


def test_a_former_leader_at_the_epoch_limit_waits_for_another_election_timeout() -> None:
    epoch = highest_epoch(START_MS) + 1000
    one = OneCore(election=ElectionState(epoch=epoch, leader_id=2))
    assert one.core.state_name == "Resigned"
    for _ in range(3):
        one.now_ms = one.core._quorum.state.deadline_ms()
        one.step(Tick())
        assert (one.core.state_name, one.core.epoch) == ("Resigned", epoch)
        wait_ms = one.core._quorum.state.deadline_ms() - one.now_ms
        assert DEFAULTS.election_timeout_ms <= wait_ms < 2 * DEFAULTS.election_timeout_ms
