"""Ten mutants that were committed as a list before any search for them, and were then tried once.

The page of mutants says how many of them the search found.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.config.data_settings import TopicDefaults
from kraft.controller.brokers import broker_registration
from kraft.quorum import replication
from kraft.quorum.exchanges import Verdict, settle
from kraft.quorum.log_view import LogView, Position, PositionCheck
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import FollowerState
from kraft.replica.proposals import Proposals
from kraft.replica.storage.storage import Storage
from kraft.state_machine.log import Opened, OpenSession
from kraft.state_machine.sessions import Sessions
from metadata_log.image import Broker, MetadataImage
from metadata_log.log import recovery
from metadata_log.log.quorum_state_file import read_quorum_state
from metadata_log.log.segment import Segment
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import UnregisterBrokerRecord
from metadata_log.types import NEVER_MS, OffsetAndEpoch
from planted_bugs.registry import Patches, Scope, mutant, survivor

# Consensus


@survivor(
    Scope.CORE,
    tried=200,
    killed_by="tests/kraft/quorum/test_transcripts.py",
    because="The timers are random, so that an election is later now and then, and not later for ever.",
)
def election_timer_begins_again_with_each_epoch(code: Patches) -> None:
    """A voter that adopts a higher epoch draws a new election timeout, so that a stream of epochs delays elections."""

    def inherited(quorum: QuorumState, now_ms: int) -> int:
        return now_ms + quorum.random_election_timeout_ms() if quorum.can_campaign else NEVER_MS

    code.replace(QuorumState, "_inherited_election_deadline_ms", inherited)


@mutant(Scope.CORE, budget=1000, faults=None)
def refused_fetch_restarts_the_fetch_timer(code: Patches) -> None:
    """Any answer to a Fetch, also a refusal, restarts the fetch timer of a follower."""

    def settle_and_wait(quorum: QuorumState, peer_id: int, verdict: Verdict, now_ms: int) -> None:
        settle(quorum, peer_id, verdict, now_ms)
        follower = quorum.state
        if isinstance(follower, FollowerState):
            follower.fetch_deadline_ms = now_ms + quorum.config.fetch_timeout_ms

    code.replace(replication, "settle", settle_and_wait)


@mutant(Scope.CORE, budget=1000, faults=None)
def divergence_by_the_end_offset_alone(code: Patches) -> None:
    """A leader that lacks the epoch of a follower's last record accepts the follower's offset if an earlier epoch
    reaches that offset.
    """
    check = LogView.check

    def check_offset(log: LogView, offset: int, last_epoch: int) -> PositionCheck:
        found = check(log, offset, last_epoch)
        if found.position is Position.DIVERGING and offset <= found.at.offset:
            return PositionCheck(Position.VALID, OffsetAndEpoch(epoch=last_epoch, offset=offset))
        return found

    code.replace(LogView, "check", check_offset)


@mutant(Scope.CORE, budget=200, faults=None)
def truncation_keeps_the_flushed_offset(code: Patches) -> None:
    """A truncation keeps the flushed offset, so that the next records count as flushed once they are written."""
    truncated = LogView.truncated

    def truncated_but_flushed(log: LogView, offset: int) -> None:
        flushed_offset = log.flushed_offset
        truncated(log, offset)
        log.flushed_offset = flushed_offset

    code.replace(LogView, "truncated", truncated_but_flushed)


@mutant(Scope.DYNAMIC, budget=1000, faults=None)
def removed_voter_never_stands(code: Patches) -> None:
    """A voter with an uncommitted record of its own removal does not campaign, although it may be the only one with
    that record.
    """
    code.replace(QuorumState, "can_campaign", property(lambda quorum: quorum.is_voter))


# Files


@mutant(Scope.REPLICA, budget=1000, faults=None)
def torn_tail_stays_in_the_file(code: Patches) -> None:
    """Recovery ignores a torn batch at the end of the log, and does not cut the batch off."""

    class Uncut(Segment):
        is_recovered = False

        def end_recovery(self) -> None:
            self.is_recovered = True
            super().end_recovery()

        def cut_file(self, size: int) -> None:
            if self.is_recovered:
                super().cut_file(size)

    code.replace(recovery, "Segment", Uncut)


@survivor(
    Scope.REPLICA,
    tried=200,
    killed_by="tests/kraft/replica/test_lost_votes.py::test_a_log_without_quorum_state_is_refused",
    because=(
        "The simulated operator starts a node with a lost file only while a majority follows one leader, in no earlier "
        "epoch than the node has seen. The lost vote decides nothing then."
    ),
)
def missing_quorum_state_is_a_first_start(code: Patches) -> None:
    """A directory without quorum-state beside a log with records is started, although the node may have voted."""
    check_election = Storage._check_election

    def check_what_is_there(storage: Storage) -> None:
        if read_quorum_state(storage._disk, storage._directory.partition_path) is not None:
            check_election(storage)

    code.replace(Storage, "_check_election", check_what_is_there)


# Answers


@mutant(Scope.REPLICA, budget=200, faults=None)
def proposals_outlive_a_leadership(code: Patches) -> None:
    """The proposals of a former leader wait on, and succeed once any records are committed at their offsets."""
    code.replace(Proposals, "refuse_waiting", lambda proposals, now_ms: None)


@survivor(
    Scope.MACHINE,
    tried=200,
    killed_by=("tests/kraft/node/test_machine_nodes.py::test_a_named_client_repeats_its_command_after_a_full_restart"),
    because="Simulated clients number their commands themselves, and a node begins with a new session of its own.",
)
def resumed_session_begins_anew(code: Patches) -> None:
    """A client that resumes its session is told that the session has had no commands, and uses their numbers again."""
    open_session = Sessions.open

    def open_without_history(sessions: Sessions, entry: OpenSession, offset: int) -> Opened:
        return Opened(open_session(sessions, entry, offset).session, 0)

    code.replace(Sessions, "open", open_without_history)


# Brokers


@mutant(Scope.CLUSTER, budget=200, faults=None)
def unregistered_brokers_stay_in_their_isrs(code: Patches) -> None:
    """The removal of a broker leaves the broker in its ISRs, and the leader of its partitions."""

    def unregister(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> Iterator[VersionedRecord]:
        yield VersionedRecord(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))

    code.replace(broker_registration, "unregister", unregister)
