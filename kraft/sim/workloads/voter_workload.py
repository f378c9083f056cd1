"""The workload of voter changes: additions, removals, lost disks, new addresses, all drawn from the seed (KIP-853).

A requested change may be useless, late, repeated or refused, and two changes may be requested at once. However, the
workload removes no voter, and loses no disk, if that left the quorum without a possible majority even with all nodes
running: no protocol could continue from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from random import Random
from typing import Final

from msgspec import Struct

from kraft.quorum.values import ReplicaKey
from kraft.quorum.voter_history import DYNAMIC
from kraft.quorum.voters import majority
from kraft.sim.world.member_interface import CLUSTER_ID, Member
from kraft.sim.world.world import World
from metadata_log.image.features import KRAFT_VERSION
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from transport.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from transport.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

MOST_AT_ONCE: Final = 4
"""The maximal number of pending change requests."""
LINGER_MS: Final = 12_000
"""The maximal time in transit of messages that a node sent before it lost its disk."""
PORTS: Final = (9000, 9001, 9002)
_TIMEOUT_MS: Final = 2000
_UPGRADE: Final = 1


class AskVoters(Struct, frozen=True):
    """A client requests a voter change from a node."""

    node_id: int
    request_id: int
    request: Message


class WipeDisk(Struct, frozen=True):
    """A node dies and returns on an empty disk."""

    node_id: int
    down_ms: int


class MoveNode(Struct, frozen=True):
    """A node dies and returns at another port."""

    node_id: int
    port: int
    down_ms: int


Step = AskVoters | WipeDisk | MoveNode


class _Asked(Struct, frozen=True):
    """A requested voter change without an answer: an addition or a removal."""

    node_id: int
    key: ReplicaKey
    is_addition: bool


class VoterWorkload:
    """Draws the changes and faults of the voters in one run."""

    def __init__(
        self, rng: Random, timeout_ms: int, *, upgrades: bool = False, observers: tuple[int, ...] = ()
    ) -> None:
        """A leader gives up waiting for a change after `timeout_ms`. With `upgrades` the quorum is static at first.

        `observers` are the ids of nodes that never vote, such as brokers.
        """
        self._observers = frozenset(observers)
        self._rng = rng
        self._timeout_ms = timeout_ms
        self._mean_ms = rng.choice((300, 1000, 3000))
        self._weights = {
            "add": 4,
            "remove": rng.choice((1, 4)),
            "remove-leader": rng.choice((0, 1, 3)),
            "swap": rng.choice((0, 2)),
            "wipe": rng.choice((0, 1, 2)),
            "move": rng.choice((0, 0, 1)),
            "upgrade": 12 if upgrades else 0,
        }
        self._next_id = 1
        self._asked: dict[int, _Asked] = {}
        self._lingering: list[tuple[int, ReplicaKey]] = []

    def pause_ms(self) -> int:
        """The time until the next change, in ms."""
        if self._rng.random() < 0.3:
            # By then a leader that could not commit the last change has just stopped waiting.
            return self._timeout_ms + self._rng.randint(1, 100)
        return 1 + int(self._rng.expovariate(1 / self._mean_ms))

    def answered(self, request_id: int) -> None:
        """A change request has its response: its effect, if any, is in a log by now."""
        self._asked.pop(request_id, None)

    def died(self, node_id: int) -> None:
        """A node has stopped and answers no more requests; its writes are in its log."""
        self._asked = {at: one for at, one in self._asked.items() if one.node_id != node_id}

    def next_steps(self, world: World, now_ms: int) -> list[Step]:
        """The next changes and faults; often none, as a drawn one may not be safe now."""
        rng = self._rng
        (kind,) = rng.choices(list(self._weights), list(self._weights.values()))
        match kind:
            case "add":
                steps = [self._addition(world)]
            case "remove" | "remove-leader":
                steps = [self._removal(world, now_ms, of_leader=kind == "remove-leader")]
            case "swap":
                steps = [self._removal(world, now_ms, of_leader=False), self._addition(world)]
                rng.shuffle(steps)
            case "wipe":
                steps = [self._loss(world, now_ms)]
            case "upgrade":
                steps = [self._upgrade(world)]
            case _:
                steps = [MoveNode(rng.choice(self._candidates(world)), rng.choice(PORTS), rng.randint(1, 2000))]
        return [step for step in steps if step is not None]

    def _candidates(self, world: World) -> list[int]:
        """The nodes that are voters or may become voters."""
        return [one for one in world.node_ids if one not in self._observers]

    def _addition(self, world: World) -> Step | None:
        voting = world.invariants.voter_sets()[-1].ids
        others = [one for one in world.running() if one not in voting and one not in self._observers]
        if not others or self._rng.random() < 0.05:
            others = self._candidates(world)
        node_id = self._rng.choice(others)
        member = world.hosts[node_id].member
        request = addition_of(member, ack_when_committed=self._rng.random() < 0.8)
        return self._ask(world, member.key, request, is_addition=True)

    def _removal(self, world: World, now_ms: int, *, of_leader: bool) -> Step | None:
        voters = world.invariants.voter_sets()[-1].keys
        leaders = world.leaders()
        lost = [key for key in voters if world.hosts[key.id].member.key != key]
        key = self._rng.choice(lost if lost and self._rng.random() < 0.6 else voters)
        if of_leader and leaders:
            key = world.hosts[leaders[-1]].member.key
        if not self._is_safe(world, now_ms, removed=key):
            return None
        return self._ask(world, key, removal_of(key), is_addition=False)

    def _ask(self, world: World, key: ReplicaKey, request: Message, *, is_addition: bool) -> Step | None:
        running = [one for one in world.running() if one not in self._observers]
        candidates = world.leaders() if self._rng.random() < 0.9 else running
        if not candidates or len(self._asked) >= MOST_AT_ONCE:
            return None
        node_id = self._rng.choice(candidates)
        request_id, self._next_id = self._next_id, self._next_id + 1
        self._asked[request_id] = _Asked(node_id, key, is_addition)
        return AskVoters(node_id, request_id, request)

    def _upgrade(self, world: World) -> Step | None:
        leaders = world.leaders()
        if not leaders:
            return None
        update = FeatureUpdateKey(feature=KRAFT_VERSION, max_version_level=DYNAMIC, upgrade_type=_UPGRADE)
        request_id, self._next_id = self._next_id, self._next_id + 1
        return AskVoters(self._rng.choice(leaders), request_id, UpdateFeaturesRequest(feature_updates=[update]))

    def _loss(self, world: World, now_ms: int) -> Step | None:
        node_id = self._rng.choice(self._candidates(world))
        if not self.bears_loss(world, now_ms, node_id):
            return None
        return WipeDisk(node_id, self._rng.randint(1, 3000))

    def bears_loss(self, world: World, now_ms: int, node_id: int) -> bool:
        """Whether a majority is possible without the disk of a node, which is lost from now on."""
        key = world.hosts[node_id].member.key
        if _is_static_somewhere(world) or not self._is_safe(world, now_ms, lost=key):
            return False
        self._lingering = [one for one in self._lingering if one[0] > now_ms]
        self._lingering.append((now_ms + LINGER_MS, key))
        return True

    def _is_safe(
        self, world: World, now_ms: int, *, removed: ReplicaKey | None = None, lost: ReplicaKey | None = None
    ) -> bool:
        """Whether a majority is possible with every outcome of the pending changes."""
        changes = [(one.key, one.is_addition) for one in self._asked.values()]
        changes += [(key, True) for until_ms, key in self._lingering if until_ms > now_ms]
        if lost is not None:
            # The node may have requested just now to become a voter.
            changes.append((lost, True))
        if removed is not None:
            changes.append((removed, False))
        # A node that started on a damaged disk without noticing may die of the damage later.
        losses, nodes = world.disk_losses, world.invariants.nodes
        sound = [one for one in world.node_ids if not (losses.is_damaged(one) or nodes.was_damaged(one))]
        intact = {world.hosts[node_id].member.key for node_id in sound} - {lost}
        return all(
            sum(key in intact for key in keys) >= majority(len(keys))
            for voters in world.invariants.voter_sets()
            for keys in _outcomes(voters.keys, changes)
        )


def addition_of(member: Member, *, ack_when_committed: bool = True) -> AddRaftVoterRequest:
    """The request to make a node a voter."""
    return AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        timeout_ms=_TIMEOUT_MS,
        voter_id=member.key.id,
        voter_directory_id=member.key.directory_id,
        listeners=[Listener(one.name, one.host, one.port) for one in member.endpoints.listeners],
        ack_when_committed=ack_when_committed,
    )


def removal_of(key: ReplicaKey) -> RemoveRaftVoterRequest:
    """The request to remove a voter."""
    return RemoveRaftVoterRequest(cluster_id=None, voter_id=key.id, voter_directory_id=key.directory_id)


def _is_static_somewhere(world: World) -> bool:
    """Whether some log still has voters without directory ids: such a voter counts even with a lost disk."""
    ledger = world.invariants
    sets = [ledger.voters.in_force(ledger.observed(node_id).voters) for node_id in world.node_ids]
    return any(key.directory_id == Uuid.ZERO for voters in sets for key in voters.keys)


def _outcomes(keys: Iterable[ReplicaKey], changes: list[tuple[ReplicaKey, bool]]) -> Iterator[set[ReplicaKey]]:
    """The possible voter sets after any of the changes."""
    for made in chain.from_iterable(combinations(changes, count) for count in range(len(changes) + 1)):
        added = {key for key, is_addition in made if is_addition}
        yield (set(keys) | added) - {key for key, is_addition in made if not is_addition}
