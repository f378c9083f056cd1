"""`kraft groups` with share groups, on a broker of Kafka 4.3.1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.client import open_client
from kraft.client.questions import Questions
from kraft.client.share_groups import alter_start_offsets
from one_node import one_node
from support.interop.our_nodes import kraft, told
from support.interop.real_kafka import KafkaInstallation
from transport.interface import Endpoint
from transport.protocol.errors import Error

pytestmark = pytest.mark.kafka
RECORDS = 30
TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def address(kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    states = "share.coordinator.state.topic"
    settings = (f"{states}.replication.factor=1", f"{states}.min.isr=1", f"{states}.num.partitions=4")
    with one_node(kafka, tmp_path_factory.mktemp("kafka") / "node", "theirs", *settings) as (_, port):
        address = f"127.0.0.1:{port}"
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result()
        producer = Producer({"bootstrap.servers": address})
        for number in range(RECORDS):
            producer.produce("orders", value=b"v%d" % number, partition=number % 3)
        producer.flush()
        yield address


async def _made(address: str, group: str) -> dict[tuple[str, int], Error]:
    """Kafka makes a share group of which the offsets are altered."""
    host, _, port = address.partition(":")
    async with open_client([Endpoint(host, int(port))]) as client:
        offsets = {("orders", number): 4 for number in range(3)}
        return await alter_start_offsets(Questions(client, TIMEOUT_MS), group, offsets)


def groups(address: str, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told("groups", *words, f"--bootstrap-server={address}", "--json"))
    return found


def test_a_share_group_is_shown_reset_and_deleted(address: str) -> None:
    assert set(trio.run(_made, address, "work").values()) == {Error.NONE}
    assert groups(address, "list", "--type=share")["groups"] == [
        {"group": "work", "type": "share", "state": "Empty", "protocolType": "share"}
    ]
    [shown] = groups(address, "describe", "work")["groups"]
    assert (shown["type"], shown["state"], shown["epoch"], shown["assignor"]) == ("share", "Empty", 1, "simple")
    assert [(one["currentOffset"], one["lag"]) for one in shown["offsets"]] == [(4, 6)] * 3
    lines = told("groups", "describe", "work", f"--bootstrap-server={address}").splitlines()
    assert lines[0] == "Group work: share, Empty, epoch 1, assignor simple, 0 members, lag 18"
    assert lines[1].split() == ["TOPIC", "PARTITION", "START-OFFSET", "LAG"]
    planned = groups(address, "reset", "work", "--topic=orders:0", "--to-earliest")
    assert (planned["executed"], planned["offsets"]) == (
        False,
        [{"topic": "orders", "partition": 0, "currentOffset": 4, "newOffset": 0}],
    )
    groups(address, "reset", "work", "--all-topics", "--shift-by=3", "--execute")
    [shown] = groups(address, "describe", "work")["groups"]
    assert [one["currentOffset"] for one in shown["offsets"]] == [7] * 3
    refused = kraft("groups", "delete-offsets", "work", "--topic=orders:1", f"--bootstrap-server={address}")
    assert (refused.returncode, "is a share group" in refused.stderr) == (1, True)
    deleted = groups(address, "delete-offsets", "work", "--topic=orders")["deleted"]
    assert [one["partition"] for one in deleted] == [0, 1, 2]
    [shown] = groups(address, "describe", "work")["groups"]
    assert shown["offsets"] == []
    assert groups(address, "delete", "work") == {"deleted": ["work"]}
    assert groups(address, "list")["groups"] == []
