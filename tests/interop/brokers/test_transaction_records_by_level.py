"""The records of Kafka's transaction coordinator at each level of `transaction.version`: ours writes the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from kraft.client import open_client
from kraft.coordinators.transactions.shard import record_of, transaction_of
from kraft.coordinators.transactions.transaction import Status
from metadata_log.records.batch import scan
from metadata_log.records.coordinator import TRANSACTION_STATE, decode_pair, encode_key, encode_value
from metadata_log.records.record import records
from metadata_log.records.transaction_state import TransactionLogKey, TransactionLogValue
from one_node import CLUSTER_ID, node_lines
from support.interop.broker_cluster import HEAP, STARTED
from support.interop.our_nodes import told
from support.interop.real_kafka import KafkaInstallation, Process, free_ports
from transport.interface import Endpoint

pytestmark = pytest.mark.kafka


async def transact(port: int) -> None:
    """A commit, an abort, a new start of the producer, and a commit."""
    for ends in ((True, False), (True,)):
        async with open_client([Endpoint("127.0.0.1", port)]) as client, client.transactional("mover") as producer:
            for commits in ends:
                async with producer.transaction() as transaction:
                    await (await transaction.send("t", b"x")).wait()
                    if not commits:
                        await transaction.abort()


def pairs_of(root: Path) -> list[tuple[bytes, bytes]]:
    """The keys and values of all logs of the coordinator."""
    logs = sorted(root.glob("**/__transaction_state-*/00000000000000000000.log"))
    return [
        (one.key or b"", one.value or b"") for log in logs for batch in scan(log.read_bytes()) for one in records(batch)
    ]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_records_of_each_level_are_kafkas(newer_kafka: KafkaInstallation, tmp_path: Path, level: int) -> None:
    controller, port = free_ports(2)
    path = tmp_path / "node.properties"
    path.write_text("".join(f"{line}\n" for line in node_lines(tmp_path, controller, port)))
    told("format", "-c", str(path), "--cluster-id", CLUSTER_ID, "-f", f"transaction.version={level}")
    process = Process(newer_kafka.command("kafka.Kafka", str(path), log="info", heap=HEAP), tmp_path / "node.log")
    try:
        process.wait_for(STARTED)
        trio.run(transact, port)
        process.stop()
    finally:
        process.kill()
    found = pairs_of(tmp_path)
    seen = set()
    for key, value in found:
        pair = decode_pair(TRANSACTION_STATE, key, value)
        assert pair is not None
        assert isinstance(pair.key, TransactionLogKey)
        assert isinstance(pair.value, TransactionLogValue)
        one = transaction_of(pair.value)
        written = record_of(pair.key.transactional_id, one, level)
        assert written.value is not None
        assert (encode_key(written.key), encode_value(written.value, written.version)) == (key, value), one
        seen.add((one.status, pair.version))
    version = 0 if level == 0 else 1
    states = (Status.EMPTY, Status.ONGOING, *(Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT))
    assert seen >= {(one, version) for one in (*states, Status.PREPARE_ABORT, Status.COMPLETE_ABORT)}
