"""Three brokers of Apache Kafka on controllers of either make: ours, or Kafka's to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from metadata_log import replay
from metadata_log.image import Broker, MetadataImage, Partition
from support.interop.mixed_quorum import Make, MixedQuorum
from support.interop.our_nodes import our_format, told
from support.interop.real_kafka import KafkaInstallation, Process, QuorumLayout, eventually, free_ports, layout_in
from support.wire import active_controller, wait_until_known

BROKERS: Final = (101, 102, 103)
NO_LEADER: Final = -1
STARTED: Final = "Transition from STARTING to STARTED"
HEAP: Final = "256m"
FAILOVER_SECONDS: Final = 120
TOPIC_TOOL: Final = "org.apache.kafka.tools.TopicCommand"
CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
SMALL_TOPICS: Final = (
    "offsets.topic.num.partitions=3",
    "offsets.topic.replication.factor=3",
    "transaction.state.log.num.partitions=3",
    "transaction.state.log.replication.factor=3",
    "transaction.state.log.min.isr=2",
    "share.coordinator.state.topic.num.partitions=3",
    "group.initial.rebalance.delay.ms=0",
)


class BrokerCluster:
    """Three controllers and three brokers with two log directories each; `settings` go to all of them."""

    def __init__(
        self,
        kafka: KafkaInstallation,
        root: Path,
        make: Make,
        settings: tuple[str, ...] = (),
        release: str | None = None,
    ) -> None:
        self.release = release
        self.kafka = kafka
        """Of which release brokers are when they start."""
        self.make = make
        self.settings = settings
        self.layout: QuorumLayout = layout_in(root, settings)
        self.ports = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
        self.brokers: dict[int, Process] = {}
        self.controllers = MixedQuorum(kafka, self.layout, dict.fromkeys(self.layout.ports, make))

    @property
    def bootstrap(self) -> str:
        """The value of `bootstrap.servers` for clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @property
    def server(self) -> str:
        """The address for Kafka's tools."""
        return f"--bootstrap-server={self.bootstrap}"

    def log_dirs(self, broker: int) -> tuple[Path, Path]:
        """The directories of a broker; its metadata log is in the first."""
        return self.layout.root / f"b{broker}" / "first", self.layout.root / f"b{broker}" / "second"

    def properties(self, broker: int) -> Path:
        """Write a broker's configuration."""
        path = self.layout.root / f"b{broker}.properties"
        lines = (
            "process.roles=broker",
            f"node.id={broker}",
            f"log.dirs={','.join(map(str, self.log_dirs(broker)))}",
            f"broker.rack=rack-{broker}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            f"listeners=PLAINTEXT://127.0.0.1:{self.ports[broker]}",
            f"controller.quorum.voters={self.layout.voters}",
            *SMALL_TOPICS,
            *self.settings,
        )
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def format(self) -> None:
        """Format every directory with our own command."""
        our_format(self.layout, release=self.release)
        more = () if self.release is None else ("--release-version", self.release)
        for broker in BROKERS:
            told("format", "-c", str(self.properties(broker)), "--cluster-id", self.layout.cluster_id, *more)

    def start_broker(self, *brokers: int) -> None:
        """Start brokers without waiting for them."""
        for broker in brokers:
            command = self.kafka.command("kafka.Kafka", str(self.properties(broker)), log="info", heap=HEAP)
            self.brokers[broker] = Process(command, self.layout.root / f"b{broker}.log")

    def wait_until_started(self, *brokers: int) -> None:
        """Wait until brokers serve."""
        for broker in brokers:
            self.brokers[broker].wait_for(STARTED)

    def stop(self) -> None:
        """End everything at once."""
        for process in self.brokers.values():
            process.kill()
        self.controllers.kill()

    def leader(self, *, but: int = NO_LEADER) -> int:
        """The active controller, once all that run know the same one; `but` is one that cannot answer."""
        known: set[int] = set()
        asked = self.controllers.processes.keys() - {but}

        def agreed() -> bool:
            known.clear()
            known.update(active_controller(self.layout.ports[node]) for node in asked)
            return len(known) == 1 and known <= asked

        eventually(agreed, "a leader that all controllers know", FAILOVER_SECONDS)
        return known.pop()

    def partitions(self) -> dict[int, Path]:
        """The metadata log of each node that has one, controllers and brokers."""
        found = {node: self.layout.partition(node) for node in self.layout.ports}
        return found | {broker: self.log_dirs(broker)[0] / "__cluster_metadata-0" for broker in BROKERS}

    def image(self, node: int | None = None) -> MetadataImage:
        """The cluster as the log of a node has it; without one, of the controller that has written most."""
        logs = self.partitions()
        chosen = max(self.controllers.processes, key=lambda one: _size(logs[one])) if node is None else node
        return replay(str(logs[chosen]))

    def partition(self, topic: str, number: int = 0) -> Partition:
        """A partition as it is now."""
        return self.image().topics[topic].partitions[number]

    def registration(self, broker: int) -> Broker:
        """A broker as it is registered now."""
        return self.image().brokers.by_id[broker]


def _size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.glob("*.log"))


@contextmanager
def broker_cluster(
    kafka: KafkaInstallation,
    root: Path,
    make: Make = "ours",
    settings: tuple[str, ...] = (),
    release: str | None = None,
) -> Iterator[BrokerCluster]:
    """A cluster with all of its brokers unfenced while the block lasts, begun with `release` or the latest."""
    cluster = BrokerCluster(kafka, root, make, settings, release)
    cluster.format()
    try:
        cluster.start_broker(*BROKERS)
        cluster.controllers.start()
        cluster.controllers.wait_until_listening()
        cluster.wait_until_started(*BROKERS)
        wait_until_known(BROKERS, cluster.ports.values())
        yield cluster
    finally:
        cluster.stop()
