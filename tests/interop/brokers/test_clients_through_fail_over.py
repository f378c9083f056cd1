"""Clients of every make produce to three brokers of ours while the leader dies, and read each value back, once."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from kafka import admin as plain

from batch_clients import Pair
from metadata_log.records.batch import scan
from our_brokers import OurBrokers, batches, our_brokers
from support.interop.broker_cluster import CONSOLE_CONSUMER
from support.interop.go_programs import go_program
from support.interop.real_kafka import KafkaInstallation, Process, eventually

BROKERS = (101, 102, 103)
LEADER = 101
VALUES = 200
JAVA_VALUES = 3000
SECONDS = 90
SETTINGS = ("min.insync.replicas=2", "default.replication.factor=3")
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
FEW = Pair.of(("aiokafka", "zstd"), ("confluent", "lz4"), ("python", "gzip"))
EVERY = Pair.of(
    *(("aiokafka", codec) for codec in (None, "gzip", "snappy", "lz4", "zstd")),
    *(("confluent", codec) for codec in (None, "gzip", "snappy", "lz4", "zstd")),
    *(("python", codec) for codec in (None, "gzip", "snappy", "lz4", "zstd")),
)


def make_topics(brokers: OurBrokers, *topics: str) -> None:
    """Topics of one partition that broker 101 leads, on all brokers."""
    with closing(plain.KafkaAdminClient(bootstrap_servers=brokers.bootstrap.split(","))) as admin:
        made = {topic: {"assignments": {0: list(BROKERS)}} for topic in topics}
        admin.create_topics(made, wait_for_metadata=True)
    assert {brokers.leader_of(topic) for topic in topics} == {LEADER}


def return_of_the_leader(brokers: OurBrokers, *topics: str) -> None:
    """Start the leader again, stop all, and compare the logs of all replicas."""
    assert {brokers.leader_of(topic) for topic in topics}.isdisjoint({LEADER})
    brokers.start(LEADER)
    for topic in topics:
        brokers.wait_until_in_sync(topic, len(BROKERS))
    for broker in BROKERS:
        brokers.stop(broker)
    for topic in topics:
        logs = [batches(brokers.log_dir(broker), topic) for broker in BROKERS]
        assert logs[0] == logs[1] == logs[2]
        assert len(logs[0]) > 0


def through_fail_over(root: Path, pairs: list[Pair]) -> None:
    """One consumer of each client reads while the leader dies, and another one afterwards."""
    with our_brokers(root, *BROKERS, settings=SETTINGS) as brokers:
        make_topics(brokers, *(pair.topic for pair in pairs))
        clients = [pair.open(brokers.bootstrap) for pair in pairs]
        first = [b"before %d" % number for number in range(VALUES)]
        later = [b"later %d" % number for number in range(VALUES)]
        for client in clients:
            client.send(first[: VALUES // 2])
        assert [client.offsets() for client in clients] == [list(range(VALUES // 2))] * len(clients)
        readers = [client.reader() for client in clients]
        for reader in readers:
            assert reader.read(VALUES // 2) == first[: VALUES // 2]
        for client in clients:
            client.send(first[VALUES // 2 :])
        brokers.kill(LEADER)
        for client in clients:
            client.send(later)
        for pair, client in zip(pairs, clients, strict=True):
            assert client.offsets() == list(range(2 * VALUES)), pair.topic
            readers.append(client.reader())
            client.close()
        for reader in readers:
            assert reader.read(2 * VALUES) == [*first, *later]
            reader.close()
        return_of_the_leader(brokers, *(pair.topic for pair in pairs))


def test_idempotent_clients_lose_and_repeat_no_value_when_the_leader_dies(tmp_path: Path) -> None:
    through_fail_over(tmp_path, FEW)


@pytest.mark.soak
def test_idempotent_clients_of_every_make_and_codec_lose_and_repeat_no_value(tmp_path: Path) -> None:
    through_fail_over(tmp_path, EVERY)


def acknowledged(process: Process) -> list[dict[str, object]]:
    """The values that a verifiable producer has told of, each with its offset."""
    told = (json.loads(line) for line in process.text.splitlines() if line.startswith("{"))
    return [each for each in told if each["name"] == "producer_send_success"]


def of_java_through_fail_over(kafka: KafkaInstallation, root: Path, codecs: list[str]) -> None:
    """A console consumer of each topic reads while the leader dies, and another one afterwards."""
    topics = {codec: f"java-{codec}" for codec in codecs}
    values = [str(number) for number in range(JAVA_VALUES)]
    with our_brokers(root, *BROKERS, settings=SETTINGS) as brokers:
        make_topics(brokers, *topics.values())
        consumers = {topic: consumer_of_java(kafka, brokers, topic, root) for topic in topics.values()}
        producers = {}
        for codec, topic in topics.items():
            settings = root / f"{codec}.properties"
            settings.write_text(f"compression.type={codec}\nenable.idempotence=true\nretries=2147483647\nlinger.ms=2\n")
            arguments = ("--bootstrap-server", brokers.bootstrap, "--topic", topic, "--acks=-1", "--throughput=200")
            command = kafka.command(
                VERIFIABLE_PRODUCER, *arguments, f"--max-messages={JAVA_VALUES}", "--command-config", str(settings)
            )
            producers[topic] = Process(command, root / f"{topic}.log")
        for topic, process in producers.items():
            process.wait_for("producer_send_success")
            consumers[topic].wait_for(r"^\d+$")
        assert all(len(acknowledged(process)) < JAVA_VALUES for process in producers.values()), "all is written"
        brokers.kill(LEADER)
        for topic, process in producers.items():
            assert process.wait(SECONDS) == 0, process.text[-2000:]
            found = acknowledged(process)
            assert [each["offset"] for each in found] == list(range(JAVA_VALUES)), process.text[-2000:]
            assert [each["value"] for each in found] == values
            assert consumers[topic].wait(SECONDS) == 0, consumers[topic].text[-2000:]
            assert [line for line in consumers[topic].text.splitlines() if line.isdigit()] == values
            assert consumed_by_java(kafka, brokers, topic, JAVA_VALUES) == values
        return_of_the_leader(brokers, *topics.values())


def consumer_of_java(kafka: KafkaInstallation, brokers: OurBrokers, topic: str, root: Path) -> Process:
    """A console consumer of partition 0 that ends after all values; its log goes to the same output."""
    flags = (f"--topic={topic}", "--partition=0", "--offset=earliest", f"--max-messages={JAVA_VALUES}")
    command = kafka.command(CONSOLE_CONSUMER, f"--bootstrap-server={brokers.bootstrap}", *flags)
    return Process(command, root / f"{topic}-consumer.log")


def consumed_by_java(kafka: KafkaInstallation, brokers: OurBrokers, topic: str, count: int) -> list[str]:
    """The records that the console consumer reads from partition 0."""
    flags = ("--partition=0", "--offset=earliest", f"--max-messages={count}", "--timeout-ms=60000")
    server = f"--bootstrap-server={brokers.bootstrap}"
    return kafka.tool(CONSOLE_CONSUMER, server, f"--topic={topic}", *flags).splitlines()


@pytest.mark.kafka
def test_the_verifiable_producer_of_kafka_sees_no_loss_when_the_leader_dies(
    kafka: KafkaInstallation, tmp_path: Path
) -> None:
    of_java_through_fail_over(kafka, tmp_path, ["snappy"])


@pytest.mark.soak
@pytest.mark.kafka
def test_the_verifiable_producer_of_kafka_sees_no_loss_with_any_codec(kafka: KafkaInstallation, tmp_path: Path) -> None:
    of_java_through_fail_over(kafka, tmp_path, ["none", "gzip", "lz4", "zstd"])


@pytest.mark.soak
@pytest.mark.kafka
def test_the_performance_producer_of_kafka_goes_on_when_the_leader_dies(
    kafka: KafkaInstallation, tmp_path: Path
) -> None:
    with our_brokers(tmp_path, *BROKERS, settings=SETTINGS) as brokers:
        make_topics(brokers, "perf")
        flags = ("--topic=perf", "--num-records=20000", "--record-size=1024", "--throughput=2000")
        settings = ("--command-property", f"bootstrap.servers={brokers.bootstrap}", "acks=all", "compression.type=lz4")
        process = Process(kafka.command(PERFORMANCE, *flags, *settings), tmp_path / "perf.log")
        eventually(lambda: log_end(brokers, LEADER, "perf") > 2000, "records of the performance tool", SECONDS)
        brokers.kill(LEADER)
        assert process.wait(SECONDS) == 0, process.text[-2000:]
        assert process.text.splitlines()[-1].startswith("20000 records sent"), process.text[-2000:]
        assert len(consumed_by_java(kafka, brokers, "perf", 20000)) == 20000
        return_of_the_leader(brokers, "perf")


def log_end(brokers: OurBrokers, broker: int, topic: str) -> int:
    """The end of a log, as its file has it."""
    data = batches(brokers.log_dir(broker), topic)
    return 0 if not data else next(scan(data[-1])).next_offset


@pytest.fixture(scope="module")
def franz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client of franz-go."""
    return go_program(tmp_path_factory)


@pytest.mark.soak
def test_franz_go_loses_and_repeats_no_value_when_the_leader_dies(franz: Path, tmp_path: Path) -> None:
    topics = {codec: f"franz-{codec}" for codec in ("none", "gzip", "snappy", "lz4", "zstd")}
    first = [f"before {number}" for number in range(VALUES)]
    later = [f"later {number}" for number in range(VALUES)]
    with our_brokers(tmp_path, *BROKERS, settings=SETTINGS) as brokers:
        make_topics(brokers, *topics.values())
        producers = {}
        for codec, topic in topics.items():
            command = [str(franz), "produce", brokers.bootstrap, topic, codec]
            producer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert producer.stdin is not None
            producer.stdin.write("".join(f"{line}\n" for line in first))
            producer.stdin.flush()
            producers[topic] = producer

        def has_records() -> bool:
            return all(log_end(brokers, LEADER, topic) > 0 for topic in topics.values())

        eventually(has_records, "the first records", SECONDS)
        consumers = {}
        for topic in topics.values():
            command = [str(franz), "consume", brokers.bootstrap, topic, str(2 * VALUES)]
            consumers[topic] = Process(command, tmp_path / f"{topic}.log")
        for consumer in consumers.values():
            consumer.wait_for("before 0")
        brokers.kill(LEADER)
        for topic, producer in producers.items():
            offsets, _ = producer.communicate("".join(f"{line}\n" for line in later), timeout=SECONDS)
            assert producer.returncode == 0
            assert offsets.split() == [str(number) for number in range(2 * VALUES)]
            assert consumers[topic].wait(SECONDS) == 0, consumers[topic].text[-2000:]
            assert consumers[topic].text.splitlines() == [*first, *later]
            command = [str(franz), "consume", brokers.bootstrap, topic, str(2 * VALUES)]
            read = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
            assert read.stdout.splitlines() == [*first, *later]
        return_of_the_leader(brokers, *topics.values())
