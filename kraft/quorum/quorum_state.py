"""The state of one quorum member, and the only code that replaces it (Kafka: `QuorumState`).

A table defines the allowed transitions; any other transition is a bug and stops the node.
"""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec.structs import replace

from kraft.limits import REPORT_CHARACTERS
from kraft.quorum.accumulator import BatchAccumulator
from kraft.quorum.effects import (
    AbandonDownload,
    Effect,
    HighWatermarkMoved,
    LeaderChanged,
    PeerFault,
    PersistElection,
    SendReply,
    StateChanged,
    VotersChanged,
)
from kraft.quorum.epoch_limit import LAST_EPOCH, highest_epoch
from kraft.quorum.joining import Joining
from kraft.quorum.log_view import LogView
from kraft.quorum.messages import AddVoterReply, RemoveVoterReply
from kraft.quorum.peers import Peers
from kraft.quorum.purgatory import Purgatory
from kraft.quorum.states import (
    CandidateState,
    Download,
    EpochState,
    FollowerState,
    LeaderState,
    PendingChange,
    Progress,
    ProspectiveState,
    ResignedState,
    Tally,
    UnattachedState,
    VotedState,
)
from kraft.quorum.values import (
    OWN_KRAFT_VERSIONS,
    ElectionState,
    Endpoints,
    LeaderAndEpoch,
    ListenerAddress,
    QuorumConfig,
    ReplicaKey,
)
from kraft.quorum.voter_history import VoterHistory
from kraft.quorum.voters import Voter, VoterSet
from metadata_log.types import NEVER_MS, NO_NODE
from transport.protocol.errors import Error

BOOTSTRAP_ID: Final = -2
"""The id of the first bootstrap server; the next ones have the ids below."""
_NO_ENDPOINTS: Final = Endpoints()
WITHIN_EPOCH: Final[dict[str, tuple[str, ...]]] = {
    "Unattached": ("Voted", "Prospective", "Follower"),
    "Voted": ("Prospective", "Follower"),
    "Prospective": ("Prospective", "Follower", "Unattached", "Voted"),
    "Candidate": ("Leader", "Prospective", "Follower"),
    "Follower": ("Prospective", "Follower"),
    "Leader": ("Resigned",),
    "Resigned": ("Prospective",),
}
TO_HIGHER_EPOCH: Final[dict[str, tuple[str, ...]]] = {
    source: ("Unattached", "Follower", "Candidate") if source == "Prospective" else ("Unattached", "Follower")
    for source in WITHIN_EPOCH
}


class QuorumState:
    """The shared data of the handlers: the current state, the view of the log, the peers and the collected effects."""

    def __init__(
        self,
        *,
        config: QuorumConfig,
        local: ReplicaKey,
        endpoints: Endpoints,
        listener: str,
        history: VoterHistory,
        bootstrap: tuple[ListenerAddress, ...],
        log: LogView,
        rng: Random,
        state: EpochState,
    ) -> None:
        self.config = config
        self.longest_wait_ms = config.longest_wait_ms
        self.check_quorum_ms = config.fetch_timeout_ms * 3 // 2
        """The time for which a leader leads without requests of a majority."""
        self.local = local
        self.endpoints = endpoints
        self.listener = listener
        """The name of the listener at which this replica connects to controllers."""
        self.bootstrap = bootstrap
        """The addresses of the bootstrap servers, where this replica asks for the leader."""
        self._take_voters(history)
        self.log = log
        self.rng = rng
        self._enter(state)
        self.peers = Peers(request_timeout_ms=config.request_timeout_ms, retry_backoff_ms=config.retry_backoff_ms)
        self.purgatory = Purgatory()
        self.joining = Joining(local)
        self.is_shutting_down = False
        self.persisted: ElectionState | None = None
        self.effects: list[Effect] = []
        """The effects of this step, in the order in which the host must carry them out."""
        self.emit = self.effects.append
        """Add an effect to this step."""

    def _take_voters(self, history: VoterHistory) -> None:
        voters = history.voters
        self.history = history
        """The voter sets, as of the end of the log."""
        self.voters = voters
        self.is_voter = voters.contains(self.local)
        """Whether this replica votes; otherwise it is an observer."""
        self._is_removed_last = history.removes(self.local)
        self.is_only_voter = voters.is_only(self.local)
        """Whether this replica alone is a majority."""
        self.other_voter_ids = voters.other_ids(self.local.id)
        """The ids of the voters on other nodes."""
        self.contact_ids = self.other_voter_ids + self._bootstrap_ids(history.static_voters)
        """The peers to ask for the leader: the other voters and the bootstrap servers, under ids that no voter has."""

    def _bootstrap_ids(self, static_voters: VoterSet) -> tuple[int, ...]:
        """The bootstrap servers; without any the voters of the configuration, even if the voter set has changed, as in
        Kafka: this log may end where this replica, or its former disk, was the only voter.
        """
        if self.bootstrap:
            return tuple(BOOTSTRAP_ID - at for at in range(len(self.bootstrap)))
        return tuple(one for one in static_voters.other_ids(self.local.id) if one not in self.other_voter_ids)

    def _enter(self, state: EpochState) -> None:
        leader_id = NO_NODE if type(state) is ResignedState else state.leader_id
        self.state = state
        self.leader = LeaderAndEpoch(leader_id, state.epoch)
        """The leader and the epoch. A resigned leader is not reported as the leader."""

    # Questions

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self.state.epoch

    @property
    def leader_id(self) -> int:
        """The leader of this epoch; -1 while the leader is not known."""
        return self.state.leader_id

    def address_of(self, peer_id: int) -> ListenerAddress | None:
        """The address of a peer: the announced endpoint for the leader, else the endpoint in the voter set or in the
        configuration.
        """
        state = self.state
        if peer_id == state.leader_id and (listeners := state.endpoints.listeners):
            # `Endpoints.at` without the call, which every fetch would make.
            for listener in listeners:
                if listener.name == self.listener:
                    return listener
            return listeners[0]
        if peer_id <= BOOTSTRAP_ID:
            return self.bootstrap[BOOTSTRAP_ID - peer_id]
        voter = self.voters.find(peer_id) or self.history.static_voters.find(peer_id)
        return None if voter is None else voter.endpoints.at(self.listener)

    def endpoints_of(self, node_id: int) -> Endpoints:
        """The endpoints of a node in the voter set; empty if the node is no voter."""
        voter = self.voters.find(node_id)
        return voter.endpoints if voter is not None else _NO_ENDPOINTS

    @property
    def can_campaign(self) -> bool:
        """Whether this replica may campaign: as a voter, or as a removed voter while the removal may be uncommitted.

        This replica may be the only one with the record of its removal. The other voters then need its vote, have
        shorter logs, and would wait for this replica forever, as Kafka's voters do (Raft thesis, §4.2.2).
        """
        if self.is_voter:
            return True
        offset = self.history.voters_offset
        return self._is_removed_last and offset is not None and offset >= self.log.high_watermark

    @property
    def own_voter(self) -> Voter:
        """The entry that the voter set should contain for this replica."""
        return Voter(self.local, self.endpoints, OWN_KRAFT_VERSIONS)

    def random_election_timeout_ms(self) -> int:
        """A random election timeout in [E, 2E) milliseconds."""
        base = self.config.election_timeout_ms
        return base + self.rng.randrange(base) if base else 0

    # Effects

    def report_peer_fault(self, peer_id: int, what: str) -> None:
        """Report an invalid message of a peer; the report is cut to a maximum length."""
        self.emit(PeerFault(peer_id, what if len(what) <= REPORT_CHARACTERS else f"{what[:REPORT_CHARACTERS]}…"))

    def move_high_watermark(self, offset: int) -> None:
        """Raise the high watermark to `offset`, if that is higher."""
        if offset > self.log.high_watermark:
            self.log.commit(offset)
            self.emit(HighWatermarkMoved(offset))

    def believes_epoch(self, peer_id: int, epoch: int, now_ms: int) -> bool:
        """Whether an epoch from a peer is within the epoch limit; if not, report a peer fault."""
        limit = highest_epoch(now_ms)
        if epoch <= max(limit, self.epoch):
            return True
        self.report_peer_fault(peer_id, f"it claims epoch {epoch}, and no quorum is beyond {limit} by now")
        return False

    def may_raise_epoch(self, now_ms: int) -> bool:
        """Whether the next epoch is within the epoch limit of the other voters; if not, report that."""
        limit = highest_epoch(now_ms)
        if self.epoch < limit:
            return True
        self.report_peer_fault(
            self.local.id, f"epoch {self.epoch} is not followed by another one before the clock allows it"
        )
        return False

    # The voter set

    def change_voters(self, history: VoterHistory, now_ms: int) -> None:
        """Adopt the voter sets after voter records were appended to the log or truncated, committed or not."""
        known, was_only_voter = self.history, self.is_only_voter
        self._take_voters(history)
        if (history.voters, history.kraft_version) == (known.voters, known.kraft_version):
            return
        self.emit(VotersChanged(history.kraft_version, history.voters))
        match self.state:
            case LeaderState() as leader:
                leader.take_voters(history.voters)
                if self.is_only_voter or was_only_voter:
                    leader.check_quorum_deadline_ms = self.check_quorum_deadline_ms(now_ms)

    # Transitions

    def start_as(self, state: EpochState) -> None:
        """Enter the first state after a start and persist it; this creates the quorum-state file on the first start."""
        self._enter(state)
        self._persist()
        self.emit(StateChanged("Start", state.name, state.epoch, "start"))
        self.emit(LeaderChanged(self.leader))

    def transition_to(self, target: EpochState, cause: str, *, persist: bool = True, keep_peers: bool = False) -> None:
        """Replace the state. The effect that persists the election comes first."""
        source, known = self.state, self.leader
        within, higher = target.epoch == source.epoch, target.epoch > source.epoch
        allowed = WITHIN_EPOCH[source.name] if within else TO_HIGHER_EPOCH[source.name] if higher else ()
        assert target.name in allowed, (source.name, source.epoch, target.name, target.epoch)
        assert target.epoch <= LAST_EPOCH, "quorum-state holds no epoch that a start refuses"
        match source:
            case FollowerState(download=Download()):
                self.emit(AbandonDownload())
            case LeaderState(change=PendingChange(request_id, AddVoterReply() | RemoveVoterReply() as reply)):
                error = Error.NOT_LEADER_OR_FOLLOWER
                self.emit(SendReply(request_id, replace(reply, error=error, text=error.message)))
        self._enter(target)
        if not keep_peers:
            self.peers.clear()
        if persist:
            self._persist()
        self.emit(StateChanged(source.name, target.name, target.epoch, cause))
        if self.leader != known:
            self.emit(LeaderChanged(self.leader))

    def _persist(self) -> None:
        election = self.state.election(self.voters.ids)
        was = self.persisted
        assert was is None or election.epoch >= was.epoch, (election, was)
        if was is not None and was.epoch == election.epoch and was.voted is not None and election.voted is not None:
            assert was.voted.id == election.voted.id, ("one vote per epoch", was, election)
        if election != was:
            self.persisted = election
            self._write(PersistElection(election, self.history.kraft_version))

    def _write(self, election: PersistElection) -> None:
        """Add one write of quorum-state. It replaces an earlier one if no message depends on the earlier one.

        A vote in a higher epoch is two transitions. A crash before the write leaves the replica as if the request had
        never come, and a crash after the write leaves the epoch together with the vote.
        """
        for at in range(len(self.effects) - 1, -1, -1):
            match self.effects[at]:
                case PersistElection():
                    self.effects[at] = election
                    return
                case StateChanged() | LeaderChanged() | VotersChanged() | PeerFault():
                    # A report of the transition: neither a peer nor the log learns of the earlier write by it.
                    continue
            break
        self.emit(election)

    def become_unattached(self, epoch: int, now_ms: int, cause: str) -> None:
        """Enter a higher epoch without a known leader."""
        assert epoch > self.epoch, (epoch, self.epoch)
        deadline_ms = self._inherited_election_deadline_ms(now_ms)
        self.transition_to(UnattachedState(epoch, NO_NODE, deadline_ms), cause)

    def _inherited_election_deadline_ms(self, now_ms: int) -> int:
        """The deadline of the running election timer: a stream of higher epochs must not delay elections forever."""
        if not self.can_campaign:
            return NEVER_MS
        match self.state:
            case FollowerState() | LeaderState():
                return now_ms + self.random_election_timeout_ms()
            case ProspectiveState(tally=tally) if tally.is_lost:
                return now_ms + self.random_election_timeout_ms()
            case running:
                return min(running.deadline_ms(), now_ms + 2 * self.config.election_timeout_ms)

    def become_voted(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Vote for a candidate in this epoch; a Prospective replica stays Prospective, with the vote."""
        deadline_ms = now_ms + self.random_election_timeout_ms()
        target: EpochState
        match self.state:
            case ProspectiveState() as state:
                target = ProspectiveState(
                    state.epoch, state.leader_id, state.endpoints, candidate, state.tally, deadline_ms
                )
            case state:
                target = VotedState(state.epoch, state.leader_id, candidate, deadline_ms)
        self.transition_to(target, f"vote-for-{candidate.id}", keep_peers=True)

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int, cause: str) -> None:
        """Follow the leader of this or a higher epoch. The replica keeps its vote of this epoch."""
        assert leader_id != self.local.id, (leader_id, epoch)
        assert len(endpoints), (leader_id, epoch)
        voted = self.state.voted if epoch == self.epoch else None
        deadline_ms = now_ms + self.config.fetch_timeout_ms
        follower = FollowerState(epoch, leader_id, endpoints, voted, deadline_ms, report_at_ms=deadline_ms)
        self.transition_to(follower, cause)

    def become_prospective(self, now_ms: int, cause: str) -> None:
        """Begin a round of pre-votes, within the same epoch and in memory only."""
        state = self.state
        self.transition_to(
            ProspectiveState(
                state.epoch,
                state.leader_id,
                state.endpoints,
                state.voted,
                self.new_tally(),
                now_ms + self.random_election_timeout_ms(),
            ),
            cause,
            persist=False,
        )

    def become_candidate(self, now_ms: int, cause: str) -> None:
        """Campaign in the next epoch, with a vote for itself."""
        assert self.can_campaign, self.local
        deadline_ms = now_ms + self.random_election_timeout_ms()
        self.transition_to(CandidateState(self.epoch + 1, self.local, self.new_tally(), deadline_ms), cause)

    def new_tally(self) -> Tally:
        """A tally in which only this replica has granted, if it votes at all."""
        return Tally(self.voters.ids, (self.local.id,) if self.is_voter else ())

    def become_unattached_in_epoch(self, deadline_ms: int, cause: str) -> None:
        """End a round of pre-votes without a known leader. The known leader id and the vote of this epoch stay."""
        state = self.state
        if state.voted is None:
            self.transition_to(UnattachedState(state.epoch, state.leader_id, deadline_ms), cause)
        else:
            self.transition_to(VotedState(state.epoch, state.leader_id, state.voted, deadline_ms), cause)

    def become_leader(self, now_ms: int) -> LeaderState:
        """Become the leader of the epoch in which this replica was elected."""
        config, log = self.config, self.log
        accumulator = BatchAccumulator(
            next_offset=log.end_offset, linger_ms=config.append_linger_ms, max_batch_bytes=config.max_batch_bytes
        )
        leader = LeaderState(
            self.epoch,
            self.local,
            self.endpoints,
            self.voters,
            log.end_offset,
            accumulator,
            {voter.id: Progress(voter.key) for voter in self.voters.voters},
            {},
            check_quorum_deadline_ms=self.check_quorum_deadline_ms(now_ms),
            begin_deadline_ms=now_ms,
            reported=self.voters.with_voter(self.own_voter),
        )
        self.transition_to(leader, "elected")
        return leader

    def check_quorum_deadline_ms(self, now_ms: int) -> int:
        """The next check-quorum deadline of a leader; never for the only voter."""
        return NEVER_MS if self.is_only_voter else now_ms + self.check_quorum_ms

    def become_resigned(self, successors: tuple[ReplicaKey, ...], now_ms: int, cause: str) -> None:
        """Resign the leadership of this epoch, in memory only: quorum-state keeps this node as the leader."""
        target = ResignedState(
            self.epoch,
            self.local,
            self.endpoints,
            self.other_voter_ids,
            successors,
            now_ms + self.random_election_timeout_ms(),
        )
        self.transition_to(target, cause, persist=False)
