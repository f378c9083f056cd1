"""The throughput of a controller's decisions: ours beside Apache Kafka's, in one run, with simulated brokers.

    python bench/controller.py [--targets ours,kafka] [--what decide,beat,load,turns] [--topics 11] [--partitions 9999]
                               [--reps 5] [--brokers 1000] [--seconds 5] [--load 1000000] [--heat 10] [--dir DIR]

`decide`: three controllers of each implementation (append linger 0) get topics of 9,999 partitions on three brokers. A
fourth broker, which leads 10,000 partitions of its own, is fenced repeatedly. Then one of the three is fenced, which is
in the ISR of all other partitions, and its ISRs grow again. The figure is the latency of the heartbeat that requests
the fencing: the response waits for the commit of each change. Two brokers send heartbeats all the time; the bench also
reports their longest latency.
`beat`: the given number of brokers send heartbeats at the maximum rate.
`turns`: the longest turn of a controller of ours, with as many partitions as in `load`.
`load`: one controller starts with so many partitions in a log or a snapshot, until it commits its first write.

Before `decide` and `beat` each quorum is loaded for the same time (--heat) with small writes, so that the compilers of
the JVMs are equally warm; `load` measures processes from their start. The bench prints the flags of the JVMs.

Times are wall clock; CPU is that of all three processes (`decide`), of the leader (`beat`), of the process (`load`).
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import turns
from controllers.brokers import CLUSTER_ID, HEARTBEAT_VERSION, Brokers, frame
from image import write_log, write_snapshot
from load import Client, close, drive, find_leader, parse_addresses, run, timed
from msgspec import Struct
from processes import cpu_seconds, peak_bytes
from quorums import commands, jvm_flags, start_quorum
from spread import spread

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from metadata_log.disk import OsDisk
from metadata_log.image import MetadataImage, memberships
from metadata_log.log.quorum_state_file import StoredElection, write_quorum_state
from metadata_log.reading.replay_log import replay
from support.interop.our_nodes import our_format
from support.interop.real_kafka import Nodes, QuorumLayout
from support.loopback import free_ports
from transport.protocol import messages as m
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response
from transport.protocol.messages.alter_partition import (
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from transport.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic
from transport.protocol.messages.delete_topics import DeleteTopicState

SETTINGS = (
    "controller.quorum.append.linger.ms=0",
    "broker.session.timeout.ms=600000",
    "controller.quorum.fetch.timeout.ms=30000",
    "leader.imbalance.check.interval.seconds=86400",
)
TITLE = {"ours": "ours", "kafka": "Kafka"}
HEAPS = {"decide": "1536m", "beat": "1536m", "load": "8g"}
FIRST, SECOND, FOLLOWER, LEADER = 1, 2, 3, 4
"""Two brokers that send heartbeats all the time, one that is in each ISR, and one that leads topics of its own."""
BEAT_S = 0.025
ISRS_PER_REQUEST = 5_000
"""Not 10,000: in Kafka 4.3.1, a non-atomic decision with exactly that many records ends the leadership with an
error."""
READY_SECONDS = 300
HEAT_CLIENTS = 64


class Target(Struct, frozen=True):
    """Controllers of one implementation, the active one among them, and the brokers that send to it."""

    name: str
    nodes: Nodes
    leader: int
    brokers: Brokers

    @property
    def pids(self) -> list[int]:
        """The process ids, the leader's first."""
        others = [node for node in self.nodes.processes if node != self.leader]
        return [self.nodes.processes[node].popen.pid for node in (self.leader, *others)]

    def image(self) -> MetadataImage:
        """The image of the log that the active controller has written."""
        return replay(str(self.nodes.layout.log_dir(self.leader)))


Found = dict[str, dict[str, list[float]]]
"""Figures by measurement and target."""


def start(name: str, root: Path, what: str, stack: ExitStack) -> Target:
    """Three controllers of one implementation, until the stack closes."""
    layout, nodes = start_quorum(name, root, stack, SETTINGS, HEAPS[what])
    address = find_leader(parse_addresses(layout.bootstrap))
    leader = next(node for node, port in layout.ports.items() if port == address[1])
    brokers = Brokers(address)
    stack.callback(brokers.close)
    return Target(name, nodes, leader, brokers)


def note(found: Found, what: str, target: Target | str, value: float) -> None:
    """Record one figure."""
    name = target if isinstance(target, str) else target.name
    found.setdefault(what, {}).setdefault(name, []).append(value)


@contextmanager
def watched(found: Found, what: str, target: Target) -> Iterator[None]:
    """Send heartbeats of two brokers during the block; record their longest latency, and the nodes' processor time."""
    before = cpu_seconds(target.pids)
    with target.brokers.beating((FIRST, SECOND), BEAT_S) as longest:
        yield
        note(found, f"{what}: longest wait of a heartbeat, ms", target, 1000 * longest())
    note(found, f"{what}: CPU of three nodes, ms", target, 1000 * (cpu_seconds(target.pids) - before))


# Decisions


def create(target: Target, topics: Sequence[CreatableTopic]) -> float:
    """Create topics; returns the latency in seconds."""
    request = m.CreateTopicsRequest(topics=list(topics), timeout_ms=60_000)
    response, took = target.brokers.ask(request, 7, m.CreateTopicsResponse)
    assert all(each.error_code == Error.NONE for each in response.topics), (target.name, response)
    return took


def create_placed(found: Found, targets: Sequence[Target], topics: int, partitions: int) -> None:
    """Create topics with replicas that the controller places, one topic in each request."""
    total = dict.fromkeys((target.name for target in targets), 0.0)
    for number in range(topics):
        for target in targets:
            topic = CreatableTopic(name=f"placed-{number}", num_partitions=partitions, replication_factor=3)
            with watched(found, "create a topic", target):
                took = create(target, [topic])
            note(found, f"create a topic of {partitions:,} partitions, ms", target, 1000 * took)
            total[target.name] += took
    for target in targets:
        note(found, f"create {topics * partitions:,} partitions in {topics}, ms", target, 1000 * total[target.name])


def assigned(name: str, partitions: int) -> CreatableTopic:
    """A topic that broker `LEADER` leads."""
    replicas = [LEADER, FIRST, SECOND]
    assignments = [CreatableReplicaAssignment(partition_index=at, broker_ids=replicas) for at in range(partitions)]
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)


def fence_leader(found: Found, target: Target, partitions: int) -> None:
    """Fence a broker that leads one partition more than a topic can have, after the broker got those leaderships
    again."""
    brokers = target.brokers
    brokers.unfence(LEADER)
    names = ["led", "led-too"]
    for name, count in zip(names, (partitions, 1), strict=True):
        create(target, [assigned(name, count)])
    what = f"fence the leader of {partitions + 1:,}"
    with watched(found, what, target):
        response, took = brokers.beat(LEADER, want_fence=True)
    assert response.is_fenced
    note(found, f"{what}, ms", target, 1000 * took)
    deletion = m.DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=60_000)
    brokers.ask(deletion, 6, m.DeleteTopicsResponse)


def fence_follower(found: Found, target: Target, total: int) -> None:
    """Fence the broker that is in all ISRs; then the broker returns, and the leaders add it again."""
    brokers = target.brokers
    what = f"fence one of {total:,} ISRs"
    with watched(found, what, target):
        response, took = brokers.beat(FOLLOWER, want_fence=True)
    assert response.is_fenced
    note(found, f"{what}, ms", target, 1000 * took)
    image = target.image()
    assert not list(memberships(image.topics, FOLLOWER)), f"{target.name} left broker {FOLLOWER} in an ISR"
    brokers.unfence(FOLLOWER)
    took = 0.0
    with watched(found, f"{total:,} ISRs grow", target):
        for request in growing(brokers, image):
            answer, seconds = brokers.ask(request, 3, m.AlterPartitionResponse)
            errors = {Error.of(each.error_code).name for topic in answer.topics for each in topic.partitions}
            assert (answer.error_code, errors) == (Error.NONE, {"NONE"}), (target.name, answer.error_code, errors)
            took += seconds
    note(found, f"{total:,} ISRs grow, {ISRS_PER_REQUEST:,} a request, ms", target, 1000 * took)


def growing(brokers: Brokers, image: MetadataImage) -> Iterator[m.AlterPartitionRequest]:
    """The requests of the leaders once broker `FOLLOWER` has caught up with each partition."""
    for leader in (FIRST, SECOND):
        changes = [
            (
                topic_id,
                AlterPartitionRequestPartitionData(
                    partition_index=number,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=each, broker_epoch=brokers.epochs[each]) for each in partition.replicas
                    ],
                ),
            )
            for topic_id, number, partition in memberships(image.topics, leader)
            if partition.leader == leader
        ]
        for at in range(0, len(changes), ISRS_PER_REQUEST):
            portion = changes[at : at + ISRS_PER_REQUEST]
            topics = [
                AlterPartitionRequestTopicData(
                    topic_id=topic, partitions=[each for key, each in portion if key == topic]
                )
                for topic in dict.fromkeys(key for key, _ in portion)
            ]
            yield m.AlterPartitionRequest(broker_id=leader, broker_epoch=brokers.epochs[leader], topics=topics)


def decide(options: argparse.Namespace, root: Path, found: Found) -> None:
    """Create topics, and fence brokers."""
    with ExitStack() as stack:
        targets = [start(name, root, "decide", stack) for name in options.targets]
        heat(targets, options.heat, HEAPS["decide"])
        for target in targets:
            for broker in (FIRST, SECOND, FOLLOWER, LEADER):
                target.brokers.start(broker)
            target.brokers.beat(LEADER, want_fence=True)
        create_placed(found, targets, options.topics, options.partitions)
        for rep in range(options.reps):
            for target in in_turn(targets, rep):
                fence_leader(found, target, options.partitions)
        for rep in range(options.reps):
            for target in in_turn(targets, rep):
                fence_follower(found, target, options.topics * options.partitions)
        for target in targets:
            note(found, "most memory of the leader, MB", target, peak_bytes(target.pids[0]) / 1e6)


def heat(targets: Sequence[Target], seconds: float, heap: str) -> None:
    """Load each quorum for so long with small writes, one after the other."""
    for target in targets:
        show_flags(target.name, heap)
        run(target.brokers.address, HEAT_CLIENTS, seconds)
    print(f"heat: {seconds:g} s with {HEAT_CLIENTS} clients, each quorum")


def show_flags(name: str, heap: str) -> None:
    """Print the flags of the JVMs, if there are some."""
    if flags := jvm_flags(name, heap):
        print(f"{TITLE[name]}: JVM flags {flags}")


def in_turn(targets: Sequence[Target], rep: int) -> list[Target]:
    """The targets in an order that rotates with the rounds."""
    turn = rep % len(targets)
    return [*targets[turn:], *targets[:turn]]


# Heartbeats


def beat(options: argparse.Namespace, root: Path, found: Found) -> None:
    """Many brokers send heartbeats at the maximum rate."""
    count = options.brokers
    with ExitStack() as stack:
        targets = [start(name, root, "beat", stack) for name in options.targets]
        heat(targets, options.heat, HEAPS["beat"])
        for target in targets:
            began = time.perf_counter()
            for broker in range(1, count + 1):
                target.brokers.start(broker)
            note(found, f"register and unfence {count:,} brokers, ms", target, 1000 * (time.perf_counter() - began))
            topic = CreatableTopic(name="placed", num_partitions=options.partitions, replication_factor=3)
            create(target, [topic])
        for rep in range(options.reps):
            for target in in_turn(targets, rep):
                beat_for_a_while(found, target, count, options.seconds)


def beat_for_a_while(found: Found, target: Target, count: int, seconds: float) -> None:
    """Each broker has its own connection and sends a heartbeat after each response."""
    clients = []
    for broker in range(1, count + 1):
        sent = frame(target.brokers.heartbeat(broker), HEARTBEAT_VERSION)
        clients.append(Client(target.brokers.address, (sent, sent), heartbeat_error))
    try:
        drive(clients, 1.0)
        before = cpu_seconds(target.pids[:1])
        row = timed(clients, seconds)
        took = cpu_seconds(target.pids[:1]) - before
    finally:
        close(clients)
    note(found, f"heartbeats of {count:,} brokers, a second", target, row.per_second)
    note(found, "  p99, ms", target, row.p99_ms)
    note(found, "  CPU of the leader per heartbeat, us", target, 1e6 * took / row.commits)


def heartbeat_error(answer: bytes) -> Error:
    """The error in a heartbeat response."""
    api_key = m.BrokerHeartbeatRequest.__schema__.api_key
    assert api_key is not None
    _, response = decode_response(api_key, HEARTBEAT_VERSION, answer)
    assert isinstance(response, m.BrokerHeartbeatResponse)
    return Error.of(response.error_code)


# Start with data


def load(options: argparse.Namespace, root: Path, found: Found) -> None:
    """Start a controller with a large log, or with a large snapshot."""
    for name in options.targets:
        show_flags(name, HEAPS["load"])
    topics, partitions = max(1, options.load // 100), min(100, options.load)
    for kind, write in (("log", write_log), ("snapshot", write_snapshot)):
        for rep in range(options.load_reps):
            for name in options.targets if rep % 2 == 0 else options.targets[::-1]:
                what = f"start with a {kind} of {topics * partitions:,} partitions"
                layout = QuorumLayout(root / f"{kind}-{name}-{rep}", CLUSTER_ID, {1: free_ports(1)[0]}, SETTINGS)
                layout.root.mkdir()
                our_format(layout)
                layout.partition(1).mkdir(exist_ok=True)
                write(str(layout.partition(1)), topics, partitions)
                write_quorum_state(OsDisk(), str(layout.partition(1)), StoredElection(leader_epoch=1))
                start_and_stop(found, what, name, layout)
        where = root / f"{kind}-{options.targets[0]}-0" / "c1"
        seconds, megabytes = replay_alone(where)
        note(found, f"replay a {kind} of {topics * partitions:,} partitions in Python, CPU ms", "ours", 1000 * seconds)
        note(found, "  memory, MB", "ours", megabytes)


def start_and_stop(found: Found, what: str, name: str, layout: QuorumLayout) -> None:
    """Measure from the start of the process until the commit of a write."""
    nodes = Nodes(layout, commands(name, layout, HEAPS["load"]), name=name)
    began = time.perf_counter()
    try:
        nodes.start()
        find_leader(parse_addresses(layout.bootstrap), READY_SECONDS)
        took = time.perf_counter() - began
        pid = nodes.processes[1].popen.pid
        note(found, f"{what}, ms", name, 1000 * took)
        note(found, f"{what}: CPU, ms", name, 1000 * cpu_seconds([pid]))
        note(found, f"{what}: most memory, MB", name, peak_bytes(pid) / 1e6)
    finally:
        nodes.kill()


def replay_alone(directory: Path) -> tuple[float, float]:
    """Processor seconds and megabytes of `metadata_log.replay` in a separate process."""
    command = [sys.executable, __file__, "--replay", str(directory)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, megabytes = map(float, out.split())
    return seconds, megabytes


def print_replay(directory: str) -> None:
    """Replay a directory, and print the cost."""
    began = time.process_time()
    image = replay(directory)
    seconds = time.process_time() - began
    assert image.end.offset > 0
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)


# The table


def show(found: Found, targets: Sequence[str]) -> None:
    """The median and the spread of each figure, and the ratio of the first target to the others."""
    print(f"\n{'median (least-most)':58}" + "".join(f"{TITLE[name]:>30}" for name in targets) + f"{'ratio':>8}")
    for what, by_target in found.items():
        medians = {name: statistics.median(values) for name, values in by_target.items()}
        cells = "".join(f"{spread(by_target[name]) if name in medians else ''!s:>30}" for name in targets)
        both = len(targets) > 1 and all(name in medians for name in targets[:2])
        ratio = f"{medians[targets[0]] / medians[targets[1]]:8.2f}" if both and medians[targets[1]] else ""
        print(f"{what:58}{cells}{ratio}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--targets", type=names, default=["ours", "kafka"], help="the first is compared")
    parser.add_argument("--what", type=names, default=["decide", "beat", "load", "turns"])
    parser.add_argument("--topics", type=int, default=11, help="how many are placed")
    parser.add_argument("--partitions", type=int, default=9_999, help="of each topic")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--brokers", type=int, default=1000, help="how many beat")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each round of heartbeats")
    parser.add_argument("--load", type=int, default=1_000_000, help="partitions to start with")
    parser.add_argument("--load-reps", type=int, default=2)
    parser.add_argument("--heat", type=float, default=10.0, help="seconds of load for each quorum at first")
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the nodes keep their files"
    )
    parser.add_argument("--replay", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.replay:
        print_replay(options.replay)
        return
    for what in options.what:
        if what == "turns":
            with tempfile.TemporaryDirectory(prefix="bench-turns-", dir=options.dir) as scratch:
                turns.show(turns.measure(Path(scratch) / "c1", options.load, options.partitions), options.load)
            continue
        with tempfile.TemporaryDirectory(prefix="bench-controller-", dir=options.dir) as scratch:
            found: Found = {}
            try:
                {"decide": decide, "beat": beat, "load": load}[what](options, Path(scratch), found)
            finally:
                show(found, options.targets)


if __name__ == "__main__":
    main()
