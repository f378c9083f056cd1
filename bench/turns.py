"""The longest turn of a controller's event loop at full size, for `python bench/controller.py --what turns`.

The bench drives one replica on a disk step by step, like the node's event loop, on a clock that does not wait. The
replica is the only voter and flushes within the step, so that a step here is somewhat longer than in a node.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from msgspec import Struct

from kraft.broker import BrokerListener, BrokerOptions, BrokerSettings
from kraft.committed import CommittedBatch
from kraft.controller import QuorumController
from kraft.controller.decision.request_context import DecisionSettings
from kraft.controller.server import ControllerServer
from kraft.limits import UNITS_PER_TURN
from kraft.node.gc_freeze import THRESHOLDS
from kraft.process.hosting import host_controller
from kraft.process.opening import opening_process
from kraft.process.options import ProcessOptions
from kraft.process.parts import Input
from kraft.process.process import Process
from kraft.quorum.events import Tick
from kraft.quorum.values import Endpoints, ListenerAddress, QuorumConfig
from kraft.quorum.voters import VoterSet
from kraft.replica.interface.events import Output, PeerRequest
from kraft.replica.interface.options import ReplicaOptions, SnapshotOptions
from kraft.replica.peer_replies import HeldReply
from kraft.replica.storage.fetched import judging
from kraft.replica.storage.storage import ANSWER_BYTES
from kraft.sim.nodes.broker_without_data import BrokerWithoutData, agent_without_data
from kraft.supported_features import SUPPORTED_FEATURES
from kraft.wire import Answer, WireReply, WireRequest
from metadata_log.disk import OsDisk
from metadata_log.image import MetadataImage, memberships
from metadata_log.log.log_dir import format_directory
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.records import metadata
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.record import records as records_of
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid
from transport.protocol import messages as m
from transport.protocol.errors import Error
from transport.protocol.headers import encode_response, encode_response_in_steps
from transport.protocol.messages import FetchResponse
from transport.protocol.messages.create_topics import CreatableTopic
from transport.protocol.messages.delete_topics import DeleteTopicState
from transport.protocol.messages.describe_configs import DescribeConfigsResource
from transport.protocol.messages.elect_leaders import TopicPartitions
from transport.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from transport.protocol.server_connection import ELEMENTS_PER_STEP, FIRST_ELEMENTS

R = TypeVar("R")
BROKERS = 20
FENCED = 3
"""The broker to fence, which has three of 20 shares of all replicas."""
PER_TOPIC = 100
LARGE = 10
"""One topic has a tenth of all partitions."""
MADE = 9_999
MANY_TOPICS = 29_000
"""The number of topics that fit into one request."""
MANY_RESOURCES = 18_000
MOST_LISTED = 960_000
"""The number of partitions that fit into one ElectLeaders request."""
ANSWERS = 9_000
END = OffsetAndEpoch(epoch=1, offset=2_000_000)
RECORDS_IN_BATCH = 1024
RECORD_OVERHEAD = 10
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAkrD"
START_MS = 1_800_000_000_000
PATIENCE_MS = 3_600_000
SNAPSHOT_BYTES = 64
"""A size so small that a snapshot is made after the first write; the bench determines the time."""


class Longest(Struct):
    """The figures of one phase: its number of turns, and the longest by processor and by wall clock, in
    milliseconds."""

    name: str
    turns: int = 0
    cpu_ms: float = 0.0
    wall_ms: float = 0.0
    total_cpu_ms: float = 0.0


class Bench:
    """A replica in the event loop of its owner."""

    def __init__(self, directory: Path, partitions: int) -> None:
        self.now_ms = START_MS
        self.phases: list[Longest] = []
        self.answers: dict[int, Message] = {}
        self._freeze_s = 0.0
        disk = OsDisk()
        format_directory(disk, str(directory), node_id=1, cluster_id=CLUSTER_ID, rng=Random(1), now_ms=START_MS)
        log = directory / "__cluster_metadata-0"
        log.mkdir(exist_ok=True)
        write_snapshot(str(log), partitions)
        replica = ReplicaOptions(
            directory=str(directory),
            node_id=1,
            cluster_id=CLUSTER_ID,
            voters=VoterSet.parse("1@n1:9093"),
            endpoints=Endpoints((ListenerAddress("CONTROLLER", "n1", 9093),)),
            quorum=QuorumConfig(append_linger_ms=0),
            snapshots=SnapshotOptions(max_bytes=1 << 40, max_interval_ms=0),
            inline_flush=True,
        )
        decisions = DecisionSettings(
            broker_session_timeout_ms=10**9, leader_rebalance_interval_ms=600_000, max_idle_interval_ms=0
        )
        options = ProcessOptions(replica=replica, decisions=decisions)
        self.options = options
        with self.phase("open with the snapshot"):
            opening = opening_process(
                options=options, disk=disk, rng=Random(2), application=host_controller, now_ms=self.now_ms
            )
            opened: tuple[Process, list[Output]] | None = None
            while opened is None:
                opened = self.measured(lambda: _step(opening))
            self.replica, outputs = opened
        self.take(outputs)
        self._next_id = 1

    @contextmanager
    def phase(self, name: str) -> Iterator[Longest]:
        """Attribute the turns during the block to this phase."""
        self.phases.append(Longest(name))
        yield self.phases[-1]

    def measured(self, turn: Callable[[], Any]) -> Any:
        """Run one turn."""
        phase = self.phases[-1]
        cpu, wall = time.thread_time(), time.perf_counter()
        result = turn()
        cpu_ms, wall_ms = 1000 * (time.thread_time() - cpu), 1000 * (time.perf_counter() - wall)
        phase.turns += 1
        phase.cpu_ms = max(phase.cpu_ms, cpu_ms)
        phase.wall_ms = max(phase.wall_ms, wall_ms)
        phase.total_cpu_ms += cpu_ms
        if time.monotonic() > self._freeze_s:
            # As `kraft serve` does (`kraft.node.gc_freeze`).
            gc.freeze()
            self._freeze_s = time.monotonic() + 1
        return result

    def step(self, event: Input) -> None:
        """Run one step in one turn."""
        self.take(self.measured(lambda: self.replica.step(event, self.now_ms)))

    def take(self, outputs: list[Output]) -> None:
        """Store the responses."""
        for output in outputs:
            if isinstance(output, Answer):
                self.answers[output.request_id] = output.message

    def until(self, condition: Callable[[], bool]) -> None:
        """Tick at the replica's deadlines until a condition holds."""
        end = self.now_ms + PATIENCE_MS
        while not condition():
            wanted_ms = self.replica.deadline_ms()
            assert wanted_ms < end, "the condition never holds"
            self.now_ms = max(self.now_ms, wanted_ms)
            self.step(Tick())

    def ask(self, request: Message, version: int) -> Any:
        """The response to a request."""
        self._next_id += 1
        request_id = self._next_id
        api_key = type(request).__schema__.api_key
        assert api_key is not None
        self.step(
            WireRequest(request_id=request_id, api_key=api_key, version=version, message=request, listener="CONTROLLER")
        )
        self.until(lambda: request_id in self.answers and self.replica.deadline_ms() > self.now_ms + 2)
        answer = self.answers.pop(request_id)
        self.write(api_key, version, answer)
        return answer

    def write(self, api_key: int, version: int, answer: Message) -> None:
        """Encode a response like the transport: each step is a turn."""
        steps = encode_response_in_steps(api_key, version, 1, answer, first=FIRST_ELEMENTS, following=ELEMENTS_PER_STEP)
        pieces: list[bytes] | None = None
        while pieces is None:
            pieces = self.measured(lambda: _step(steps))
        self.measured(lambda: b"".join(pieces))

    def ask_at_once(self, request: Message, version: int, count: int) -> None:
        """Submit so many requests within a burst, which one commit completes. Each decision is a turn, and so is each
        portion of the responses.
        """
        api_key = type(request).__schema__.api_key
        assert api_key is not None
        asked = range(self._next_id + 1, self._next_id + 1 + count)
        self._next_id += count
        for request_id in asked:
            self.step(
                WireRequest(
                    request_id=request_id, api_key=api_key, version=version, message=request, listener="CONTROLLER"
                )
            )
        told = 0

        def tell() -> None:
            nonlocal told
            for output in self.replica.step(Tick(), self.now_ms):
                if isinstance(output, Answer):
                    encode_response(api_key, version, 1, output.message)
                    told += 1

        while told < count:
            self.now_ms = max(self.now_ms, self.replica.deadline_ms())
            self.measured(tell)

    @property
    def host(self) -> ControllerServer:
        """The host of the controller."""
        host = self.replica.application
        assert isinstance(host, ControllerServer), host
        return host


def _step(steps: Generator[None, None, R]) -> R | None:
    try:
        next(steps)
    except StopIteration as done:
        result: R = done.value
        return result
    return None


def topics_of(partitions: int) -> Iterator[tuple[str, int]]:
    """The names of the topics of a cluster with so many partitions, and their numbers of partitions."""
    large = partitions // LARGE
    yield "large", large
    for number in range((partitions - large) // PER_TOPIC):
        yield f"topic-{number}", PER_TOPIC


def records_of_cluster(partitions: int) -> Iterator[tuple[Message, int]]:
    """The records of the cluster, and their versions."""
    rng = Random(1)
    yield metadata.FeatureLevelRecord(name="metadata.version", feature_level=30), 0
    yield metadata.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1), 0
    directories = [Uuid(rng.randbytes(16)) for _ in range(BROKERS)]
    for broker in range(BROKERS):
        yield (
            metadata.RegisterBrokerRecord(
                broker_id=broker,
                incarnation_id=Uuid(rng.randbytes(16)),
                broker_epoch=broker + 10,
                end_points=(),
                features=(),
                rack=None,
                fenced=False,
                log_dirs=(directories[broker],),
            ),
            4,
        )
    at = 0
    for name, count in topics_of(partitions):
        topic_id = Uuid(rng.randbytes(16))
        yield metadata.TopicRecord(name=name, topic_id=topic_id), 0
        for number in range(count):
            at += 1
            replicas = tuple((at + step) % BROKERS for step in range(3))
            yield (
                metadata.PartitionRecord(
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=tuple(directories[each] for each in replicas),
                ),
                2,
            )


def write_snapshot(directory: str, partitions: int) -> None:
    """Write a snapshot of the cluster."""
    writer = SnapshotWriter(OsDisk(), directory, END, timestamp_ms=0, last_contained_log_timestamp=0)
    values = []
    for record, version in records_of_cluster(partitions):
        values.append(encode_record(record, version))
        if len(values) == RECORDS_IN_BATCH:
            writer.append(values, 0)
            values = []
    if values:
        writer.append(values, 0)
    writer.freeze(0)


def measure(directory: Path, partitions: int, made: int = MADE) -> list[Longest]:
    """Run each phase in turn on the same cluster; raises `AssertionError` if a phase does not do its work."""
    bench = Bench(directory, partitions)
    gc.set_threshold(*THRESHOLDS)

    def image() -> MetadataImage:
        return bench.host.controller.history.committed

    with bench.phase("become active"):
        bench.until(lambda: bench.replica.replica.is_active and bench.host.controller.is_active)
        bench.until(lambda: bench.replica.deadline_ms() > bench.now_ms + 2)
    begins = bench.replica.replica.log.end_offset
    count = sum(1 for _ in memberships(image().topics, FENCED))
    beat = m.BrokerHeartbeatRequest(
        broker_id=FENCED, broker_epoch=FENCED + 10, current_metadata_offset=END.offset, want_fence=True
    )
    with bench.phase(f"fence a broker that is in {count:,} ISRs"):
        answer = bench.ask(beat, 1)
    assert answer.is_fenced, answer
    assert not list(memberships(image().topics, FENCED))
    with bench.phase("balance: no leadership can return"):
        bench.now_ms += 600_001
        bench.step(Tick())
        bench.until(lambda: not bench.host._decisions.is_busy)
    request = m.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=60_000)
    with bench.phase("elect the preferred leaders of all partitions"):
        answer = bench.ask(request, 2)
    assert answer.error_code == 0, answer.error_code
    requests(bench, partitions)
    with bench.phase("unregister the broker"):
        answer = bench.ask(m.UnregisterBrokerRequest(broker_id=FENCED), 0)
    assert answer.error_code == 0, answer
    topic = CreatableTopic(name="made", num_partitions=made, replication_factor=3)
    with bench.phase(f"create a topic of {made:,} partitions"):
        answer = bench.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    assert answer.topics[0].error_code == 0, answer.topics[0]
    large = len(image().topics["large"].partitions)
    deletion = m.DeleteTopicsRequest(topics=[DeleteTopicState(name="large")], timeout_ms=60_000)
    with bench.phase(f"delete a topic of {large:,} partitions"):
        answer = bench.ask(deletion, 6)
    assert answer.responses[0].error_code == 0, answer
    many = [DeleteTopicState(name=name) for name, _ in topics_of(partitions) if name != "large"][: 10_000 // 2]
    with bench.phase(f"delete {len(many):,} topics of {PER_TOPIC} partitions"):
        answer = bench.ask(m.DeleteTopicsRequest(topics=many, timeout_ms=60_000), 6)
    assert {one.error_code for one in answer.responses} == {0}
    batches = committed(bench, begins)
    with bench.phase("make a snapshot"):
        make_snapshot(bench)
    with bench.phase("load the snapshot in place of the former state"):
        host = standby(bench)
    with bench.phase(f"apply {sum(len(one.values) for one in batches):,} records as a standby"):
        for batch in batches:
            bench.measured(partial(host.on_committed, batch))
            follow(bench, host)
    assert host.controller.history.committed.topics.by_name == image().topics.by_name
    with bench.phase("judge an answer of 8 MiB as a follower"):
        judge(bench, host)
    with bench.phase("load the snapshot as a broker, and publish it"):
        load_as_broker(bench)
    bench.replica.close()
    return bench.phases


def requests(bench: Bench, partitions: int) -> None:
    """Requests of the maximum size, and very many at once; none of them changes a topic."""
    names = [name for name, _ in topics_of(partitions) if name != "large"]
    listed = [TopicPartitions(topic="large", partitions=list(range(partitions // LARGE)))]
    listed += [TopicPartitions(topic=name, partitions=list(range(PER_TOPIC))) for name in names[: partitions // 1000]]
    count = sum(len(one.partitions) for one in listed)
    with bench.phase(f"elect leaders of {count:,} listed partitions, none needed"):
        answer = bench.ask(m.ElectLeadersRequest(election_type=0, topic_partitions=listed, timeout_ms=60_000), 2)
    assert sum(len(one.partition_result) for one in answer.replica_election_results) == count
    listed = [TopicPartitions(topic="large", partitions=list(range(MOST_LISTED)))]
    with bench.phase(f"refuse the elections of {MOST_LISTED:,} listed partitions"):
        answer = bench.ask(m.ElectLeadersRequest(election_type=7, topic_partitions=listed, timeout_ms=60_000), 2)
    assert len(answer.replica_election_results[0].partition_result) == MOST_LISTED
    unknown = [f"no-topic-{number}" for number in range(MANY_TOPICS)]
    with bench.phase(f"refuse to create {MANY_TOPICS:,} topics"):
        made = [CreatableTopic(name=name, num_partitions=1, replication_factor=3) for name in unknown]
        answer = bench.ask(m.CreateTopicsRequest(topics=made, timeout_ms=60_000), 7)
    assert {one.error_code for one in answer.topics} == {Error.POLICY_VIOLATION}
    with bench.phase(f"delete {MANY_TOPICS:,} topics that are not there"):
        gone = [DeleteTopicState(name=name) for name in unknown]
        answer = bench.ask(m.DeleteTopicsRequest(topics=gone, timeout_ms=60_000), 6)
    assert {one.error_code for one in answer.responses} == {Error.UNKNOWN_TOPIC_OR_PARTITION}
    change = [AlterableConfig(name="retention.ms", config_operation=0, value="1")]
    resources = [AlterConfigsResource(resource_type=2, resource_name=name, configs=change) for name in names]
    resources += [AlterConfigsResource(resource_type=2, resource_name=name, configs=change) for name in unknown]
    resources = resources[:MANY_RESOURCES]
    with bench.phase(f"alter {len(resources):,} configurations"):
        bench.ask(m.IncrementalAlterConfigsRequest(resources=resources, validate_only=False), 1)
    described = [
        DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None) for name in names
    ]
    with bench.phase(f"describe {len(described):,} configurations"):
        answer = bench.ask(m.DescribeConfigsRequest(resources=described, include_synonyms=True), 4)
    assert {one.error_code for one in answer.results} == {Error.NONE}
    minimum = [AlterableConfig(name="min.insync.replicas", config_operation=0, value="1")]
    of_all = [AlterConfigsResource(resource_type=4, resource_name="", configs=minimum)]
    with bench.phase("clear the eligible leaders of all topics (there are none)"):
        answer = bench.ask(m.IncrementalAlterConfigsRequest(resources=of_all, validate_only=False), 1)
    assert {one.error_code for one in answer.responses} == {Error.NONE}, answer
    with bench.phase(f"answer {ANSWERS:,} requests that one commit completes"):
        bench.ask_at_once(m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=11), 0, ANSWERS)


def committed(bench: Bench, since: int) -> list[CommittedBatch]:
    """The batches that the phases have written."""
    log = bench.replica.replica.log
    return [
        CommittedBatch(
            one.base_offset,
            one.next_offset,
            one.epoch,
            one.base_timestamp,
            tuple(record.value or b"" for record in records_of(one)),
            one.size_bytes,
        )
        for one in log.read_batches(since, 1 << 40, end_offset=log.end_offset)
        if not one.is_control
    ]


def make_snapshot(bench: Bench) -> None:
    """Make a snapshot of the whole state, as after enough bytes."""
    replica = bench.replica
    before = replica.replica.storage.snapshots.ids()
    bench.measured(lambda: replica.replica.snapshots.begin(bench.now_ms))
    bench.until(lambda: replica.replica.storage.snapshots.ids() != before)


def standby(bench: Bench) -> ControllerServer:
    """A standby that loads the first snapshot, and then again in place of its state."""
    host = ControllerServer(QuorumController(bench.host.controller.settings))
    values = bench.replica.replica.storage.snapshots.values(END)
    host.on_snapshot(values, END)
    while host.is_applying:
        host.apply_more()
    bench.measured(lambda: host.on_snapshot(values, END))
    follow(bench, host)
    return host


def judge(bench: Bench, host: ControllerServer) -> None:
    """Validate one batch of the maximum size before its append."""
    change = metadata.PartitionChangeRecord(partition_id=7, topic_id=Uuid(b"t" * 16), isr=(1, 2), leader=2)
    value = encode_record(change, 2)
    data = build_batch(0, 1, 0, [value] * (ANSWER_BYTES // (len(value) + RECORD_OVERHEAD)))
    held = HeldReply(WireReply(1, FetchResponse()), PeerRequest(1, 2), lambda: (None, judging(data, None, host.check)))
    while not held.is_judged:
        bench.measured(lambda: held.go_on(UNITS_PER_TURN))


def load_as_broker(bench: Bench) -> None:
    """Load the snapshot on a broker with a share of all partitions."""
    settings = BrokerSettings(
        broker_id=FENCED,
        cluster_id=CLUSTER_ID,
        incarnation_id=Uuid(b"i" * 16),
        listeners=(BrokerListener("PLAINTEXT", "n1", 9092),),
        features=SUPPORTED_FEATURES,
        options=BrokerOptions(directories=(Uuid(b"d" * 16),)),
    )
    host = BrokerWithoutData(agent_without_data(settings))
    bench.measured(lambda: host.on_snapshot(bench.replica.replica.storage.snapshots.values(END), END))
    while host.is_applying:
        bench.measured(host.apply_more)
    while host.agenda.deadline_ms <= bench.now_ms:
        bench.measured(lambda: host.on_tick(bench.now_ms))
        bench.now_ms += 1
    assert host.agent.replicas.partitions


def follow(bench: Bench, host: ControllerServer) -> None:
    """The turns of a standby after it received a batch or a snapshot."""
    while host.is_applying:
        bench.measured(host.apply_more)
    while host.agenda.deadline_ms <= bench.now_ms:
        bench.measured(lambda: list(host.on_tick(bench.now_ms)))
        bench.now_ms += 1


def show(phases: list[Longest], partitions: int) -> None:
    """Print a line for each phase."""
    title = f"longest turn with {partitions:,} partitions"
    print(f"\n{title:64}{'CPU ms':>9}{'wall ms':>9}{'turns':>8}{'all CPU ms':>12}")
    for one in phases:
        print(
            f"{one.name:64}{one.cpu_ms:9.1f}{one.wall_ms:9.1f}{one.turns:8}{one.total_cpu_ms:12.0f}",
            flush=True,
        )
