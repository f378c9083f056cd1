"""The nodes of a quorum with the voter set in the log, and with settings drawn from the seed (KIP-853)."""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec.structs import replace

from kraft.process.hosting import host_controller
from kraft.process.parts import ApplicationFactory
from kraft.quorum.values import OWN_KRAFT_VERSIONS, QuorumConfig, ReplicaKey
from kraft.quorum.voters import Voter, VoterSet
from kraft.replica.interface.options import SnapshotOptions
from kraft.sim.nodes.addresses import bootstrap_of, endpoints_of
from kraft.sim.nodes.node_disk import Formatting
from kraft.sim.nodes.registers import host_registers
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.world.member_interface import Member
from metadata_log.log.retention import Retention
from metadata_log.types import Uuid

UPGRADED: Final = "upgraded-controller"
"""The kind of members that begin as a static quorum and become a dynamic one."""
DYNAMIC: Final[dict[str, ApplicationFactory]] = {
    "dynamic": host_registers,
    "dynamic-controller": host_controller,
    UPGRADED: host_controller,
}
"""The application of the nodes, by the kind of members of a scenario."""


def draw_snapshots(rng: Random) -> SnapshotOptions:
    """Draw the interval of snapshots and the retention: snapshots are frequent, as runs are short.

    A follower must complete the download of a snapshot before its deletion. With 100 bytes per request, snapshots of
    140 kB, one every 700 ms and only two retained, a follower restarted its download 188 times and never caught up.
    """
    return SnapshotOptions(
        max_bytes=rng.choice((500, 3000, 20 << 20)),
        max_interval_ms=rng.choice((0, 1500, 5000)),
        retention=Retention(max_bytes=rng.choice((1, 3000, 100 << 20))),
        clean_every_ms=rng.choice((1000, 4000)),
    )


class DynamicQuorum:
    """Makes the nodes of one run: the first voters, and observers that are formatted to join them."""

    def __init__(self, kind: str, nodes: int, config: QuorumConfig, seed: int) -> None:
        rng = Random(f"{seed}/dynamic")
        self._application = DYNAMIC[kind]
        self._node_ids = tuple(range(1, nodes + 1))
        self._config = replace(
            config,
            auto_join=rng.random() < 0.3,
            fetch_snapshot_max_bytes=rng.choice((100, 300, 1_048_576)),
        )
        self._snapshots = draw_snapshots(rng)
        self._segment_bytes = rng.choice((1000, 1_000_000))
        self._uses_codecs = rng.random() < 0.5
        self._is_upgraded = kind == UPGRADED
        count = nodes if self._is_upgraded else rng.randint(1, nodes)
        self.first_voters = first_voters_of(count, is_static=self._is_upgraded)

    def members(self) -> dict[int, Member]:
        """All nodes."""
        return {node_id: self._member(node_id) for node_id in self._node_ids}

    def _member(self, node_id: int) -> ReplicaMember:
        return ReplicaMember(
            node_id,
            voters=self.first_voters if self._is_upgraded else VoterSet(()),
            config=self._config,
            application=self._application,
            segment_bytes=self._segment_bytes,
            versions={},
            uses_codecs=self._uses_codecs,
            formatting=None if self._is_upgraded else self._formatting(node_id),
            snapshots=self._snapshots,
        )

    def _formatting(self, node_id: int) -> Formatting:
        bootstrap = tuple(bootstrap_of(one) for one in self._node_ids if one != node_id)
        return Formatting(self.first_voters if node_id in self.first_voters.ids else None, bootstrap)


def first_voters_of(count: int, *, is_static: bool = False) -> VoterSet:
    """The voters with ids from 1 on. A voter of a static quorum has no directory id."""
    ids = range(1, count + 1)
    if is_static:
        return VoterSet(tuple(Voter(ReplicaKey(one), endpoints_of(one)) for one in ids))
    keys = [ReplicaKey(one, Uuid(Random(f"directory/{one}").randbytes(16))) for one in ids]
    return VoterSet(tuple(Voter(key, endpoints_of(key.id), OWN_KRAFT_VERSIONS) for key in keys))
