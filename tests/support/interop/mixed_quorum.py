"""One quorum of Apache Kafka's controllers and ours: started, ended and restarted by node, and its logs compared."""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

import trio

from kraft.admin import QuorumDescription, open_admin
from kraft.cli.cluster.administration import parse_bootstrap
from metadata_log.errors import IncompleteBatch
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.control import VotersRecord
from metadata_log.records.frame import decode_control, decode_record
from metadata_log.records.metadata import ConfigRecord
from metadata_log.records.record import records
from metadata_log.types import Uuid
from support import TESTS
from support.interop.mbeans import jmx_options
from support.interop.our_nodes import our_controller
from support.interop.real_kafka import (
    START_SECONDS,
    STOP_SECONDS,
    KafkaInstallation,
    Nodes,
    Process,
    QuorumLayout,
    eventually,
    kafka_controller,
)
from support.kafka_jars import OLDER_VERSION
from support.wire import leader_of

Make = Literal["ours", "kafka"]
Way = Literal["kill", "stop"]
TERMINATED: Final = 128 + signal.SIGTERM
AUTO_JOIN: Final = "controller.quorum.auto.join.enable=true"
STREAM: Final = TESTS / "interop" / "AdminStream.java"
STREAM_PAUSE_MS: Final = 20
TRUNCATED: Final = re.compile(r"Truncated to offset (\d+) from Fetch response")
"""What a node of Kafka 4.3.1 prints (`KafkaRaftClient.handleFetchResponse`)."""
TOLD_THAT_IT_LEADS: Final = "which is inconsistent with current leader OptionalInt.empty"
"""The last words of a Kafka node that has forgotten its own leadership (`KafkaRaftClient.maybeTransition`)."""


class MixedQuorum(Nodes):
    """The nodes of a layout, each of the make that `makes` says at the moment it is started; Kafka's of `kafka` then.

    `auto_join` are those that make themselves voters. `monitors` are the ports, by node, of the metrics: of JMX at a
    node of Kafka's, of `/metrics` at ours. `settings` are further settings, by node.
    """

    def __init__(
        self,
        kafka: KafkaInstallation,
        layout: QuorumLayout,
        makes: Mapping[int, Make],
        auto_join: Collection[int] = (),
        monitors: Mapping[int, int] | None = None,
        settings: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        self.kafka = kafka
        self.releases: dict[int, KafkaInstallation] = {}
        """Of which release nodes of Kafka's are, by node, if not of `kafka`."""
        self.makes = dict(makes)
        self.monitors = dict(monitors or {})
        self.where = ("--bootstrap-controller", layout.bootstrap)

        def start(node: int) -> list[str]:
            wanted = (*((settings or {}).get(node, ())), *((AUTO_JOIN,) if node in auto_join else ()))
            more = [word for one in wanted for word in ("--override", one)]
            port = self.monitors.get(node)
            if self.makes[node] == "ours":
                metrics = () if port is None else ("--metrics", f"127.0.0.1:{port}")
                return [*our_controller(layout)(node), *metrics, *more]
            of_kafka = self.releases.get(node, self.kafka)
            options = () if port is None else jmx_options(port)
            return [*kafka_controller(of_kafka, layout, options=options)(node), *more]

        super().__init__(layout, start, name="mixed")

    def end(self, node: int, way: Way) -> None:
        """End a running node, gracefully or not; fails if the node has ended by itself, or ends with an error."""
        self.check_that_all_live()
        process = self.processes.pop(node)
        if way == "kill":
            process.kill()
        else:
            code = process.stop()
            is_older = self.makes[node] == "kafka" and self.releases.get(node, self.kafka).release == OLDER_VERSION
            if is_older and code == 1 and "java.nio.channels.ClosedChannelException" in process.text:
                return  # 3.9.2 may close its log while another of its threads reads it, and ends with that
            assert code == (0 if self.makes[node] == "ours" else TERMINATED), (
                f"node {node} ended with {code}:\n{process.text[-5000:]}"
            )

    def check_that_all_live(self) -> None:
        """Fail if a node has ended by itself; the error shows the node's last lines."""
        for node, process in self.processes.items():
            assert process.popen.poll() is None, (
                f"node {node}, {self.makes[node]}, ended by itself:\n{process.text[-5000:]}"
            )

    def quorum(self) -> QuorumDescription:
        """The quorum as its leader describes it."""

        async def ask() -> QuorumDescription:
            async with open_admin(parse_bootstrap(self.layout.bootstrap), timeout_ms=STOP_SECONDS * 1000) as admin:
                return await admin.describe_quorum()

        return trio.run(ask)

    def leader(self) -> int:
        """The active controller, once every node knows the same one; fails at once if a node has ended by itself."""
        return leader_of(self.layout, meanwhile=self.check_that_all_live)

    def voters(self) -> set[int]:
        """The ids of the voters, as the leader describes them."""
        return {one.id for one in self.quorum().voters}

    def observers(self) -> set[int]:
        """The ids of the observers, as the leader describes them."""
        return {one.id for one in self.quorum().observers}

    def wait_until_agreed(self) -> None:
        """Wait until the files of all that run name the voters that their leader names, with their directories."""
        voters = {(one.id, one.directory_id) for one in self.quorum().voters}
        for node in self.processes:
            log = self.layout.partition(node)
            eventually(lambda log=log: voters_in(log) == voters, f"node {node} has written the voters")

    def settle(self) -> int:
        """Stop all nodes once each has all committed records; returns the high watermark."""
        self.check_that_all_live()
        high_watermark = self.quorum().high_watermark
        logs = {node: self.layout.partition(node) for node in self.processes}
        for node, log in logs.items():
            eventually(lambda log=log: end_of(log) >= high_watermark, f"node {node} has all that is committed")
        for node in tuple(self.processes):
            self.processes[node].signal(signal.SIGTERM)
        for node in tuple(self.processes):
            assert self.processes.pop(node).wait() in (0, TERMINATED)
        return high_watermark

    def end_all(self) -> dict[int, list[RecordBatch]]:
        """Stop all nodes once each has all committed records; returns these by node, with the same bytes on each."""
        high_watermark = self.settle()
        committed = {
            node: [batch for batch in batches_in(self.layout.partition(node)) if batch.next_offset <= high_watermark]
            for node in self.layout.ports
        }
        first, *others = ([bytes(batch.data) for batch in batches] for batches in committed.values())
        assert first
        assert all(other == first for other in others), f"the logs differ below {high_watermark}"
        return committed


class AdminStream:
    """Metadata changes through Kafka's own admin client, one after the other, and which of them were acknowledged."""

    def __init__(self, kafka: KafkaInstallation, layout: QuorumLayout) -> None:
        options = (layout.bootstrap, str(STREAM_PAUSE_MS))
        command = kafka.command(str(STREAM), *options)
        self.process = Process(command, layout.root / "stream.log")

    @property
    def acknowledged(self) -> list[int]:
        """The numbers of the acknowledged changes, in their order."""
        return [int(line.split()[1]) for line in self.process.text.splitlines() if line.startswith("acknowledged ")]

    @property
    def refused(self) -> list[str]:
        """The errors of the client for the changes that failed."""
        return [line for line in self.process.text.splitlines() if line.startswith("refused ")]

    def wait_for_progress(self) -> None:
        """Wait until some more changes are acknowledged."""
        wanted = len(self.acknowledged) + 5
        eventually(lambda: len(self.acknowledged) >= wanted, "changes are acknowledged", START_SECONDS)


@contextmanager
def admin_stream(kafka: KafkaInstallation, layout: QuorumLayout) -> Iterator[AdminStream]:
    """Changes are written while the block lasts; none of them may be refused."""
    stream = AdminStream(kafka, layout)
    try:
        stream.wait_for_progress()
        yield stream
        stream.wait_for_progress()
    finally:
        stream.process.kill()
    assert stream.refused == []


def batches_in(partition: Path) -> list[RecordBatch]:
    """Every batch of a node's log, as it stands there."""
    return [batch for file in sorted(partition.glob("*.log")) for batch in scan(file.read_bytes())]


def truncations(nodes: Nodes, node: int) -> list[int]:
    """To which offsets a node of Kafka's has cut its log since it was first started."""
    return [int(at) for at in TRUNCATED.findall(nodes.output(node).read_text())]


def end_of(partition: Path) -> int:
    """The offset after the last whole batch of a node's log."""
    end = 0
    with suppress(IncompleteBatch):
        for batch in (batch for file in sorted(partition.glob("*.log")) for batch in scan(file.read_bytes())):
            end = batch.next_offset
    return end


def voters_in(partition: Path) -> set[tuple[int, Uuid]]:
    """The voters by the last VotersRecord in a node's log, else by the snapshot that the log begins with."""
    found: set[tuple[int, Uuid]] = set()
    first_snapshot = partition / "00000000000000000000-0000000000.checkpoint"
    files = [file for file in (first_snapshot, *sorted(partition.glob("*.log"))) if file.exists()]
    with suppress(IncompleteBatch):
        for content in controls_in(batch for file in files for batch in scan(file.read_bytes())):
            if isinstance(content, VotersRecord):
                found = {(one.voter_id, one.voter_directory_id) for one in content.voters}
    return found


def controls_in(batches: Iterable[RecordBatch]) -> Iterator[object]:
    """The content of the control records, in the order of the log."""
    for batch in batches:
        if batch.is_control:
            for record in records(batch):
                yield decode_control(record.key or b"", record.value or b"")[1]


def values_in(batches: list[RecordBatch]) -> list[int]:
    """The numbers of the stream's changes, in the order of the log."""
    found: list[int] = []
    for batch in batches:
        if not batch.is_control:
            for record in records(batch):
                content = decode_record(record.value or b"").record
                if isinstance(content, ConfigRecord) and content.resource_name.startswith("stream"):
                    found.append(int((content.value or "").removeprefix("value-")))
    return found
