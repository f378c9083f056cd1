"""Controllers and brokers of Apache Kafka with faults, and `kraft doctor` run on them."""

from __future__ import annotations

import io
import json
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

from msgspec import Struct

from kraft.cli.main import main
from metadata_log.types import random_uuid
from support.interop.real_kafka import CLUSTER_ID, KafkaInstallation, Process, eventually
from support.loopback import free_ports

PATIENCE_SECONDS: Final = 90
ASK_SECONDS: Final = "3"
"""The limit of a request of the doctor: a paused controller never answers."""
STARTED: Final = "Transition from STARTING to STARTED"
SERVES: Final = "Kafka Server started"
SPARE: Final = 4
"""A controller that is no voter at the beginning."""
BROKERS: Final = (101, 102, 103)
METADATA: Final = "__cluster_metadata-0"
OFTEN: Final = ("metadata.log.max.record.bytes.between.snapshots=3000", "metadata.log.segment.ms=8000")
"""Controllers write segments and snapshots within seconds."""


class Done(Struct, frozen=True):
    """The end of a command."""

    code: int
    out: str
    err: str


def kraft(*words: str) -> Done:
    """Run `kraft` with these words in this process, whatever its exit code."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(words)
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int), code
    return Done(code, out.getvalue(), err.getvalue())


def told(*words: str) -> str:
    """The output of a command that succeeds."""
    done = kraft(*words)
    assert done.code == 0, f"kraft {' '.join(words)} ended with {done.code}:\n{done.err}\n{done.out}"
    return done.out


def edit(path: Path, **settings: str | None) -> None:
    """Set, add, or with None remove keys of a properties file; an underscore stands for a dot."""
    lines = path.read_text().splitlines()
    for name, value in settings.items():
        key = name.replace("_", ".")
        lines = [line for line in lines if not line.startswith(f"{key}=")]
        if value is not None:
            lines.append(f"{key}={value}")
    path.write_text("".join(f"{line}\n" for line in lines))


def setting(path: Path, key: str) -> str:
    """The value of a key in a properties file."""
    values = [line.partition("=")[2] for line in path.read_text().splitlines() if line.startswith(f"{key}=")]
    assert len(values) == 1, f"{path}: {key}: {values}"
    return values[0]


class DoctorCluster:
    """A quorum of three voters and a spare controller, and brokers; every process is Apache Kafka."""

    def __init__(
        self,
        kafka: KafkaInstallation,
        root: Path,
        *,
        dynamic: bool = True,
        voters: Sequence[int] = (1, 2, 3),
        brokers: Sequence[int] = (),
        older: KafkaInstallation | None = None,
        release: str | None = None,
    ) -> None:
        self.kafka = kafka
        self.older = older
        self.root = root
        self.dynamic = dynamic
        self.first_voters = tuple(voters)
        self.release = release or kafka.release
        nodes = (*voters, SPARE, *brokers)
        self.ports = dict(zip(nodes, free_ports(len(nodes)), strict=True))
        self.brokers = tuple(brokers)
        self.running: dict[int, Process] = {}
        self.aside = root / "aside"
        self.aside.mkdir()

    # ----------------------------------------------------------------------------------------------------------- places

    def config(self, node: int) -> Path:
        """The properties file of a node."""
        return self.root / f"n{node}.properties"

    def data(self, node: int) -> Path:
        """The log directory of a node."""
        return self.root / f"n{node}"

    def log(self, node: int) -> Path:
        """The directory of a node's metadata log."""
        return self.data(node) / METADATA

    def meta(self, node: int) -> Path:
        """The meta.properties of a node."""
        return self.data(node) / "meta.properties"

    def address(self, node: int) -> str:
        """Where a node listens."""
        return f"127.0.0.1:{self.ports[node]}"

    @property
    def bootstrap(self) -> str:
        """The value of `--bootstrap-controller`: the first voters."""
        return ",".join(self.address(node) for node in self.first_voters)

    def move_aside(self, path: Path) -> Path:
        """Move a file or a directory out of the way; returns the place where it is now."""
        kept = self.aside / f"{len(list(self.aside.iterdir()))}-{path.name}"
        shutil.move(path, kept)
        return kept

    # ---------------------------------------------------------------------------------------------------------- set-up

    def write_config(self, node: int) -> Path:
        """Write the properties file of a node as it should be."""
        is_broker = node in self.brokers
        static = ",".join(f"{voter}@{self.address(voter)}" for voter in self.first_voters)
        lines = (
            f"process.roles={'broker' if is_broker else 'controller'}",
            f"node.id={node}",
            f"log.dirs={self.data(node)}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            f"listeners={'PLAINTEXT' if is_broker else 'CONTROLLER'}://{self.address(node)}",
            f"controller.quorum.bootstrap.servers={self.bootstrap}"
            if self.dynamic
            else f"controller.quorum.voters={static}",
            *OFTEN,
            *(
                (
                    "offsets.topic.num.partitions=1",
                    "offsets.topic.replication.factor=3",
                    "transaction.state.log.num.partitions=1",
                    "transaction.state.log.replication.factor=3",
                    "transaction.state.log.min.isr=1",
                )
                if is_broker
                else ()
            ),
        )
        self.config(node).write_text("".join(f"{line}\n" for line in lines))
        return self.config(node)

    def format(self, node: int, *words: str, cluster_id: str = CLUSTER_ID) -> None:
        """Format the directory of a node with our command."""
        told("format", "-c", str(self.config(node)), "-t", cluster_id, *words, "--release-version", self.release)

    def format_first(self) -> None:
        """Format the voters and the brokers for a new cluster."""
        for node in (*self.first_voters, SPARE, *self.brokers):
            self.write_config(node)
        how: tuple[str, ...] = ()
        if self.dynamic:
            voters = ",".join(f"{one}@{self.address(one)}:{random_uuid(SystemRandom())}" for one in self.first_voters)
            how = ("--initial-controllers", voters)
        for node in self.first_voters:
            self.format(node, *how)
        for node in self.brokers:
            self.format(node, *(("--no-initial-controllers",) if self.dynamic else ()))

    # ------------------------------------------------------------------------------------------------------- processes

    def start(self, *nodes: int, kafka: KafkaInstallation | None = None) -> None:
        """Start nodes on the properties files as they are, and wait until each one serves."""
        for node in nodes:
            command = (kafka or self.kafka).command("kafka.Kafka", str(self.config(node)), log="info")
            self.running[node] = Process(command, self.root / f"n{node}.log")
        for node in nodes:
            self.running[node].wait_for(STARTED if node in self.brokers else SERVES)

    def kill(self, *nodes: int) -> None:
        """End nodes without warning, and wait for their ends."""
        for node in nodes:
            self.running.pop(node).kill()

    def stop(self, *nodes: int) -> None:
        """End nodes in order, and wait for their ends."""
        for node in nodes:
            self.running.pop(node).stop()

    def pause(self, node: int) -> None:
        """Keep a process from running until `resume`."""
        self.running[node].signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        """Let a paused process run again."""
        self.running[node].signal(signal.SIGCONT)

    # --------------------------------------------------------------------------------------------------------- commands

    def live(self, *words: str) -> str:
        """The output of a command that asks the controllers, and succeeds."""
        return told(*words, "--bootstrap-controller", self.bootstrap)

    def until_done(self, *words: str) -> str:
        """The same, repeated until the command succeeds, as while a leader is elected."""
        found: list[Done] = []

        def succeeds() -> bool:
            found.append(kraft(*words, "--bootstrap-controller", self.bootstrap))
            return found[-1].code == 0

        try:
            eventually(succeeds, f"kraft {' '.join(words)} succeeds", PATIENCE_SECONDS)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{found[-1].err}") from late
        return found[-1].out

    def status(self) -> dict[str, Any]:
        """The quorum as the leader describes it, once there is a leader."""
        found: dict[str, Any] = json.loads(self.until_done("quorum", "status", "--json"))
        return found

    def voters(self) -> set[int]:
        """The voters as the leader names them."""
        return {one["id"] for one in self.status()["currentVoters"]}

    def wait_until_caught_up(self, *nodes: int) -> None:
        """Wait until nodes have fetched up to the leader's end within the last two seconds."""

        def follow() -> bool:
            rows = json.loads(self.until_done("quorum", "replication", "--json"))["replicas"]
            near = {row["nodeId"] for row in rows if row["lag"] <= 2 and row["lastCaughtUpTimestamp"] >= 0}
            return set(nodes) <= near

        eventually(follow, f"nodes {nodes} have caught up", PATIENCE_SECONDS)

    def configs(self) -> tuple[str, ...]:
        """`-c FILE` for each properties file of a formatted controller."""
        files = (self.config(node) for node in (*self.first_voters, SPARE) if self.data(node).exists())
        return tuple(word for file in files for word in ("-c", str(file)))

    def examine(self, words: Sequence[str]) -> dict[str, Any]:
        """The report of `kraft doctor --json`; the exit code is that of the worst finding."""
        done = kraft("doctor", "--json", *words)
        assert done.code in {0, 1, 2}, done.err
        report: dict[str, Any] = json.loads(done.out)
        worst = max(({"fatal": 2, "error": 1}.get(one["severity"], 0) for one in report["findings"]), default=0)
        assert done.code == max(worst, 1 if report["unreadable"] else 0), report
        return report


@contextmanager
def doctor_cluster(cluster: DoctorCluster) -> Iterator[DoctorCluster]:
    """The voters and brokers of a cluster run while the block lasts; every process ends with the block."""
    cluster.format_first()
    try:
        cluster.start(*cluster.first_voters, *cluster.brokers)
        cluster.wait_until_caught_up(*cluster.first_voters)
        yield cluster
    finally:
        for process in cluster.running.values():
            process.kill()
