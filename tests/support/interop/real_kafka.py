"""Apache Kafka itself as processes: its controllers and its tools, started by class name and ended by process id."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import read_meta_properties
from metadata_log.types import Uuid
from support.eventually import eventually
from support.kafka_jars import KAFKA_VERSION, ensure_jars, ensure_programs, find_java
from support.loopback import free_ports

QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""For processes that live for seconds: start quickly, use little."""
TOOL_SECONDS = 180
START_SECONDS = 120
STOP_SECONDS = 60

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
QUIET = ("metadata.max.idle.interval.ms=0", "controller.quorum.append.linger.ms=0")
"""Controllers write nothing without a request, so that two tools see the same offsets."""

QUORUM_TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"
STORAGE_TOOL = "kafka.tools.StorageTool"
DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments"
CONFIG_TOOL = "kafka.admin.ConfigCommand" if KAFKA_VERSION < "4.4" else "org.apache.kafka.tools.ConfigCommand"
CLUSTER_TOOL = "org.apache.kafka.tools.ClusterTool"


class KafkaInstallation(Struct, frozen=True):
    """Apache Kafka's jars and a Java to run them."""

    java: str
    jars: Path
    archive: Path | None = None
    """The classes as the JVM has them in memory."""
    programs: Path | None = None
    """The jars of Streams and of Connect's file connectors, for those who asked for them."""

    @classmethod
    def find(cls, version: str = KAFKA_VERSION) -> KafkaInstallation:
        """The installation in the user's cache, brought there if needed; raises `KafkaUnavailable`."""
        return cls(find_java(), ensure_jars(version))

    def with_programs(self) -> KafkaInstallation:
        """The same with Streams and Connect's file connectors; raises `KafkaUnavailable`."""
        return replace(self, programs=ensure_programs(self.release))

    @property
    def release(self) -> str:
        """Its number, which is in the name of the directory."""
        return self.jars.name.removeprefix("kafka-")

    @property
    def quick_start(self) -> tuple[str, ...]:
        """The options of a JVM that lives for seconds."""
        return QUICK_START if self.archive is None else (*QUICK_START, f"-XX:SharedArchiveFile={self.archive}")

    def command(
        self,
        main_class: str,
        *args: str,
        heap: str = "256m",
        log: str = "error",
        options: Sequence[str] | None = None,
    ) -> list[str]:
        """The command line that runs a class of Kafka; `log` is the lowest level that it prints to stderr, `options`
        are those of the JVM, if not for a quick start.
        """
        options = self.quick_start if options is None else options
        logging = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log}"
        classes = ":".join(f"{one}/*" for one in (self.jars, self.programs) if one is not None)
        return [self.java, f"-Xmx{heap}", *options, logging, "-cp", classes, main_class, *args]

    def run(
        self, main_class: str, *args: str, stdin: str | None = None, timeout: float = TOOL_SECONDS, log: str = "error"
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool to its end, whatever its exit code."""
        command = self.command(main_class, *args, log=log)
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)

    def tool(self, main_class: str, *args: str) -> str:
        """The output of a tool; fails if its exit code is not 0."""
        done = self.run(main_class, *args)
        assert done.returncode == 0, (
            f"{main_class} {' '.join(args)} ended with {done.returncode}:\n{done.stderr}\n{done.stdout}"
        )
        return done.stdout


class Process:
    """A process with its output in a file and in memory, where a test can wait for a line."""

    def __init__(self, command: Sequence[str], output: Path, *, env: dict[str, str] | None = None) -> None:
        self.output = output
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        environment = os.environ | (env or {})
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with self.output.open("a") as file, self.popen.stdout as stream:
            for line in stream:
                file.write(line)
                file.flush()
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def text(self) -> str:
        """Everything printed so far."""
        with self._changed:
            return "".join(self._lines)

    def wait_for(self, pattern: str, timeout: float = START_SECONDS) -> str:
        """The first line that matches; fails if the process ends or time runs out before."""
        deadline = time.monotonic() + timeout
        seen = 0
        with self._changed:
            while True:
                while seen < len(self._lines):
                    if re.search(pattern, self._lines[seen]):
                        return self._lines[seen]
                    seen += 1
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    why = "ended" if self._ended else f"did not print it in {timeout} s"
                    raise AssertionError(
                        f"waiting for {pattern!r}: the process {why}; its last lines:\n" + self._tail()
                    )
                self._changed.wait(left)

    def _tail(self) -> str:
        return "".join(self._lines[-30:])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)

    def stop(self, timeout: float = STOP_SECONDS) -> int:
        """Ask it to end, wait, and return its exit code; it is killed if it does not end in time."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self) -> int:
        """End it without a word of warning."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def wait_until_closed(self, timeout: float) -> None:
        """Wait until every process that writes to its output has ended, those that it started too."""
        self._reader.join(timeout)
        assert not self._reader.is_alive(), f"a process still writes after {timeout} s:\n" + self._tail()

    def wait(self, timeout: float = STOP_SECONDS) -> int:
        """Wait for its end and return its exit code; it is killed if it does not end in time."""
        try:
            self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self._reader.join(STOP_SECONDS)
        return self.popen.returncode


class QuorumLayout(Struct, frozen=True):
    """Where the controllers of a quorum listen and keep their files."""

    root: Path
    cluster_id: str
    ports: dict[int, int]
    extra: tuple[str, ...] = ()
    is_dynamic: bool = False
    """Whether the voters are in the log (KIP-853), and not in the configuration."""
    behind: dict[int, int] = {}
    """The ports at which nodes listen, if their advertised ports are those of proxies."""

    @property
    def bootstrap(self) -> str:
        """The value of `--bootstrap-controller`."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @property
    def voters(self) -> str:
        """The value of `controller.quorum.voters`."""
        return ",".join(f"{node}@127.0.0.1:{port}" for node, port in self.ports.items())

    def log_dir(self, node: int) -> Path:
        """A node's log directory."""
        return self.root / f"c{node}"

    def directory_id(self, node: int) -> Uuid:
        """Which directory a node has, whatever its path."""
        formatted = read_meta_properties(OsDisk(), str(self.log_dir(node)))
        assert formatted is not None
        assert formatted.directory_id is not None
        return formatted.directory_id

    def partition(self, node: int) -> Path:
        """The directory of a node's metadata log."""
        return self.log_dir(node) / "__cluster_metadata-0"

    def properties(self, node: int) -> Path:
        """Write a node's configuration, which Kafka's controllers and ours both understand."""
        lines = [
            "process.roles=controller",
            f"node.id={node}",
            f"log.dirs={self.log_dir(node)}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT",
            f"listeners=CONTROLLER://127.0.0.1:{self.behind.get(node, self.ports[node])}",
            *([f"advertised.listeners=CONTROLLER://127.0.0.1:{self.ports[node]}"] if node in self.behind else []),
            f"controller.quorum.bootstrap.servers={self.bootstrap}"
            if self.is_dynamic
            else f"controller.quorum.voters={self.voters}",
            *self.extra,
        ]
        path = self.root / f"c{node}.properties"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path


def layout_in(root: Path, extra: tuple[str, ...] = QUIET) -> QuorumLayout:
    """Three controllers in a directory."""
    return QuorumLayout(root, CLUSTER_ID, dict(zip((1, 2, 3), free_ports(3), strict=True)), extra)


class Nodes:
    """The running nodes of one layout, of whatever make; `start` gives the command line of a node."""

    def __init__(self, layout: QuorumLayout, start: Callable[[int], list[str]], *, name: str) -> None:
        self.layout = layout
        self.processes: dict[int, Process] = {}
        self._start = start
        self._name = name

    def start(self, *nodes: int) -> None:
        """Start these nodes, or all of them."""
        for node in nodes or tuple(self.layout.ports):
            self.processes[node] = Process(self._start(node), self.output(node))

    def output(self, node: int) -> Path:
        """The output of a node in all its lives."""
        return self.layout.root / f"{self._name}{node}.log"

    def wait_until_listening(self) -> None:
        """Wait until each running node accepts connections."""
        for node, process in self.processes.items():
            eventually(
                lambda node=node, process=process: self._listens(node, process), f"node {node} listens", START_SECONDS
            )

    def _listens(self, node: int, process: Process) -> bool:
        assert process.popen.poll() is None, f"node {node} ended:\n{process.text[-5000:]}"
        try:
            socket.create_connection(("127.0.0.1", self.layout.ports[node]), 1).close()
        except OSError:
            return False
        return True

    def stop(self) -> dict[int, int]:
        """Send each node one SIGTERM, and return the exit codes; a second signal would skip the graceful shutdown."""
        for process in self.processes.values():
            process.signal(signal.SIGTERM)
        codes = {node: process.wait() for node, process in self.processes.items()}
        self.processes.clear()
        return codes

    def kill(self) -> None:
        """End all without a word of warning."""
        for process in self.processes.values():
            process.kill()
        self.processes.clear()


@contextmanager
def running(layout: QuorumLayout, start: Callable[[int], list[str]], *, name: str) -> Iterator[Nodes]:
    """All nodes of a layout while the block lasts."""
    nodes = Nodes(layout, start, name=name)
    try:
        nodes.start()
        nodes.wait_until_listening()
        yield nodes
    finally:
        nodes.kill()


def kafka_controller(
    kafka: KafkaInstallation, layout: QuorumLayout, log: str = "info", options: Sequence[str] = ()
) -> Callable[[int], list[str]]:
    """The command lines of Apache Kafka's controllers on a layout; `options` are further ones of the JVM."""
    of_jvm = (*kafka.quick_start, *options)
    return lambda node: kafka.command("kafka.Kafka", str(layout.properties(node)), log=log, options=of_jvm)


def kafka_format(kafka: KafkaInstallation, layout: QuorumLayout, *nodes: int) -> None:
    """Format the directories of nodes, or of all, with Kafka's storage tool; in parallel, since a JVM starts slowly."""
    commands = [
        kafka.command(STORAGE_TOOL, "format", "-t", layout.cluster_id, "-c", str(layout.properties(node)))
        for node in nodes or tuple(layout.ports)
    ]
    started = [subprocess.Popen(each, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for each in commands]
    for each in started:
        output, _ = each.communicate(timeout=TOOL_SECONDS)
        assert each.returncode == 0, output
