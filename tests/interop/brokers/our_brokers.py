"""A controller and brokers of ours as processes, for clients of every make."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from metadata_log import replay
from metadata_log.image import Partition
from metadata_log.records.batch import scan
from support.interop.broker_cluster import HEAP, SMALL_TOPICS
from support.interop.our_nodes import our_controller, our_format, told
from support.interop.real_kafka import KafkaInstallation, Process, QuorumLayout, eventually, free_ports, running
from support.wire import active_controller, wait_until_known

SERVING = "serving node="
OURS, THEIRS = 101, 201
"""A broker of ours, and the broker of Kafka beside it."""


class OurBrokers:
    """Brokers of ours; `settings` go to each of them, and `listeners` are more than PLAINTEXT, after a comma."""

    def __init__(
        self,
        layout: QuorumLayout,
        brokers: tuple[int, ...],
        settings: tuple[str, ...],
        listeners: str = "",
        directories: int = 1,
    ) -> None:
        self.layout = layout
        self._directories = directories
        self.ports = dict(zip(brokers, free_ports(len(brokers)), strict=True))
        self.processes: dict[int, Process] = {}
        for broker, port in self.ports.items():
            self.prepare(broker, port, settings, listeners)

    def prepare(self, broker: int, port: int, settings: tuple[str, ...], listeners: str) -> Path:
        """Format the directory of a broker of either make; returns its properties file."""
        path = self._properties(broker)
        lines = (
            "process.roles=broker",
            f"node.id={broker}",
            f"log.dirs={','.join(map(str, self.log_dirs(broker)))}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            f"listeners=PLAINTEXT://127.0.0.1:{port}{listeners}",
            f"controller.quorum.voters={self.layout.voters}",
            "broker.heartbeat.interval.ms=500",
            *settings,
        )
        path.write_text("".join(f"{line}\n" for line in lines))
        told("format", "-c", str(path), "--cluster-id", self.layout.cluster_id)
        return path

    def _properties(self, broker: int) -> Path:
        return self.layout.root / f"broker-{broker}.properties"

    def log_dir(self, broker: int) -> Path:
        """The log directory of a broker, or the first of several."""
        return self.layout.root / f"broker-{broker}"

    def log_dirs(self, broker: int) -> tuple[Path, ...]:
        """All log directories of a broker."""
        more = range(2, self._directories + 1)
        return self.log_dir(broker), *(self.layout.root / f"broker-{broker}-{number}" for number in more)

    @property
    def bootstrap(self) -> str:
        """The value of `bootstrap.servers` for clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start(self, *brokers: int) -> None:
        """Start brokers, and wait until they serve clients and all brokers know them."""
        for broker in brokers:
            command = [sys.executable, "-m", "kraft", "serve", "-c", str(self._properties(broker))]
            self.processes[broker] = Process(command, self.layout.root / f"broker-{broker}.log")
        for broker in brokers:
            self.processes[broker].wait_for(SERVING)
        self.wait_until_known(*brokers)

    def wait_until_known(self, *brokers: int, beside: int | None = None) -> None:
        """Wait until each of the brokers that run names all of these, and the one of Kafka at this port too."""
        wait_until_known(brokers, [self.ports[one] for one in self.processes] + ([beside] if beside else []))

    def partition(self, topic: str) -> Partition:
        """The first partition of a topic, as the log of the controller has it."""
        return replay(str(self.layout.partition(1))).topics[topic].partitions[0]

    def leader_of(self, topic: str) -> int:
        """The leader of the first partition of a topic."""
        return self.partition(topic).leader

    def wait_until_in_sync(self, topic: str, count: int) -> None:
        """Wait until so many replicas of the first partition are in sync."""
        eventually(lambda: len(self.partition(topic).isr) == count, f"{count} replicas of {topic} are in sync", 60)

    def kill(self, broker: int) -> None:
        """End a broker without a shutdown."""
        self.processes.pop(broker).kill()

    def stop(self, broker: int) -> None:
        """Shut a broker down; fails unless its exit code is 0."""
        process = self.processes.pop(broker)
        code = process.stop()
        assert code == 0, f"broker {broker} ended with {code}:\n{process.text[-5000:]}"


@contextmanager
def our_brokers(
    root: Path,
    *brokers: int,
    settings: tuple[str, ...] = (),
    listeners: str = "",
    release: str | None = None,
    directories: int = 1,
    of_controller: tuple[str, ...] = (),
) -> Iterator[OurBrokers]:
    """A controller at the level of a release, or at the newest, and brokers that serve, until the block ends."""
    more = ("controller.quorum.append.linger.ms=0", "broker.session.timeout.ms=3000", *of_controller)
    layout = QuorumLayout(root, "MkU3OEVBNTcwNTJENDM2Qg", dict(zip((1,), free_ports(1), strict=True)), more)
    our_format(layout, release=release)
    with running(layout, our_controller(layout), name="ours"):
        eventually(lambda: active_controller(layout.ports[1]) == 1, "the controller is active")
        cluster = OurBrokers(layout, brokers, settings, listeners, directories)
        try:
            cluster.start(*brokers)
            yield cluster
        finally:
            for process in cluster.processes.values():
                if process.popen.poll() is None:
                    process.popen.send_signal(signal.SIGKILL)
                    process.popen.wait()


def kafkas_broker(
    kafka: KafkaInstallation,
    cluster: OurBrokers,
    settings: tuple[str, ...] = (),
    listeners: str = "",
    of_kafka: tuple[str, ...] = (),
) -> tuple[Process, int]:
    """Start a broker of Kafka beside ours; returns its process and port. `of_kafka` are settings that ours refuse, also
    where they format a directory.
    """
    [port] = free_ports(1)
    path = cluster.prepare(THEIRS, port, (*SMALL_TOPICS, *settings), listeners)
    path.write_text(path.read_text() + "".join(f"{line}\n" for line in of_kafka))
    command = kafka.command("kafka.Kafka", str(path), log="info", heap=HEAP)
    return Process(command, cluster.layout.root / f"kafka-{THEIRS}.log"), port


def batches(log_dir: Path, topic: str) -> list[bytes]:
    """The batches in the log of a replica, as they are on disk."""
    data = b"".join(path.read_bytes() for path in sorted((log_dir / f"{topic}-0").glob("*.log")))
    return [bytes(one.data) for one in scan(data)]
