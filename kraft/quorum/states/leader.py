"""Leader: tracks the progress of every replica and computes the high watermark (Kafka: `LeaderState`)."""

from __future__ import annotations

from operator import attrgetter
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.limits import OBSERVER_ANSWER_BYTES, OBSERVERS
from kraft.quorum.accumulator import BatchAccumulator
from kraft.quorum.messages import AddVoter, AddVoterReply, RemoveVoterReply, Vote
from kraft.quorum.values import ElectionState, Endpoints, ReplicaKey
from kraft.quorum.voters import VoterSet
from metadata_log.types import NO_OFFSET, Uuid

NEVER_FETCHED = -1
_END_OFFSET: Final = attrgetter("end_offset")


class Progress(Struct):
    """The progress of one replica by its fetches. Records before `end_offset` are on the replica's disk."""

    key: ReplicaKey
    end_offset: int = NO_OFFSET
    last_fetch_ms: int = NEVER_FETCHED
    last_caught_up_ms: int = NEVER_FETCHED
    leader_end_at_last_fetch: int = NO_OFFSET
    directory_id: Uuid = Uuid.ZERO
    """The directory of the last Fetch; zero before that, and if the Fetch has named none."""

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Record a Fetch. A replica is caught up if it fetches from the end of the log, or from the end as of its last
        Fetch.
        """
        before_ms = self.last_fetch_ms
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif 0 < self.leader_end_at_last_fetch <= offset and before_ms > self.last_caught_up_ms:
            self.last_caught_up_ms = before_ms
        if now_ms > before_ms:
            self.last_fetch_ms = now_ms
        self.leader_end_at_last_fetch = leader_end_offset
        self.end_offset = offset


class PendingChange(Struct, frozen=True):
    """A pending voter change: it first waits for the reply of the replica to be added, then for the commit of `offset`.
    Without a `reply` the request has been answered.
    """

    request_id: int
    reply: AddVoterReply | RemoveVoterReply | None
    deadline_ms: int
    adding: AddVoter | None
    offset: int = NO_OFFSET
    probe_id: int = 0
    """The id of the ApiVersions request to the replica to be added; replies to other requests do not count."""


class ReadRound(Struct, frozen=True):
    """A round of confirmations for reads: the voters that have confirmed the leader's epoch since the reads arrived."""

    read_ids: tuple[int, ...]
    offset: int
    """The high watermark at the beginning of the round."""
    voters: VoterSet
    asked: tuple[int, ...] = ()
    confirmed: tuple[int, ...] = ()


class LeaderState(Struct):
    """A leader. `high_watermark` is unknown until a majority has fetched a record of this epoch (Raft §5.4.2)."""

    epoch: int
    local: ReplicaKey
    endpoints: Endpoints
    voters: VoterSet
    epoch_start_offset: int
    accumulator: BatchAccumulator
    progress: dict[int, Progress]
    observers: dict[ReplicaKey, Progress]
    check_quorum_deadline_ms: int
    begin_deadline_ms: int
    fetched_voters: tuple[int, ...] = ()
    high_watermark: int = NO_OFFSET
    is_voter: bool = False
    """Whether the leader is a voter, so that its own log counts for commits."""
    contacts_wanted: int = 0
    """The number of other voters that the leader needs for a majority."""
    is_removed: bool = False
    """Whether the removal of this leader from the voters is committed; the leader then resigns."""
    observers_swept_ms: int = 0
    """The time at which silent observers were last removed to make room."""
    change: PendingChange | None = None
    reported: VoterSet = VoterSet(())
    """The voters of a static quorum as they have reported themselves."""
    waiting_reads: tuple[int, ...] = ()
    """The reads for the next round."""
    read_round: ReadRound | None = None

    name: ClassVar[str] = "Leader"
    voted: ClassVar[ReplicaKey | None] = None

    @property
    def leader_id(self) -> int:
        """The node id of this leader."""
        return self.local.id

    def __post_init__(self) -> None:
        self._count_voters()

    def _count_voters(self) -> None:
        self.is_voter = self.voters.contains(self.local)
        self.contacts_wanted = self.voters.majority - self.is_voter

    def take_voters(self, voters: VoterSet) -> None:
        """Adopt another voter set. New voters keep their progress as observers; removed voters become observers."""
        progress: dict[int, Progress] = {}
        for voter in voters.voters:
            known = self.progress.get(voter.id)
            if known is not None and known.key.matches(voter.key):
                del self.progress[voter.id]
                known.key = voter.key
            else:
                known = self.observers.pop(voter.key, None) or Progress(voter.key)
            progress[voter.id] = known
        self.observers |= {one.key: one for node_id, one in self.progress.items() if node_id != self.local.id}
        self.voters, self.progress = voters, progress
        self.fetched_voters = tuple(voter_id for voter_id in self.fetched_voters if voter_id in progress)
        self._count_voters()

    def deadline_ms(self) -> int:
        """The earliest deadline of the leader's timers."""
        drain = self.accumulator.drain_at_ms
        timers = min(self.check_quorum_deadline_ms, self.begin_deadline_ms)
        if self.change is not None:
            timers = min(timers, self.change.deadline_ms)
        return timers if drain is None or timers < drain else drain

    def wait_at_least_until(self, deadline_ms: int) -> None:
        """Extend the timers after a pause of this process, as fetches of the voters may wait in the sockets."""
        self.check_quorum_deadline_ms = max(self.check_quorum_deadline_ms, deadline_ms)
        if self.change is not None:
            self.change = replace(self.change, deadline_ms=max(self.change.deadline_ms, deadline_ms))

    def election(self, voters: tuple[int, ...]) -> ElectionState:
        """The content of quorum-state, without the leader's vote for itself."""
        return ElectionState(epoch=self.epoch, leader_id=self.local.id, voters=voters)

    def can_grant(self, vote: Vote, *, up_to_date: bool) -> bool:
        """Whether to grant a vote: never."""
        return False

    def voter_progress(self, replica: ReplicaKey) -> Progress | None:
        """The progress of a voter; None if the replica is no voter."""
        progress = self.progress.get(replica.id)
        if progress is None:
            return None
        # As `ReplicaKey.matches`, without a call for each fetch.
        directory_id = progress.key.directory_id
        return progress if directory_id in (replica.directory_id, Uuid.ZERO) else None

    def answer_bytes(self, replica: ReplicaKey, wanted: int) -> int:
        """The maximum size in bytes of a reply with records or a snapshot piece to a replica that requests `wanted`.

        Any process that reaches the port can fetch as an observer, and a commit waits for each reply (decision 0023).
        """
        if wanted <= OBSERVER_ANSWER_BYTES or self.voter_progress(replica) is not None:
            return wanted
        return OBSERVER_ANSWER_BYTES

    def observer_progress(self, replica: ReplicaKey, now_ms: int, silence_ms: int) -> Progress:
        """The progress of an observer, created at its first Fetch.

        At the maximum number of observers, the leader removes those without a Fetch for `silence_ms`, at most once in
        that time. If there is none, the newest observer is removed, so that invented ids displace no older observer.
        """
        known = self.observers.get(replica)
        if known is not None:
            return known
        if len(self.observers) >= OBSERVERS and now_ms >= self.observers_swept_ms + silence_ms:
            self.observers_swept_ms = now_ms
            self.forget_observers(now_ms - silence_ms)
        if len(self.observers) >= OBSERVERS:
            self.observers.popitem()
        made = self.observers[replica] = Progress(replica)
        return made

    def note_contact(self, voter_id: int) -> bool:
        """Count a request of another voter for check-quorum; returns True whenever a majority is complete."""
        if voter_id == self.local.id:
            # Any peer can claim the id of this leader.
            return False
        if self.contacts_wanted > 1:
            fetched = self.fetched_voters
            if voter_id not in fetched:
                fetched = self.fetched_voters = (*fetched, voter_id)
            if len(fetched) < self.contacts_wanted:
                return False
        self.fetched_voters = ()
        return True

    def committable(self) -> int | None:
        """The new high watermark by the voters' offsets; None if the high watermark does not rise.

        The offset at index n // 2, in descending order, is on a majority. The offset is committed only if a record of
        this epoch is below it. Records of former epochs are committed with such a record, never alone (Raft figure 8).
        """
        offsets = sorted(map(_END_OFFSET, self.progress.values()), reverse=True)
        offset = offsets[len(offsets) // 2]
        return offset if offset > self.epoch_start_offset and offset > self.high_watermark else None

    def ranked_successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters in descending order of their end offsets."""
        others = [progress for voter_id, progress in self.progress.items() if voter_id != self.local.id]
        return tuple(progress.key for progress in sorted(others, key=lambda one: (-one.end_offset, one.key)))

    def silent_voters(self, now_ms: int, silence_ms: int) -> tuple[int, ...]:
        """The other voters without a Fetch for `silence_ms`."""
        return tuple(
            voter_id
            for voter_id, progress in sorted(self.progress.items())
            if voter_id != self.local.id
            and (progress.last_fetch_ms == NEVER_FETCHED or now_ms - progress.last_fetch_ms >= silence_ms)
        )

    def forget_observers(self, before_ms: int) -> None:
        """Remove the observers without a Fetch since `before_ms`."""
        self.observers = {key: one for key, one in self.observers.items() if one.last_fetch_ms >= before_ms}
