"""The initial state of a run: the number and the kind of the nodes, and their settings (Kafka: the `Cluster` of
`RaftEventSimulationTest`).
"""

from __future__ import annotations

from random import Random

from msgspec import Struct

from kraft.quorum.values import QuorumConfig
from kraft.quorum.voters import VoterSet
from kraft.sim.faults.profiles import BROAD, Profile
from kraft.sim.nodes.client_sessions import draw_lifetime_ms
from kraft.sim.nodes.cluster import (
    CLUSTERS,
    COORDINATOR_CLUSTER,
    SHARE_CLUSTER,
    WITH_DATA,
    WITH_VOTER_CHANGES,
    Cluster,
    draw_combined,
    dynamic_members,
)
from kraft.sim.nodes.data_broker import DataSpec, forgets
from kraft.sim.nodes.dynamic import DYNAMIC, DynamicQuorum
from kraft.sim.nodes.member_kinds import (
    LOADED,
    MEMBERS,
    WITH_SNAPSHOTS,
    MakeMember,
    draw_config,
    members_with_snapshots,
    spec_for,
    state_machine_members,
)
from kraft.sim.nodes.workload_spec import WorkloadSpec
from kraft.sim.workloads.client_history import ClientHistory
from kraft.sim.workloads.coordinator_watch import CoordinatorWatch
from kraft.sim.workloads.load_watch import LoadWatch
from kraft.sim.workloads.partition_watch import PartitionWatch
from kraft.sim.workloads.record_watch import RecordWatch
from kraft.sim.workloads.share_watch import ShareWatch
from kraft.sim.workloads.voter_watch import VoterWatch
from kraft.sim.world.check_quorum import CheckQuorum
from kraft.sim.world.disk_losses import DiskLosses
from kraft.sim.world.trace import Trace
from kraft.sim.world.world import World
from metadata_log.types import Uuid


class Scenario(Struct, frozen=True, kw_only=True):
    """Everything that determines the initial world. `seed` draws the rest, such as the versions of requests."""

    members: str
    """The kind of the voters: a key of `MEMBERS` or of `DYNAMIC`, or one of `CLUSTERS`."""
    nodes: int
    """The number of voters."""
    first_id: int = 1
    """The id of the first voter."""
    brokers: int = 0
    """The number of brokers of a cluster."""
    seed: int = 0
    config: QuorumConfig
    profile: str = BROAD.name
    """The name of the profile."""
    has_snapshots: bool = False
    """Whether plain replicas and controllers make snapshots."""
    has_dynamic_damage: bool = False
    """Whether disks of a dynamic quorum may be damaged."""
    is_careless: bool = False
    """Whether the operator starts static voters with damaged disks at any time, against the rules."""
    has_small_logs: bool = False
    """Whether the logs of brokers with data are small, and are copied and fetched in small steps."""
    has_full_directories: bool = False
    """Whether brokers with data have two log directories each, of which one may be full."""
    has_late_answers: bool = False
    """Whether brokers with data wait long for answers of the controller, and shrink ISRs soon."""
    record_us: int = 0
    """The time that a node needs for each record that it decides on or applies, in µs, also in the calm."""
    is_forged: bool = False
    """Whether the run has forged messages, which may be indistinguishable from genuine ones. Then the run only requires
    that no node ends.
    """

    @staticmethod
    def drawn(
        members: str,
        nodes: int,
        seed: int,
        brokers: int = 0,
        config: QuorumConfig | None = None,
        *,
        profile: Profile = BROAD,
        record_us: int = 0,
        is_forged: bool = False,
    ) -> Scenario:
        """Draw the scenario of a seed.

        Args:
            members: The kind of the voters: a key of `MEMBERS` or of `DYNAMIC`, or one of `CLUSTERS`.
            nodes: The number of voters.
            seed: Determines the scenario.
            brokers: The number of brokers of a cluster.
            config: The settings of the quorum; by default drawn from the seed.
            profile: The profile of the run, which changes some of the settings.
            record_us: The time that a node needs for each record, in µs.
            is_forged: Whether the run has forged messages.
        """
        config = profile.tune(config or draw_config(Random(f"{seed}/config")), seed)
        return Scenario(
            members=members,
            nodes=nodes,
            brokers=brokers,
            seed=seed,
            config=config,
            profile=profile.name,
            has_snapshots=profile.has_snapshots,
            is_careless=profile.is_careless,
            has_dynamic_damage=profile.has_dynamic_damage and members in DYNAMIC,
            has_small_logs=profile.has_small_logs and members in WITH_DATA,
            has_full_directories=profile.has_full_directories and members in WITH_DATA,
            has_late_answers=profile.late_ms > 0 and members in WITH_DATA,
            record_us=record_us,
            is_forged=is_forged,
        )

    def make_world(
        self, trace: Trace, make_member: MakeMember | None = None, workload_spec: WorkloadSpec | None = None
    ) -> World:
        """Make the initial world of the scenario; `make_member` makes nodes of a kind that is not in `MEMBERS`.
        `KeyError` for an unknown kind of members.
        """
        world = self._make_world(trace, make_member, workload_spec)
        if self.is_careless:
            static_ids = tuple(
                key.id for key in world.invariants.voter_sets()[-1].keys if key.directory_id == Uuid.ZERO
            )
            world.disk_losses = DiskLosses(static_ids, is_careless=True)
        if self.is_forged:
            world.demand_only_survival()
        return world

    def _make_world(self, trace: Trace, make_member: MakeMember | None, workload_spec: WorkloadSpec | None) -> World:
        voter_ids = tuple(range(self.first_id, self.first_id + self.nodes))
        check_quorum = CheckQuorum(self.config.fetch_timeout_ms)
        if self.members in DYNAMIC:
            quorum = DynamicQuorum(self.members, self.nodes, self.config, self.seed)
            first = quorum.first_voters
            world = World(quorum.members(), first, trace=trace, check_quorum=check_quorum, watch=VoterWatch())
            # The workload of voter changes decides which disks may be lost.
            world.disk_losses = DiskLosses((), has_dynamic_damage=self.has_dynamic_damage)
            return world
        voters = VoterSet.parse(",".join(f"{one}@n{one}:9000" for one in voter_ids))
        if self.members in CLUSTERS:
            return self._make_cluster(trace, check_quorum, voters)
        history = None
        workload_spec = spec_for(self.members, self.seed, workload_spec)
        if workload_spec is not None:
            history = ClientHistory(workload_spec)
            make_member = state_machine_members(workload_spec, history.clients, draw_lifetime_ms(self.seed))
        make_member = make_member or MEMBERS[self.members]
        if self.has_snapshots and self.members in WITH_SNAPSHOTS:
            make_member = members_with_snapshots(self.members, Random(f"{self.seed}/snapshots"))
        rng = Random(f"{self.seed}/members")
        members = {one: make_member(one, voters, self.config, rng) for one in voter_ids}
        if self.members == LOADED:
            return World(members, voters, trace=trace, check_quorum=check_quorum, watch=LoadWatch())
        return World(members, voters, trace=trace, check_quorum=check_quorum, watch=history)

    def _make_cluster(self, trace: Trace, check_quorum: CheckQuorum, voters: VoterSet) -> World:
        is_dynamic = self.members in WITH_VOTER_CHANGES
        cluster = Cluster(
            self.seed,
            self.brokers,
            is_dynamic=is_dynamic,
            has_data=self.members in WITH_DATA,
            has_small_logs=self.has_small_logs,
            has_two_directories=self.has_small_logs or self.has_full_directories,
            has_late_checkpoints=self.has_full_directories,
            has_late_answers=self.has_late_answers,
            coordinates=self.members == COORDINATOR_CLUSTER,
            has_shares=self.members == SHARE_CLUSTER,
            combined=draw_combined(self.members, self.seed, self.nodes, self.brokers),
        )
        watch = PartitionWatch(cluster.broker_ids)
        if cluster.data is not None:
            watch = self._watch_of_data(cluster.broker_ids, cluster.data)
        if not is_dynamic:
            members = {one: cluster.make_controller(one, voters, self.config) for one in voters.ids}
            members |= {one: cluster.make_broker(one, voters, self.config) for one in cluster.broker_ids}
            world = World(members, voters, trace=trace, check_quorum=check_quorum, watch=watch)
            if cluster.data is not None:
                world.disk_losses = DiskLosses(voters.ids, spared=cluster.broker_ids)
            return world
        members, first = dynamic_members(cluster, self.nodes, self.config, self.seed)
        world = World(members, first, trace=trace, check_quorum=check_quorum, watch=watch)
        # The workload of voter changes draws the disks to lose.
        world.disk_losses = DiskLosses(())
        return world

    def _watch_of_data(self, broker_ids: tuple[int, ...], data: DataSpec) -> RecordWatch:
        """The watch of brokers with data."""
        if self.members == SHARE_CLUSTER:
            return ShareWatch(
                broker_ids, data.flush_messages, data.shares.delivery_count_limit, data.shares.lock_duration_ms
            )
        if self.members != COORDINATOR_CLUSTER:
            return RecordWatch(broker_ids, data.flush_messages)
        watch = CoordinatorWatch(broker_ids, data.flush_messages)
        watch.groups.may_forget = forgets(self.seed)
        if self.has_small_logs:
            watch.follow_cleaning()
        return watch


def kind_of(make_member: MakeMember) -> str:
    """The name of a kind of members, for a `Scenario`."""
    names = (name for name, known in MEMBERS.items() if known is make_member)
    return next(names, make_member.__name__)
