"""Consensus as one synchronous object that turns events into effects (Kafka: `KafkaRaftClient`, without its I/O).

The core never waits, reads no clock, and draws only from the `Random` it was given.
"""

from __future__ import annotations

from random import Random
from typing import assert_never

from msgspec import Struct

from kraft.quorum import elections, exchanges, leadership, membership, reads, replication, snapshots
from kraft.quorum.effects import Effect
from kraft.quorum.events import (
    AnswerHeld,
    BeginShutdown,
    Event,
    FailureCause,
    LogFlushed,
    LogStartRaised,
    ReadIndex,
    Received,
    Replied,
    RequestFailed,
    Resign,
    Resumed,
    SnapshotChecked,
    SnapshotTaken,
    Tick,
    UpgradeQuorum,
)
from kraft.quorum.log_view import LogView
from kraft.quorum.messages import (
    AddVoter,
    AddVoterReply,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    DescribeQuorum,
    DescribeQuorumReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    ProbeVersions,
    ProbeVersionsReply,
    RemoveVoter,
    RemoveVoterReply,
    UpdateVoter,
    UpdateVoterReply,
    Vote,
    VoteReply,
)
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import (
    CandidateState,
    EpochState,
    FollowerState,
    LeaderState,
    ProspectiveState,
    ResignedState,
    UnattachedState,
    VotedState,
)
from kraft.quorum.states.follower import LeaderContact
from kraft.quorum.values import (
    ElectionState,
    Endpoints,
    LeaderAndEpoch,
    ListenerAddress,
    QuorumConfig,
    ReplicaKey,
)
from kraft.quorum.voter_history import VoterHistory
from kraft.quorum.voters import QuorumChange, VoterSet
from metadata_log.log.epochs import EpochHistory
from metadata_log.types import NEVER_MS, NO_NODE, OffsetAndEpoch


class CoreStart(Struct, frozen=True, kw_only=True):
    """The state found on disk. The log is flushed up to its end; `election` is None without a quorum-state file."""

    election: ElectionState | None
    log_start_offset: int
    log_end_offset: int
    epochs: EpochHistory
    snapshots: tuple[OffsetAndEpoch, ...] = ()
    changes: tuple[QuorumChange, ...] = ()
    """The quorum changes in the newest snapshot and in the log after the snapshot."""


class RaftCore:
    """One member of the quorum: a voter, or an observer if the voter set does not contain it."""

    def __init__(
        self,
        *,
        config: QuorumConfig,
        local: ReplicaKey,
        voters: VoterSet,
        endpoints: Endpoints,
        start: CoreStart,
        rng: Random,
        bootstrap: tuple[ListenerAddress, ...] = (),
        listener: str = "",
    ) -> None:
        """`voters` are those of the configuration, which are in force until the log contains a voter set.

        `listener` is the name of the listener at which this replica connects to controllers; by default the first one
        of `endpoints`.
        """
        own = endpoints.default
        self.log = log = LogView(
            start_offset=start.log_start_offset,
            end_offset=start.log_end_offset,
            epochs=start.epochs,
            snapshots=start.snapshots,
        )
        """The core's view of the log, for readers: its offsets, its epochs and the high watermark."""
        self._election = start.election or ElectionState()
        self._quorum = QuorumState(
            config=config,
            local=local,
            endpoints=endpoints,
            listener=listener or ("" if own is None else own.name),
            history=VoterHistory(voters).with_changes(start.changes),
            bootstrap=tuple(one for one in bootstrap if one not in endpoints.listeners),
            log=log,
            rng=rng,
            state=UnattachedState(self._election.epoch, NO_NODE, NEVER_MS),
        )
        self._deadline_ms: int | None = 0
        """The cached deadline; None after an event, as a caller asks for the deadline only at the end of a burst."""
        self._stepped_at_ms = 0

    # Questions

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._quorum.epoch

    @property
    def leader(self) -> LeaderAndEpoch:
        """The id of the leader, -1 if none is known, and the current epoch."""
        return self._quorum.leader

    @property
    def leader_address(self) -> ListenerAddress | None:
        """The address at which this replica connects to the leader; None while the address is unknown."""
        return exchanges.known_leader(self._quorum)[1].at(self._quorum.listener)

    @property
    def state(self) -> EpochState:
        """The state of this replica in the quorum, for readers."""
        return self._quorum.state

    @property
    def state_name(self) -> str:
        """The name of the state, such as `Follower`."""
        return self._quorum.state.name

    @property
    def hears_leader(self) -> bool:
        """Whether this replica follows a leader that has answered: after a lost campaign it follows one unheard."""
        state = self._quorum.state
        return isinstance(state, FollowerState) and state.contact in {LeaderContact.DIRECT, LeaderContact.INDIRECT}

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads its epoch."""
        return type(self._quorum.state) is LeaderState

    def has_everything(self, node_id: int | None) -> bool:
        """Whether this leader knows that another voter has the whole log; of None, whether any has, if there is one."""
        state = self._quorum.state
        assert isinstance(state, LeaderState), state
        others = [one for voter_id, one in state.progress.items() if voter_id != self.local.id]
        ends = [one.end_offset for one in others if node_id in (None, one.key.id)]
        return not ends or max(ends) >= self.log.end_offset

    @property
    def epoch_start_offset(self) -> int:
        """The end of the log when this leader was elected; the replica must be the leader."""
        state = self._quorum.state
        assert isinstance(state, LeaderState), state
        return state.epoch_start_offset

    @property
    def is_voter(self) -> bool:
        """Whether this replica is a voter."""
        return self._quorum.is_voter

    @property
    def next_append_offset(self) -> int:
        """The offset of the next record appended here; only meaningful for a leader."""
        state = self._quorum.state
        return state.accumulator.next_offset if isinstance(state, LeaderState) else self.log.end_offset

    @property
    def local(self) -> ReplicaKey:
        """The node id and directory id of this replica."""
        return self._quorum.local

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        return self._quorum.voters

    @property
    def history(self) -> VoterHistory:
        """The voter sets, each with the log record that defines it."""
        return self._quorum.history

    def awaits(self, peer_id: int, request_id: int) -> bool:
        """Whether the core would handle a reply of this peer to this request now."""
        return self._quorum.peers.is_expected(peer_id, request_id)

    def upgrade_obstacle(self, level: int) -> str | None:
        """Why kraft.version cannot be raised to `level` now, as a sentence; None if there is no obstacle."""
        return membership.upgrade_obstacle(self._quorum, level)

    @property
    def may_stop(self) -> bool:
        """Whether a node that is shutting down may stop: no other voter depends on this node any more."""
        quorum = self._quorum
        if not quorum.is_voter or quorum.is_only_voter:
            return True
        if isinstance(quorum.state, ResignedState):
            return not quorum.state.unacknowledged and self._stepped_at_ms >= quorum.state.stay_until_ms
        return quorum.leader_id not in (NO_NODE, quorum.local.id)

    def deadline_ms(self) -> int:
        """The time of the next `step(Tick())` if no event comes before; for appends without linger this is now.

        An expired timer without effect (of an observer, or of a node that shuts down) does not count. Only a leader's
        drain may be due now, as it waits for the end of the burst.
        """
        if self._deadline_ms is not None:
            return self._deadline_ms
        quorum, now_ms = self._quorum, self._stepped_at_ms
        state = quorum.state
        timer_ms = state.deadline_ms()
        if type(state) is LeaderState:
            parked_ms = quorum.purgatory.deadline_ms
            deadline_ms = timer_ms if timer_ms < parked_ms else parked_ms
            if state.read_round is not None:
                deadline_ms = min(deadline_ms, quorum.peers.next_ready_ms(now_ms))
        else:
            if quorum.is_shutting_down and isinstance(state, ResignedState):
                timer_ms = state.stay_until_ms
            ready_ms = quorum.peers.next_ready_ms(now_ms)
            deadline_ms = timer_ms if now_ms < timer_ms < ready_ms else ready_ms
        self._deadline_ms = deadline_ms
        return deadline_ms

    @property
    def pending_bytes(self) -> int:
        """The number of bytes of values passed to `append` and not written yet."""
        state = self._quorum.state
        return state.accumulator.pending_bytes if type(state) is LeaderState else 0

    # Life

    def append(self, values: tuple[bytes, ...], now_ms: int) -> int | None:
        """Append record values of this leader's application as one atomic unit, in one batch.

        Returns the offset of the first value; None if no batch can hold the unit. The step at `deadline_ms` writes all
        units of a burst (Kafka: `KafkaRaftClient.prepareAppend`, `schedulePreparedAppend`).
        """
        leader = self._quorum.state
        assert type(leader) is LeaderState, leader
        assert values, "an append without records"
        self._deadline_ms = None
        return leader.accumulator.append(values, now_ms)

    def begin(self, now_ms: int) -> list[Effect]:
        """Enter the first state, according to the disk (`QuorumState.initialize`); call once, before any step."""
        quorum = self._quorum
        quorum.start_as(_first_state(quorum, self._election, now_ms))
        if quorum.is_only_voter and not isinstance(quorum.state, CandidateState):
            elections.campaign(quorum, now_ms, "only-voter")
        elif isinstance(quorum.state, CandidateState):
            elections.advance(quorum, now_ms)
        return self._finish(now_ms)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle one event; returns the effects to carry out, in order."""
        quorum = self._quorum
        # The events of a commit are compared by their types: a `case` that does not match takes four times as long.
        if type(event) is Received:
            request = event.message
            if type(request) is Fetch:
                replication.on_fetch(quorum, event, request, now_ms)
            else:
                self._on_request(event, now_ms)
        elif type(event) is Tick:
            replication.drain(quorum, now_ms)
            if now_ms >= quorum.purgatory.deadline_ms:
                replication.expire_parked(quorum, now_ms)
        elif type(event) is LogFlushed:
            replication.on_log_flushed(quorum, event, now_ms)
        elif type(event) is Replied:
            self._on_reply(event, now_ms)
        else:
            match event:
                case RequestFailed():
                    self._on_failure(event, now_ms)
                case AnswerHeld():
                    replication.on_answer_held(quorum, event, now_ms)
                case SnapshotChecked():
                    snapshots.on_snapshot_checked(quorum, event, now_ms)
                case SnapshotTaken():
                    snapshots.on_snapshot_taken(quorum, event)
                case LogStartRaised():
                    snapshots.on_log_start_raised(quorum, event)
                case Resign():
                    leadership.on_resign(quorum, event, now_ms)
                case ReadIndex():
                    reads.on_read_index(quorum, event)
                case UpgradeQuorum():
                    membership.on_upgrade(quorum, event, now_ms)
                case Resumed():
                    quorum.state.wait_at_least_until(now_ms + event.grace_ms)
                case BeginShutdown():
                    leadership.on_begin_shutdown(quorum, now_ms)
                case _:
                    assert_never(event)
        return self._finish(now_ms)

    def withdraw(self, request_id: int) -> bool:
        """Forget a parked Fetch after its sender has closed the connection; returns whether the Fetch was parked."""
        return self._quorum.purgatory.remove(request_id)

    def _on_request(self, event: Received, now_ms: int) -> None:
        quorum = self._quorum
        match event.message:
            case Vote() as vote:
                elections.on_vote(quorum, event, vote, now_ms)
            case BeginQuorumEpoch() as begin:
                leadership.on_begin_quorum_epoch(quorum, event, begin, now_ms)
            case EndQuorumEpoch() as end:
                leadership.on_end_quorum_epoch(quorum, event, end, now_ms)
            case FetchSnapshot() as piece:
                snapshots.on_fetch_snapshot(quorum, event, piece, now_ms)
            case DescribeQuorum() as describe:
                replication.on_describe_quorum(quorum, event, describe, now_ms)
            case AddVoter() as add:
                membership.on_add_voter(quorum, event, add, now_ms)
            case RemoveVoter() as remove:
                membership.on_remove_voter(quorum, event, remove, now_ms)
            case UpdateVoter() as update:
                membership.on_update_voter(quorum, event, update, now_ms)
            case ProbeVersions():
                raise AssertionError("the host answers ApiVersions, not the core")
            case Fetch():
                raise AssertionError("`step` handles a Fetch before all other requests")
            case _ as never:
                assert_never(never)

    def _on_reply(self, event: Replied, now_ms: int) -> None:
        quorum, peer_id = self._quorum, event.peer_id
        if not quorum.peers.is_expected(peer_id, event.request_id):
            return
        message = event.message
        if type(message) is FetchReply:
            replication.on_fetch_reply(quorum, peer_id, message, now_ms)
            return
        match message:
            case FetchSnapshotReply() as reply:
                snapshots.on_fetch_snapshot_reply(quorum, peer_id, reply, now_ms)
            case VoteReply() as reply:
                elections.on_vote_reply(quorum, peer_id, reply, now_ms)
            case BeginQuorumEpochReply() as reply:
                leadership.on_begin_reply(quorum, peer_id, reply, now_ms)
                reads.on_begin_reply(quorum, peer_id, reply)
            case EndQuorumEpochReply() as reply:
                leadership.on_end_reply(quorum, peer_id, reply, now_ms)
            case UpdateVoterReply() as reply:
                membership.on_update_voter_reply(quorum, peer_id, reply, now_ms)
            case AddVoterReply() | RemoveVoterReply() as reply:
                membership.on_joining_reply(quorum, peer_id, reply)
            case ProbeVersionsReply() as reply:
                membership.on_versions(quorum, peer_id, event.request_id, reply, now_ms)
            case DescribeQuorumReply():
                raise AssertionError(f"the core never asks {peer_id} to describe the quorum")
            case _ as never:
                assert_never(never)

    def _on_failure(self, event: RequestFailed, now_ms: int) -> None:
        quorum = self._quorum
        if not quorum.peers.is_expected(event.peer_id, event.request_id):
            return
        if event.cause is FailureCause.UNSUPPORTED_VERSION:
            elections.skip_pre_vote(quorum, event.peer_id, now_ms)
        else:
            quorum.peers.back_off(event.peer_id, now_ms)
            membership.on_probe_failed(quorum, event.peer_id, event.request_id)
            if event.cause is FailureCause.REFUSED:
                leadership.on_peer_gone(quorum, event.peer_id)
                elections.on_leader_gone(quorum, event.peer_id, now_ms)

    def _finish(self, now_ms: int) -> list[Effect]:
        """Poll the state until it does not change any more, and return the effects."""
        quorum = self._quorum
        state = quorum.state
        if type(state) is LeaderState:
            is_at_rest = (
                now_ms < state.check_quorum_deadline_ms
                and now_ms < state.begin_deadline_ms
                and (state.change is None or now_ms < state.change.deadline_ms)
            )
        else:
            # A follower that waits for its disk sends no Fetch.
            log = quorum.log
            is_at_rest = not log.is_flushed and type(state) is FollowerState and now_ms < state.fetch_deadline_ms
        if not is_at_rest:
            before: EpochState | None = None
            while quorum.state is not before:
                before = quorum.state
                self._poll(before, now_ms)
            state = quorum.state
        if type(state) is LeaderState:
            if state.waiting_reads or state.read_round is not None:
                reads.advance(quorum, state, now_ms)
        elif quorum.purgatory.deadline_ms < NEVER_MS:
            replication.fail_parked(quorum)
        self._deadline_ms = None
        self._stepped_at_ms = now_ms
        effects = quorum.effects.copy()
        quorum.effects.clear()
        return effects

    def _poll(self, state: EpochState, now_ms: int) -> None:
        quorum = self._quorum
        match state:
            case FollowerState():
                elections.poll_following(quorum, state, now_ms)
            case LeaderState():
                leadership.poll_leader(quorum, state, now_ms)
            case UnattachedState() | VotedState():
                elections.poll_unattached(quorum, state, now_ms)
            case ProspectiveState():
                elections.poll_prospective(quorum, state, now_ms)
            case CandidateState():
                elections.poll_candidate(quorum, state, now_ms)
            case ResignedState():
                leadership.poll_resigned(quorum, state, now_ms)
            case _:
                assert_never(state)


def _first_state(quorum: QuorumState, election: ElectionState, now_ms: int) -> EpochState:
    """The start-up rules (`QuorumState.initialize`).

    A restarted leader becomes Resigned, as its log may have lost a tail that other replicas have read. A log of a later
    epoch than the file proves that the file's vote is of a past election. A restarted leader that is no voter any more
    also becomes Resigned. A former candidate that is no voter any more does not campaign again.
    """
    local, log_epoch = quorum.local, quorum.log.last_epoch
    drawn_ms = now_ms + quorum.random_election_timeout_ms()
    deadline_ms = drawn_ms if quorum.can_campaign else NEVER_MS
    epoch, leader_id, voted = election.epoch, election.leader_id, election.voted
    if epoch < log_epoch:
        return UnattachedState(log_epoch, NO_NODE, deadline_ms)
    if leader_id == local.id:
        return ResignedState(epoch, local, quorum.endpoints, quorum.other_voter_ids, (), drawn_ms)
    if voted is not None and voted.matches(local) and quorum.can_campaign:
        return CandidateState(epoch, local, quorum.new_tally(), deadline_ms)
    endpoints = quorum.endpoints_of(leader_id)
    if leader_id != NO_NODE and len(endpoints):
        deadline_ms = now_ms + quorum.config.fetch_timeout_ms
        return FollowerState(epoch, leader_id, endpoints, voted, deadline_ms, report_at_ms=deadline_ms)
    if voted is not None:
        return VotedState(epoch, leader_id, voted, deadline_ms)
    return UnattachedState(epoch, leader_id, deadline_ms)
