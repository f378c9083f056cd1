"""Answers about transactions and the records of transactions are those of brokers of Kafka 4.3.1."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

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
from metadata_log.serde.json_form import from_json, to_json
from support.broker.coordinated_brokers import Coordinated
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.messages.init_producer_id import InitProducerIdRequest

PROBES: Final = Path(__file__).parents[3] / "data" / "transaction_probes.jsonl.gz"
STATE: Final = ((102,), (101,), (101,), (102,))
GROUPS: Final = ((102,), (101,), (102,), (101,), (102,))
"""The leaders of `__transaction_state` and `__consumer_offsets` in the recorded cluster."""
SOON: Final = "51"
IGNORED: Final = frozenset(("throttleTimeMs", "transactionStartTimeMs"))
IDS: Final = frozenset(("producerId", "v3AndBelowProducerId", "producerIdFilters"))


def probes() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(PROBES.read_bytes()).splitlines()]


def _renamed(request: dict[str, Any]) -> dict[str, Any]:
    """A request with the name of a field as later releases have it."""
    return {{"generationId": "generationIdOrMemberEpoch"}.get(key, key): value for key, value in request.items()}


class Replay:
    """Our brokers, and our producer ids for those of the recorded cluster."""

    def __init__(self) -> None:
        self.count = 0
        self.wrong: list[tuple[str, int, Any, Any]] = []
        self.begin()

    def begin(self) -> None:
        """A new cluster, with producer ids at hand in both brokers."""
        self.cluster = Coordinated(STATE, out=((102,), (101,), (102,)), groups=GROUPS, abort_interval_ms=2000)
        self.ours: dict[int, int] = {}
        for broker in (101, 102):
            self.cluster.ask(broker, InitProducerIdRequest(transactional_id=None))

    def request(self, value: Any, name: str = "") -> Any:
        """A request with our producer ids. A wrong id is one of Kafka's, a little larger."""
        match value:
            case dict():
                return {key: self.request(one, key) for key, one in value.items()}
            case list():
                return [self.request(one, name) for one in value]
            case int() if name in IDS and value >= 0:
                return self.ours.get(value, value + 500_000)
        return value

    def told(self, value: Any, ours: Mapping[int, int], name: str = "") -> Any:
        """An answer without times and orders, with other producer ids."""
        match value:
            case dict():
                return {key: self.told(one, ours, key) for key, one in value.items() if key not in IGNORED}
            case list():
                return sorted((self.told(one, ours, name) for one in value), key=json.dumps)
            case int() if name in IDS:
                return ours.get(value, value)
        return value

    def play(self, probe: dict[str, Any]) -> None:
        """Ask what Kafka was asked; a transaction ends when Kafka's has ended, and not before."""
        key = next(key for key, api in ALL_APIS.items() if api.name == probe["api"])
        message = from_json(ALL_APIS[key].request, probe["version"], self.request(_renamed(probe["request"])))
        expected = probe["response"]
        for is_over in (False, True):
            if is_over:
                self.cluster.settle()
            answer = self.cluster.ask(probe["broker"], message, probe["version"], markers=False)
            found: Any = to_json(answer, probe["version"])
            if SOON not in json.dumps(found) or SOON in json.dumps(expected):
                break
        if probe["api"] == "InitProducerId" and expected["errorCode"] == 0 == found["errorCode"]:
            self.ours.setdefault(expected["producerId"], found["producerId"])
        self.count += 1
        if self.told(found, {}) != self.told(expected, self.ours):
            self.wrong.append((probe["probe"], probe["version"], found, expected))


def test_answers_are_those_of_kafka() -> None:
    replay = Replay()
    before_ms = 0
    for probe in probes():
        if probe["t_ms"] < before_ms - 10_000:
            replay.begin()
        passed_ms = max(0, min(probe["t_ms"] - before_ms, 10_000))
        replay.cluster.settle(markers=passed_ms > 1000, after_ms=passed_ms)
        before_ms = probe["t_ms"]
        replay.play(probe)
    for one in replay.wrong:
        print(one)
    assert replay.wrong == []
    assert replay.count == 416


# The records of transactions are those that brokers of Kafka write, byte for byte.


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
