"""The invariants after every event, under any faults of network, disks and clocks (Kafka: the invariants of
`RaftEventSimulationTest`; the TLA+ models of KRaft).

`Invariants` observes only an `ObservedMember`. Replication copies batches byte for byte, so two matching logs have the
same batch at the same place in their lists. Each check examines only what has changed.

Each family of invariants has a module with a ledger: `votes`, `voters`, `logs`, `commits` and `snapshots`. A method of
a ledger returns a description of the violation, or None. `states` judges one node alone. `Invariants` decides which
check an observation needs, and raises. Each check is a method of its own here, even if a ledger does all of its work:
schedules and `docs/reference/mutants.md` name the check that failed by that method.

| source | invariant | check |
| --- | --- | --- |
| Kafka | MonotonicHighWatermark | `_check_progress`, and per life `_check_high_watermark` |
| Kafka | MonotonicEpoch | `_check_election`, `started` |
| Kafka | MajorityReachedHighWatermark; TLA+ CommittedEntriesReachMajority | `_check_majority` |
| Kafka | SingleLeader; TLA+ NeverTwoLeadersInSameEpoch | `_check_leader` |
| Kafka | ConsistentCommittedData; TLA+ NoLogDivergence | `_check_high_watermark`, and from the disks `concluded` |
| TLA+ | NoIllegalState, StatesMatchRoles | `states` |
| TLA+ | LeaderHasAllAckedValues, AckedValueNotLost | `_check_leading`, `acknowledged`, `_cut` |
| TLA+ | ValidVotesRecv | `_check_elected`: a majority has voted for the leader |
| Raft | LogMatching; (epoch, offset) names the same bytes for ever | `_append` |
| Raft | LeaderAppendOnly, in its own epoch | `_check_log`, `_check_written` |
| Raft | the voters change only after a batch of the epoch is committed (2015) | `_check_change` |
| Kafka | a leader that was removed from the voters resigns | `_check_not_removed` |
| TLA+ | ValuesNotStuck, EventuallyLeaderElected | `World`, at the end of a run |
| ours | a message that names a leader contains its address | `wire` |
| ours | one vote per epoch, for ever, and only for a candidate | `_check_vote` |
| ours | a vote is on disk before it leaves, a pre-vote writes nothing | `granted`, `pre_granted` |
| ours | acknowledged records are on disk | `fetched` |
| ours | flushed records survive a crash | `_check_promise` |
| Raft | a leader commits a batch of its own epoch first | `_check_own_epoch_first` |
| ours | each record is applied once, in order, as committed | `applied` |
| ours | refused submissions are in no log | `refused` |
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from operator import attrgetter

from kraft.invariants.commits import CommitLedger, IsRecordOf
from kraft.invariants.logs import LogLedger, lost_by_restart, written_in_another_epoch
from kraft.invariants.majorities import has_voter, is_majority, reached_by_majority
from kraft.invariants.observation import Applied, LogBatch, ObservedMember, View
from kraft.invariants.observed_node import ObservedNode, ObservedNodes, forgets
from kraft.invariants.snapshots import SnapshotLedger
from kraft.invariants.violation import InvariantViolated
from kraft.invariants.voters import VoterLedger
from kraft.invariants.votes import VoteLedger, illegal
from kraft.quorum.values import ElectionState, ReplicaKey
from kraft.quorum.voters import VoterSet
from metadata_log.errors import MetadataLogError
from metadata_log.types import NO_NODE, NO_OFFSET

_next_offset = attrgetter("next_offset")
_epoch = attrgetter("epoch")


class Invariants:
    """The invariants of one run, over everything that was observed of its nodes.

    Every event raises `InvariantViolated` if it violates an invariant.
    """

    def __init__(self, voters: VoterSet) -> None:
        """`voters` is the voter set at the beginning of the run."""
        self.nodes = ObservedNodes()
        self.votes = VoteLedger()
        self.voters = VoterLedger(voters)
        self.snapshots = SnapshotLedger(self.voters)
        self.logs = LogLedger(self.voters)
        self.commits = CommitLedger()

    @property
    def majority_epoch(self) -> int:
        """The latest epoch that a majority of the voters has reached. The leader of an earlier epoch is deposed."""
        voters = self.voters.in_force(self.voters.committed)
        elections = [self.observed(voter_id).election for voter_id in voters.ids]
        return reached_by_majority(0 if one is None else one.epoch for one in elections)

    def observed(self, node_id: int) -> ObservedNode:
        """The observations of a node; empty before its first start."""
        return self.nodes.observed(node_id)

    def voters_of(self, node_id: int) -> VoterSet:
        """The voter set at the end of a node's log."""
        return self.voters.in_force(self.nodes.by_id[node_id].voters)

    def voter_sets(self) -> list[VoterSet]:
        """The last committed voter set, then the uncommitted ones in all logs."""
        return [
            self.voters.in_force(self.voters.committed),
            *(
                voters
                for observed in self.nodes.by_id.values()
                for place, voters in observed.voters
                if place >= len(self.commits.batches)
            ),
        ]

    # Events

    def started(self, member: ObservedMember, *, is_damaged: bool = False) -> View:
        """A node has started: all flushed data must be on its disk, unless that was damaged and may have lost records
        and votes. Returns the view of the node.
        """
        node_id, view, election = member.node_id, member.view(), member.election()
        observed = self.nodes.disk_of(member)
        if is_damaged:
            self.votes.release(node_id)
            observed = ObservedNode(member.key)
        before = self._covered(node_id, view.log_start_offset)
        log = [*before, *member.read(view.log_start_offset)]
        is_later = view.log_start_offset > observed.start_offset
        self._check_promise(node_id, observed, log, is_later=is_later)
        if observed.election is not None and not observed.was_interrupted and forgets(observed.election, election):
            raise InvariantViolated(f"node {node_id} has forgotten {observed.election}; it has {election} on its disk")
        self.nodes.by_id[node_id] = observed = ObservedNode(
            member.key,
            election=observed.election,
            start_offset=view.log_start_offset,
            applied_offset=view.snapshots[-1].offset if view.snapshots else 0,
        )
        self._take_covered(observed, before)
        self._append(member, observed, log[len(before) :])
        return self.stepped(member)

    def _covered(self, node_id: int, start_offset: int) -> list[LogBatch]:
        """The batches that a snapshot replaces: only committed ones are possible."""
        self._raise_if(self.commits.ends_between(node_id, start_offset))
        return self.commits.batches[: self.commits.count_below(start_offset)]

    def _take_covered(self, observed: ObservedNode, batches: list[LogBatch]) -> None:
        observed.log = batches
        observed.voters = [entry for entry in self.voters.committed if entry[0] < len(batches)]

    def interrupted(self, node_id: int) -> None:
        """A node has crashed within a step or its start: any part of that step may be on its disk."""
        self.observed(node_id).was_interrupted = True

    def _check_promise(self, node_id: int, observed: ObservedNode, log: list[LogBatch], *, is_later: bool) -> None:
        self._raise_if(lost_by_restart(node_id, observed, log, is_later=is_later))

    def stepped(self, member: ObservedMember) -> View:
        """A node has completed a step. Returns its new view."""
        node_id, view, election = member.node_id, member.view(), member.election()
        observed = self.nodes.by_id[node_id]
        observed.former_election = observed.election
        if election is not observed.election and election != observed.election:
            self._check_election(node_id, observed, election)
        before = observed.view
        if before is not None and view == before:
            return before
        observed.view = view
        is_settled = (
            before is not None
            and view.state == before.state
            and view.epoch == before.epoch
            and view.leader == before.leader
        )
        if not is_settled and view.leader.leader_id != NO_NODE:
            self._check_leader(node_id, view.epoch, view.leader.leader_id)
        has_same_voters = True
        if view.log_end_offset != observed.end_offset or view.log_start_offset != observed.start_offset:
            voters = observed.voters.copy()
            self._check_log(member, observed, before)
            has_same_voters = observed.voters == voters
        # Whether a state is legal depends only on the role, the voters and quorum-state.
        if not (is_settled and has_same_voters and election is observed.judged_election):
            observed.judged_election = election
            problem = illegal(node_id, view, election, is_voter=self._can_campaign(observed, view))
            if problem:
                raise InvariantViolated(f"node {node_id} cannot be {view}: {problem}")
        if view.high_watermark > view.log_end_offset:
            raise InvariantViolated(f"the high watermark of node {node_id} is beyond its log: {view}")
        if view.high_watermark != (NO_OFFSET if before is None else before.high_watermark):
            self._check_high_watermark(member, observed, before)
        if before is None or not has_same_voters:
            self._check_voters(member, observed)
        if view.snapshots and (before is None or view.snapshots != before.snapshots):
            self._check_snapshots(member, view, before)
        observed.flushed_offset = view.flushed_offset
        if view.state == "Leader" and not is_settled:
            self._check_leading(node_id, observed)
        return view

    def fetched(self, node_id: int, offset: int) -> None:
        """A node sends a Fetch, and so acknowledges everything below `offset`, which must be on its disk."""
        view = self.nodes.by_id[node_id].view
        if view is None or offset > view.flushed_offset:
            raise InvariantViolated(
                f"node {node_id} fetches from {offset} and so acknowledges what is not flushed: {view}"
            )

    def granted(self, node_id: int, epoch: int, candidate_id: int) -> None:
        """A node sends a vote, which must be on its disk already: after a crash the node must not grant another one. In
        the same step the node may have moved to a later epoch and repeated a vote of an earlier step.
        """
        observed = self.nodes.by_id[node_id]
        if not self.votes.is_bound(observed.key, epoch, candidate_id):
            raise InvariantViolated(
                f"node {node_id} votes for {candidate_id} in epoch {epoch} with {observed.election} on its disk"
            )

    def pre_granted(self, node_id: int, epoch: int) -> None:
        """A node grants a pre-vote in `epoch`, which changes nothing in quorum-state, unless the epoch is new to the
        node. In the same step, a timeout may have moved the node to a later epoch.
        """
        observed = self.nodes.by_id[node_id]
        before, now = observed.former_election, observed.election
        if before is not None and now is not None and epoch <= before.epoch == now.epoch and before != now:
            raise InvariantViolated(f"node {node_id} grants a pre-vote and replaces {before} by {now} in quorum-state")

    def applied(self, member: ObservedMember, applied: Applied) -> None:
        """The application receives a batch: each batch once, in order, as committed."""
        observed = self.nodes.by_id[member.node_id]
        self._raise_if(self.commits.applied(member.node_id, applied, observed.applied_offset))
        observed.applied_offset = applied.next_offset

    def acknowledged(
        self, node_id: int, value: bytes, offset: int | None, is_record_of: IsRecordOf = operator.eq
    ) -> None:
        """A node acknowledges a submission as committed, at `offset` if that is known. Without an offset,
        `is_record_of` recognises the record of the submission.
        """
        self._raise_if(self.commits.acknowledged(node_id, value, offset, is_record_of))

    def refused(self, values: list[bytes]) -> None:
        """At the end of a run, submissions that were definitely refused are in no log."""
        self._raise_if(self.commits.refused(values))

    def concluded(self, member: ObservedMember) -> None:
        """The run is over: the log of a node, read again, must contain the committed batches."""
        observed = self.nodes.by_id[member.node_id]
        upto = bisect_right(observed.log, member.view().high_watermark, key=_next_offset)
        log = [
            *observed.log[: bisect_right(observed.log, observed.start_offset, key=_next_offset)],
            *member.read(observed.start_offset),
        ]
        if log != observed.log or log[:upto] != self.commits.batches[:upto]:
            raise InvariantViolated(f"the log of node {member.node_id} on disk differs from the observed log")

    # Checks

    def _check_election(self, node_id: int, observed: ObservedNode, election: ElectionState | None) -> None:
        """Quorum-state across crashes: the epoch never decreases, with one vote and one leader per epoch."""
        if election is None or (observed.election is not None and election.epoch < observed.election.epoch):
            raise InvariantViolated(f"the epoch of node {node_id} falls: {observed.election}, then {election}")
        was, observed.election = observed.election, election
        if election.leader_id != NO_NODE:
            self._check_leader(node_id, election.epoch, election.leader_id)
        if election.voted is not None:
            self._check_vote(observed.key, election.epoch, election.voted.id)
        elif (
            election.leader_id != node_id and was is not None and was.epoch == election.epoch and was.voted is not None
        ):
            raise InvariantViolated(f"node {node_id} deletes its vote: {was}, then {election}")

    def _check_vote(self, key: ReplicaKey, epoch: int, candidate_id: int) -> None:
        self._raise_if(self.votes.voted(key, epoch, candidate_id))

    def _check_leader(self, node_id: int, epoch: int, leader_id: int) -> None:
        self._raise_if(self.votes.led(node_id, epoch, leader_id))

    def _check_elected(self, own: ReplicaKey, epoch: int, voters: VoterSet) -> None:
        self._raise_if(self.votes.elected(own, epoch, voters))

    def _check_log(self, member: ObservedMember, observed: ObservedNode, before: View | None) -> None:
        view = observed.view
        assert view is not None
        if view.log_start_offset != observed.start_offset:
            self._begin_later(member, observed, before)
        end_offset = observed.end_offset
        if view.log_end_offset < end_offset:
            if before is not None and view.log_end_offset < before.high_watermark:
                raise InvariantViolated(
                    f"node {member.node_id} truncates below its high watermark: {before}, then {view}"
                )
            self._cut(member.node_id, observed, bisect_right(observed.log, view.log_end_offset, key=_next_offset))
        elif view.log_end_offset > end_offset:
            batches = member.read(end_offset)
            self._append(member, observed, batches)
            if view.state == "Leader" and before is not None:
                self._check_written(observed, view, batches)
        if observed.end_offset != view.log_end_offset:
            raise InvariantViolated(
                f"node {member.node_id} says its log ends at {view.log_end_offset}, and the log ends at"
                f" {observed.end_offset}"
            )

    def _check_written(self, observed: ObservedNode, view: View, batches: list[LogBatch]) -> None:
        self._raise_if(written_in_another_epoch(observed, view, batches))
        self._check_change(observed, view, batches)

    def _check_change(self, observed: ObservedNode, view: View, batches: list[LogBatch]) -> None:
        self._raise_if(self.logs.changes_too_early(observed, view, batches))

    def _cut(self, node_id: int, observed: ObservedNode, place: int) -> None:
        """A leader has every batch committed before its epoch, so none of its followers truncates such a batch."""
        view = observed.view
        assert view is not None
        if self.commits.is_committed_at(place, observed.log[place], view.epoch):
            raise InvariantViolated(f"node {node_id} truncates the committed {observed.log[place]}: {view}")
        del observed.log[place:]
        while observed.voters and observed.voters[-1][0] >= place:
            observed.voters.pop()

    def _begin_later(self, member: ObservedMember, observed: ObservedNode, before: View | None) -> None:
        """The log start offset has risen: a snapshot covers the earlier batches, and may have replaced the whole log
        (LeaderNeverLoadSnapshot).
        """
        node_id, view = member.node_id, observed.view
        assert view is not None
        start_offset = view.log_start_offset
        if start_offset < observed.start_offset or start_offset > view.log_end_offset:
            raise InvariantViolated(
                f"the log of node {node_id} began at {observed.start_offset}, and now begins at {start_offset}: {view}"
            )
        covered = self._covered(node_id, start_offset)
        is_whole = len(covered) <= len(observed.log) and observed.log[: len(covered)] == covered
        was_cut = observed.end_offset > start_offset == view.log_end_offset
        if view.state == "Leader" and (was_cut or not is_whole):
            raise InvariantViolated(f"leader {node_id} loads a snapshot: {before}, then {view}")
        if before is not None and view.log_end_offset < before.high_watermark:
            raise InvariantViolated(f"node {node_id} loads a snapshot that is too old: {before}, then {view}")
        observed.verified = max(observed.verified, len(covered))
        rest = self._read(member, observed, start_offset)
        self._take_covered(observed, covered)
        self._append(member, observed, rest)
        observed.start_offset = start_offset
        observed.applied_offset = max(observed.applied_offset, start_offset)

    def _read(self, member: ObservedMember, observed: ObservedNode, offset: int) -> list[LogBatch]:
        """The log from an offset on; batches that a damaged disk cannot return are those observed before."""
        try:
            return member.read(offset)
        except (OSError, MetadataLogError):
            if not self.nodes.was_damaged(member.node_id):
                raise
        assert observed.view is not None
        first, last = (
            bisect_right(observed.log, end, key=_next_offset) for end in (offset, observed.view.log_end_offset)
        )
        seen = observed.log[first:last]
        return [*seen, *member.read(seen[-1].next_offset if seen else offset)]

    def _append(self, member: ObservedMember, observed: ObservedNode, batches: list[LogBatch]) -> None:
        for batch in batches:
            self._raise_if(self.logs.appended(member, observed, batch))

    def _check_voters(self, member: ObservedMember, observed: ObservedNode) -> None:
        """Check the voter set of a log after it changed or was read for the first time."""
        node_id = member.node_id
        self._raise_if(self.voters.uncommitted(node_id, observed.voters, len(self.commits.batches)))
        self._raise_if(self.voters.believed(node_id, observed.voters, member.voters()))

    def _check_snapshots(self, member: ObservedMember, view: View, before: View | None) -> None:
        """Check the snapshots after one was added or deleted."""
        is_moved = before is not None and view.log_start_offset != before.log_start_offset
        self._raise_if(self.snapshots.listed(member.node_id, view.snapshots, view.log_start_offset, is_moved=is_moved))
        was_damaged = self.nodes.was_damaged(member.node_id)
        if view.snapshots != member.snapshots() and not was_damaged:
            raise InvariantViolated(
                f"node {member.node_id} has the snapshots {list(member.snapshots())} on its disk, and names"
                f" {list(view.snapshots)}"
            )
        for snapshot in view.snapshots:
            if before is None or snapshot not in before.snapshots:
                self._raise_if(self.snapshots.wrong_id(snapshot, self.commits.batches))
                try:
                    content = member.content(snapshot)
                except (OSError, MetadataLogError):
                    if was_damaged:
                        continue
                    raise
                commits = self.commits
                self._raise_if(self.snapshots.wrong_content(snapshot, content, commits.batches, commits.values))

    def _raise_if(self, violation: str | None) -> None:
        if violation is not None:
            raise InvariantViolated(violation)

    def _check_high_watermark(self, member: ObservedMember, observed: ObservedNode, before: View | None) -> None:
        """Check a changed high watermark: between restarts it never falls, and below it all logs are equal."""
        node_id = member.node_id
        view = observed.view
        assert view is not None
        if before is not None:
            if view.high_watermark < before.high_watermark:
                raise InvariantViolated(f"the high watermark of node {node_id} falls: {before}, then {view}")
            if view.state == "Leader":
                self._check_own_epoch_first(observed, view)
        upto = bisect_right(observed.log, view.high_watermark, key=_next_offset)
        committed = self.commits.batches
        is_news = upto > len(committed)
        for place in range(observed.verified, upto):
            batch = observed.log[place]
            if place == len(committed):
                self.commits.add(batch, member.values(batch), view.epoch)
                voters = self.voters.set_in(batch.epoch, batch.base_offset)
                if voters is not None:
                    self.voters.committed.append((place, voters))
            elif committed[place] != batch:
                raise InvariantViolated(f"node {node_id} commits {batch}, where {committed[place]} was committed")
        observed.verified = upto
        if is_news or (view.state == "Leader" and upto > 0):
            self._check_majority(node_id, observed, upto - 1)
        if view.state == "Leader":
            self._check_progress(node_id, view)
            self._check_not_removed(observed)

    def _check_own_epoch_first(self, observed: ObservedNode, view: View) -> None:
        self._raise_if(self.commits.own_epoch_missing(observed, view))

    def _check_majority(self, node_id: int, observed: ObservedNode, place: int) -> None:
        """A batch is on the disks of a majority, stopped nodes included, before any node commits the batch."""
        batch = self.commits.batches[place]
        voters = self.voters.in_force(observed.voters)
        holders = [key.id for key in voters.keys if self.nodes.has_on_disk(key, place, batch)]
        if not is_majority(len(holders), len(voters.voters)):
            raise InvariantViolated(
                f"node {node_id} commits {batch}, which only {holders} of the voters {list(voters.ids)} have on disk"
            )

    def _check_progress(self, node_id: int, view: View) -> None:
        self._raise_if(self.commits.falls_behind(node_id, view))

    def _check_not_removed(self, observed: ObservedNode) -> None:
        """A leader that is no longer a voter resigns once its removal is committed."""
        if (
            observed.voters
            and observed.voters[-1][0] < observed.verified
            and not has_voter(observed.voters[-1][1], observed.key)
        ):
            raise InvariantViolated(
                f"node {observed.key.id} leads on, though it was removed from the voters: {observed.view}"
            )

    def _can_campaign(self, observed: ObservedNode, view: View) -> bool:
        """Whether a node is a voter by its log, or a leader was one when elected. The previous voter set counts, too: a
        voter removed by the last record may be needed until that record is committed.
        """
        end = len(observed.log)
        if view.state == "Leader":
            end = bisect_left(observed.log, view.epoch, key=_epoch)
        last = max((place for place, _ in observed.voters if place < end), default=end)
        return any(has_voter(self.voters.before(observed.voters, place), observed.key) for place in (end, last))

    def _check_leading(self, node_id: int, observed: ObservedNode) -> None:
        """A new leader has every record committed in an earlier epoch. The leader itself may be deposed already."""
        view = observed.view
        assert view is not None
        self._check_leader(node_id, view.epoch, node_id)
        voters = self.voters.before(observed.voters, bisect_left(observed.log, view.epoch, key=_epoch))
        self._check_elected(observed.key, view.epoch, voters)
        self._raise_if(self.commits.missing(node_id, observed, view.epoch))
