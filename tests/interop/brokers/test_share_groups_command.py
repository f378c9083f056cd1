"""`kafka-share-groups.sh` with each of its subcommands prints at a node of ours what it prints at one of Kafka's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from one_node import one_node
from support.interop.kafka_tools import KafkaTools, printed
from support.interop.real_kafka import KafkaInstallation, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
COMMAND: Final = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
SETTINGS: Final = ("share.coordinator.state.topic.replication.factor=1", "share.coordinator.state.topic.min.isr=1")
SECONDS: Final = 60
RECORDS: Final = 12
STEPS: Final = (
    "--list",
    "--list --state",
    "--list --state stable",
    "--describe --group=work",
    "--describe --group=work --offsets --verbose",
    "--describe --group=work --members",
    "--describe --group=work --members --verbose",
    "--describe --group=work --state",
    "--describe --group=work --state --verbose",
    "--describe --all-groups --state",
    "--describe --group=nobody",
    "--delete --group=work",
    "--reset-offsets --group=work --topic=orders --to-earliest --execute",
    "end",
    "--list --state",
    "--describe --group=work --members",
    "--describe --group=work --state",
    "--reset-offsets --group=work --topic=orders --to-earliest --dry-run",
    "--reset-offsets --group=work --topic=orders --to-earliest --execute",
    "--describe --group=work",
    "--reset-offsets --group=work --topic=orders:1 --to-latest --execute",
    "--reset-offsets --group=work --all-topics --to-datetime=2001-01-01T00:00:00.000 --execute",
    "--describe --group=work",
    "--reset-offsets --group=work --topic=nothing --to-latest --execute",
    "--delete-offsets --group=work --topic=nothing",
    "--delete-offsets --group=work --topic=orders",
    "--describe --group=work",
    "--delete --group=work",
    "--delete --group=work",
    "--list",
)
"""`end` is the end of the member."""
NAMES: Final = re.compile(r"(?<= )[\w+/-]{22}(?= )|127\.0\.0\.1(:\d+)?|rdkafka")
"""Ids of members, and addresses, which differ."""


@pytest.fixture(scope="module")
def nodes(
    newer_kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaTools, str, str]]:
    """The tools, and the addresses of a node of ours and of one of Kafka's."""
    root = tmp_path_factory.mktemp("command")
    with ExitStack() as stack:
        ports = [
            stack.enter_context(one_node(newer_kafka, root / make, make, *SETTINGS))[1] for make in ("ours", "theirs")
        ]
        tools = stack.enter_context(KafkaTools(newer_kafka))
        yield tools, f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}"


def prepare(bootstrap: str) -> Callable[[], None]:
    """A group with one member, which has accepted all records of a topic; returns what ends the member."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result()
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, "work", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce("orders", str(number).encode(), partition=number % 3)
    assert producer.flush(SECONDS) == 0
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": "work"})
    consumer.subscribe(["orders"])
    taken: list[int] = []

    def is_done() -> bool:
        taken.extend(int(one.value() or b"") for one in consumer.poll(0.5) or ())
        return len(set(taken)) == RECORDS

    eventually(is_done, "all records have come", SECONDS)
    consumer.commit_sync()
    return consumer.close


def story(tools: KafkaTools, bootstrap: str) -> dict[str, list[str]]:
    """What each command prints, and how it ends."""
    close = prepare(bootstrap)
    told: dict[str, list[str]] = {}
    for number, step in enumerate(STEPS):
        if step == "end":
            close()
            continue
        ran = tools.run(COMMAND, f"--bootstrap-server={bootstrap}", *step.split())
        told[f"{number} {step}"] = printed(ran, NAMES)
    return told


def test_each_subcommand_prints_what_it_prints_at_kafka(nodes: tuple[KafkaTools, str, str]) -> None:
    tools, ours, theirs = nodes
    wanted, found = story(tools, theirs), story(tools, ours)
    differences = [
        (step, sorted(set(found[step]) ^ set(wanted[step]))) for step in wanted if found[step] != wanted[step]
    ]
    assert not differences, "\n".join(map(str, differences))
    assert any("orders" in line for line in wanted["3 --describe --group=work"]), wanted
