"""Three controllers and one broker of Apache Kafka that lose disks, and what comes back after `kraft recover`."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from kafka.admin import KafkaAdminClient
from msgspec.structs import replace
from our_nodes import told
from real_kafka import (
    CLUSTER_ID,
    KafkaInstallation,
    Nodes,
    Process,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_controller,
)

from kraft.admin import AdminError
from metadata_log.types import random_uuid

BROKER: Final = 101
STARTED: Final = "Transition from STARTING to STARTED"
PATIENCE_SECONDS: Final = 120
HEAP: Final = "256m"
CONTROLLERS: Final = (1, 2, 3)


class RecoveryCluster:
    """A quorum, static or dynamic, a broker with one log directory, and its clients."""

    def __init__(self, kafka: KafkaInstallation, root: Path, *, dynamic: bool) -> None:
        self.kafka = kafka
        self.root = root
        ports = dict(zip(CONTROLLERS, free_ports(3), strict=True))
        self.layout = QuorumLayout(root, CLUSTER_ID, ports, (), dynamic)
        self.controllers = Nodes(self.layout, kafka_controller(kafka, self.layout), name="kafka")
        self.broker_port = free_ports(1)[0]
        self.broker: Process | None = None
        self.acknowledged: Counter[str] = Counter()

    @property
    def broker_dir(self) -> Path:
        """The log directory of the broker."""
        return self.root / "b101"

    @property
    def bootstrap(self) -> str:
        """The address of the broker."""
        return f"127.0.0.1:{self.broker_port}"

    def use(self, ports: dict[int, int]) -> None:
        """Continue with these controllers alone."""
        self.layout = replace(self.layout, ports=ports)
        self.controllers = Nodes(self.layout, kafka_controller(self.kafka, self.layout), name="kafka")

    def become_dynamic(self) -> None:
        """Continue with configurations for a dynamic quorum."""
        self.layout = replace(self.layout, is_dynamic=True)
        self.controllers = Nodes(self.layout, kafka_controller(self.kafka, self.layout), name="kafka")

    # ------------------------------------------------------------------------------------------------------- processes

    def broker_properties(self) -> Path:
        """Write the broker's configuration, for the present controllers."""
        where = "bootstrap.servers" if self.layout.is_dynamic else "voters"
        lines = (
            "process.roles=broker",
            f"node.id={BROKER}",
            f"log.dirs={self.broker_dir}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            f"listeners=PLAINTEXT://127.0.0.1:{self.broker_port}",
            f"controller.quorum.{where}={self.layout.bootstrap if self.layout.is_dynamic else self.layout.voters}",
            "offsets.topic.num.partitions=1",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.num.partitions=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
        )
        path = self.root / "b101.properties"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def format(self) -> None:
        """Format all directories for a new cluster."""

        how: tuple[str, ...] = ()
        if self.layout.is_dynamic:
            voters = ",".join(
                f"{node}@127.0.0.1:{port}:{random_uuid(SystemRandom())}" for node, port in self.layout.ports.items()
            )
            how = ("--initial-controllers", voters)
        for node in self.layout.ports:
            told("format", "-c", str(self.layout.properties(node)), "-t", CLUSTER_ID, *how)
        alone = ("--no-initial-controllers",) if self.layout.is_dynamic else ()
        told("format", "-c", str(self.broker_properties()), "-t", CLUSTER_ID, *alone)

    def start_broker(self) -> None:
        """Start the broker, and wait until it serves."""
        command = self.kafka.command("kafka.Kafka", str(self.broker_properties()), log="info", heap=HEAP)
        self.broker = Process(command, self.root / "b101.log")
        self.broker.wait_for(STARTED)

    def lose(self, *nodes: int) -> None:
        """End all processes, the controllers without warning, and lose the disks of some controllers."""
        self.controllers.kill()
        assert self.broker is not None
        self.broker.kill()
        self.broker = None
        for node in nodes:
            shutil.rmtree(self.layout.log_dir(node))

    def stop(self) -> None:
        """End everything at once."""
        self.controllers.kill()
        if self.broker is not None:
            self.broker.kill()

    # --------------------------------------------------------------------------------------------------------- clients

    def create(self, topic: str, partitions: int = 2) -> None:
        """Make a topic with one replica of each partition."""
        with closing(KafkaAdminClient(bootstrap_servers=[self.bootstrap])) as admin:
            made = {topic: {"num_partitions": partitions, "replication_factor": 1}}
            admin.create_topics(made, wait_for_metadata=True)

    def produce(self, topic: str, count: int) -> None:
        """Write messages, idempotent and with acks=all; each one is acknowledged."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True})

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            self.acknowledged[f"{topic} {(message.value() or b'').decode()}"] += 1

        first = sum(1 for each in self.acknowledged if each.startswith(f"{topic} "))
        for number in range(first, first + count):
            producer.produce(topic, str(number).encode(), on_delivery=delivered)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def consumed(self) -> Counter[str]:
        """Every message of every topic that has acknowledged messages, as often as it is there."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "reads"})
        topics = sorted({each.partition(" ")[0] for each in self.acknowledged})
        found: Counter[str] = Counter()
        try:
            metadata = consumer.list_topics(timeout=PATIENCE_SECONDS).topics
            parts = [
                TopicPartition(topic, number, OFFSET_BEGINNING)
                for topic in topics
                for number in sorted(metadata[topic].partitions)
            ]
            ends = {
                (one.topic, one.partition): consumer.get_watermark_offsets(one, PATIENCE_SECONDS)[1] for one in parts
            }
            consumer.assign(parts)

            def to_the_end() -> bool:
                for message in consumer.consume(1000, timeout=0.2):
                    assert message.error() is None, message.error()
                    found[f"{message.topic()} {(message.value() or b'').decode()}"] += 1
                return all(one.offset >= ends[one.topic, one.partition] for one in consumer.position(parts))

            eventually(to_the_end, "all topics are read to their ends", PATIENCE_SECONDS)
        finally:
            consumer.close()
        return found

    def topics(self) -> list[str]:
        """The topics that the broker lists, but for Kafka's own."""
        with closing(KafkaAdminClient(bootstrap_servers=[self.bootstrap])) as admin:
            return sorted(topic for topic in admin.list_topics() if not topic.startswith("__"))

    def partition_dirs(self) -> list[str]:
        """The broker's partition directories, but for the metadata log."""
        return sorted(path.name for path in self.broker_dir.iterdir() if path.is_dir() and path.name[-1].isdigit())

    # -------------------------------------------------------------------------------------------------------- recovery

    def plan(self, controllers: Sequence[int], *words: str) -> dict[str, Any]:
        """`kraft recover plan` on the survivors; the plan is stored for `apply`."""
        given = [str(self.layout.log_dir(node)) for node in controllers]
        text = told("recover", "plan", "--json", *given, *words, "--brokers", str(self.broker_dir))
        (self.root / "plan.json").write_text(text)
        found: dict[str, Any] = json.loads(text)
        return found

    def apply(self, *words: str) -> dict[str, Any]:
        """`kraft recover apply --execute` and `kraft recover verify`; returns the description of the recovery."""
        into = self.root / "recovered"
        text = told(
            "recover", "apply", str(self.root / "plan.json"), "--into", str(into), "--execute", "--json", *words
        )
        told("recover", "verify", str(into), "--brokers", str(self.broker_dir))
        found: dict[str, Any] = json.loads(text)
        return found

    def take_over(self, ports: dict[int, int]) -> None:
        """Put the recovered directories into place: old ones are moved aside, not deleted."""
        for node in ports:
            place = self.root / f"c{node}"
            if place.exists():
                place.rename(self.root / f"c{node}.aside")
            (self.root / "recovered" / f"node-{node}").rename(place)
        self.use(ports)

    def leader(self) -> dict[str, Any]:
        """What the quorum tells of itself, once there is a leader."""
        found: dict[str, Any] = {}

        def answered() -> bool:
            found.clear()
            try:
                found.update(
                    json.loads(told("quorum", "status", "--json", "--bootstrap-controller", self.layout.bootstrap))
                )
            except (AssertionError, AdminError):
                return False
            return True

        eventually(answered, "the recovered quorum has a leader", PATIENCE_SECONDS)
        return found

    def add(self, node: int, port: int) -> None:
        """Format an empty disk, start the controller, and make it a voter."""
        self.layout = replace(self.layout, ports=self.layout.ports | {node: port})
        told("format", "-c", str(self.layout.properties(node)), "-t", CLUSTER_ID, "--no-initial-controllers")
        running = self.controllers.processes
        self.controllers = Nodes(self.layout, kafka_controller(self.kafka, self.layout), name="kafka")
        self.controllers.processes |= running
        self.controllers.start(node)
        self.controllers.wait_until_listening()

        def is_added() -> bool:
            try:
                told("quorum", "add", str(node), "--bootstrap-controller", self.layout.bootstrap)
            except AssertionError:
                return node in self.voters()
            return True

        eventually(is_added, f"controller {node} is a voter", PATIENCE_SECONDS)

    def voters(self) -> set[int]:
        """The voters, as the leader describes them."""
        return {one["id"] for one in self.leader()["currentVoters"]}


@contextmanager
def recovery_cluster(kafka: KafkaInstallation, root: Path, *, dynamic: bool) -> Iterator[RecoveryCluster]:
    """A running cluster with a topic and messages; everything ends with the block."""
    cluster = RecoveryCluster(kafka, root, dynamic=dynamic)
    cluster.format()
    try:
        cluster.controllers.start()
        cluster.controllers.wait_until_listening()
        cluster.start_broker()
        cluster.create("early")
        cluster.produce("early", 300)
        yield cluster
    finally:
        cluster.stop()
