"""Three controllers and some brokers of Apache Kafka that lose disks, and what comes back after `kraft recover`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from kafka.admin import KafkaAdminClient
from msgspec.structs import replace

from kraft.admin import AdminError
from metadata_log.types import random_uuid
from support.interop.our_nodes import kraft, told
from support.interop.real_kafka import (
    CLUSTER_ID,
    KafkaInstallation,
    Nodes,
    Process,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_controller,
)

BROKER: Final = 101
STARTED: Final = "Transition from STARTING to STARTED"
PATIENCE_SECONDS: Final = 120
HEAP: Final = "256m"
CONTROLLERS: Final = (1, 2, 3)


class RecoveryCluster:
    """A quorum, static or dynamic, brokers with one log directory each, and their clients."""

    def __init__(self, kafka: KafkaInstallation, root: Path, *, dynamic: bool, brokers: Sequence[int]) -> None:
        self.kafka = kafka
        self.root = root
        ports = dict(zip(CONTROLLERS, free_ports(3), strict=True))
        self.layout = QuorumLayout(root, CLUSTER_ID, ports, (), dynamic)
        self.controllers = Nodes(self.layout, kafka_controller(kafka, self.layout), name="kafka")
        self.broker_ports = dict(zip(brokers, free_ports(len(brokers)), strict=True))
        self.brokers: dict[int, Process] = {}
        self.acknowledged: Counter[str] = Counter()

    def broker_dir(self, broker: int = BROKER) -> Path:
        """The log directory of a broker."""
        return self.root / f"b{broker}"

    @property
    def bootstrap(self) -> str:
        """The address of the first broker."""
        return f"127.0.0.1:{self.broker_ports[BROKER]}"

    def use(self, ports: dict[int, int]) -> None:
        """Continue with these controllers alone."""
        self.layout = replace(self.layout, ports=ports)
        self.controllers = Nodes(self.layout, kafka_controller(self.kafka, self.layout), name="kafka")

    def become_dynamic(self) -> None:
        """Continue with configurations for a dynamic quorum."""
        self.layout = replace(self.layout, is_dynamic=True)
        self.controllers = Nodes(self.layout, kafka_controller(self.kafka, self.layout), name="kafka")

    # ------------------------------------------------------------------------------------------------------- processes

    def broker_properties(self, broker: int) -> Path:
        """Write a broker's configuration, for the present controllers."""
        where = "bootstrap.servers" if self.layout.is_dynamic else "voters"
        lines = (
            "process.roles=broker",
            f"node.id={broker}",
            f"log.dirs={self.broker_dir(broker)}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            f"listeners=PLAINTEXT://127.0.0.1:{self.broker_ports[broker]}",
            f"controller.quorum.{where}={self.layout.bootstrap if self.layout.is_dynamic else self.layout.voters}",
            "offsets.topic.num.partitions=1",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.num.partitions=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
        )
        path = self.root / f"b{broker}.properties"
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
        for broker in self.broker_ports:
            told("format", "-c", str(self.broker_properties(broker)), "-t", CLUSTER_ID, *alone)

    def start_brokers(self) -> None:
        """Start the brokers that are left, and wait until each one serves."""
        for broker in self.broker_ports:
            command = self.kafka.command("kafka.Kafka", str(self.broker_properties(broker)), log="info", heap=HEAP)
            self.brokers[broker] = Process(command, self.root / f"b{broker}.log")
        for process in self.brokers.values():
            process.wait_for(STARTED)

    def lose(self, *nodes: int) -> None:
        """End all processes, the controllers without warning, and lose the disks of some controllers."""
        self.stop()
        for node in nodes:
            shutil.rmtree(self.layout.log_dir(node))

    def lose_broker(self, broker: int) -> None:
        """Lose the disk of a broker that does not run; the broker never comes back."""
        shutil.rmtree(self.broker_dir(broker))
        del self.broker_ports[broker]

    def stop(self) -> None:
        """End everything at once."""
        self.controllers.kill()
        for process in self.brokers.values():
            process.kill()
        self.brokers.clear()

    # --------------------------------------------------------------------------------------------------------- clients

    def create(self, topic: str, partitions: int = 2) -> None:
        """Make a topic with a replica of each partition on each broker."""
        with closing(KafkaAdminClient(bootstrap_servers=[self.bootstrap])) as admin:
            made = {topic: {"num_partitions": partitions, "replication_factor": len(self.broker_ports)}}
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
            parts = [one for one in parts if ends[one.topic, one.partition] > 0]  # without a record, no position
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
        return sorted(path.name for path in self.broker_dir().iterdir() if path.is_dir() and path.name[-1].isdigit())

    # -------------------------------------------------------------------------------------------------------- recovery

    def plan(self, controllers: Sequence[int], *words: str) -> dict[str, Any]:
        """`kraft recover plan` on the survivors; the plan is stored for `apply`."""
        given = [str(self.layout.log_dir(node)) for node in controllers]
        text = told("recover", "plan", "--json", *given, *words, "--brokers", *self._broker_dirs())
        (self.root / "plan.json").write_text(text)
        found: dict[str, Any] = json.loads(text)
        return found

    def apply(self, *words: str) -> dict[str, Any]:
        """`kraft recover apply --execute` and `kraft recover verify`; returns the description of the recovery."""
        into = self.root / "recovered"
        text = told(
            "recover", "apply", str(self.root / "plan.json"), "--into", str(into), "--execute", "--json", *words
        )
        told("recover", "verify", str(into), "--brokers", *self._broker_dirs())
        found: dict[str, Any] = json.loads(text)
        return found

    def verify_on_kafka(self) -> list[str]:
        """`kraft recover verify --kafka`: the names of the checks, all passed, with Kafka's controller on a copy."""
        command = [sys.executable, "-m", "kraft", "recover", "verify", str(self.root / "recovered"), "--json"]
        done = subprocess.run(
            [*command, "--kafka", str(self.kafka.jars)],
            env=os.environ | {"JAVA_HOME": str(Path(self.kafka.java).parents[1])},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return [one["check"] for one in json.loads(done.stdout)["checks"]]

    def verify_running(self) -> list[str]:
        """`kraft recover verify --bootstrap-controller`: the problems of the running quorum, at the end."""
        found: list[str] = []

        def passed() -> bool:
            where = ("--bootstrap-controller", self.layout.bootstrap, "--brokers", *self._broker_dirs())
            done = kraft("recover", "verify", str(self.root / "recovered"), "--json", *where)
            found[:] = [one["problem"] for one in json.loads(done.stdout)["checks"] if one["problem"] is not None]
            return not found

        eventually(passed, "every check of the running quorum passes", PATIENCE_SECONDS)
        return found

    def _broker_dirs(self) -> list[str]:
        return [str(self.broker_dir(broker)) for broker in self.broker_ports]

    def take_over(self, ports: dict[int, int]) -> None:
        """Put the recovered directories into place: old ones are moved aside, not deleted."""
        for node in ports:
            place = self.root / f"c{node}"
            if place.exists():
                place.rename(self.root / f"c{node}.aside")
            (self.root / "recovered" / f"node-{node}").rename(place)
        self.use(ports)

    def leader(self) -> dict[str, Any]:
        """The description of the quorum, once there is a leader."""
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
def recovery_cluster(
    kafka: KafkaInstallation, root: Path, *, dynamic: bool, brokers: Sequence[int] = (BROKER,)
) -> Iterator[RecoveryCluster]:
    """A running cluster with a topic and messages; everything ends with the block."""
    cluster = RecoveryCluster(kafka, root, dynamic=dynamic, brokers=brokers)
    cluster.format()
    try:
        cluster.controllers.start()
        cluster.controllers.wait_until_listening()
        cluster.start_brokers()
        cluster.create("early")
        cluster.produce("early", 300)
        yield cluster
    finally:
        cluster.stop()
