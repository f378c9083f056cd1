"""Runs with brokers: agents beside the quorum, somebody who administers them, and the invariants of partitions.

`run_cluster` is the door. Requests of brokers' former lives, and of leaders that are none any more, come again now and
then, and must change nothing.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from random import Random
from typing import Final

from kraft.broker import BrokerOptions, LifecycleState
from kraft.controller.deciding import DecisionSettings
from kraft.quorum.values import QuorumConfig
from kraft.quorum.voters import VoterSet
from kraft.replica.broker_host import host_broker
from kraft.replica.controller_host import host_controller
from kraft.sim.admin_workload import AdminWorkload, is_unclean_election
from kraft.sim.member import Ask, Member, Output
from kraft.sim.partition_invariants import PartitionLedger
from kraft.sim.replica_member import Frame, ReplicaMember
from kraft.sim.simulator import CALM_MS, Result, Simulator, result_of
from metadata_log.image import MetadataImage, Partition
from metadata_log.serde import Message, decode
from metadata_log.types import OffsetAndEpoch, Uuid
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.messages.elect_leaders import ElectLeadersRequest

FIRST_BROKER: Final = 101
CHAOS_MS: Final = 20_000
REMEMBERED: Final = 40
"""So many requests of brokers may come again."""
_REPEATABLE: Final = (ApiKey.BROKER_HEARTBEAT, ApiKey.ALTER_PARTITION, ApiKey.ASSIGN_REPLICAS_TO_DIRS)
_FOREVER_MS: Final = 2**40


class ClusterSettings:
    """How quick everybody is in one run, drawn from its seed; all is quicker than in Kafka, as runs are short."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.decisions = DecisionSettings(
            broker_session_timeout_ms=rng.choice((900, 1500, 3000)),
            unclean_election_interval_ms=rng.choice((500, 5000)),
            leader_rebalance_interval_ms=rng.choice((0, 700, 3000)),
        )
        self._heartbeat_ms = rng.choice((200, 400, 800))
        self._lag_ms = rng.choice((300, 800, 3000))
        self._fetch_ms = rng.choice((50, 100, 250))

    def broker(self) -> BrokerOptions:
        """A broker with one or two log directories."""
        return BrokerOptions(
            directories=tuple(Uuid(self._rng.randbytes(16)) for _ in range(self._rng.choice((1, 1, 2)))),
            heartbeat_interval_ms=self._heartbeat_ms,
            initial_registration_timeout_ms=_FOREVER_MS,
            replica_lag_time_max_ms=self._lag_ms,
            fetch_interval_ms=self._fetch_ms,
        )


class SimulatedBrokers:
    """The brokers of one run, and what watches them."""

    def __init__(self, seed: int, count: int) -> None:
        self.ids = tuple(range(FIRST_BROKER, FIRST_BROKER + count))
        self.ledger = PartitionLedger()
        self._rng = Random(f"{seed}/brokers")
        self._settings = ClusterSettings(Random(f"{seed}/cluster"))
        self.workload = AdminWorkload(Random(f"{seed}/admin"), self.ids)
        self._uses_codecs = self._rng.random() < 0.3
        self._repeat_mean_ms = self._rng.choice((200, 1000))
        self._sent: deque[Message] = deque(maxlen=REMEMBERED)
        self._next_request_id = 1
        self._checked: dict[int, MetadataImage] = {}
        self._place = 0
        self._is_over = False

    def join(self, simulator: Simulator) -> None:
        """Become part of a run."""
        self._simulator = simulator

    def make_controller(self, node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random) -> Member:
        """A voter."""
        return self._member(node_id, voters, config, None)

    def make_member(self, node_id: int, voters: VoterSet, config: QuorumConfig) -> Member:
        """A broker."""
        return self._member(node_id, voters, config, self._settings.broker())

    def _member(
        self, node_id: int, voters: VoterSet, config: QuorumConfig, broker: BrokerOptions | None
    ) -> ReplicaMember:
        return ReplicaMember(
            node_id,
            voters=voters,
            config=config,
            application=host_controller if broker is None else host_broker,
            segment_bytes=1_000_000,
            versions={},
            uses_codecs=self._uses_codecs,
            decisions=self._settings.decisions,
            broker=broker,
        )

    # Work

    def begin(self) -> None:
        """Administer, and repeat what was said before, from now on."""
        self._simulator.schedule(self.workload.pause_ms(), self._administer)
        self._simulator.schedule(self._repeat_pause_ms(), self._repeat)

    def end_work(self) -> None:
        """No more requests, so that everything can come to rest."""
        self._is_over = True

    def _administer(self) -> None:
        if self._is_over:
            return
        request = self.workload.next_request(self.ledger.image)
        if is_unclean_election(request):
            self._note_forced(request)
        self._ask_controller(request)
        self._simulator.schedule(self.workload.pause_ms(), self._administer)

    def _note_forced(self, request: Message) -> None:
        """From now on these partitions may be elected uncleanly; the request may be decided on late."""
        assert isinstance(request, ElectLeadersRequest), request
        for asked in request.topic_partitions or []:
            topic_id = self.ledger.image.topics.by_name[asked.topic]
            self.ledger.forced.update((topic_id, number) for number in asked.partitions)

    def _repeat_pause_ms(self) -> int:
        return 1 + int(self._rng.expovariate(1 / self._repeat_mean_ms))

    def _repeat(self) -> None:
        """A request arrives again, perhaps of a former life or to another controller."""
        if self._is_over:
            return
        if self._sent:
            self._ask_controller(self._rng.choice(self._sent))
        self._simulator.schedule(self._repeat_pause_ms(), self._repeat)

    def _ask_controller(self, request: Message) -> None:
        simulator = self._simulator
        candidates = simulator.leaders() or simulator.running_voters()
        if not candidates:
            return
        node_id = self._rng.choice(candidates)
        member = simulator.member(node_id)
        assert isinstance(member, ReplicaMember), member
        request_id, self._next_request_id = self._next_request_id, self._next_request_id + 1
        simulator.let(node_id, partial(member.administer, request_id, request), f"admin {type(request).__name__}")

    # Invariants

    def started(self, member: Member) -> None:
        """A node begins a life; a broker's may follow on one that ended cleanly."""
        assert isinstance(member, ReplicaMember), member
        self._checked.pop(member.node_id, None)
        agent = member.agent
        if agent is not None:
            settings = agent.settings
            self.ledger.clean_starts[settings.incarnation_id] = settings.options.previous_epoch >= 0
        self._look(member)

    def stepped(self, member: Member, outputs: list[Output]) -> None:
        """A node has done something: what is committed, and what this node makes of it."""
        assert isinstance(member, ReplicaMember), member
        for output in outputs:
            if isinstance(output, Ask) and member.agent is not None:
                self._remember(output)
        self._look(member)

    def _remember(self, ask: Ask) -> None:
        frame = ask.message
        assert isinstance(frame, Frame), frame
        if frame.api_key in _REPEATABLE:
            body = frame.body
            kind = APIS[frame.api_key].request
            self._sent.append(decode(kind, frame.version, body) if isinstance(body, bytes) else body)

    def _look(self, member: ReplicaMember) -> None:
        invariants = self._simulator.invariants
        while self._place < len(invariants.committed):
            batch, values = invariants.committed[self._place], invariants.committed_values(self._place)
            self._place += 1
            if values:
                end = OffsetAndEpoch(epoch=batch.epoch, offset=batch.next_offset)
                self.ledger.committed(values, batch.base_offset, end)
        controller, agent = member.controller, member.agent
        if controller is not None:
            image = controller.history.committed
        elif agent is not None:
            image = agent.image
        else:
            return
        if self._checked.get(member.node_id) is not image:
            self._checked[member.node_id] = image
            self.ledger.check_node(member.node_id, image, is_published=controller is None)

    # Rest

    def unsettled(self) -> str:
        """What is not yet as it has to become when all faults end; empty if nothing."""
        image = self.ledger.image
        for broker_id in self.ids:
            member = self._simulator.member(broker_id)
            assert isinstance(member, ReplicaMember), member
            agent = member.agent
            if agent is None or agent.lifecycle.state is not LifecycleState.RUNNING or agent.lifecycle.is_fenced:
                return f"broker {broker_id} is not running: {agent and agent.lifecycle.state}"
            registered = image.brokers.by_id.get(broker_id)
            if registered is None or not registered.is_active or registered.epoch != agent.lifecycle.epoch:
                return f"broker {broker_id} is not active: {registered}"
        for name in image.topics:
            for number, partition in enumerate(image.topics[name].partitions):
                if not _is_whole(partition) and not _is_hopeless(partition):
                    return f"{name}-{number} is not whole: {partition}"
        return ""


def _is_whole(partition: Partition) -> bool:
    return partition.leader >= 0 and set(partition.isr) == set(partition.replicas) and not partition.is_reassigning


def _is_hopeless(partition: Partition) -> bool:
    """Whether nobody may lead but by an unclean election, which nobody wants; it is so in Kafka 4.3.1, too.

    Either min.insync.replicas was set while there was no leader, which clears the eligible leaders (ClearElr). Or all
    who are eligible were taken away by a reassignment; even the last leader known must wait for them.
    """
    if partition.isr or set(partition.elr) & set(partition.replicas):
        return False
    return bool(partition.elr) or not partition.last_known_elr


def run_cluster(
    seed: int,
    nodes: int = 3,
    brokers: int = 3,
    *,
    chaos_ms: int = CHAOS_MS,
    calm_ms: int = CALM_MS,
    keep_trace: bool = False,
) -> tuple[Result, PartitionLedger]:
    """Simulate one cluster; what goes wrong in it is raised, with the seed and the end of the trace in its notes."""
    simulated = SimulatedBrokers(seed, brokers)
    simulator = Simulator(
        seed=seed, nodes=nodes, make_member=simulated.make_controller, brokers=simulated, keep_trace=keep_trace
    )
    try:
        simulator.chaos(chaos_ms)
        simulated.end_work()
        simulator.calm(calm_ms)
    except Exception as failure:
        failure.add_note(simulator.trace.text)
        failure.add_note(f"seed {seed}: replay with run_cluster({seed}, {nodes}, {brokers}, chaos_ms={chaos_ms})")
        raise
    return result_of(simulator, seed, nodes), simulated.ledger
