"""A transaction that no coordinator knows is found in its partition, shown and ended, and readers go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Producer

from kraft.client import open_client
from kraft.client.state.identity import LAST_PRODUCE_OF_V1
from kraft.client.state.requests import Ask
from kraft.client.transactions import STATES
from kraft.coordinators.transactions.transaction import STATUS_OF
from kraft.testing import Kafka
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.serde import Message
from support.eventually import eventually
from support.kraft.command_line import run
from support.kraft.data_cluster import DataCluster, data_cluster
from transport.interface import Failed, Reply
from transport.protocol.errors import Error
from transport.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PRODUCER, EPOCH = 4711, 3


class Once:
    """An engine with one request, in a version that it names."""

    def __init__(self, ask: Ask) -> None:
        self.ask = [ask]
        self.answer: Message | Failed | None = None

    def poll(self, now_ms: int) -> list[Ask]:
        taken, self.ask = self.ask, []
        return taken

    def deadline_ms(self) -> int:
        return 2**60

    def on_outcome(self, token: int, outcome: Message | Failed, now_ms: int) -> None:
        assert not isinstance(outcome, Reply), outcome
        self.answer = outcome


async def leave_open(cluster: DataCluster, topic: str) -> bool:
    """Write a record of a transaction that no coordinator was told of, if the broker listens and leads there."""
    record = Record(0, 1_700_000_000_000, 0, None, b"hanging", ())
    batch = write_batch(
        [record], epoch=-1, producer_id=PRODUCER, producer_epoch=EPOCH, base_sequence=0, transactional=True
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, batch)])
    message = ProduceRequest(transactional_id="gone", acks=-1, timeout_ms=5000, topic_data=[data])
    [at] = cluster.endpoints
    engine = Once(Ask(1, (at.host, at.port), message, highest=LAST_PRODUCE_OF_V1))
    async with open_client(cluster.endpoints) as client, trio.open_nursery() as nursery:
        with client._driver(engine) as driver:
            nursery.start_soon(driver.run)
            while engine.answer is None:
                await driver.wait_for_change()
        nursery.cancel_scope.cancel()
    if isinstance(engine.answer, Failed):
        return False
    assert isinstance(engine.answer, ProduceResponse)
    error = engine.answer.responses[0].partition_responses[0].error_code
    assert error in (Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_LEADER_OR_FOLLOWER)
    return error == Error.NONE


def test_a_partition_that_nobody_describes_is_no_all_clear(capsys: pytest.CaptureFixture[str]):
    with Kafka() as kafka:
        kafka.create_topic("t")
        kafka.fail_next("DescribeProducers", "TOPIC_AUTHORIZATION_FAILED")
        done = run(capsys, "transactions", "find-hanging", f"--bootstrap-server={kafka.bootstrap_servers}")
        assert (done.code, done.out) == (1, "")
        assert "t-0: TOPIC_AUTHORIZATION_FAILED" in done.err


def test_a_user_who_may_describe_nothing_gets_no_all_clear(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    settings = {"allow.everyone.if.no.acl.found": "false", "super.users": "User:ANONYMOUS;User:client"}
    with Kafka(settings=settings) as kafka:
        kafka.create_topic("t", partitions=2)
        for user, code, said in (
            ("client", 0, "No hanging transaction in 2 partitions that this user may describe.\n"),
            ("anna", 1, "Nothing was checked: there is no such partition, or none that this user may describe.\n"),
        ):
            login = kafka.client_config("java", security="SASL_PLAINTEXT", user=user)
            file = tmp_path / f"{user}.properties"
            file.write_text("".join(f"{key}={value}\n" for key, value in login.items()))
            server = f"--bootstrap-server={login['bootstrap.servers']}"
            done = run(capsys, "transactions", "find-hanging", server, f"--command-config={file}")
            assert (done.code, done.out) == (code, said)


@pytest.mark.parametrize(
    ("command", "option", "known"),
    [
        ("groups", "--state", "PreparingRebalance"),
        ("groups", "--type", "classic, consumer"),
        ("transactions", "--state", "PrepareCommit"),
    ],
)
def test_a_filter_that_nothing_can_meet_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], command: str, option: str, known: str
):
    done = run(capsys, command, "list", option, "Stabel", "--bootstrap-server=127.0.0.1:1")
    assert (done.code, done.out) == (2, "")
    assert f"'{option}': 'Stabel' is not one of " in done.err
    assert known in done.err


def test_filters_are_those_of_the_coordinators_in_any_case(capsys: pytest.CaptureFixture[str]):
    assert set(STATES) == set(STATUS_OF)
    with Kafka() as kafka:
        kafka.create_topic("t")
        producer = Producer({**kafka.client_config("confluent-kafka"), "transactional.id": "one"})
        producer.init_transactions(20)
        listed = run(
            capsys, "transactions", "list", "--state=empty", f"--bootstrap-server={kafka.bootstrap_servers}", "--json"
        )
        assert [one["transactionalId"] for one in json.loads(listed.out)["transactions"]] == ["one"]


def test_a_hanging_transaction_is_found_and_ended(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    settings: dict[str, Any] = {
        "transaction_state_log_replication_factor": "1",
        "transaction_state_log_min_isr": "1",
        "transaction_partition_verification_enable": "false",
    }
    with data_cluster(tmp_path, **settings) as cluster:
        cluster.create_topic("t")
        eventually(lambda: trio.run(leave_open, cluster, "t"), "the broker leads the partition")
        server = f"--bootstrap-server={cluster.bootstrap}"
        lines = tmp_path / "lines"
        lines.write_text("behind\n")
        assert run(capsys, "produce", "t", str(lines), server).code == 0
        assert run(capsys, "consume", "t", server, "--isolation=read_committed").out == ""
        found = run(capsys, "transactions", "find-hanging", server, "--json")
        assert found.code == 1, found
        [one] = json.loads(found.out)["hanging"]
        assert (one["topic"], one["partition"], one["producerId"], one["openSinceOffset"]) == ("t", 0, PRODUCER, 0)
        assert str(PRODUCER) in run(capsys, "transactions", "find-hanging", server, "--topic=t").out
        missing = run(capsys, "transactions", "find-hanging", server, "--broker=9")
        assert (missing.code, missing.out) == (1, "")
        assert "there is no broker 9" in missing.err
        done = run(capsys, "transactions", "abort", "--topic=t", "--partition=0", "--start-offset=0", server)
        assert done.out == f"Aborted in t-0: producer id {PRODUCER}, epoch {EPOCH}\n", done
        assert run(capsys, "transactions", "find-hanging", server).code == 0
        assert run(capsys, "consume", "t", server, "--isolation=read_committed").out == "behind\n"
