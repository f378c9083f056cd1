"""The values of consensus: replica keys, endpoints, elections (Kafka: `ReplicaKey`, `Endpoints`, `ElectionState`)."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Struct

from kraft.config.key import Key
from kraft.limits import BATCH_BYTES
from metadata_log.types import NO_NODE, Uuid

DEFAULT_LISTENER = "CONTROLLER"


class ReplicaKey(Struct, frozen=True, gc=False, order=True):
    """A node id with the id of the log directory; a wiped disk makes another replica (KIP-853).

    The zero directory id means "unknown": a static quorum identifies its voters by node id only.
    """

    id: int
    directory_id: Uuid = Uuid.ZERO

    def matches(self, other: ReplicaKey) -> bool:
        """Whether `other` can be this replica: equal ids and equal directory ids, unless this one is unknown."""
        return self.id == other.id and self.directory_id in (Uuid.ZERO, other.directory_id)


class ListenerAddress(Struct, frozen=True, gc=False):
    """The name and address of one listener of a node, as other nodes connect to the listener."""

    name: str
    host: str
    port: int


class Endpoints(Struct, frozen=True, gc=False):
    """The addresses of a node, in the order of its `controller.listener.names`."""

    listeners: tuple[ListenerAddress, ...] = ()

    def find(self, name: str) -> ListenerAddress | None:
        """The address of one listener, or None."""
        for listener in self.listeners:
            if listener.name == name:
                return listener
        return None

    @property
    def default(self) -> ListenerAddress | None:
        """The first listener, which the node itself uses towards other controllers."""
        return self.listeners[0] if self.listeners else None

    def at(self, name: str) -> ListenerAddress | None:
        """The address for a node with this name of its own first listener; without such an address the first one.

        Nodes may differ in their first listener while a quorum goes from one security protocol to another. Kafka:
        `VoterSet.voterAddress`, `LeaderEndpoints.address`, without the fallback.
        """
        for listener in self.listeners:
            if listener.name == name:
                return listener
        return self.listeners[0] if self.listeners else None

    def __len__(self) -> int:
        return len(self.listeners)


class VersionRange(Struct, frozen=True, gc=False):
    """The levels of a feature that a node supports."""

    lowest: int = 0
    highest: int = 0

    def holds(self, level: int) -> bool:
        """Whether the node supports this level."""
        return self.lowest <= level <= self.highest


OWN_KRAFT_VERSIONS: Final = VersionRange(0, 1)
"""The levels of kraft.version that this software supports."""


class LeaderAndEpoch(Struct, frozen=True, gc=False):
    """The leader of an epoch; `leader_id` is -1 while no leader is known."""

    leader_id: int
    epoch: int


class ElectionState(Struct, frozen=True, gc=False):
    """The content of the quorum-state file: the epoch, its leader, and the vote of this replica in the epoch."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey | None = None
    voters: tuple[int, ...] = ()


class QuorumConfig(Struct, frozen=True, gc=False, kw_only=True):
    """The settings of consensus with Kafka's defaults (`QuorumConfig`), in milliseconds and bytes."""

    election_timeout_ms: Annotated[int, Key("controller.quorum.election.timeout.ms")] = 1000
    fetch_timeout_ms: Annotated[int, Key("controller.quorum.fetch.timeout.ms")] = 2000
    election_backoff_max_ms: Annotated[int, Key("controller.quorum.election.backoff.max.ms")] = 1000
    request_timeout_ms: Annotated[int, Key("controller.quorum.request.timeout.ms")] = 2000
    retry_backoff_ms: Annotated[int, Key("controller.quorum.retry.backoff.ms")] = 20
    append_linger_ms: Annotated[int, Key("controller.quorum.append.linger.ms")] = 25
    fetch_max_bytes: Annotated[int, Key("controller.quorum.fetch.max.bytes")] = 1_048_576
    fetch_snapshot_max_bytes: Annotated[int, Key("controller.quorum.fetch.snapshot.max.bytes")] = 1_048_576
    fetch_max_wait_ms: int = 500
    max_batch_bytes: Annotated[int, Key("internal.metadata.max.batch.size.in.bytes")] = BATCH_BYTES
    observer_timeout_ms: int = 300_000
    lost_leader_backoff_max_ms: Annotated[int, Key("controller.quorum.lost.leader.backoff.max.ms")] = 100
    """The maximum time in ms that a follower delays its pre-votes after the leader's address refuses connections; 0 to
    wait for the fetch timeout, as Kafka does.
    """
    auto_join: Annotated[bool, Key("controller.quorum.auto.join.enable")] = False
    """Whether a controller that is no voter requests to become one (KIP-1186)."""
    high_watermark_propagation_delay_ms: int = 0
    """The maximum time in ms that a leader delays a fetch reply with a new high watermark and no records. Kafka: 0."""

    @property
    def longest_wait_ms(self) -> int:
        """The maximum time in ms that a leader parks a Fetch; Kafka has no such bound.

        A follower without a reply for the fetch timeout gives up its leader, so a longer wait only costs memory.
        """
        return max(self.fetch_timeout_ms, self.fetch_max_wait_ms)
