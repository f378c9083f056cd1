"""The state of a simulated quorum: the nodes, the requests between them, and what the invariants have observed."""

from __future__ import annotations

from typing import Final, Protocol

from kraft.invariants.quorum import Invariants
from kraft.quorum.voters import VoterSet
from kraft.sim.world.check_quorum import CheckQuorum
from kraft.sim.world.disk_losses import DiskLosses
from kraft.sim.world.driver import Driver, Exchange
from kraft.sim.world.host import START_MS, Host
from kraft.sim.world.member_interface import Member, Output
from kraft.sim.world.read_watch import ReadWatch
from kraft.sim.world.signs_of_life import SignsOfLife
from kraft.sim.world.trace import Trace
from metadata_log.errors import MetadataLogError
from metadata_log.serde import Message
from metadata_log.types import Uuid

STUCK_MS: Final = 5_000
"""After the end of all faults, a submission is decided within this time (TLA+: ValuesNotStuck)."""


DAMAGE_SHOWS_MS: Final = 15_000
"""Messages that a node has sent before its disk was repaired may cause reports for this time."""


class Watch(Protocol):
    """Additional invariants beside those of the quorum; each method may raise `InvariantViolated`."""

    def submitting(self, submit_id: int, line: str, world: SimulatedQuorum) -> None:
        """A client is about to submit a record."""

    def administering(self, request: Message) -> None:
        """A client is about to send a request."""

    def started(self, member: Member, world: SimulatedQuorum) -> None:
        """A node has started."""

    def stepped(self, member: Member, outputs: list[Output], world: SimulatedQuorum) -> None:
        """A node has completed a step."""

    def unsettled(self, world: SimulatedQuorum) -> str:
        """The requirement after the end of all faults that is not met yet; empty if none."""

    def concluded(self, world: SimulatedQuorum) -> None:
        """The run is over."""


class SimulatedQuorum:
    """The state of a simulated quorum, and questions about the state."""

    def __init__(
        self,
        members: dict[int, Member],
        voters: VoterSet,
        *,
        trace: Trace,
        check_quorum: CheckQuorum,
        watch: Watch | None = None,
    ) -> None:
        """Begin with stopped nodes at the virtual time 0.

        Args:
            members: The nodes, by id.
            voters: The first voter set.
            trace: Receives the lines of the trace.
            check_quorum: Checks that leaders without a majority resign.
            watch: Additional invariants.
        """
        self.hosts = {node_id: Host(member) for node_id, member in members.items()}
        self.invariants = Invariants(voters)
        self.disk_losses = DiskLosses(tuple(key.id for key in voters.keys if key.directory_id == Uuid.ZERO))
        self.check_quorum = check_quorum
        self.signs = SignsOfLife(check_quorum.fetch_timeout_ms)
        self.reads = ReadWatch()
        self.trace = trace
        self.watch = watch
        self.driver = Driver()
        self.now_ms = 0
        self.events = 0
        """The number of inputs to all nodes."""
        self.exchanges: dict[tuple[int, int], Exchange] = {}
        """Every request so far, by sender and number."""
        self.is_calm = False
        """Whether all faults have ended."""
        self.is_attacked = False
        """Whether any node has received a hostile message."""
        self.has_forgotten = False
        """Whether the operator has replaced a disk by an empty one."""
        self.damage_until_ms: dict[int, int] = {}
        """The time until which the damage of a node's disk, or its repair, may cause a report about the node."""
        self.corrupted_until_ms: dict[tuple[int, int], int] = {}
        """By node and peer, the time until which a response of the peer, corrupted in transit, may cause a report."""
        self.acknowledged = 0
        """The number of submissions that were acknowledged as committed."""
        self.refused: list[bytes] = []
        """The values of the submissions that were definitely refused."""
        self.submissions: dict[int, bytes] = {}
        """The values of the pending submissions, by id."""
        self.kept_down: set[int] = set()
        """The nodes that may not start yet, also after the end of all faults."""
        self._last_request_id = 0

    @property
    def node_ids(self) -> tuple[int, ...]:
        """All nodes, including stopped ones."""
        return tuple(self.hosts)

    def running(self) -> list[int]:
        """The running nodes."""
        return [node_id for node_id, host in self.hosts.items() if host.is_running]

    def running_voters(self) -> list[int]:
        """The running voters, by the last voter set in any log."""
        return [node_id for node_id in self.invariants.voter_sets()[-1].ids if self.hosts[node_id].is_running]

    def may_start(self, node_id: int) -> bool:
        """Whether a node may restart with its disk: the quorum bears the loss, or the node must refuse the disk."""
        if node_id in self.kept_down:
            return False
        if self.must_refuse(node_id):
            return True
        running = self.running() if self.disk_losses.is_of_dynamic_quorum else self.running_voters()
        may_return = self.disk_losses.may_return(node_id, running, self.invariants)
        return may_return and not self.needs_format(node_id)

    def needs_format(self, node_id: int) -> bool:
        """Whether a damaged disk makes its node the only voter again, as in the first records of the quorum. Such a
        node would lead without the other voters, so the operator has to format the disk.
        """
        losses, voters = self.disk_losses, self.invariants.voter_sets()
        if not losses.is_of_dynamic_quorum or not losses.is_damaged(node_id):
            return False
        member = self.hosts[node_id].member
        is_only_voter = all(one.keys == (member.key,) for one in voters)
        return not is_only_voter and member.would_vote_alone()

    def must_refuse(self, node_id: int) -> str:
        """The damage of a disk that the node has to detect at its start."""
        return self.hosts[node_id].member.must_refuse() if self.disk_losses.is_damaged(node_id) else ""

    def is_explained(self, node_id: int, failure: OSError | MetadataLogError) -> bool:
        """Whether present damage on the disk of a node explains a failure, which names the file or its directory."""
        if not self.invariants.nodes.was_damaged(node_id):
            return False
        text = str(failure)
        return any(path.rpartition("/")[0] in text for path in self.hosts[node_id].member.damaged_files())

    def may_show_damage(self, node_id: int) -> bool:
        """Whether a report about a node, or of this node, may be a result of damage on its disk."""
        if self.invariants.nodes.was_damaged(node_id):
            return True
        return self.now_ms < self.damage_until_ms.get(node_id, 0)

    def was_corrupted(self, node_id: int, peer_id: int) -> bool:
        """Whether a report of a node about a peer may be a result of a response that was corrupted in transit. The id
        of a bootstrap address, which is negative, may be any peer.
        """
        return any(
            self.now_ms < until_ms and receiver == node_id and (sender == peer_id or peer_id < 0)
            for (receiver, sender), until_ms in self.corrupted_until_ms.items()
        )

    def under_way(self, node_id: int) -> list[Exchange]:
        """The pending requests from and to a node."""
        return [
            exchange
            for host in self.hosts.values()
            for exchange in host.waiting.values()
            if node_id in (exchange.sender, exchange.target)
        ]

    def leaders(self) -> list[int]:
        """The nodes in the leader state."""
        return [
            node_id
            for node_id, host in self.hosts.items()
            if host.is_running and host.view is not None and host.view.state == "Leader"
        ]

    def has_settled(self, target: int) -> bool:
        """Whether the quorum has made the progress that `Conclude` requires.

        All nodes are running, follow one leader, know everything below `target` as committed, and have decided on all
        submissions older than `STUCK_MS`.
        """
        if self.invariants.commits.end_offset < target:
            return False
        views = [host.view for host in self.hosts.values() if host.is_running and host.view is not None]
        return (
            len(views) == len(self.hosts)
            and all(view.high_watermark >= target for view in views)
            and all(view.leader == views[0].leader for view in views)
            and (self.watch is None or not self.watch.unsettled(self))
            and not self.stuck()
        )

    def stuck(self) -> list[tuple[int, int]]:
        """The submissions undecided for too long, by node and id (TLA+: ValuesNotStuck)."""
        return [
            (host.member.node_id, submit_id)
            for host in self.hosts.values()
            for submit_id, since_ms in host.submitted.items()
            if since_ms < self.now_ms - STUCK_MS
        ]

    def deadline_ms(self, node_id: int) -> int:
        """The next deadline of a running node, in ms of virtual time."""
        return self.hosts[node_id].deadline_ms()

    def clock_offset_ms(self, node_id: int) -> int:
        """The present error of a node's clock, in ms."""
        return self.hosts[node_id].clock_ms(self.now_ms) - START_MS - self.now_ms

    def next_request_id(self) -> int:
        """A request id that no delivery had before."""
        self._last_request_id += 1
        return self._last_request_id
