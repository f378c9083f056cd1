"""`kraft produce`, `kraft consume` and our client with a broker of Kafka 4.3.1: codecs, idempotence, headers, offsets,
transactions.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from kraft.client import (
    ClientError,
    Compression,
    GroupSettings,
    Header,
    ProducerSettings,
    TransactionalProducer,
    open_client,
)
from one_broker import one_node
from support.interop.broker_cluster import CONSOLE_CONSUMER, STARTED
from support.interop.kafka_tools import KafkaTools
from support.interop.our_nodes import told
from support.interop.real_kafka import KafkaInstallation
from transport.interface import Endpoint

pytestmark = pytest.mark.kafka
MESSAGES = 500


async def each_codec(address: str) -> None:
    """Write and read with each codec, and with each number of acknowledgements."""
    host, _, port = address.partition(":")
    values = [b"v%d" % number for number in range(MESSAGES)]
    async with open_client([Endpoint(host, int(port))]) as client:
        for codec in Compression:
            acks = 1 if codec is Compression.GZIP else -1
            settings = ProducerSettings(compression=codec, acks=acks, is_idempotent=acks == -1)
            async with client.producer(f"t-{codec.name.lower()}", settings) as producer:
                for value in values:
                    await producer.send(value, key=b"k", headers=[Header("h", b"1")])
            async with client.consumer(f"t-{codec.name.lower()}") as consumer:
                assert [one.value async for one in consumer][-MESSAGES:] == values
        async with client.producer("t-acks0", ProducerSettings(acks=0, is_idempotent=False)) as producer:
            for value in values:
                await producer.send(value)
        async with client.consumer("t-acks0") as consumer:
            assert [one.value async for one in consumer] == values


async def transactions(address: str) -> None:
    """Copy a topic to another one, exactly once, with an aborted transaction in between."""
    host, _, port = address.partition(":")
    settings = GroupSettings(follows=False, auto_commit=False, heartbeat_interval_ms=300)
    is_aborted = False
    async with (
        open_client([Endpoint(host, int(port))]) as client,
        client.transactional("copier") as producer,
        client.group("t-none", "copier", settings) as member,
    ):
        while records := await member.batch():
            async with producer.transaction() as transaction:
                for record in records:
                    delivery = await transaction.send("t-copied", record.value, partition=0)
                await transaction.send_offsets(member, records)
                if not is_aborted:
                    is_aborted = True
                    await delivery.wait()
                    await transaction.abort()
                    member.rewind()
        async with client.transactional("copier"):
            with pytest.raises(ClientError, match="PRODUCER_FENCED"):
                await commit_one(producer)


async def commit_one(producer: TransactionalProducer) -> None:
    async with producer.transaction() as transaction:
        await transaction.send("t-copied", b"of a fenced producer")


def test_our_commands_write_to_kafka_and_read_what_its_tools_read(kafka: KafkaInstallation, tmp_path: Path):
    process, address = one_node(kafka, tmp_path)
    try:
        process.wait_for(STARTED)
        server = f"--bootstrap-server={address}"
        lines = tmp_path / "lines.txt"
        lines.write_text("".join(f"k{number}:v{number}\n" for number in range(MESSAGES)))
        written = told("produce", "t-none", str(lines), server, "--key-separator=:", "--header=h=1")
        assert written.startswith(f"{MESSAGES} records written to t-none in ")
        found = [json.loads(line) for line in told("consume", "t-none", server, "--json").splitlines()]
        assert [(one["key"], one["value"]) for one in found] == [(f"k{n}", f"v{n}") for n in range(MESSAGES)]
        assert {json.dumps(one["headers"]) for one in found} == {'[{"key": "h", "value": "1"}]'}
        trio.run(each_codec, address)
        times = [one["timestamp"] for one in found]
        since = told(
            "consume", "t-none", server, "--from", times[-1], "--isolation", "read_committed", "--max-messages=1"
        )
        first = f"v{times.index(times[-1])}"
        assert since.splitlines()[0] == first
        with KafkaTools(kafka) as tools:
            read = tools.run(
                CONSOLE_CONSUMER,
                server,
                "--topic=t-zstd",
                "--partition=0",
                "--offset=earliest",
                f"--max-messages={MESSAGES}",
                "--timeout-ms=30000",
                "--formatter-property=print.key=true",
                "--formatter-property=print.headers=true",
            )
            assert read.stdout.splitlines() == [f"h:1\tk\tv{n}" for n in range(MESSAGES)], read.stderr
            trio.run(transactions, address)
            lengths = len(told("consume", "t-none", server).splitlines())
            copied = tools.run(
                CONSOLE_CONSUMER,
                server,
                "--topic=t-copied",
                "--from-beginning",
                "--isolation-level=read_committed",
                f"--max-messages={lengths}",
                "--timeout-ms=30000",
            )
            assert copied.stdout == told("consume", "t-none", server), copied.stderr
            assert told("consume", "t-copied", server, "--isolation=read_committed") == copied.stdout
            assert len(told("consume", "t-copied", server).splitlines()) > lengths
    finally:
        process.kill()
