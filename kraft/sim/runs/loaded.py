"""Runs with slow decisions: controllers that need time for each record, brokers in many ISRs, and one broker that stops
sending heartbeats.

`run_loaded` is the entry point. Fencing such a broker in one step would block the leader for longer than a fetch
timeout. The leader would lose its leadership and the fencing, and the next leader would start over. The run requires
that the silent broker is fenced, and that only faults cause changes of leaders.
"""

from __future__ import annotations

from random import Random
from typing import Final, Unpack

from kraft.quorum.values import QuorumConfig
from kraft.sim.nodes.member_kinds import LOADED
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.seeded_run import Result, whole_run
from kraft.sim.runs.simulator import RunOptions, Simulator, Work
from kraft.sim.workloads.load_watch import BROKERS, TOPICS, LoadWatch, image_of_leader
from kraft.sim.world.member_interface import CLUSTER_ID
from kraft.supported_features import SUPPORTED_FEATURES
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from transport.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from transport.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest

RECORD_US: Final = 300
"""The time for each record, in µs; the change of a partition takes half of it, some fifty times what a present machine
needs.
"""
PARTITIONS: Final = 1000
CHAOS_MS: Final = 20_000
CALM_MS: Final = 120_000
HEARTBEAT_MS: Final = 400
ASK_MS: Final = 200


def loaded_config(seed: int) -> QuorumConfig:
    """Draw the settings of a run: the timeouts of Kafka or half as long ones; all else as in production."""
    rng = Random(f"{seed}/loaded")
    fetch_timeout_ms = rng.choice((1000, 2000))
    return QuorumConfig(
        fetch_timeout_ms=fetch_timeout_ms,
        fetch_max_wait_ms=fetch_timeout_ms // 4,
        election_timeout_ms=rng.choice((400, 1000)),
    )


def loaded_scenario(seed: int, nodes: int) -> Scenario:
    """The scenario of a seed: controllers that need time for each record."""
    return Scenario.drawn(LOADED, nodes, seed, config=loaded_config(seed), record_us=RECORD_US)


class Load(Work):
    """The requests of brokers and of an operator to the controllers in one run."""

    pauses_ms: tuple[int, ...] = (2000, 5000)
    writes_ms: tuple[int, ...] = (500,)

    def __init__(self, seed: int) -> None:
        self._rng = Random(f"{seed}/load")
        self._next_request_id = 1
        self._is_over = self._is_silent = False

    def begin(self, simulator: Simulator) -> None:
        """Begin to register the brokers and to create topics."""
        self._simulator = simulator
        watch = simulator.world.watch
        assert isinstance(watch, LoadWatch), watch
        self._watch = watch
        for node_id in simulator.world.node_ids:
            simulator.slow_down(node_id, simulator.scenario.record_us)
        simulator.queue.schedule(HEARTBEAT_MS, self._beat)
        simulator.queue.schedule(ASK_MS, self._create)

    def end(self) -> None:
        """All faults have ended: one broker stops sending heartbeats as soon as all topics exist."""
        self._is_over = True

    def _beat(self) -> None:
        """Every broker sends registrations until one succeeds, then heartbeats."""
        image = self._image()
        if self._is_over and not self._is_silent and image is not None and len(image.topics) == TOPICS:
            self._is_silent = True
            self._watch.fall_silent(self._simulator.world)
        for broker_id in BROKERS[: -1 if self._is_silent else None]:
            broker = None if image is None else image.brokers.by_id.get(broker_id)
            if image is None or broker is None:
                self._ask(_registration(broker_id))
            else:
                beat = BrokerHeartbeatRequest(
                    broker_id=broker_id, broker_epoch=broker.epoch, current_metadata_offset=image.end.offset
                )
                self._ask(beat)
        self._ask(_invented_heartbeat(self._rng))
        self._simulator.queue.schedule(HEARTBEAT_MS, self._beat)

    def _create(self) -> None:
        """Create one topic after the other, until all exist."""
        image = self._image()
        names = set() if image is None else set(image.topics)
        missing = [name for name in (f"t{number}" for number in range(TOPICS)) if name not in names]
        if image is not None and missing and all(broker_id in image.brokers.by_id for broker_id in BROKERS):
            self._ask(_topic(missing[0]))
        if missing:
            self._simulator.queue.schedule(ASK_MS, self._create)

    def _image(self) -> MetadataImage | None:
        """The committed metadata of the active controller."""
        return image_of_leader(self._simulator.world)

    def _ask(self, request: Message) -> None:
        leaders = self._simulator.leaders()
        if leaders:
            self._simulator.administer(self._rng.choice(leaders), self._next_request_id, request)
            self._next_request_id += 1


def _registration(broker_id: int) -> Message:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=Uuid(bytes(15) + bytes((broker_id,))),
        listeners=[Listener("PLAINTEXT", f"b{broker_id}", 9092, 0)],
        features=[Feature(*one) for one in SUPPORTED_FEATURES],
        rack=None,
        log_dirs=[Uuid(bytes(14) + b"\xff" + bytes((broker_id,)))],
    )


def _invented_heartbeat(rng: Random) -> Message:
    """A heartbeat of an incarnation that has never registered."""
    broker_id = rng.choice((*BROKERS, 4711, -1))
    return BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=rng.choice((-1, 0, 2**62)))


def _topic(name: str) -> Message:
    assignments = [
        CreatableReplicaAssignment(number, [BROKERS[(number + turn) % len(BROKERS)] for turn in range(len(BROKERS))])
        for number in range(PARTITIONS)
    ]
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)]
    )


def run_loaded(
    seed: int,
    nodes: int = 3,
    *,
    chaos_ms: int = CHAOS_MS,
    **given: Unpack[RunOptions],
) -> Result:
    """Simulate controllers with slow decisions, as `run` simulates a quorum."""
    simulator = loaded_simulator(seed, nodes, **given)
    return whole_run(simulator, chaos_ms, CALM_MS, again=f"run_loaded({seed}, {nodes}, chaos_ms={chaos_ms})")


def loaded_simulator(seed: int, nodes: int = 3, **given: Unpack[RunOptions]) -> Simulator:
    """The simulator of controllers with slow decisions before its first event."""
    return Simulator(loaded_scenario(seed, nodes), work=Load(seed), **given)
