"""Controllers of ours die, stop, freeze and restart while clients work: no client sees an error that Kafka's do not."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator

import pytest

from support.interop.broker_cluster import CONSOLE_CONSUMER, TOPIC_TOOL, BrokerCluster, broker_cluster
from support.interop.load import ANSWER_LOST, Load
from support.interop.mixed_quorum import TERMINATED
from support.interop.real_kafka import TOOL_SECONDS, KafkaInstallation, Process, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
KILLS = 3
Errors = set[tuple[str, str]]
Upset = Callable[[BrokerCluster, Load], None]


def back(cluster: BrokerCluster, node: int) -> None:
    """Start a controller again, and wait until it follows the leader that the others know."""
    cluster.controllers.start(node)
    cluster.controllers.wait_until_listening()
    cluster.leader()


def kill_the_leader(cluster: BrokerCluster, load: Load) -> None:
    for _ in range(KILLS):
        leader = cluster.leader()
        cluster.controllers.processes.pop(leader).kill()
        assert cluster.leader() != leader
        load.wait_for_progress()
        back(cluster, leader)


def kill_the_leader_at_once_back(cluster: BrokerCluster, load: Load) -> None:
    for _ in range(KILLS):
        leader = cluster.leader()
        cluster.controllers.processes.pop(leader).kill()
        back(cluster, leader)
        load.wait_for_progress()


def stop_the_leader(cluster: BrokerCluster, load: Load) -> None:
    for _ in range(KILLS):
        leader = cluster.leader()
        code = cluster.controllers.processes.pop(leader).stop()
        assert code == (0 if cluster.make == "ours" else TERMINATED)
        load.wait_for_progress()
        back(cluster, leader)


def restart_one_by_one(cluster: BrokerCluster, load: Load) -> None:
    for node in cluster.layout.ports:
        cluster.controllers.processes.pop(node).stop()
        back(cluster, node)
        load.wait_for_progress()


def freeze_the_leader(cluster: BrokerCluster, load: Load) -> None:
    """The frozen leader learns of the next leader only when its process continues."""
    for _ in range(KILLS):
        leader = cluster.leader()
        process = cluster.controllers.processes[leader]
        process.signal(signal.SIGSTOP)
        try:
            assert cluster.leader(but=leader) != leader
            load.wait_for_progress()
        finally:
            process.signal(signal.SIGCONT)
        assert cluster.leader() != leader
        load.wait_for_progress()


def kill_all_controllers(cluster: BrokerCluster, load: Load) -> None:
    """The brokers go on with what they know, and the changes wait."""
    cluster.controllers.kill()
    written = len(load.writing.acknowledged) + 100
    eventually(lambda: len(load.writing.acknowledged) >= written, "brokers serve without controllers")
    cluster.controllers.start()
    cluster.controllers.wait_until_listening()
    cluster.leader()
    load.wait_for_progress()


UPSETS: tuple[Upset, ...] = (
    kill_the_leader,
    kill_the_leader_at_once_back,
    stop_the_leader,
    restart_one_by_one,
    freeze_the_leader,
    kill_all_controllers,
)
PERFORMANCE = 20_000
CONSTANT = re.compile(r"\b[A-Z]+(?:_[A-Z]+)+\b")


def errors_during(cluster: BrokerCluster, upset: Upset) -> Errors:
    """Errors of clients while this happens; Kafka's performance producer is one, and its console consumer reads."""
    name = upset.__name__.replace("_", "-")
    load = Load(cluster, name)
    kafka, topic = cluster.kafka, f"{name}-performance"
    kafka.tool(TOPIC_TOOL, cluster.server, "--create", f"--topic={topic}", "--partitions=3", "--replication-factor=3")
    command = kafka.command(
        "org.apache.kafka.tools.ProducerPerformance",
        *(f"--topic={topic}", f"--num-records={PERFORMANCE}", "--record-size=100", "--throughput=1000"),
        *("--command-property", f"bootstrap.servers={cluster.bootstrap}", "acks=all"),
        log="warn",
    )
    performance = Process(command, cluster.layout.root / f"{name}.performance")
    try:
        with load.running():
            upset(cluster, load)
        assert performance.wait(TOOL_SECONDS) == 0
    finally:
        performance.kill()
    limits = (f"--max-messages={PERFORMANCE}", f"--timeout-ms={TOOL_SECONDS * 1000}")
    read = kafka.tool(CONSOLE_CONSUMER, cluster.server, f"--topic={topic}", "--from-beginning", *limits)
    assert len(read.splitlines()) == PERFORMANCE
    return load.seen.errors.keys() | {("performance", constant) for constant in CONSTANT.findall(performance.text)}


@pytest.fixture(scope="module")
def kafkas_errors(kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Errors]:
    """The errors that clients see if the same happens to Kafka's controllers."""
    with broker_cluster(kafka, tmp_path_factory.mktemp("kafka"), "kafka") as cluster:
        return {upset.__name__: errors_during(cluster, upset) for upset in UPSETS}


@pytest.fixture(scope="module")
def cluster(
    kafka: KafkaInstallation, kafkas_errors: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerCluster]:
    """Our controllers, started when Kafka's have ended."""
    with broker_cluster(kafka, tmp_path_factory.mktemp("ours")) as cluster:
        yield cluster


@pytest.mark.parametrize("upset", UPSETS, ids=lambda upset: upset.__name__)
def test_no_acknowledged_change_is_lost_and_clients_see_only_kafkas_errors(
    cluster: BrokerCluster, kafkas_errors: dict[str, Errors], upset: Upset
) -> None:
    seen = errors_during(cluster, upset)
    print(f"{upset.__name__}: ours {sorted(seen)}, Kafka {sorted(kafkas_errors[upset.__name__])}")
    assert seen <= set().union(*kafkas_errors.values()) | ANSWER_LOST
