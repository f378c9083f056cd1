"""The controllers and brokers of one run, with settings drawn from its seed."""

from __future__ import annotations

from random import Random
from typing import Final

from kraft.broker import BrokerOptions
from kraft.controller.decision.request_context import DecisionSettings
from kraft.quorum.values import QuorumConfig
from kraft.quorum.voters import VoterSet
from kraft.replica.hosts.broker_host import host_broker
from kraft.replica.hosts.controller_host import host_controller
from kraft.sim.nodes.dynamic import draw_snapshots
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.world.member_interface import Member
from metadata_log.types import Uuid

CLUSTER: Final = "cluster"
"""The kind of members of a scenario with controllers and brokers."""
FIRST_BROKER: Final = 101
_FOREVER_MS: Final = 2**40


class Cluster:
    """Makes the controllers and brokers of one run. All timeouts are shorter than in Kafka, as runs are short."""

    def __init__(self, seed: int, brokers: int) -> None:
        self.broker_ids = broker_ids(brokers)
        self._uses_codecs = Random(f"{seed}/brokers").random() < 0.3
        self._rng = rng = Random(f"{seed}/cluster")
        self._decisions = DecisionSettings(
            broker_session_timeout_ms=rng.choice((900, 1500, 3000)),
            unclean_election_interval_ms=rng.choice((500, 5000)),
            leader_rebalance_interval_ms=rng.choice((0, 700, 3000)),
        )
        self._heartbeat_ms = rng.choice((200, 400, 800))
        self._lag_ms = rng.choice((300, 800, 3000))
        self._fetch_ms = rng.choice((50, 100, 250))
        self._snapshots = draw_snapshots(Random(f"{seed}/snapshots"))

    def make_controller(self, node_id: int, voters: VoterSet, config: QuorumConfig) -> Member:
        """A voter."""
        return self._member(node_id, voters, config, None)

    def make_broker(self, node_id: int, voters: VoterSet, config: QuorumConfig) -> Member:
        """A broker with one or two log directories."""
        options = BrokerOptions(
            directories=tuple(Uuid(self._rng.randbytes(16)) for _ in range(self._rng.choice((1, 1, 2)))),
            heartbeat_interval_ms=self._heartbeat_ms,
            initial_registration_timeout_ms=_FOREVER_MS,
            replica_lag_time_max_ms=self._lag_ms,
            fetch_interval_ms=self._fetch_ms,
        )
        return self._member(node_id, voters, config, options)

    def _member(self, node_id: int, voters: VoterSet, config: QuorumConfig, broker: BrokerOptions | None) -> Member:
        return ReplicaMember(
            node_id,
            voters=voters,
            config=config,
            application=host_controller if broker is None else host_broker,
            segment_bytes=1_000_000,
            versions={},
            uses_codecs=self._uses_codecs,
            decisions=self._decisions,
            broker=broker,
            snapshots=self._snapshots,
        )


def broker_ids(count: int) -> tuple[int, ...]:
    """The ids of this number of brokers."""
    return tuple(range(FIRST_BROKER, FIRST_BROKER + count))
