"""The controllers and brokers of one run, with settings drawn from its seed.

In a dynamic cluster the voter set is in the log, and brokers discover the quorum at bootstrap addresses (KIP-853). In a
combined cluster some processes are a controller and a broker (`process.roles=broker,controller`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from msgspec.structs import replace

from kraft.broker import BrokerOptions
from kraft.controller.decision.request_context import DecisionSettings
from kraft.partitions.replicas.settings import ReplicationSettings
from kraft.process.hosting import host_controller
from kraft.quorum.values import QuorumConfig
from kraft.quorum.voters import VoterSet
from kraft.sim.nodes.addresses import bootstrap_of
from kraft.sim.nodes.broker_without_data import host_broker_without_data
from kraft.sim.nodes.combined_node import CombinedNode
from kraft.sim.nodes.data_broker import DataBroker, DataSpec
from kraft.sim.nodes.dynamic import draw_snapshots, first_voters_of
from kraft.sim.nodes.node_disk import Formatting
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.world.member_interface import Member
from metadata_log.types import Uuid

CLUSTER: Final = "cluster"
"""The kind of members of a scenario with controllers and brokers."""
DYNAMIC_CLUSTER: Final = "dynamic-cluster"
"""The same with voter changes."""
DATA_CLUSTER: Final = "data-cluster"
"""Controllers, and brokers with data."""
DYNAMIC_DATA_CLUSTER: Final = "dynamic-data-cluster"
"""The same with voter changes."""
COMBINED_CLUSTER: Final = "combined-cluster"
"""Controllers and brokers with data, of which some are one process."""
COORDINATOR_CLUSTER: Final = "coordinator-cluster"
"""Controllers, and brokers with data that coordinate groups and transactions."""
SHARE_CLUSTER: Final = "share-cluster"
"""Controllers, and brokers with data that serve share groups."""
CLUSTERS: Final = (
    *(CLUSTER, DYNAMIC_CLUSTER, DATA_CLUSTER, DYNAMIC_DATA_CLUSTER, COMBINED_CLUSTER),
    *(COORDINATOR_CLUSTER, SHARE_CLUSTER),
)
WITH_DATA: Final = (DATA_CLUSTER, DYNAMIC_DATA_CLUSTER, COMBINED_CLUSTER, COORDINATOR_CLUSTER, SHARE_CLUSTER)
WITH_VOTER_CHANGES: Final = (DYNAMIC_CLUSTER, DYNAMIC_DATA_CLUSTER)
SLOWEST_LAG_MS: Final = 3000
QUICKEST_LAG_MS: Final = 300
FIRST_BROKER: Final = 101
SEGMENT_BYTES: Final = 1_000_000
SNAPSHOT_BYTES: Final = 1_048_576
"""The most bytes of a snapshot in one answer."""
_FOREVER_MS: Final = 2**40


class Cluster:
    """Makes the controllers and brokers of one run. All timeouts are shorter than in Kafka, as runs are short."""

    def __init__(
        self,
        seed: int,
        brokers: int,
        *,
        is_dynamic: bool = False,
        has_data: bool = False,
        has_small_logs: bool = False,
        has_two_directories: bool = False,
        has_late_checkpoints: bool = False,
        has_late_answers: bool = False,
        coordinates: bool = False,
        has_shares: bool = False,
        combined: int = 0,
    ) -> None:
        """Draw the settings of the nodes. With `is_dynamic` segments and answers with snapshots may be small; with
        `has_data` the brokers hold records, with `has_small_logs` in small logs, with `has_two_directories` on two
        directories each; with `has_late_checkpoints` they write checkpoint files late. With `has_late_answers` they
        wait long for answers of the controller, and shrink ISRs soon. With `coordinates` they have groups and
        transactions, with `has_shares` share groups in place of these. `combined` of the brokers are controllers, too.
        """
        self.broker_ids = broker_ids(brokers, combined)
        self._combined_ids = self.broker_ids[:combined]
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
        self._has_two_directories = has_two_directories
        self._has_late_checkpoints = has_late_checkpoints
        lag_ms = SLOWEST_LAG_MS if has_small_logs else self._lag_ms
        if has_late_answers:
            self._lag_ms, lag_ms = SLOWEST_LAG_MS, QUICKEST_LAG_MS
        coordinating = brokers if coordinates or has_shares else 0
        self.data = (
            DataSpec(
                seed,
                lag_ms,
                self._fetch_ms,
                has_small_logs=has_small_logs,
                coordinating=coordinating,
                has_shares=has_shares,
            )
            if has_data
            else None
        )
        """The settings of brokers with data."""
        log_rng = Random(f"{seed}/cluster-log")
        self._segment_bytes = log_rng.choice((1000, SEGMENT_BYTES)) if is_dynamic else SEGMENT_BYTES
        self._fetch_snapshot_max_bytes = log_rng.choice((300, SNAPSHOT_BYTES)) if is_dynamic else SNAPSHOT_BYTES

    def make_controller(
        self, node_id: int, voters: VoterSet, config: QuorumConfig, formatting: Formatting | None = None
    ) -> Member:
        """A controller. With a formatting, the voter set is in the log."""
        return self._member(node_id, voters, config, None, formatting)

    def make_broker(
        self, node_id: int, voters: VoterSet, config: QuorumConfig, formatting: Formatting | None = None
    ) -> Member:
        """A broker with one or two log directories."""
        directories = self._rng.choice((1, 1, 2))
        options = BrokerOptions(
            directories=tuple(
                Uuid(self._rng.randbytes(16)) for _ in range(2 if self._has_two_directories else directories)
            ),
            heartbeat_interval_ms=self._heartbeat_ms,
            initial_registration_timeout_ms=_FOREVER_MS,
            replication=ReplicationSettings(lag_time_max_ms=self._lag_ms, fetch_wait_max_ms=self._fetch_ms),
        )
        return self._member(node_id, voters, config, options, formatting)

    def _member(
        self,
        node_id: int,
        voters: VoterSet,
        config: QuorumConfig,
        broker: BrokerOptions | None,
        formatting: Formatting | None,
    ) -> Member:
        make: Callable[..., Member] = ReplicaMember
        if self.data is not None and broker is not None:
            kind = CombinedNode if node_id in self._combined_ids else DataBroker
            serving = self.data.serving(node_id, len(broker.directories))
            make = partial(kind, serving=serving, has_late_checkpoints=self._has_late_checkpoints)
        return make(
            node_id,
            voters=voters,
            config=replace(config, fetch_snapshot_max_bytes=self._fetch_snapshot_max_bytes),
            application=host_controller if broker is None else host_broker_without_data,
            segment_bytes=self._segment_bytes,
            versions={},
            uses_codecs=self._uses_codecs,
            decisions=self._decisions,
            broker=broker,
            formatting=formatting,
            snapshots=self._snapshots,
        )


def dynamic_members(
    cluster: Cluster, nodes: int, config: QuorumConfig, seed: int
) -> tuple[dict[int, Member], VoterSet]:
    """The controllers and brokers of a dynamic cluster, and its first voters: some of the controllers."""
    controller_ids = range(1, nodes + 1)
    first = first_voters_of(Random(f"{seed}/first-voters").randint(1, nodes))

    def formatting(node_id: int) -> Formatting:
        bootstrap = tuple(bootstrap_of(one) for one in controller_ids if one != node_id)
        return Formatting(first if node_id in first.ids else None, bootstrap)

    no_voters = VoterSet(())
    members = {one: cluster.make_controller(one, no_voters, config, formatting(one)) for one in controller_ids}
    members |= {one: cluster.make_broker(one, no_voters, config, formatting(one)) for one in cluster.broker_ids}
    return members, first


def broker_ids(count: int, combined: int = 0) -> tuple[int, ...]:
    """The ids of this number of brokers. The first `combined` ones are one process with the controller of their id."""
    return (*range(1, combined + 1), *range(FIRST_BROKER, FIRST_BROKER + count - combined))


def draw_combined(kind: str, seed: int, nodes: int, brokers: int) -> int:
    """The number of processes of a cluster with both roles: in half of the runs as many as possible."""
    most = min(nodes, brokers)
    if kind != COMBINED_CLUSTER or not most:
        return 0
    rng = Random(f"{seed}/roles")
    return most if rng.random() < 0.5 else rng.randint(1, most)
