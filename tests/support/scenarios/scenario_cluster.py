"""A cluster of one controller and three or more brokers, each of the make that the cluster's name says.

A scenario is a function over such a cluster: the same function runs with brokers of ours, of Kafka, and of both.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from metadata_log import replay
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataImage, Partition
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.types import Uuid
from support.interop.our_nodes import our_controller, our_format, told
from support.interop.real_kafka import (
    CLUSTER_ID,
    QUIET,
    KafkaInstallation,
    Nodes,
    Process,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_controller,
    running,
)
from support.kafka_jars import KAFKA_VERSION
from support.scenarios.scenario_client import Client
from support.wire import active_controller
from transport.protocol.errors import Error
from transport.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

BrokerMake = Literal["ours", "kafka"]
SECONDS: Final = 60
LAG_MS: Final = 2000
SESSION_MS: Final = 4500
FETCH_WAIT_MS: Final = 200
STARTED: Final[Mapping[BrokerMake, str]] = {"ours": "serving node=", "kafka": "Transition from STARTING to STARTED"}
BROKER_SETTINGS: Final = (
    "broker.heartbeat.interval.ms=500",
    f"replica.lag.time.max.ms={LAG_MS}",
    f"replica.fetch.wait.max.ms={FETCH_WAIT_MS}",
    "replica.fetch.backoff.ms=200",
    "log.initial.task.delay.ms=500",
    "log.retention.check.interval.ms=1000",
    "log.cleaner.backoff.ms=500",
    "log.segment.delete.delay.ms=1000",
    "auto.create.topics.enable=false",
    "max.connections=12000",
    "offsets.topic.num.partitions=1",
    "offsets.topic.replication.factor=3",
    "transaction.state.log.num.partitions=1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
)
CONTROLLER_SETTINGS: Final = (*QUIET, f"broker.session.timeout.ms={SESSION_MS}", "auto.leader.rebalance.enable=false")

MAKES: Final[Mapping[str, tuple[BrokerMake, ...]]] = {
    "ours": ("ours", "ours", "ours"),
    "mixed": ("ours", "kafka", "ours"),
    "jvm": ("kafka", "kafka", "kafka"),
}
"""The makes of the brokers 101, 102 and 103. The controllers are Kafka's where all brokers are, and ours elsewhere."""
FIRST: Final = 101


class Kind(Struct, frozen=True):
    """The parts of a cluster beside its three brokers."""

    name: str
    controllers: int = 1
    log_dirs: int = 1
    """The log directories of each broker; the metadata log is in the first."""
    settings: tuple[str, ...] = ()
    """Settings of each broker in place of those of all scenarios."""


PLAIN: Final = Kind("plain")
QUORUM: Final = Kind("quorum", controllers=3)
DISKS: Final = Kind("disks", log_dirs=2)
KINDS: Final = (PLAIN, QUORUM, DISKS)


class Topic(Struct, frozen=True):
    """A topic; `replicas` begin with the broker that leads first. Most scenarios use its first partition alone."""

    name: str
    id: Uuid
    replicas: tuple[int, ...]


class Cluster(Client):
    """Running brokers by id; `order` has those that a scenario uses, the first leader in front."""

    def __init__(
        self,
        layout: QuorumLayout,
        nodes: Nodes,
        makes: tuple[BrokerMake, ...],
        kafka: KafkaInstallation | None,
        kind: Kind = PLAIN,
        release: str = KAFKA_VERSION,
    ) -> None:
        self.layout = layout
        self.kind = kind
        self._nodes = nodes
        self.makes = dict(enumerate(makes, FIRST))
        self.kafka = kafka
        """Of which release brokers of Kafka's are when they start."""
        self.ports = dict(zip(self.makes, free_ports(len(makes)), strict=True))
        self.order = tuple(self.makes)
        self.processes: dict[int, Process] = {}
        self.paused: set[int] = set()
        self.disturbance: Callable[[], None] | None = None
        """What happens once, after the next event of a scenario: a pause or the end of a broker, a reassignment."""
        self._paused_controllers: set[int] = set()
        self._topics = 0
        for broker in self.makes:
            where = ("-c", str(self.properties(broker)), "--cluster-id", layout.cluster_id)
            told("format", *where, "--release-version", release)

    def properties(self, broker: int) -> Path:
        """Write the configuration of a broker, which both makes understand."""
        path = self.layout.root / f"broker-{broker}.properties"
        own = {line.partition("=")[0] for line in self.kind.settings}
        lines = (
            "process.roles=broker",
            f"node.id={broker}",
            f"log.dirs={','.join(map(str, self.log_dirs(broker)))}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            f"listeners=PLAINTEXT://127.0.0.1:{self.ports[broker]}",
            f"controller.quorum.voters={self.layout.voters}",
            *(line for line in BROKER_SETTINGS if line.partition("=")[0] not in own),
            *self.kind.settings,
        )
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def log_dir(self, broker: int) -> Path:
        """The first log directory of a broker."""
        return self.layout.root / f"broker-{broker}"

    def log_dirs(self, broker: int) -> list[Path]:
        """The log directories of a broker."""
        first = self.log_dir(broker)
        return [first, *(first.with_name(f"{first.name}-{more}") for more in range(2, self.kind.log_dirs + 1))]

    @property
    def bootstrap(self) -> str:
        """The value of `bootstrap.servers` for clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def launch(self, *brokers: int) -> None:
        """Start brokers without waiting for them."""
        for broker in brokers:
            properties = str(self.properties(broker))
            if self.makes[broker] == "ours":
                command = [sys.executable, "-m", "kraft", "serve", "-c", properties]
            else:
                assert self.kafka is not None
                command = self.kafka.command("kafka.Kafka", properties, log="info")
            self.processes[broker] = Process(command, self.layout.root / f"broker-{broker}.log")

    def start(self, *brokers: int) -> None:
        """Start brokers, and wait until they serve clients."""
        self.launch(*brokers)
        for broker in brokers:
            self.processes[broker].wait_for(STARTED[self.makes[broker]])

    def kill(self, broker: int) -> None:
        """End a broker without a shutdown."""
        self.paused.discard(broker)
        self.processes.pop(broker).kill()
        self.disturb()

    def stop(self, broker: int) -> None:
        """Shut a broker down in the controlled way; fails unless the exit code says so."""
        process = self.processes.pop(broker)
        self.disturb()
        code = process.stop()
        wanted = 0 if self.makes[broker] == "ours" else 128 + signal.SIGTERM
        assert code == wanted, f"broker {broker} ended with {code}:\n{process.text[-5000:]}"

    def pause(self, broker: int) -> None:
        """Stop a broker where it is; its connections stay open."""
        self.paused.add(broker)
        self.processes[broker].signal(signal.SIGSTOP)
        self.disturb()

    def disturb(self) -> None:
        """Let the disturbance happen, if there is one."""
        disturbance, self.disturbance = self.disturbance, None
        if disturbance is not None:
            disturbance()

    def resume(self, broker: int) -> None:
        """Let a paused broker run on."""
        self.processes[broker].signal(signal.SIGCONT)
        self.paused.discard(broker)

    @property
    def _controllers(self) -> list[int]:
        """The controllers that run and are not paused."""
        return [one for one in self._nodes.processes if one not in self._paused_controllers]

    def active_controller(self) -> int:
        """The active controller, once the controllers that run know one."""
        found: list[int] = []

        def is_known() -> bool:
            found[:] = [one for one in self._controllers if active_controller(self.layout.ports[one]) == one]
            return len(found) == 1

        eventually(is_known, "a controller is active", SECONDS)
        return found[0]

    def pause_controllers(self) -> None:
        """Stop a majority of the controllers where they are, with the active one; their connections stay open."""
        active = self.active_controller()
        others = [one for one in self._controllers if one != active]
        for one in (active, *others[: self.kind.controllers // 2]):
            self._paused_controllers.add(one)
            self._nodes.processes[one].signal(signal.SIGSTOP)

    def resume_controllers(self) -> None:
        """Let paused controllers run on."""
        for one in self._paused_controllers:
            self._nodes.processes[one].signal(signal.SIGCONT)
        self._paused_controllers.clear()

    def kill_controller(self) -> None:
        """End the active controller without a shutdown."""
        self._nodes.processes.pop(self.active_controller()).kill()

    def start_controllers(self) -> None:
        """Start the controllers that do not run, and wait until one is active."""
        dead = [one for one in self.layout.ports if one not in self._nodes.processes]
        if dead:
            self._nodes.start(*dead)
            self._nodes.wait_until_listening()
        self.active_controller()

    def restore(self) -> None:
        """Resume and start whatever a scenario has left paused or dead, and wait until every broker is active."""
        self.disturbance = None
        self.resume_controllers()
        self.start_controllers()
        for broker in tuple(self.paused):
            self.resume(broker)
        for broker, process in tuple(self.processes.items()):
            if process.popen.poll() is not None:
                del self.processes[broker]
        self.start(*(self.makes.keys() - self.processes.keys()))
        for broker in self.makes:
            self.wait_until_active(broker)

    def image(self) -> MetadataImage:
        """The metadata as the longest log of a controller that runs has it."""
        logs = [self.layout.partition(one) for one in self._controllers or self.layout.ports]
        return max((replay(str(log)) for log in logs), key=lambda image: (image.end.epoch, image.end.offset))

    def partition(self, topic: Topic, number: int = 0) -> Partition:
        """The partition as the log of the controller has it."""
        return self.image().topics[topic.name].partitions[number]

    def leader(self, topic: Topic) -> int:
        """The leader, once there is one."""
        eventually(lambda: self.partition(topic).leader >= 0, f"{topic.name} has a leader", SECONDS)
        return self.partition(topic).leader

    def is_active(self, broker: int) -> bool:
        """Whether a broker is registered, unfenced, and not shutting down."""
        registered = self.image().brokers.by_id
        return broker in registered and registered[broker].is_active

    def wait_until_active(self, broker: int) -> None:
        """Wait until a broker is unfenced."""
        eventually(lambda: self.is_active(broker), f"broker {broker} is active", SECONDS)

    def wait_for_isr(self, topic: Topic, *brokers: int) -> None:
        """Wait until the ISR has exactly these members."""
        eventually(
            lambda: set(self.partition(topic).isr) == set(brokers), f"{brokers} are in sync in {topic.name}", SECONDS
        )

    def wait_for_leader(self, topic: Topic, *brokers: int) -> int:
        """Wait until one of these brokers leads; returns the leader."""
        eventually(lambda: self.partition(topic).leader in brokers, f"one of {brokers} leads {topic.name}", SECONDS)
        return self.partition(topic).leader

    def create(self, name: str, replicas: int | tuple[int, ...] = 3, **configs: str) -> Topic:
        """Create a topic with one partition, and wait until all replicas serve it.

        A number of replicas takes the first brokers of `order`. The name gets a number: each topic is a new one. In
        the names of configs, `_` stands for a dot.
        """
        return self._create(name, self.order[:replicas] if isinstance(replicas, int) else replicas, 1, configs)

    def create_wide(self, name: str, partitions: int) -> Topic:
        """Create a topic with several partitions, and wait until all replicas serve the first one."""
        return self._create(name, self.order[:3], partitions, {})

    def _create(self, name: str, brokers: tuple[int, ...], partitions: int, configs: Mapping[str, str]) -> Topic:
        self._topics += 1
        full = f"{name}-{self._topics}"
        creatable = CreatableTopic(
            name=full,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(number, list(brokers)) for number in range(partitions)],
            configs=[CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[creatable], timeout_ms=SECONDS * 1000)
        [made] = self.ask(self.alive[0], request, 7, CreateTopicsResponse).topics
        # A broker that lost the controller's answer asks again, and finds what it has made: the name is new.
        assert made.error_code in (Error.NONE, Error.TOPIC_ALREADY_EXISTS), made
        topic = Topic(full, self.image().topics[full].id, brokers)
        self.wait_until_served(topic)
        return topic

    def wait_until_served(self, topic: Topic) -> None:
        """Wait until the leader answers fetches, and every replica has its directory and is in sync."""
        leader = self.leader(topic)
        eventually(
            lambda: self.fetch(leader, topic, 0).error_code == Error.NONE, f"{leader} leads {topic.name}", SECONDS
        )
        eventually(
            lambda: all(self.directory(one, topic).exists() for one in topic.replicas),
            f"the replicas of {topic.name} exist",
            SECONDS,
        )

    @property
    def alive(self) -> list[int]:
        """The brokers that run and are not paused, in the order of the scenario."""
        return [one for one in (*self.order, *self.makes) if one in self.processes and one not in self.paused]

    def directory(self, broker: int, topic: Topic, number: int = 0) -> Path:
        """The directory of a replica, in the first log directory that has one."""
        places = [path / f"{topic.name}-{number}" for path in self.log_dirs(broker)]
        return next((path for path in places if path.exists()), places[0])

    def batches(self, broker: int, topic: Topic, number: int = 0) -> list[RecordBatch]:
        """The batches in the log of a replica, as they are on disk; only the whole ones while the broker writes."""
        data = b"".join(path.read_bytes() for path in sorted(self.directory(broker, topic, number).glob("*.log")))
        found: list[RecordBatch] = []
        try:
            found.extend(scan(data))
        except MetadataLogError:
            # The end may be half written; the caller compares again.
            return found
        return found

    def epochs(self, broker: int, topic: Topic) -> str:
        """The leader epochs of a replica, as they are on disk."""
        return (self.directory(broker, topic) / "leader-epoch-checkpoint").read_text()

    def wait_for_equal_logs(self, topic: Topic, records: int | None = None, *, number: int = 0) -> list[RecordBatch]:
        """Wait until all replicas have the same bytes, and this many records if given; returns the batches."""

        def equal() -> bool:
            logs = [[bytes(one.data) for one in self.batches(each, topic, number)] for each in topic.replicas]
            batches = self.batches(topic.replicas[0], topic, number)
            count = sum(one.record_count for one in batches)
            return all(log == logs[0] for log in logs) and (records is None or count == records)

        eventually(equal, f"the logs of {topic.name} are equal, with {records} records", SECONDS)
        return self.batches(topic.replicas[0], topic, number)


@contextmanager
def scenario_cluster(
    root: Path,
    makes: tuple[BrokerMake, ...],
    kafka: KafkaInstallation | None = None,
    kind: Kind = PLAIN,
    *,
    release: str = KAFKA_VERSION,
    controllers: BrokerMake | None = None,
) -> Iterator[Cluster]:
    """Controllers and brokers of these makes, which serve while the block lasts, at the level of a release.

    The controllers are ours where a broker is, unless a make is given for them.
    """
    ports = dict(enumerate(free_ports(kind.controllers), 1))
    layout = QuorumLayout(root, CLUSTER_ID, ports, CONTROLLER_SETTINGS)
    our_format(layout, release=release)
    if (controllers or ("ours" if "ours" in makes else "kafka")) == "ours":
        controller = our_controller(layout)
    else:
        assert kafka is not None
        controller = kafka_controller(kafka, layout)
    with running(layout, controller, name="controller") as nodes:
        cluster = Cluster(layout, nodes, makes, kafka, kind, release)
        try:
            cluster.active_controller()
            cluster.start(*cluster.makes)
            yield cluster
        finally:
            for process in cluster.processes.values():
                process.kill()
