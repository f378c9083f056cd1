"""Every security protocol, towards and from Apache Kafka: tools, brokers, controllers, and clients in Python.

The default run has the first two tests, on one controller of each make with all protocols; the rest is `-m soak`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import admin as plain

from security_rows import ADD_SCRAM, ROWS, OneController, Row, Secrets, quorum_layout
from support.interop.mixed_quorum import Make, MixedQuorum
from support.interop.our_nodes import kraft, our_controller, our_format, told
from support.interop.real_kafka import (
    CLUSTER_ID,
    CONFIG_TOOL,
    QUORUM_TOOL,
    START_SECONDS,
    STORAGE_TOOL,
    KafkaInstallation,
    Process,
    QuorumLayout,
    eventually,
    kafka_controller,
    running,
)

pytestmark = pytest.mark.kafka

EACH = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
BETWEEN = pytest.mark.parametrize("row", [row for row in ROWS if not row.is_scram], ids=lambda row: row.name)
LEADS = re.compile(r"^LeaderId: +1$", re.MULTILINE)
SECONDS = 60


def formatted(root: Path) -> OneController:
    one = OneController(root)
    told("format", "-c", str(one.layout.properties(1)), "--cluster-id", CLUSTER_ID, *ADD_SCRAM)
    return one


@pytest.fixture(scope="module")
def with_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def ours(with_java: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneController]:
    one = formatted(tmp_path_factory.mktemp("ours"))
    with running(one.layout, our_controller(one.layout), name="ours"):
        yield one


@pytest.fixture(scope="module")
def theirs(
    kafka: KafkaInstallation, with_java: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OneController]:
    one = formatted(tmp_path_factory.mktemp("theirs"))
    with_java.setenv("JAVA_TOOL_OPTIONS", one.secrets.java_options)
    with running(one.layout, kafka_controller(kafka, one.layout), name="kafka"):
        yield one


@EACH
def test_a_tool_of_kafka_reaches_our_controller(
    kafka: KafkaInstallation, ours: OneController, with_java: pytest.MonkeyPatch, row: Row
) -> None:
    with_java.setenv("JAVA_TOOL_OPTIONS", ours.secrets.java_options)
    assert LEADS.search(kafka.tool(QUORUM_TOOL, *ours.where(row), "describe", "--status"))


@EACH
def test_our_command_reaches_a_controller_of_kafka(theirs: OneController, row: Row) -> None:
    eventually(
        lambda: bool(LEADS.search(kraft("quorum", "status", *theirs.where(row), "--timeout", "5").stdout)),
        f"the controller of Kafka answers by {row.name}",
        SECONDS,
    )


@pytest.mark.soak
@EACH
def test_clients_in_python_reach_our_controller_through_a_broker_of_kafka(
    kafka: KafkaInstallation, ours: OneController, with_java: pytest.MonkeyPatch, row: Row
) -> None:
    """The clients themselves know no controllers; the broker forwards their requests."""
    with_java.setenv("JAVA_TOOL_OPTIONS", ours.secrets.java_options)
    properties = ours.secrets.of_broker(row, ours.ports[row.name])
    kafka.tool(STORAGE_TOOL, "format", "-t", CLUSTER_ID, "-c", str(properties))
    address = re.search(r"^listeners=OPEN://(.*)$", properties.read_text(), re.MULTILINE)
    assert address is not None
    output = ours.layout.root / f"broker-{row.name}.log"
    broker = Process(kafka.command("kafka.Kafka", str(properties), log="info"), output)
    try:
        broker.wait_for("Transition from STARTING to STARTED")
        with closing(plain.KafkaAdminClient(bootstrap_servers=address[1])) as client:
            client.create_topics({f"python-{row.name}": {"num_partitions": 1, "replication_factor": 1}})
        confluent = AdminClient({"bootstrap.servers": address[1]})
        futures = confluent.create_topics([NewTopic(f"confluent-{row.name}", 1, 1)])
        for future in futures.values():
            future.result(SECONDS)
        shown = told("topics", "list", *ours.where(row))
        assert f"python-{row.name}" in shown
        assert f"confluent-{row.name}" in shown
    finally:
        broker.stop()


class Quorum:
    """Controllers of one row."""

    def __init__(
        self, kafka: KafkaInstallation, root: Path, row: Row, makes: dict[int, Make], *, is_dynamic: bool = False
    ) -> None:
        self.secrets = Secrets(root)
        self.layout: QuorumLayout = quorum_layout(root, self.secrets, row, tuple(makes), is_dynamic=is_dynamic)
        self.kafka = kafka
        joining = [node for node in makes if node != min(makes)] if is_dynamic else []
        self.nodes = MixedQuorum(kafka, self.layout, makes, joining)
        self.where = (
            "--bootstrap-controller",
            self.layout.bootstrap,
            "--command-config",
            self.secrets.of_client(row),
        )

    def start(self) -> None:
        self.nodes.start()
        self.nodes.wait_until_listening()
        eventually(lambda: self.status() is not None, "there is a leader", START_SECONDS)

    def status(self) -> dict[str, Any] | None:
        """The quorum as the leader describes it; None without a leader."""
        done = kraft("quorum", "status", "--json", "--timeout", "5", *self.where)
        found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        return found or None

    def leader(self) -> int:
        return int(eventually_value(self.status)["leaderId"])

    def has_another_leader(self, former: int) -> bool:
        return (self.status() or {}).get("leaderId") not in (None, former)

    def write(self, number: int) -> None:
        """A change by Kafka's tool."""
        change = ("--alter", "--entity-type", "brokers", "--entity-default", "--add-config")
        self.kafka.tool(CONFIG_TOOL, *self.where, *change, f"message.max.bytes={2048 + number}")

    def restart_leaders(self, wanted: set[Make], most: int = 8) -> None:
        """Restart each leader, with a write in between, until nodes of these makes have led."""
        seen: set[Make] = set()
        for turn in range(most):
            leader = self.leader()
            seen.add(self.nodes.makes[leader])
            self.write(turn)
            if seen >= wanted:
                return
            self.nodes.end(leader, "stop")
            eventually(partial(self.has_another_leader, leader), "a new leader")
            self.nodes.start(leader)
            self.nodes.wait_until_listening()
        raise AssertionError(f"only {seen} have led in {most} turns")


def eventually_value(ask: Any) -> Any:
    """The first answer that is not None."""
    found: list[Any] = []

    def asked() -> bool:
        found.append(ask())
        return found[-1] is not None

    eventually(asked, "an answer")
    return found[-1]


@pytest.mark.soak
@BETWEEN
def test_our_controllers_form_a_quorum(kafka: KafkaInstallation, tmp_path: Path, row: Row) -> None:
    quorum = Quorum(kafka, tmp_path, row, {1: "ours", 2: "ours", 3: "ours"})
    our_format(quorum.layout)
    try:
        quorum.start()
        leader = quorum.leader()
        quorum.nodes.end(leader, "stop")
        eventually(partial(quorum.has_another_leader, leader), "a new leader")
        quorum.nodes.check_that_all_live()
    finally:
        quorum.nodes.kill()


@pytest.mark.soak
@BETWEEN
def test_both_makes_form_a_static_quorum_and_lead_it_in_turn(
    kafka: KafkaInstallation, tmp_path: Path, with_java: pytest.MonkeyPatch, row: Row
) -> None:
    quorum = Quorum(kafka, tmp_path, row, {1: "ours", 2: "kafka", 3: "ours"})
    with_java.setenv("JAVA_TOOL_OPTIONS", quorum.secrets.java_options)
    our_format(quorum.layout)
    try:
        quorum.start()
        quorum.restart_leaders({"ours", "kafka"})
        quorum.nodes.check_that_all_live()
    finally:
        quorum.nodes.kill()


@pytest.mark.soak
@BETWEEN
@pytest.mark.parametrize("first", ["ours", "kafka"])
def test_the_other_make_joins_a_dynamic_quorum(
    kafka: KafkaInstallation, tmp_path: Path, with_java: pytest.MonkeyPatch, row: Row, first: Make
) -> None:
    other: Make = "kafka" if first == "ours" else "ours"
    quorum = Quorum(kafka, tmp_path, row, {1: first, 2: other, 3: other}, is_dynamic=True)
    with_java.setenv("JAVA_TOOL_OPTIONS", quorum.secrets.java_options)
    for node in quorum.layout.ports:
        how = "--standalone" if node == 1 else "--no-initial-controllers"
        told("format", "-c", str(quorum.layout.properties(node)), "--cluster-id", CLUSTER_ID, how)
    try:
        quorum.start()
        eventually(
            lambda: {one["id"] for one in (quorum.status() or {}).get("currentVoters", [])} == {1, 2, 3},
            "all three vote",
            START_SECONDS,
        )
        quorum.restart_leaders({first, other})
        quorum.nodes.check_that_all_live()
    finally:
        quorum.nodes.kill()


@pytest.mark.parametrize("row", [row for row in ROWS if row.is_scram], ids=lambda row: row.name)
def test_scram_between_controllers_is_refused_at_the_start_with_an_alternative(
    kafka: KafkaInstallation, tmp_path: Path, row: Row
) -> None:
    """Such a quorum of Kafka's starts, and never elects a leader."""
    quorum = Quorum(kafka, tmp_path, row, {1: "ours", 2: "ours", 3: "ours"})
    refused = kraft("serve", "-c", str(quorum.layout.properties(1)))
    assert refused.returncode == 1
    assert f"controllers cannot log in at each other by {row.mechanism}" in refused.stderr
    assert "Use sasl.mechanism.controller.protocol=PLAIN" in refused.stderr
    assert "n-secret" not in refused.stderr
