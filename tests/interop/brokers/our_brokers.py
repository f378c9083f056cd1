"""A controller and brokers of ours as processes, for clients of every make."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from our_nodes import our_controller, our_format, told
from real_kafka import Process, QuorumLayout, eventually, free_ports, running
from wire import active_controller, known_brokers

from metadata_log import replay
from metadata_log.image import Partition

SERVING = "serving node="


class OurBrokers:
    """Brokers of ours; `settings` go to each of them."""

    def __init__(self, layout: QuorumLayout, brokers: tuple[int, ...], settings: tuple[str, ...]) -> None:
        self.layout = layout
        self.ports = dict(zip(brokers, free_ports(len(brokers)), strict=True))
        self.processes: dict[int, Process] = {}
        for broker, port in self.ports.items():
            lines = (
                "process.roles=broker",
                f"node.id={broker}",
                f"log.dirs={self.log_dir(broker)}",
                "controller.listener.names=CONTROLLER",
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                f"listeners=PLAINTEXT://127.0.0.1:{port}",
                f"controller.quorum.voters={layout.voters}",
                "broker.heartbeat.interval.ms=500",
                *settings,
            )
            self._properties(broker).write_text("".join(f"{line}\n" for line in lines))
            told("format", "-c", str(self._properties(broker)), "--cluster-id", layout.cluster_id)

    def _properties(self, broker: int) -> Path:
        return self.layout.root / f"broker-{broker}.properties"

    def log_dir(self, broker: int) -> Path:
        """The log directory of a broker."""
        return self.layout.root / f"broker-{broker}"

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start(self, *brokers: int) -> None:
        """Start brokers, and wait until they serve clients and all brokers know them."""
        for broker in brokers:
            command = [sys.executable, "-m", "kraft", "serve", "-c", str(self._properties(broker))]
            self.processes[broker] = Process(command, self.layout.root / f"broker-{broker}.log")
        for broker in brokers:
            self.processes[broker].wait_for(SERVING)
        self.wait_until_known(*brokers)

    def wait_until_known(self, *brokers: int) -> None:
        """Wait until each of the brokers that run names all of these: some clients ask once, and believe the answer."""

        def agreed() -> bool:
            return all(known_brokers(self.ports[one]) >= set(brokers) for one in self.processes)

        eventually(agreed, f"all know the brokers {brokers}", 60)

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
def our_brokers(root: Path, *brokers: int, settings: tuple[str, ...] = ()) -> Iterator[OurBrokers]:
    """A controller and brokers that serve, until the block ends."""
    more = ("controller.quorum.append.linger.ms=0", "broker.session.timeout.ms=3000")
    layout = QuorumLayout(root, "MkU3OEVBNTcwNTJENDM2Qg", dict(zip((1,), free_ports(1), strict=True)), more)
    our_format(layout)
    with running(layout, our_controller(layout), name="ours"):
        eventually(lambda: active_controller(layout.ports[1]) == 1, "the controller is active")
        cluster = OurBrokers(layout, brokers, settings)
        try:
            cluster.start(*brokers)
            yield cluster
        finally:
            for process in cluster.processes.values():
                if process.popen.poll() is None:
                    process.popen.send_signal(signal.SIGKILL)
                    process.popen.wait()
