"""The records of transactions are those that brokers of Kafka write, byte for byte."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Final

import pytest
from msgspec import structs

from kraft.agenda import Agenda
from kraft.config.transaction_settings import TransactionConfig
from kraft.coordinators.runtime.shard import Record
from kraft.coordinators.transactions.marker_sender import MarkerSender
from kraft.coordinators.transactions.shard import TransactionShard, record_of, transaction_of
from kraft.coordinators.transactions.transaction import Status
from metadata_log.errors import ReplayError
from metadata_log.records.coordinator import TRANSACTION_STATE, decode_pair, encode_key, encode_value
from metadata_log.records.transaction_state import PartitionsSchema, TransactionLogKey, TransactionLogValue

RECORDS: Final = Path(__file__).parents[3] / "data" / "transaction_state_records.jsonl.gz"
"""Keys and values in hexadecimal, in the order of the log, by partition."""


def logs() -> list[list[tuple[bytes, bytes | None]]]:
    return [
        [(bytes.fromhex(key), None if value is None else bytes.fromhex(value)) for key, value in json.loads(line)]
        for line in gzip.decompress(RECORDS.read_bytes()).splitlines()
    ]


def ordered(value: TransactionLogValue, version: int, data: bytes) -> bytes:
    """A value with its partitions in order: a JVM has them in that of a hash table."""
    assert encode_value(value, version) == data
    if value.transaction_partitions is None:
        return data
    topics = sorted((one.topic, tuple(sorted(one.partition_ids))) for one in value.transaction_partitions)
    inner = tuple(PartitionsSchema(topic, numbers) for topic, numbers in topics)
    return encode_value(structs.replace(value, transaction_partitions=inner), version)


def test_records_of_kafka_are_written_again_as_they_were() -> None:
    count, seen, versions = 0, set[Status](), set[int]()
    for log in logs():
        for key, value in log:
            pair = decode_pair(TRANSACTION_STATE, key, value)
            assert pair is not None
            if not isinstance(pair.value, TransactionLogValue):
                continue
            assert isinstance(pair.key, TransactionLogKey)
            assert pair.version is not None
            one = transaction_of(pair.value)
            written = record_of(pair.key.transactional_id, one, pair.version)
            assert written.value is not None
            assert encode_key(written.key) == key
            assert value is not None
            assert encode_value(written.value, written.version) == ordered(pair.value, pair.version, value), one
            count += 1
            seen.add(one.status)
            versions.add(pair.version)
    assert count > 250
    assert seen == set(Status) - {Status.DEAD, Status.PREPARE_EPOCH_FENCE}
    assert versions == {0, 1}, "the last log is one of transaction.version 0"


def test_the_log_of_kafka_is_replayed() -> None:
    """The state has the last record of each id, and knows which of them are to be ended."""
    shard = TransactionShard(0, 0, MarkerSender(Agenda(), "", 0), TransactionConfig(), lambda: None)
    for log in logs():
        state, last = shard.empty(), dict[str, TransactionLogValue]()
        for at, (key, value) in enumerate(log):
            pair = decode_pair(TRANSACTION_STATE, key, value)
            assert pair is not None
            assert isinstance(pair.key, TransactionLogKey)
            state = shard.replay(state, Record(pair.key, pair.value, pair.version), at, -1)
            if isinstance(pair.value, TransactionLogValue):
                last[pair.key.transactional_id] = pair.value
            else:
                last.pop(pair.key.transactional_id, None)
            ending = {name for name, one in last.items() if Status(one.transaction_status).is_ending}
            assert set(state.ending.keys()) == ending
        assert {name: transaction_of(one) for name, one in last.items()} == dict(state.by_id.items())
        for name in list(state.by_id.keys()):
            state = shard.replay(state, Record(TransactionLogKey(name)), 0, -1)
        assert (len(state.by_id), len(state.ending), state.bytes) == (0, 0, 0)


def test_a_status_that_no_record_has_is_damage() -> None:
    with pytest.raises(ReplayError, match="status 9"):
        transaction_of(TransactionLogValue(transaction_status=9))
