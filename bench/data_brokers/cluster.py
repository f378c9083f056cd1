"""Brokers with data to measure: ours, or Apache Kafka's, each make with a controller of ours."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import processes
from data_brokers.wire import WireClient
from load import Address
from quorums import CLUSTER_ID, QuorumLayout, free_ports

from support.interop.our_nodes import COMMAND_SECONDS, KRAFT, our_controller, told
from support.interop.real_kafka import KafkaInstallation, Process, running

OURS: Final = "ours"
SERVING: Final = {OURS: "serving node=", "kafka": "Transition from STARTING to STARTED"}
"""The line that a broker prints once clients may connect, by make."""
FIRST_BROKER: Final = 101
CONTROLLER: Final = 100
RETRY_SECONDS: Final = 0.001


def format_directory(properties: Path, kraft: Sequence[str] = KRAFT) -> None:
    """Format the directory of a node, with `kraft format`."""
    arguments = ("format", "-c", str(properties), "--cluster-id", CLUSTER_ID)
    if kraft is KRAFT:
        told(*arguments)
    else:
        subprocess.run([*kraft, *arguments], check=True, capture_output=True, timeout=COMMAND_SECONDS)


class DataCluster:
    """One controller of ours, and brokers of one make that serve clients, until the stack closes.

    Args:
        make: `ours` or `kafka`.
        root: The directory for all files; made.
        brokers: How many brokers.
        heap: The largest heap of each JVM.
        session_s: `broker.session.timeout.ms`, in seconds. A broker that restarts earlier waits for the rest.
        stack: Ends the processes.
        settings: Lines for the properties of every broker; the later of two with one name counts.
        of_each: Further lines for the properties of the broker with an id.
        of_controller: Lines for the properties of the controller.
        kraft: The command of `kraft`, without arguments; by default that of this version.
    """

    def __init__(
        self,
        make: str,
        root: Path,
        brokers: int,
        heap: str,
        session_s: float,
        stack: ExitStack,
        *,
        settings: Sequence[str] = (),
        of_each: Callable[[int], Sequence[str]] = lambda _: (),
        of_controller: Sequence[str] = (),
        kraft: Sequence[str] = KRAFT,
    ) -> None:
        self.make = make
        self._settings = settings
        self._of_each = of_each
        self._kraft = kraft
        self._heap = heap
        self._session_s = session_s
        root.mkdir(parents=True)
        lines = (
            "controller.quorum.append.linger.ms=0",
            f"broker.session.timeout.ms={1000 * session_s:.0f}",
            *of_controller,
        )
        self._layout = QuorumLayout(root, CLUSTER_ID, dict(zip((CONTROLLER,), free_ports(1), strict=True)), lines)
        format_directory(self._layout.properties(CONTROLLER), kraft)
        stack.enter_context(running(self._layout, our_controller(self._layout, kraft), name="controller"))
        ids = range(FIRST_BROKER, FIRST_BROKER + brokers)
        self._ports = dict(zip(ids, free_ports(brokers), strict=True))
        self._processes: dict[int, Process] = {}
        stack.callback(self._kill)
        for broker in ids:
            format_directory(self._properties(broker), kraft)
            self.start(broker)
        for broker in ids:
            self._processes[broker].wait_for(SERVING[make])

    @property
    def title(self) -> str:
        """The make and the number of brokers."""
        return f"{self.make} x {len(self._ports)}"

    @property
    def bootstrap(self) -> str:
        """The value of `bootstrap.servers` for clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def address(self, broker: int) -> Address:
        """Where a broker listens."""
        return "127.0.0.1", self._ports[broker]

    @property
    def first(self) -> int:
        """The id of the first broker, which leads every topic of `create`."""
        return next(iter(self._ports))

    def _properties(self, broker: int) -> Path:
        path = self._layout.root / f"{broker}.properties"
        lines = (
            "process.roles=broker",
            f"node.id={broker}",
            f"log.dirs={self._layout.root / str(broker)}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            f"listeners=PLAINTEXT://127.0.0.1:{self._ports[broker]}",
            f"controller.quorum.voters={self._layout.voters}",
            "auto.create.topics.enable=false",
            *self._settings,
            *self._of_each(broker),
        )
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def start(self, broker: int) -> None:
        """Start the process of a broker, and do not wait."""
        if self.make == OURS:
            command = [*self._kraft, "serve", "-c", str(self._properties(broker))]
        else:
            kafka = KafkaInstallation.find()
            command = kafka.command(
                "kafka.Kafka", str(self._properties(broker)), heap=self._heap, log="info", options=()
            )
        self._processes[broker] = Process(command, self._layout.root / f"{broker}.log")

    def stop(self, broker: int) -> None:
        """Shut a broker down, and wait for its end; fails unless its exit code says that this was clean."""
        process = self._processes.pop(broker)
        code = process.stop()
        # A JVM that SIGTERM has ended says so, even after a clean shutdown.
        assert code in {0, 143, -15}, f"broker {broker} ended with {code}:\n{process.text[-3000:]}"

    def _kill(self) -> None:
        for process in self._processes.values():
            process.kill()

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic with replicas on every broker, led by the first one, and wait until each partition is led."""
        replicas = list(self._ports)
        with WireClient(self.address(self.first)) as client:
            client.create_topic(topic, partitions, replicas)
            for number in range(partitions):
                client.produce_when_led(topic, number)

    def pid(self, broker: int) -> int:
        """The process id of a broker."""
        return self._processes[broker].popen.pid

    def cpu_seconds(self) -> float:
        """The processor time of all brokers so far, children not included (Linux)."""
        return processes.cpu_seconds(map(self.pid, self._ports))

    def resident_bytes(self) -> int:
        """The memory of the first broker now (Linux)."""
        return processes.resident_bytes(self.pid(self.first))

    def first_record(self, topic: str) -> tuple[float, float]:
        """Stop the first broker, wait until its session is over, and start it again; returns the seconds, and its CPU
        seconds, from the start until a client's record is acknowledged.
        """
        broker = self.first
        self.stop(broker)
        time.sleep(self._session_s + 1)
        began = time.perf_counter()
        self.start(broker)
        process = self._processes[broker]
        while True:
            assert process.popen.poll() is None, process.text[-3000:]
            try:
                with WireClient(self.address(broker)) as client:
                    client.produce_when_led(topic, 0)
            except OSError:
                time.sleep(RETRY_SECONDS)
            else:
                return time.perf_counter() - began, processes.cpu_seconds([process.popen.pid])
