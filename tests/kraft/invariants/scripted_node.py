"""A node and a quorum with a state that a test sets by hand, so that each invariant can be broken alone."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kraft.invariants import Invariants
from kraft.invariants.observation import LogBatch, SnapshotContent, View
from kraft.quorum.values import ElectionState, LeaderAndEpoch, ReplicaKey
from kraft.quorum.voters import QuorumChange, VoterSet
from kraft.sim.world.member_interface import Output
from metadata_log.types import NO_NODE, NO_OFFSET, OffsetAndEpoch, Uuid

VOTERS = VoterSet.parse("1@n1:9000,2@n2:9000,3@n3:9000")
HEAD = b"the first batch of the leader"


def batch(offset: int, epoch: int, content: bytes | str, length: int = 1) -> LogBatch:
    """A batch of so many records; a text is the submitted value of each of them."""
    data = content if isinstance(content, bytes) else f"value {content}".encode()
    return LogBatch(offset, offset + length, epoch, data)


def uuid(number: int) -> Uuid:
    """An id that is none of those that Kafka reserves."""
    return Uuid(((1 << 64) + number).to_bytes(16, "big"))


class ScriptedNode:
    """An `ObservedMember` with public fields. `quorum_state` is on its disk; None stands for what `view` implies."""

    def __init__(self, node_id: int, directory_id: Uuid = Uuid.ZERO) -> None:
        self.key = ReplicaKey(node_id, directory_id)
        self.state, self.epoch, self.leader_id, self.voted_id = "Unattached", 0, NO_NODE, NO_NODE
        self.log: list[LogBatch] = []
        self.high_watermark, self.flushed, self.start_offset = NO_OFFSET, 0, 0
        self.end: int | None = None
        """The log end offset that the node names; None for that of its log."""
        self.listed: tuple[OffsetAndEpoch, ...] = ()
        self.on_disk: tuple[OffsetAndEpoch, ...] | None = None
        """The snapshots on the disk; None for those that the node lists."""
        self.contents: dict[OffsetAndEpoch, SnapshotContent] = {}
        self.changes_in: dict[bytes, VoterSet] = {}
        """The voter set in a batch, by the content of the batch."""
        self.voter_keys = VOTERS.keys
        self.quorum_state: ElectionState | None = None
        self.read_failure: Callable[[int], None] = lambda offset: None
        self.damage = ""
        self.outputs: list[Output] = []

    @property
    def node_id(self) -> int:
        return self.key.id

    def view(self) -> View:
        end = self.log[-1].next_offset if self.log else self.start_offset
        return View(
            self.epoch,
            self.state,
            LeaderAndEpoch(self.leader_id, self.epoch),
            self.high_watermark,
            end if self.end is None else self.end,
            self.flushed,
            self.start_offset,
            self.listed,
        )

    def election(self) -> ElectionState | None:
        if self.quorum_state is not None:
            return self.quorum_state
        return ElectionState(self.epoch, self.leader_id, None if self.voted_id < 0 else ReplicaKey(self.voted_id))

    def read(self, offset: int) -> list[LogBatch]:
        self.read_failure(offset)
        return [one for one in self.log if one.base_offset >= offset]

    def values(self, batch: LogBatch) -> tuple[bytes, ...]:
        is_value = batch.content.startswith(b"value ")
        return (batch.content.removeprefix(b"value "),) * (batch.next_offset - batch.base_offset) if is_value else ()

    def changes(self, batch: LogBatch) -> tuple[QuorumChange, ...]:
        voters = self.changes_in.get(batch.content)
        return () if voters is None else (QuorumChange(batch.base_offset, voters),)

    def voters(self) -> tuple[ReplicaKey, ...]:
        return self.voter_keys

    def snapshots(self) -> tuple[OffsetAndEpoch, ...]:
        return self.listed if self.on_disk is None else self.on_disk

    def content(self, snapshot: OffsetAndEpoch) -> SnapshotContent:
        return self.contents[snapshot]

    # A `Member` of a simulated world, as far as its starts and its judgement of leaders go

    def start(self, rng: Random, now_ms: int) -> list[Output]:
        return self.outputs

    def must_refuse(self) -> str:
        return self.damage

    def deadline_ms(self) -> int:
        return 1 << 60

    def is_judging(self, request_id: int) -> bool:
        return False

    def epoch_of_leader(self, message: object) -> int | None:
        assert isinstance(message, int)
        return message

    # What a node goes through

    def becomes(self, state: str, epoch: int, *, leader: int = NO_NODE, voted: int = NO_NODE) -> None:
        self.state, self.epoch, self.leader_id, self.voted_id = state, epoch, leader, voted

    def writes(self, *batches: LogBatch, is_flushed: bool = True) -> None:
        self.log = [*self.log, *batches]
        if is_flushed:
            self.flushed = self.log[-1].next_offset


class ScriptedQuorum:
    """Three running nodes and their invariants."""

    def __init__(self, voters: VoterSet = VOTERS, node_ids: tuple[int, ...] = (1, 2, 3)) -> None:
        self.invariants = Invariants(voters)
        self.nodes = {one: ScriptedNode(one) for one in node_ids}
        for node in self.nodes.values():
            node.voter_keys = voters.keys
            self.invariants.started(node)

    def node(self, node_id: int) -> ScriptedNode:
        return self.nodes[node_id]

    def steps(self, node_id: int, **changed: Any) -> ScriptedNode:
        """Set fields of a node, and let the invariants observe the node."""
        node = self.nodes[node_id]
        for name, value in changed.items():
            assert hasattr(node, name), name
            setattr(node, name, value)
        self.invariants.stepped(node)
        return node

    def becomes(self, node_id: int, state: str, epoch: int, *, leader: int = NO_NODE, voted: int = NO_NODE) -> None:
        self.nodes[node_id].becomes(state, epoch, leader=leader, voted=voted)
        self.invariants.stepped(self.nodes[node_id])

    def writes(self, node_id: int, *batches: LogBatch, is_flushed: bool = True) -> None:
        self.nodes[node_id].writes(*batches, is_flushed=is_flushed)
        self.invariants.stepped(self.nodes[node_id])

    def elects(self, leader_id: int, epoch: int, *voter_ids: int) -> None:
        """The votes of the leader and of these voters elect the leader."""
        self.becomes(leader_id, "Candidate", epoch, voted=leader_id)
        for voter_id in voter_ids:
            self.becomes(voter_id, "Voted", epoch, voted=leader_id)
        self.becomes(leader_id, "Leader", epoch, leader=leader_id, voted=leader_id)

    def follows(self, node_id: int, leader_id: int, epoch: int) -> None:
        voted = self.nodes[node_id].voted_id if self.nodes[node_id].epoch == epoch else NO_NODE
        self.becomes(node_id, "Follower", epoch, leader=leader_id, voted=voted)

    def commits(self, upto: int, *node_ids: int) -> None:
        for node_id in node_ids:
            self.steps(node_id, high_watermark=upto)

    def restarts(self, node_id: int, **changed: Any) -> None:
        """The node stops, changes in these fields, and starts again as a node without a leader and a high watermark."""
        node = self.nodes[node_id]
        node.state = "Unattached" if node.voted_id == NO_NODE else "Voted"
        node.leader_id, node.high_watermark = NO_NODE, NO_OFFSET
        for name, value in changed.items():
            assert hasattr(node, name), name
            setattr(node, name, value)
        self.invariants.started(node)


def settled(*values: str) -> ScriptedQuorum:
    """Node 1 leads epoch 1. Its first batch and these values are on the disks of all nodes, and committed."""
    quorum = ScriptedQuorum()
    quorum.elects(1, 1, 2)
    quorum.follows(2, 1, 1)
    quorum.follows(3, 1, 1)
    batches = [batch(0, 1, HEAD), *(batch(place, 1, value) for place, value in enumerate(values, 1))]
    for node_id in (1, 2, 3):
        quorum.writes(node_id, *batches)
    quorum.commits(len(batches), 1, 2, 3)
    return quorum


def with_voters(*node_ids: int) -> VoterSet:
    """A static set of these voters."""
    return VoterSet.parse(",".join(f"{one}@n{one}:9000" for one in node_ids))
