"""A case for each check of consensus: a story of three nodes that ends with the one violation."""

from __future__ import annotations

from check_sites import Cases
from kraft.invariants import Ledger
from kraft.invariants.observation import Applied, SnapshotContent
from kraft.invariants.snapshots import Registers
from kraft.invariants.wire import check_leader_can_be_found
from kraft.quorum.values import ElectionState
from metadata_log.records.batch import RecordBatch
from metadata_log.records.batch_builder import new_batch
from metadata_log.types import OffsetAndEpoch
from scripted_node import HEAD, VOTERS, ScriptedQuorum, batch, settled, with_voters
from transport.protocol.messages import BeginQuorumEpochRequest
from transport.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
)

CASES = Cases()

# A restart


@CASES("node 2 has lost records below 2, which it had flushed")
def a_restart_loses_a_flushed_record() -> None:
    quorum = settled("a")
    quorum.restarts(2, log=quorum.node(2).log[:1], flushed=1)


@CASES("the log of node 2 begins at 2, where nothing committed ends; 1 is committed")
def a_log_begins_beyond_what_is_committed() -> None:
    quorum = settled()
    quorum.restarts(2, start_offset=2, flushed=2, log=[])


# Quorum-state


@CASES("the epoch of node 3 falls: .*epoch=1.*, then .*epoch=0")
def an_epoch_falls() -> None:
    quorum = settled()
    quorum.becomes(3, "Unattached", 0)


@CASES("node 2 votes twice in epoch 1: for 1 and for 3")
def a_voter_votes_twice() -> None:
    quorum = ScriptedQuorum()
    quorum.becomes(1, "Candidate", 1, voted=1)
    quorum.becomes(3, "Candidate", 1, voted=3)
    quorum.becomes(2, "Voted", 1, voted=1)
    quorum.becomes(2, "Voted", 1, voted=3)


@CASES("node 2 votes for 3, which is not a candidate in epoch 1")
def a_vote_is_for_no_candidate() -> None:
    ScriptedQuorum().becomes(2, "Voted", 1, voted=3)


@CASES("epoch 1 has two leaders: 1, and for node 3 2")
def two_nodes_name_two_leaders_in_their_state() -> None:
    quorum = ScriptedQuorum()
    quorum.elects(1, 1, 2)
    quorum.becomes(3, "Follower", 1, leader=2)


@CASES("epoch 1 has two leaders: 1, and for node 3 2")
def a_view_names_another_leader_than_quorum_state() -> None:
    quorum = ScriptedQuorum()
    quorum.elects(1, 1, 2)
    quorum.steps(3, quorum_state=ElectionState(1))
    quorum.steps(3, state="Follower", epoch=1, leader_id=2)


@CASES("node 1 leads epoch 1, and only .*1.* of .*1, 2, 3.* have voted for node 1")
def a_leader_has_one_vote_of_three() -> None:
    quorum = ScriptedQuorum()
    quorum.elects(1, 1)


@CASES("node 2 leads epoch 2 without the committed .*; its log ends at 1")
def a_leader_lacks_a_committed_batch() -> None:
    quorum = ScriptedQuorum()
    quorum.elects(1, 1, 2)
    quorum.follows(2, 1, 1)
    quorum.follows(3, 1, 1)
    for node_id in (1, 3):
        quorum.writes(node_id, batch(0, 1, HEAD), batch(1, 1, "a"))
    quorum.writes(2, batch(0, 1, HEAD))
    quorum.commits(2, 1)
    quorum.elects(2, 2, 3)


@CASES("epoch 2 has two leaders: 3, and for node 2 2")
def a_leader_is_not_the_one_that_was_named_before() -> None:
    quorum = ScriptedQuorum()
    quorum.becomes(1, "Follower", 2, leader=3)
    quorum.becomes(2, "Candidate", 2, voted=2)
    quorum.becomes(2, "Leader", 2, leader=2, voted=2)


# What leaves a node


@CASES("node 3 grants a pre-vote and replaces .* by .* in quorum-state")
def a_pre_vote_is_written() -> None:
    quorum = ScriptedQuorum()
    quorum.becomes(1, "Candidate", 1, voted=1)
    quorum.becomes(3, "Unattached", 1)
    quorum.becomes(3, "Voted", 1, voted=1)
    quorum.invariants.pre_granted(3, 1)


@CASES("node 1 names the leader 1 without its address")
def a_message_names_a_leader_without_its_address() -> None:
    partition = BeginQuorumEpochRequestPartitionData(leader_id=1, leader_epoch=1)
    topic = BeginQuorumEpochRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
    check_leader_can_be_found(1, BeginQuorumEpochRequest(topics=[topic]), 1)


# The log


@CASES("node 1 appends .*offsets 2 to 2.* after .*offsets 0 to 0")
def an_append_leaves_a_gap() -> None:
    quorum = settled()
    quorum.writes(1, batch(2, 1, "b"))


@CASES("node 3 has .* after epoch 1, where before .* was written after epoch 1")
def two_logs_have_two_batches_at_one_offset_of_an_epoch() -> None:
    quorum = settled()
    quorum.writes(1, batch(1, 1, "a"))
    quorum.writes(3, batch(1, 1, "b"))


@CASES("node 1 leads epoch 1 and writes .*of epoch 2")
def a_leader_writes_in_another_epoch() -> None:
    quorum = settled()
    quorum.writes(1, batch(1, 2, "a"))


@CASES("node 1 changes the voters before anything of its epoch is committed")
def a_leader_changes_the_voters_too_early() -> None:
    quorum = ScriptedQuorum()
    quorum.elects(1, 1, 2)
    quorum.writes(1, batch(0, 1, HEAD))
    quorum.node(1).changes_in[b"fewer"] = with_voters(1, 2)
    quorum.writes(1, batch(1, 1, b"fewer"))


@CASES("node 3 truncates below its high watermark")
def a_log_is_truncated_below_the_high_watermark() -> None:
    quorum = settled("a")
    quorum.steps(3, log=quorum.node(3).log[:1], flushed=1)


@CASES("node 3 says its log ends at 2, and the log ends at 1")
def a_node_names_another_end_of_its_log() -> None:
    quorum = settled()
    quorum.steps(3, end=2)


@CASES("the high watermark of node 3 falls")
def a_high_watermark_falls() -> None:
    quorum = settled("a")
    quorum.steps(3, high_watermark=1)


@CASES("the log of node 2 on disk differs from the observed log")
def a_log_on_disk_differs_in_the_end() -> None:
    quorum = settled("a")
    quorum.node(2).log[1] = batch(1, 1, "b")
    quorum.invariants.concluded(quorum.node(2))


# Commits


@CASES("node 1 commits batches of former epochs without one of its own")
def a_leader_commits_only_batches_of_former_epochs() -> None:
    quorum = ScriptedQuorum()
    quorum.elects(1, 1, 2)
    quorum.follows(2, 1, 1)
    for node_id in (1, 2):
        quorum.writes(node_id, batch(0, 1, HEAD))
    quorum.elects(1, 2, 2)
    quorum.steps(1, high_watermark=1)


@CASES("node 1 commits .*, which only .*1.* of .*1, 2, 3.* have on disk")
def a_commit_has_no_majority() -> None:
    quorum = ScriptedQuorum()
    quorum.elects(1, 1, 2)
    quorum.writes(1, batch(0, 1, HEAD))
    quorum.steps(1, high_watermark=1)


@CASES("node 2 leads epoch 2 with the high watermark 2, below the 3 of a leader before")
def the_high_watermark_of_a_leader_is_below_that_of_a_former_leader() -> None:
    """A leader that begins with a high watermark: in any other story another check fails first."""
    quorum = settled("a", "b")
    quorum.elects(2, 2, 3)
    quorum.restarts(2, state="Leader", leader_id=2, high_watermark=2)


@CASES("node 2 applies .*wrong.*, which is not a committed batch")
def an_application_receives_another_batch() -> None:
    quorum = settled("a")
    quorum.invariants.applied(quorum.node(2), Applied(1, 2, (b"wrong",)))


@CASES("node 2 applies .*b'b'.* after 0")
def an_application_skips_a_batch() -> None:
    quorum = settled("a", "b")
    quorum.invariants.applied(quorum.node(2), Applied(2, 3, (b"b",)))


@CASES("node 1 acknowledges offset 5, which is not committed")
def an_offset_is_acknowledged_that_is_not_committed() -> None:
    settled("a").invariants.acknowledged(1, b"a", 5)


@CASES("b'b' was acknowledged at offset 1, in a batch with .*b'a'")
def another_value_is_acknowledged() -> None:
    settled("a").invariants.acknowledged(1, b"b", 1)


@CASES("node 1 acknowledges b'b', which is not committed")
def a_value_is_acknowledged_that_is_in_no_record() -> None:
    settled("a").invariants.acknowledged(1, b"b", None)


@CASES("these values were refused, but are committed: .*b'a'")
def a_refused_value_is_committed() -> None:
    settled("a").invariants.refused([b"a"])


# The states of a node


@CASES("node 3 cannot be .*: the node is in epoch 2, and .*epoch=1.* is on its disk")
def a_state_has_another_epoch_than_the_disk() -> None:
    quorum = settled()
    quorum.steps(3, quorum_state=quorum.node(3).election())
    quorum.steps(3, epoch=2, leader_id=-1, state="Unattached")


@CASES("node 3 cannot be .*: the node names the leader -1, and .* is on its disk")
def a_state_has_another_leader_than_the_disk() -> None:
    quorum = settled()
    quorum.steps(3, quorum_state=quorum.node(3).election())
    quorum.steps(3, leader_id=-1, state="Unattached")


@CASES("node 4 cannot be .*: the node is not a voter")
def an_observer_is_a_candidate() -> None:
    quorum = ScriptedQuorum(node_ids=(1, 2, 3, 4))
    quorum.becomes(4, "Candidate", 1, voted=4)


@CASES("node 3 cannot be .*: the leader is 1")
def a_resigned_node_did_not_lead() -> None:
    settled().steps(3, state="Resigned")


@CASES("node 3 cannot be .*: the node follows no other node")
def a_follower_has_no_leader() -> None:
    ScriptedQuorum().becomes(3, "Follower", 1)


@CASES("node 3 cannot be .*: a candidate votes for itself")
def a_candidate_did_not_vote_for_itself() -> None:
    ScriptedQuorum().becomes(3, "Candidate", 1)


@CASES("node 3 cannot be .*: the node has not voted")
def a_voted_node_has_no_vote() -> None:
    ScriptedQuorum().becomes(3, "Voted", 1)


@CASES("node 3 cannot be .*: the node has voted")
def an_unattached_node_has_a_vote() -> None:
    ScriptedQuorum().becomes(3, "Unattached", 1, voted=3)


@CASES("node 3 cannot be .*: there is no such state")
def a_state_is_unknown() -> None:
    ScriptedQuorum().becomes(3, "Dreaming", 1)


# The voters


@CASES("the voters change from .*1, 2, 3.* to .*1.* at once in the log of node 1")
def two_voters_leave_at_once() -> None:
    quorum = settled()
    quorum.node(1).changes_in[b"fewer"] = with_voters(1)
    quorum.writes(1, batch(1, 1, b"fewer"))


@CASES("the log of node 1 changes the voters 2 times in what is not committed")
def two_changes_of_the_voters_are_uncommitted() -> None:
    quorum = settled()
    node = quorum.node(1)
    node.changes_in = {b"more": with_voters(1, 2, 3, 4), b"even more": with_voters(1, 2, 3, 4, 5)}
    node.voter_keys = with_voters(1, 2, 3, 4).keys
    quorum.writes(1, batch(1, 1, b"more"))
    node.voter_keys = with_voters(1, 2, 3, 4, 5).keys
    quorum.writes(1, batch(2, 1, b"even more"))


@CASES("node 1 has the voters .*1, 2, 3.*, and the voters in its log are .*1, 2, 3, 4")
def a_node_overlooks_the_voters_in_its_log() -> None:
    quorum = settled()
    quorum.node(1).changes_in[b"more"] = with_voters(1, 2, 3, 4)
    quorum.writes(1, batch(1, 1, b"more"))


# Snapshots


AT_2 = OffsetAndEpoch(offset=2, epoch=1)
NOTHING = SnapshotContent(0, 0, (), ())


def snapshotted(quorum: ScriptedQuorum, node_id: int, at: OffsetAndEpoch, content: SnapshotContent = NOTHING) -> None:
    """A node has a snapshot and keeps its log."""
    node = quorum.node(node_id)
    node.contents[at] = content
    quorum.steps(node_id, listed=(at,))


@CASES("the log of node 2 begins at 2, and its first snapshot ends at 1")
def a_log_begins_without_a_snapshot() -> None:
    quorum = settled("a", "b")
    quorum.node(2).contents[OffsetAndEpoch(offset=1, epoch=1)] = NOTHING
    quorum.steps(2, start_offset=2, log=quorum.node(2).log[2:], listed=(OffsetAndEpoch(offset=1, epoch=1),))


@CASES("the log of node 2 begins at 2 now, and its first snapshot ends at 3")
def a_log_begins_below_its_first_snapshot() -> None:
    quorum = settled("a", "b")
    at_3 = OffsetAndEpoch(offset=3, epoch=1)
    quorum.node(2).contents[at_3] = NOTHING
    quorum.steps(2, start_offset=2, log=quorum.node(2).log[2:], listed=(at_3,))


@CASES("node 2 has the snapshots .* on its disk, and names .*")
def a_snapshot_is_not_on_the_disk() -> None:
    quorum = settled("a")
    quorum.node(2).on_disk = ()
    snapshotted(quorum, 2, AT_2)


@CASES("snapshot .* does not end where a committed batch ends")
def a_snapshot_covers_what_is_not_committed() -> None:
    snapshotted(settled("a"), 2, OffsetAndEpoch(offset=3, epoch=1))


@CASES("snapshot .* ends with a batch of epoch 1")
def the_id_of_a_snapshot_has_another_epoch() -> None:
    snapshotted(settled("a"), 2, OffsetAndEpoch(offset=2, epoch=2))


@CASES("snapshot .* differs between two nodes")
def two_snapshots_with_one_id_differ() -> None:
    quorum = settled("a")
    snapshotted(quorum, 2, AT_2)
    snapshotted(quorum, 3, AT_2, SnapshotContent(1, 0, (), ()))


@CASES("snapshot .* names the voters .*, and the log has .*")
def a_snapshot_names_other_voters() -> None:
    snapshotted(settled("a"), 2, AT_2, SnapshotContent(0, 1, VOTERS.keys[:2], ()))


@CASES("snapshot .* holds .*, and the log comes to .*")
def a_snapshot_holds_other_registers() -> None:
    registers = Registers()
    registers.apply([b"b"])
    snapshotted(settled("a"), 2, AT_2, SnapshotContent(0, 0, (), registers.values(), is_of_registers=True))


@CASES("the log of node 2 began at 2, and now begins at 1")
def the_beginning_of_a_log_goes_back() -> None:
    quorum = settled("a")
    snapshotted(quorum, 2, AT_2)
    quorum.steps(2, start_offset=2, log=[])
    quorum.steps(2, start_offset=1, log=[batch(1, 1, "a")])


@CASES("leader 1 loads a snapshot")
def a_leader_loads_a_snapshot() -> None:
    quorum = settled("a")
    quorum.writes(1, batch(2, 1, "b"))
    snapshotted(quorum, 1, AT_2)
    quorum.steps(1, start_offset=2, log=[], flushed=2)


@CASES("node 2 loads a snapshot that is too old")
def a_node_loads_a_snapshot_below_its_high_watermark() -> None:
    quorum = settled("a", "b")
    quorum.node(2).contents[AT_2] = NOTHING
    quorum.steps(2, start_offset=2, log=[], flushed=2, listed=(AT_2,))


# The ledger over disks, for `kraft.testing`


def log_of(*batches: tuple[int, bytes]) -> list[RecordBatch]:
    """Batches of one value each, given with their epochs."""
    return [new_batch(offset, epoch, 0, [value]) for offset, (epoch, value) in enumerate(batches)]


@CASES("epoch 4 has two leaders: 1, and for node 2 2")
def the_disks_name_two_leaders() -> None:
    ledger = Ledger((1, 2, 3))
    ledger.note_leader(1, 4, -1)
    ledger.note_leader(1, 4, 1)
    ledger.note_leader(2, 4, 2)


@CASES("the epoch of node 1 fell from 4 to 3")
def the_epoch_on_a_disk_falls() -> None:
    ledger = Ledger((1, 2, 3))
    ledger.note_vote(1, 4, 2)
    ledger.note_vote(1, 3, -1)


@CASES("node 1 voted twice in epoch 4: for 2 and for 3")
def a_disk_has_two_votes() -> None:
    ledger = Ledger((1, 2, 3))
    ledger.note_vote(1, 4, 2)
    ledger.note_vote(1, 4, 3)


@CASES("the log of node 1 goes from offset 1 of epoch 2 to offset 1 of epoch 1")
def the_epochs_of_a_log_fall() -> None:
    Ledger((1, 2, 3)).note_log(1, log_of((2, b"a"), (1, b"b")), -1)


@CASES("node 2 has another batch at offset 0 of epoch 1")
def two_disks_have_two_batches_at_one_offset() -> None:
    ledger = Ledger((1, 2, 3))
    ledger.note_log(1, log_of((1, b"a")), -1)
    ledger.note_log(2, log_of((1, b"b")), -1)


@CASES("node 1 has the high watermark 2, and its log ends at 1")
def a_log_ends_below_the_high_watermark() -> None:
    Ledger((1, 2, 3)).note_log(1, log_of((1, b"a")), 2)


@CASES("node 2 has other records committed at offset 0: it says epoch 2, where epoch 1 was committed")
def two_disks_have_two_committed_batches() -> None:
    ledger = Ledger((1, 2, 3))
    ledger.note_log(1, log_of((1, b"a")), 1)
    ledger.note_log(2, log_of((2, b"a")), 1)


@CASES("offset 3 was acknowledged for two records")
def two_values_are_acknowledged_at_one_offset() -> None:
    ledger = Ledger((1, 2, 3))
    ledger.note_acknowledged(2, [b"a", b"b"])
    ledger.note_acknowledged(3, [b"c"])


@CASES(r"what was committed at offset 0 of epoch 1 is only on the disks of \[1\]")
def a_committed_batch_is_on_one_disk_of_three() -> None:
    ledger = Ledger((1, 2, 3))
    ledger.note_log(1, log_of((1, b"a")), 1)
    ledger.check_durable({1: log_of((1, b"a")), 2: [], 3: []})


@CASES(r"b'b', acknowledged at offset 1, is only on the disks of \[1\]")
def an_acknowledged_value_is_on_one_disk_of_three() -> None:
    ledger = Ledger((1, 2, 3))
    ledger.note_acknowledged(1, [b"b"])
    ledger.check_durable({1: log_of((1, b"a"), (1, b"b")), 2: log_of((1, b"a")), 3: []})
