"""Mutants of the validation of messages: absurd values, irrelevant refusals, snapshots of former epochs."""

from __future__ import annotations

from collections.abc import Generator

from kraft.quorum import elections, exchanges
from kraft.quorum.exchanges import Verdict
from kraft.quorum.log_view import LogView
from kraft.quorum.messages import BatchFacts, VoteReply
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import CandidateState, FollowerState, ProspectiveState
from kraft.quorum.states.follower import LeaderContact
from kraft.replica import peer_replies
from kraft.replica.storage.fetched import Judged
from kraft.replica.storage.quorum_records import changes_in
from metadata_log.errors import MetadataLogError
from metadata_log.records.batch import scan
from metadata_log.types import OffsetAndEpoch
from planted_bugs.registry import Patches, Scope, mutant

_ABSURD = ("absurd-frames",)

# Absurd values


@mutant(Scope.CORE, budget=20, faults=_ABSURD)
def any_epoch_is_believed(code: Patches) -> None:
    """A node accepts the last epochs of an int32 from any peer, so that the next election needs an invalid epoch."""
    code.replace(QuorumState, "believes_epoch", lambda quorum, peer_id, epoch, now_ms: True)
    code.replace(QuorumState, "may_raise_epoch", lambda quorum, now_ms: True)


@mutant(Scope.CORE, budget=50, faults=_ABSURD)
def grant_beside_an_error_counts(code: Patches) -> None:
    """A Vote response with an error code and a granted vote counts as a vote."""

    def on_vote_reply(quorum: QuorumState, peer_id: int, reply: VoteReply, now_ms: int) -> None:
        if exchanges.on_common_reply(quorum, peer_id, reply, now_ms) is not Verdict.CONTINUE:
            return
        match quorum.state:
            case ProspectiveState() | CandidateState() as nominee if peer_id in nominee.tally.unrecorded:
                nominee.tally = nominee.tally.record(peer_id, granted=reply.granted)
                elections.advance(quorum, now_ms)

    code.replace(elections, "on_vote_reply", on_vote_reply)


@mutant(Scope.REPLICA, budget=20, faults=_ABSURD)
def checksum_is_enough(code: Patches) -> None:
    """A follower appends every batch with a valid checksum, with any content."""

    def judging(data: bytes, *_: object) -> Generator[int, None, Judged]:
        yield from ()
        found: list[BatchFacts] = []
        try:
            for batch in scan(data):
                end_position = batch.position + batch.size_bytes
                changes = tuple(changes_in(batch)) if batch.is_control else ()
                found.append(
                    BatchFacts(batch.base_offset, batch.next_offset, batch.epoch, end_position, changes, batch)
                )
        except MetadataLogError as bad:
            return tuple(found), str(bad), False
        return tuple(found), None, False

    code.replace(peer_replies, "judging", judging)


# Refusals

_REFUSALS = ("refused-connections", "cut-links", "drop", "delay", "crash")


@mutant(Scope.DYNAMIC, budget=150, faults=_REFUSALS)
def refusal_is_remembered(code: Patches) -> None:
    """After one refused connection, a leader counts as gone for the rest of the epoch, even if it responds later."""
    heard_leader = FollowerState.heard_leader

    def heard_but_gone(follower: FollowerState, peer_id: int, deadline_ms: int) -> None:
        was_refused = follower.contact is LeaderContact.REFUSED
        heard_leader(follower, peer_id, deadline_ms)
        if was_refused:
            follower.contact = LeaderContact.REFUSED

    code.replace(FollowerState, "heard_leader", heard_but_gone)


@mutant(Scope.DYNAMIC, budget=20, faults=_REFUSALS)
def refused_address_ends_a_leader_that_answers_elsewhere(code: Patches) -> None:
    """A leader that responds at a bootstrap address counts as gone when its advertised address refuses connections."""

    def heard_leader(follower: FollowerState, peer_id: int, deadline_ms: int) -> None:
        follower.contact = LeaderContact.DIRECT
        follower.fetch_deadline_ms = deadline_ms

    code.replace(FollowerState, "heard_leader", heard_leader)


# Snapshots


@mutant(Scope.DYNAMIC, budget=1500, faults=("stranded-leaders", "delay", "crash"))
def later_epoch_beats_a_snapshot(code: Patches) -> None:
    """A follower with an uncommitted record of a later epoch refuses the snapshot at the start of its leader's log."""

    def cut_for(log: LogView, snapshot: OffsetAndEpoch) -> int | None:
        return log.end_offset if snapshot > log.end and snapshot.offset >= log.never_below else None

    code.replace(LogView, "cut_for", cut_for)
