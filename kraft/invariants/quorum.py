"""The invariants after every event, under any faults of network, disks and clocks (Kafka: the invariants of
`RaftEventSimulationTest`; the TLA+ models of KRaft).

The ledger observes only an `ObservedMember`. Replication copies batches byte for byte, so two matching logs have the
same batch at the same place in their lists. Each check examines only what has changed.

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

from bisect import bisect_left, bisect_right
from operator import attrgetter

from kraft.invariants.observation import Applied, LogBatch, ObservedMember, View
from kraft.invariants.observed_node import ObservedNode, forgets
from kraft.invariants.snapshots import SnapshotLedger
from kraft.invariants.states import illegal
from kraft.invariants.violation import InvariantViolated
from kraft.invariants.voters import VoterLedger
from kraft.invariants.votes import VoteLedger
from kraft.quorum.values import ElectionState, ReplicaKey
from kraft.quorum.voters import VoterSet
from metadata_log.errors import MetadataLogError
from metadata_log.types import NO_NODE, NO_OFFSET

_base_offset = attrgetter("base_offset")
_next_offset = attrgetter("next_offset")
_epoch = attrgetter("epoch")


class Invariants:
    """The ledger of one run. Every method raises `InvariantViolated`."""

    def __init__(self, voters: VoterSet) -> None:
        """`voters` is the voter set at the beginning of the run."""
        self._nodes: dict[int, ObservedNode] = {}
        self._former: dict[int, list[ObservedNode]] = {}
        """The former disks of each node."""
        self._ever_damaged: set[int] = set()
        self.votes = VoteLedger()
        self.voters = VoterLedger(voters)
        self.snapshots = SnapshotLedger(self.voters)
        self._written: dict[tuple[int, int], tuple[LogBatch, int]] = {}
        """Every batch ever written and the epoch of the previous batch, by epoch and offset."""
        self._leader_progress = (0, NO_OFFSET)
        self.committed: list[LogBatch] = []
        self._committed_in: list[int] = []
        self._values: list[tuple[bytes, ...]] = []
        self.values_end = 0
        """The offset after the last values that any node has committed."""

    @property
    def committed_end(self) -> int:
        """At least one node has committed everything below this offset."""
        return self.committed[-1].next_offset if self.committed else 0

    @property
    def majority_epoch(self) -> int:
        """The latest epoch that a majority of the voters has reached. The leader of an earlier epoch is deposed."""
        voters = self.voters.in_force(self.voters.committed)
        elections = [self.observed(voter_id).election for voter_id in voters.ids]
        return sorted((0 if one is None else one.epoch for one in elections), reverse=True)[voters.majority - 1]

    def committed_values(self, place: int) -> tuple[bytes, ...]:
        """The values in one of the batches of `committed`; none if it is a control batch."""
        return self._values[place]

    def observed(self, node_id: int) -> ObservedNode:
        """What the ledger has observed of a node; nothing before its first start."""
        return self._nodes.setdefault(node_id, ObservedNode(ReplicaKey(node_id)))

    def acknowledged_upto(self, node_id: int, leader_id: int) -> int:
        """How many batches of a leader's log another node may have acknowledged as flushed."""
        own, model = self.observed(node_id), self.observed(leader_id).log
        count = min(bisect_right(own.log, own.flushed_offset, key=_next_offset), len(model))
        # Two logs with the same batch are equal up to that batch.
        while count > 0 and own.log[count - 1] != model[count - 1]:
            count -= 1
        return count

    def voters_of(self, node_id: int) -> VoterSet:
        """The voter set at the end of a node's log."""
        return self.voters.in_force(self._nodes[node_id].voters)

    def voter_sets(self) -> list[VoterSet]:
        """The last committed voter set, then the uncommitted ones in all logs."""
        return [
            self.voters.in_force(self.voters.committed),
            *(
                voters
                for observed in self._nodes.values()
                for place, voters in observed.voters
                if place >= len(self.committed)
            ),
        ]

    # Events

    def started(self, member: ObservedMember, *, is_damaged: bool = False) -> View:
        """A node starts: everything that the node had flushed must be on its disk, unless the disk was damaged."""
        node_id, view, election = member.node_id, member.view(), member.election()
        observed = self._disk_of(member)
        if is_damaged:
            self.votes.release(node_id)
            observed = ObservedNode(member.key)
        before = self._covered(node_id, view.log_start_offset)
        log = [*before, *member.read(view.log_start_offset)]
        self._check_promise(node_id, observed, log, is_later=view.log_start_offset > observed.start_offset)
        if observed.election is not None and not observed.was_interrupted and forgets(observed.election, election):
            raise InvariantViolated(f"node {node_id} has forgotten {observed.election}; it has {election} on its disk")
        self._nodes[node_id] = observed = ObservedNode(
            member.key,
            election=observed.election,
            start_offset=view.log_start_offset,
            applied_offset=view.snapshots[-1].offset if view.snapshots else 0,
        )
        self._take_covered(observed, before)
        self._append(member, observed, log[len(before) :])
        return self.stepped(member)

    def _disk_of(self, member: ObservedMember) -> ObservedNode:
        """What the ledger knows of the disk at this start, which may be another disk than before."""
        observed = self._nodes.get(member.node_id)
        if observed is not None and observed.key != member.key:
            self._former.setdefault(member.node_id, []).append(observed)
            observed = None
        if observed is None:
            observed = self._nodes[member.node_id] = ObservedNode(member.key)
        return observed

    def _covered(self, node_id: int, start_offset: int) -> list[LogBatch]:
        """The batches that a snapshot replaces: only committed ones are possible."""
        place = bisect_right(self.committed, start_offset, key=_next_offset)
        if start_offset > 0 and (place == 0 or self.committed[place - 1].next_offset != start_offset):
            raise InvariantViolated(
                f"the log of node {node_id} begins at {start_offset}, where nothing committed ends; "
                f"{self.committed_end} is committed"
            )
        return self.committed[:place]

    def _take_covered(self, observed: ObservedNode, batches: list[LogBatch]) -> None:
        observed.log = batches
        observed.voters = [entry for entry in self.voters.committed if entry[0] < len(batches)]

    def interrupted(self, node_id: int) -> None:
        """A node crashed within a step or its start: how much of that step is on its disk is unknown."""
        self.observed(node_id).was_interrupted = True

    def damaged(self, node_id: int) -> None:
        """The disk of a node has lost data, perhaps a snapshot that no check has read since."""
        self._ever_damaged.add(node_id)

    @property
    def has_damaged(self) -> bool:
        """Whether any disk has ever lost something."""
        return bool(self._ever_damaged)

    def was_damaged(self, node_id: int) -> bool:
        """Whether the disk of a node has ever lost something."""
        return node_id in self._ever_damaged

    def _check_promise(self, node_id: int, observed: ObservedNode, log: list[LogBatch], *, is_later: bool) -> None:
        """Flushed records are still in the log. An interrupted step may have truncated the log, or replaced it by a
        snapshot (`is_later`), but committed records remain.
        """
        promised = bisect_right(observed.log, observed.flushed_offset, key=_next_offset)
        if observed.was_interrupted:
            promised = min(promised, observed.verified if is_later else max(len(log), observed.verified))
        if log[:promised] != observed.log[:promised]:
            raise InvariantViolated(
                f"node {node_id} has lost records below {observed.flushed_offset}, which it had flushed"
            )

    def stepped(self, member: ObservedMember) -> View:
        """A node has completed a step; returns its new view."""
        node_id, view, election = member.node_id, member.view(), member.election()
        observed = self._nodes[node_id]
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
        """A node acknowledges everything below `offset`."""
        view = self._nodes[node_id].view
        if view is None or offset > view.flushed_offset:
            raise InvariantViolated(
                f"node {node_id} fetches from {offset} and so acknowledges what is not flushed: {view}"
            )

    def granted(self, node_id: int, epoch: int, candidate_id: int) -> None:
        """A node sends a vote, which must be on its disk already: after a crash the node must not grant another one. In
        the same step the node may have moved to a later epoch and repeated a vote of an earlier step.
        """
        observed = self._nodes[node_id]
        if not self.votes.is_bound(observed.key, epoch, candidate_id):
            raise InvariantViolated(
                f"node {node_id} votes for {candidate_id} in epoch {epoch} with {observed.election} on its disk"
            )

    def pre_granted(self, node_id: int, epoch: int) -> None:
        """A node grants a pre-vote in `epoch`, which changes nothing in quorum-state, unless the epoch is new to the
        node. In the same step, a timeout may have moved the node to a later epoch.
        """
        observed = self._nodes[node_id]
        before, now = observed.former_election, observed.election
        if before is not None and now is not None and epoch <= before.epoch == now.epoch and before != now:
            raise InvariantViolated(f"node {node_id} is asked for a pre-vote, and writes {now} where {before} was")

    def applied(self, member: ObservedMember, applied: Applied) -> None:
        """The application receives a batch: each batch once, in order, as committed."""
        observed = self._nodes[member.node_id]
        place = bisect_right(self.committed, applied.base_offset, key=_base_offset) - 1
        if (
            place < 0
            or self.committed[place].base_offset != applied.base_offset
            or self._values[place] != applied.values
        ):
            raise InvariantViolated(f"node {member.node_id} applies {applied}, which was not committed so")
        first = bisect_left(self.committed, observed.applied_offset, key=_base_offset)
        if applied.base_offset < observed.applied_offset or any(self._values[first:place]):
            raise InvariantViolated(f"node {member.node_id} applies {applied} after {observed.applied_offset}")
        observed.applied_offset = applied.next_offset

    def acknowledged(self, node_id: int, value: bytes, offset: int | None) -> None:
        """A node acknowledges a submission as committed, at `offset` if that is known. Without an offset, the value is
        inside of a controller's record.
        """
        if offset is None:
            if not any(value in record for values in reversed(self._values) for record in values):
                raise InvariantViolated(f"node {node_id} acknowledges {value!r}, which is not committed")
            return
        place = bisect_right(self.committed, offset, key=_base_offset) - 1
        if place < 0 or offset >= self.committed_end:
            raise InvariantViolated(f"node {node_id} acknowledges offset {offset}, which is not committed")
        first = offset - self.committed[place].base_offset
        if self._values[place][first : first + 1] != (value,):
            raise InvariantViolated(f"{value!r} was acknowledged at {offset}, where {self._values[place]} are")

    def refused(self, values: list[bytes]) -> None:
        """At the end of a run, submissions that were definitely refused are in no log."""
        found = {one for values in self._values for one in values}.intersection(values)
        if found:
            raise InvariantViolated(f"these were refused and are committed all the same: {sorted(found)}")

    def concluded(self, member: ObservedMember) -> None:
        """The run is over: the log of a node, read again, must contain the committed batches."""
        observed = self._nodes[member.node_id]
        upto = bisect_right(observed.log, member.view().high_watermark, key=_next_offset)
        log = [
            *observed.log[: bisect_right(observed.log, observed.start_offset, key=_next_offset)],
            *member.read(observed.start_offset),
        ]
        if log != observed.log or log[:upto] != self.committed[:upto]:
            raise InvariantViolated(f"node {member.node_id} has other records in its log than it was seen to write")

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
            raise InvariantViolated(f"node {node_id} strikes out its vote: {was}, then {election}")

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
            raise InvariantViolated(f"node {member.node_id} says {view}, but its log ends at {observed.end_offset}")

    def _check_written(self, observed: ObservedNode, view: View, batches: list[LogBatch]) -> None:
        """A leader writes in its own epoch."""
        if any(batch.epoch != view.epoch for batch in batches):
            raise InvariantViolated(f"node {observed.key.id} leads epoch {view.epoch} and writes {batches}")
        self._check_change(observed, view, batches)

    def _check_change(self, observed: ObservedNode, view: View, batches: list[LogBatch]) -> None:
        """A leader changes the voters only after a batch of its epoch is committed."""
        begin = observed.log[bisect_left(observed.log, view.epoch, key=_epoch)].base_offset
        if view.high_watermark <= begin and any(
            self.voters.set_in(batch.epoch, batch.base_offset) for batch in batches if batch.base_offset > begin
        ):
            raise InvariantViolated(
                f"node {observed.key.id} changes the voters before anything of its epoch is committed"
            )

    def _cut(self, node_id: int, observed: ObservedNode, place: int) -> None:
        """A leader has every batch committed before its epoch, so none of its followers truncates such a batch."""
        view = observed.view
        assert view is not None
        is_committed = place < len(self.committed) and self._committed_in[place] <= view.epoch
        if is_committed and observed.log[place] == self.committed[place]:
            raise InvariantViolated(f"node {node_id} cuts off the committed {observed.log[place]}: {view}")
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
            raise InvariantViolated(f"the log of node {node_id} began at {observed.start_offset}, and now {view}")
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
            if not self.was_damaged(member.node_id):
                raise
        assert observed.view is not None
        first, last = (
            bisect_right(observed.log, end, key=_next_offset) for end in (offset, observed.view.log_end_offset)
        )
        seen = observed.log[first:last]
        return [*seen, *member.read(seen[-1].next_offset if seen else offset)]

    def _append(self, member: ObservedMember, observed: ObservedNode, batches: list[LogBatch]) -> None:
        """The leader of an epoch writes an offset once: (epoch, offset) names the same bytes in every log, for ever."""
        node_id = member.node_id
        for batch in batches:
            last = observed.log[-1] if observed.log else None
            last_epoch, end_offset = (0, 0) if last is None else (last.epoch, last.next_offset)
            if batch.base_offset != end_offset or batch.epoch < last_epoch:
                raise InvariantViolated(f"node {node_id} appends {batch} after {observed.log[-1:]}")
            place = batch.epoch, batch.base_offset
            written = self._written.get(place)
            if written is None:
                self._written[place] = (batch, last_epoch)
                self.voters.written(batch.epoch, batch.base_offset, member.changes(batch))
            elif written != (batch, last_epoch):
                raise InvariantViolated(
                    f"node {node_id} has {batch} after epoch {last_epoch}, where before {written[0]} was written"
                    f" after epoch {written[1]}"
                )
            voters = self.voters.set_in(batch.epoch, batch.base_offset)
            if voters is not None:
                self._raise_if(self.voters.appended(node_id, observed.voters, len(observed.log), voters))
            observed.log.append(batch)

    def _check_voters(self, member: ObservedMember, observed: ObservedNode) -> None:
        """Check the voter set of a log after it changed or was read for the first time."""
        node_id = member.node_id
        self._raise_if(self.voters.uncommitted(node_id, observed.voters, len(self.committed)))
        self._raise_if(self.voters.believed(node_id, observed.voters, member.voters()))

    def _check_snapshots(self, member: ObservedMember, view: View, before: View | None) -> None:
        """Check the snapshots after one was added or deleted."""
        is_moved = before is not None and view.log_start_offset != before.log_start_offset
        self._raise_if(self.snapshots.listed(view.snapshots, view.log_start_offset, is_moved=is_moved))
        was_damaged = self.was_damaged(member.node_id)
        if view.snapshots != member.snapshots() and not was_damaged:
            raise InvariantViolated(f"node {member.node_id} has {member.snapshots()} on its disk, and believes {view}")
        for snapshot in view.snapshots:
            if before is None or snapshot not in before.snapshots:
                self._raise_if(self.snapshots.wrong_id(snapshot, self.committed))
                try:
                    content = member.content(snapshot)
                except (OSError, MetadataLogError):
                    if was_damaged:
                        continue
                    raise
                self._raise_if(self.snapshots.wrong_content(snapshot, content, self.committed, self._values))

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
        is_news = upto > len(self.committed)
        for place in range(observed.verified, upto):
            batch = observed.log[place]
            if place == len(self.committed):
                self.committed.append(batch)
                self._committed_in.append(view.epoch)
                self._values.append(values := member.values(batch))
                if values:
                    self.values_end = batch.next_offset
                voters = self.voters.set_in(batch.epoch, batch.base_offset)
                if voters is not None:
                    self.voters.committed.append((place, voters))
            elif self.committed[place] != batch:
                raise InvariantViolated(f"node {node_id} commits {batch}, where {self.committed[place]} was committed")
        observed.verified = upto
        if is_news or (view.state == "Leader" and upto > 0):
            self._check_majority(node_id, observed, upto - 1)
        if view.state == "Leader":
            self._check_progress(node_id, view)
            self._check_not_removed(observed)

    def _check_own_epoch_first(self, observed: ObservedNode, view: View) -> None:
        """A leader commits batches of former epochs only together with a batch of its own epoch (Raft §5.4.2)."""
        first = bisect_left(observed.log, view.epoch, key=_epoch)
        if first == len(observed.log) or view.high_watermark <= observed.log[first].base_offset:
            raise InvariantViolated(f"node {observed.key.id} commits nothing of its own epoch first: {view}")

    def _check_majority(self, node_id: int, observed: ObservedNode, place: int) -> None:
        """A batch is on the disks of a majority, stopped nodes included, before any node commits the batch."""
        batch = self.committed[place]
        voters = self.voters.in_force(observed.voters)
        holders = [key.id for key in voters.keys if self.has_on_disk(key, place, batch)]
        if len(holders) < voters.majority:
            raise InvariantViolated(
                f"node {node_id} commits {batch}, which only {holders} of {voters.ids} have on disk"
            )

    def _check_progress(self, node_id: int, view: View) -> None:
        """The high watermark of a leader is not below that of a former leader."""
        epoch, offset = self._leader_progress
        if view.epoch >= epoch:
            if view.high_watermark < offset:
                raise InvariantViolated(
                    f"node {node_id} leads epoch {view.epoch} at {view.high_watermark}, below {offset}"
                )
            self._leader_progress = (view.epoch, view.high_watermark)

    def _check_not_removed(self, observed: ObservedNode) -> None:
        """A leader that is no longer a voter resigns once its removal is committed."""
        if (
            observed.voters
            and observed.voters[-1][0] < observed.verified
            and not observed.voters[-1][1].contains(observed.key)
        ):
            raise InvariantViolated(
                f"node {observed.key.id} leads on, though it was removed from the voters: {observed.view}"
            )

    def _disks(self, key: ReplicaKey) -> list[ObservedNode]:
        """The present and former disks of a voter; only one if the voter key has a directory id."""
        observed = self._nodes.get(key.id)
        disks = [*self._former.get(key.id, ()), *(() if observed is None else (observed,))]
        return [disk for disk in disks if key.matches(disk.key)]

    def _can_campaign(self, observed: ObservedNode, view: View) -> bool:
        """Whether a node is a voter by its log, or a leader was one when elected. The previous voter set counts, too: a
        voter removed by the last record may be needed until that record is committed.
        """
        end = len(observed.log)
        if view.state == "Leader":
            end = bisect_left(observed.log, view.epoch, key=_epoch)
        last = max((place for place, _ in observed.voters if place < end), default=end)
        return any(self.voters.before(observed.voters, place).contains(observed.key) for place in (end, last))

    def has_on_disk(self, key: ReplicaKey, place: int, batch: LogBatch) -> bool:
        """Whether a batch, at this place of its log, is on a voter's disk, or was when the voter lost that disk."""
        observed = self._nodes.get(key.id)
        if observed is None or not key.matches(observed.key):
            observed = next(reversed(self._disks(key)), None)
        if observed is None or place >= len(observed.log) or observed.log[place] != batch:
            return False
        view = observed.view
        return (observed.flushed_offset if view is None else view.flushed_offset) >= batch.next_offset

    def _check_leading(self, node_id: int, observed: ObservedNode) -> None:
        """A new leader has every record committed in an earlier epoch. The leader itself may be deposed already."""
        view = observed.view
        assert view is not None
        self._check_leader(node_id, view.epoch, node_id)
        voters = self.voters.before(observed.voters, bisect_left(observed.log, view.epoch, key=_epoch))
        self._check_elected(observed.key, view.epoch, voters)
        place = len(self.committed) - 1
        while place >= 0 and self._committed_in[place] >= view.epoch:
            place -= 1
        if place >= 0 and (place >= len(observed.log) or observed.log[place] != self.committed[place]):
            raise InvariantViolated(
                f"node {node_id} leads epoch {view.epoch} without the committed {self.committed[place]}; "
                f"its log ends at {observed.end_offset}"
            )
