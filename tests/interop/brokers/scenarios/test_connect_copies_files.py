"""Workers of Connect copy a file exactly once into a topic, and from there into a file, while they and a broker die."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from support.interop.kafka_or_skip import with_programs_or_skipped
from support.interop.real_kafka import KafkaInstallation, Process, eventually, free_ports
from support.scenarios.coordinator_client import COORDINATED, GROUP, coordinator_of
from support.scenarios.scenario_cluster import MAKES, Cluster, Topic, scenario_cluster

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
FILES = "org.apache.kafka.connect.file"
GROUP_ID = "workers"
LINES = 3000
SECONDS = 240


class Task(msgspec.Struct):
    """The status of a task, or of a connector, by a worker."""

    state: str
    worker_id: str
    trace: str = ""


class Status(msgspec.Struct):
    """The status of a connector and its tasks, by a worker."""

    connector: Task
    tasks: list[Task]


class Workers:
    """Workers of Connect in one group, by their addresses."""

    def __init__(self, cluster: Cluster, kafka: KafkaInstallation, root: Path) -> None:
        self._cluster = cluster
        self._kafka = kafka
        self._root = root
        self.processes: dict[str, Process] = {}

    def start(self, port: int) -> None:
        """Start a worker, and wait until it has joined the others."""
        path = self._root / f"worker-{port}.properties"
        text = "org.apache.kafka.connect.storage.StringConverter"
        lines = (
            f"bootstrap.servers={self._cluster.bootstrap}",
            f"group.id={GROUP_ID}",
            f"key.converter={text}",
            f"value.converter={text}",
            "config.storage.topic=connect-configs",
            "offset.storage.topic=connect-offsets",
            "offset.storage.partitions=3",
            "status.storage.topic=connect-status",
            "status.storage.partitions=2",
            "exactly.once.source.support=enabled",
            f"listeners=http://127.0.0.1:{port}",
            "plugin.discovery=service_load",
            "session.timeout.ms=6000",
            "heartbeat.interval.ms=1000",
            "scheduled.rebalance.max.delay.ms=1000",
            "offset.flush.interval.ms=1000",
        )
        path.write_text("".join(f"{line}\n" for line in lines))
        address = f"127.0.0.1:{port}"
        command = self._kafka.command(WORKER, str(path), heap="384m", log="warn")
        self.processes[address] = Process(command, self._root / f"worker-{port}.log")
        eventually(lambda: self._ask(address, "connectors") is not None, f"the worker at {address} serves", SECONDS)

    def _ask(self, address: str, path: str, config: dict[str, str] | None = None) -> bytes | None:
        """The answer of a worker; None while it cannot answer."""
        process = self.processes[address]
        assert process.popen.poll() is None, f"the worker at {address} ended:\n{process.text[-3000:]}"
        request = urllib.request.Request(f"http://{address}/{path}", headers={"Content-Type": "application/json"})
        if config is not None:
            request.data, request.method = msgspec.json.encode(config), "PUT"
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                found: bytes = answer.read()
        except urllib.error.HTTPError as refused:
            # A rebalance, a connector that is not known yet, or the leader that is away.
            if refused.code not in (404, 409, 500, 503):
                raise
            return None
        except OSError:
            return None
        return found

    def configure(self, name: str, **config: str) -> None:
        """Make a connector; in the names of its settings, `_` stands for a dot."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        address = next(iter(self.processes))
        eventually(
            lambda: self._ask(address, f"connectors/{name}/config", settings) is not None, f"{name} is made", SECONDS
        )

    def worker_of(self, name: str) -> str:
        """The worker that runs the task of a connector, once it runs."""
        found: list[str] = []

        def runs() -> bool:
            answer = self._ask(next(iter(self.processes)), f"connectors/{name}/status")
            tasks = [] if answer is None else msgspec.json.decode(answer, type=Status).tasks
            assert all(one.state != "FAILED" for one in tasks), tasks
            found[:] = [one.worker_id for one in tasks if one.state == "RUNNING" and one.worker_id in self.processes]
            return len(found) == 1

        eventually(runs, f"the task of {name} runs", SECONDS)
        return found[0]


@contextmanager
def workers(cluster: Cluster, kafka: KafkaInstallation, root: Path, count: int) -> Iterator[Workers]:
    """Workers, while the block lasts."""
    found = Workers(cluster, kafka, root)
    try:
        for port in free_ports(count):
            found.start(port)
        yield found
    finally:
        for process in found.processes.values():
            process.kill()


def committed_lines(cluster: Cluster, topic: Topic, count: int) -> list[str]:
    """The values of a topic with one partition, as one who reads what is committed sees them."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
    consumer.assign([TopicPartition(topic.name, 0, OFFSET_BEGINNING)])
    found: list[str] = []

    def read() -> bool:
        got = consumer.consume(10_000, timeout=1)
        assert all(one.error() is None for one in got), got
        found.extend((one.value() or b"").decode() for one in got)
        return len(found) >= count and not got

    eventually(read, f"{count} lines are in {topic.name}", SECONDS)
    consumer.close()
    return found


@pytest.mark.parametrize("make", MAKES)
def test_a_file_is_copied_exactly_once_into_a_topic_and_from_there_into_a_file(
    make: str, tmp_path: Path, kafka: KafkaInstallation
) -> None:
    with_connect = with_programs_or_skipped(kafka)
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    written: list[str] = []

    def write() -> None:
        more = [f"line {number}" for number in range(len(written), len(written) + LINES)]
        written.extend(more)
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in more)

    def in_sink() -> list[str]:
        return sink.read_text().splitlines() if sink.exists() else []

    def all_is_copied() -> bool:
        return set(in_sink()) >= set(written)

    with (
        scenario_cluster(tmp_path, MAKES[make], kafka, COORDINATED) as cluster,
        workers(cluster, with_connect, tmp_path, 2) as group,
    ):
        topic = cluster.create("lines")
        write()
        group.configure(
            "source",
            connector_class=f"{FILES}.FileStreamSourceConnector",
            file=str(source),
            topic=topic.name,
            batch_size="100",
            exactly_once_support="required",
            transaction_boundary="poll",
        )
        group.configure(
            "sink",
            connector_class=f"{FILES}.FileStreamSinkConnector",
            file=str(sink),
            topics=topic.name,
            consumer_override_isolation_level="read_committed",
        )
        eventually(all_is_copied, "two workers have copied the file", SECONDS)
        assert in_sink() == written
        for victim in ("source", "sink"):
            address = group.worker_of(victim)
            write()
            group.processes.pop(address).kill()
            eventually(all_is_copied, f"all is copied after the death of the worker of the {victim}", SECONDS)
            group.start(int(address.rpartition(":")[2]))
        broker = coordinator_of(cluster, GROUP_ID, GROUP)
        cluster.kill(broker)
        write()
        eventually(all_is_copied, f"all is copied without broker {broker}", SECONDS)
        cluster.start(broker)
        cluster.wait_until_active(broker)
        # The sink writes again what a dead worker had written and not committed.
        assert committed_lines(cluster, topic, len(written)) == written
