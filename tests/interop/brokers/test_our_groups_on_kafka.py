"""`kraft groups` and `kraft transactions` with groups and producers of another client, on a broker of Kafka 4.3.1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from one_broker import one_node
from support.interop.broker_cluster import STARTED
from support.interop.our_nodes import kraft, told
from support.interop.real_kafka import KafkaInstallation

pytestmark = pytest.mark.kafka
RECORDS = 300


@pytest.fixture(scope="module")
def address(kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process, address = one_node(kafka, tmp_path_factory.mktemp("node"))
    try:
        process.wait_for(STARTED)
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result()
        producer = Producer({"bootstrap.servers": address})
        for number in range(RECORDS):
            producer.produce("orders", value=b"v%d" % number, partition=number % 3)
        producer.flush()
        yield address
    finally:
        process.kill()


@contextmanager
def member(address: str, group: str, **settings: str) -> Iterator[Consumer]:
    """A member of a group that has read and committed every record."""
    of_group = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest", "client.id": "c"}
    consumer = Consumer(of_group | {name.replace("_", "."): value for name, value in settings.items()})
    try:
        consumer.subscribe(["orders"])
        count = 0
        while count < RECORDS:
            record = consumer.poll(30)
            assert record is not None
            count += record.error() is None
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def refused(*words: str) -> str:
    """The error text of a command that fails."""
    done = kraft("groups", *words)
    assert done.returncode == 1, done
    return done.stderr


def groups(address: str, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told("groups", *words, f"--bootstrap-server={address}", "--json"))
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_shown_reset_and_deleted(address: str, protocol: str):
    name = f"billing-{protocol}"
    with member(address, name, group_protocol=protocol):
        [listed] = [one for one in groups(address, "list", f"--type={protocol}")["groups"] if one["group"] == name]
        assert (listed["state"], listed["protocolType"]) == ("Stable", "consumer")
        [shown] = groups(address, "describe", name)["groups"]
        assert (shown["type"], shown["state"], shown["epoch"] is None) == (protocol, "Stable", protocol == "classic")
        [one] = shown["members"]
        assert (one["clientId"], one["host"], one["assignment"]) == ("c", "/127.0.0.1", {"orders": [0, 1, 2]})
        assert [(row["currentOffset"], row["logEndOffset"], row["lag"]) for row in shown["offsets"]] == [
            (100, 100, 0)
        ] * 3
        assert {row["memberId"] for row in shown["offsets"]} == {one["memberId"]}
        words = ("reset", name, "--all-topics", "--to-earliest", f"--bootstrap-server={address}")
        assert f"group {name} is Stable, with 1 member" in refused(*words, "--execute")
    for target, offset in (
        (("--to-offset=40",), 40),
        (("--shift-by=-15",), 25),
        (("--to-latest",), 100),
        (("--to-datetime=2020-01-01T00:00:00Z",), 0),
        (("--shift-by=1000",), 100),
        (("--by-duration=PT1H",), 0),
        (("--to-current",), 0),
    ):
        planned = groups(address, "reset", name, "--all-topics", *target)
        assert {row["newOffset"] for row in planned["offsets"]} == {offset}, target
        assert not planned["executed"]
        assert groups(address, "reset", name, "--all-topics", "--execute", *target)["offsets"] == planned["offsets"]
        [shown] = groups(address, "describe", name)["groups"]
        assert {row["currentOffset"] for row in shown["offsets"]} == {offset}
    done = groups(address, "delete-offsets", name, "--topic=orders:2")
    assert done["deleted"] == [{"topic": "orders", "partition": 2}]
    [shown] = groups(address, "describe", name)["groups"]
    assert (shown["state"], [row["partition"] for row in shown["offsets"]]) == ("Empty", [0, 1])
    assert groups(address, "delete", name) == {"deleted": [name]}
    assert f"there is no group {name}" in refused("describe", name, f"--bootstrap-server={address}")


def test_a_file_names_offsets(address: str, tmp_path: Path):
    path = tmp_path / "offsets.csv"
    path.write_text("orders,0,7\norders,1,9999\n")
    done = groups(address, "reset", "from-file", "--from-file", str(path), "--execute")
    assert [(row["partition"], row["currentOffset"], row["newOffset"]) for row in done["offsets"]] == [
        (0, None, 7),
        (1, None, 100),
    ]
    path.write_text("orders,7,7\n")
    failed = refused("reset", "from-file", "--from-file", str(path), f"--bootstrap-server={address}")
    assert "orders has no partition 7" in failed


def transactions(address: str, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told("transactions", *words, f"--bootstrap-server={address}", "--json"))
    return found


def test_an_open_transaction_is_shown_and_aborted_in_its_partition(address: str):
    producer = Producer({"bootstrap.servers": address, "transactional.id": "payments"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", value=b"open", partition=1)
    producer.flush()
    [listed] = transactions(address, "list", "--state=Ongoing")["transactions"]
    assert (listed["transactionalId"], listed["coordinator"], listed["state"]) == ("payments", 1, "Ongoing")
    shown = transactions(address, "describe", "payments")
    assert (shown["state"], shown["partitions"], shown["timeoutMs"]) == ("Ongoing", {"orders": [1]}, 60_000)
    assert shown["producerId"] == listed["producerId"]
    place = ("--topic=orders", "--partition=1")
    found = transactions(address, "describe-producers", *place)["producers"]
    [one] = [each for each in found if each["openSinceOffset"] is not None]
    assert (one["producerId"], one["openSinceOffset"]) == (listed["producerId"], RECORDS // 3)
    search = ("find-hanging", "--max-transaction-timeout=0")
    everywhere = transactions(address, *search)
    assert (everywhere["hanging"], everywhere["unchecked"]) == ([], [])
    assert transactions(address, *search, "--topic=orders") == {"hanging": [], "checked": 3, "unchecked": []}
    failed = kraft("transactions", "abort", *place, "--start-offset=7", f"--bootstrap-server={address}")
    assert "no open transaction of orders-1 begins at offset 7" in failed.stderr
    done = transactions(address, "abort", *place, f"--start-offset={RECORDS // 3}")["aborted"]
    assert (done["producerId"], done["producerEpoch"]) == (one["producerId"], one["producerEpoch"])
    found = transactions(address, "describe-producers", *place)["producers"]
    assert [each["openSinceOffset"] for each in found if each["producerId"] == one["producerId"]] == [None]
    producer.abort_transaction(60)
    failed = kraft("transactions", "describe", "paymentz", f"--bootstrap-server={address}")
    assert "there is no transactional id paymentz" in failed.stderr
    assert "payments?" in failed.stderr
