"""The language of `tests/transcripts/transactions`: three brokers in virtual time, of which 101 coordinates all
transactions, and 102 after it. The partitions 0, 1, 2 of the topic `out` are led by 102, 103, 101.

A producer has the name of its transactional id, `t` below. It keeps the id and the epoch that it was told, and names
them; `id=7/0` names others, and `to=102` asks another broker than the coordinator. A setting in brackets may be left
out.

    > cluster [version=2 NAME=VALUE … cold]     new brokers at 0 ms: the level of transaction.version, settings; with
                                         `cold` they have no block of producer ids yet
    > init t [timeout=60000 version=5 id=own]   InitProducerId, as a new producer unless `id=` is there
    > add t out-0 … [version=3]            AddPartitionsToTxn
    > add-offsets t GROUP [version=3]      AddOffsetsToTxn
    > write t out-0 [version=13 sequence=0]     Produce
    > commit t / abort t [version=5]       EndTxn
    > describe t / list                    DescribeTransactions, ListTransactions
    > hold / release                       markers wait on their way, or go on
    > stop B / start B                     the broker is not reached; its answers are lost
    > fail-over                            101 ends, and 102 leads its partitions
    > record t STATUS 7/0 [out-0 …]        the log has this when the next coordinator loads it
    > delete TOPIC / level N               metadata
    > at MS                                time passes; the times are those of whole seconds

`101 log t …` is a record of the coordinator, `101 -> 102` a request, `102 => 101` its answer, `101 => t` the answer to
a producer. Each command ends when nothing happens any more.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct, structs

from kraft.coordinators.transactions.shard import record_of, transaction_of
from kraft.coordinators.transactions.transaction import STATUS_OF, Transaction
from kraft.wire import Answer, Send
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.coordinator import TRANSACTION_STATE, decode_pair, encode_key, encode_value
from metadata_log.records.metadata import FeatureLevelRecord, RemoveTopicRecord
from metadata_log.records.record import Record, records
from metadata_log.records.transaction_state import TransactionLogKey, TransactionLogValue
from metadata_log.serde import Message
from support.broker.coordinated_brokers import OUT, START_MS, STATE, Coordinated
from support.broker.transactional_producers import FIRST, NEXT, fail_over
from support.transcripts.driver import parted
from transport.protocol.errors import Error
from transport.protocol.messages import add_partitions_to_txn as adding
from transport.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from transport.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from transport.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from transport.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from transport.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from transport.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

BUMPING_SINCE: Final = 5
"""The version of EndTxn whose answer tells the next epoch."""
STEP_MS: Final = 1000
_SETTINGS: Final = {
    "init": "timeout version id to",
    "add": "version id to",
    "add-offsets": "version id to",
    "write": "version id sequence",
    "commit": "version id to",
    "abort": "version id to",
}


class Identity(Struct):
    """A producer id with its epoch."""

    id: int = -1
    epoch: int = -1

    def __str__(self) -> str:
        """As the transcripts have it."""
        return f"{self.id}/{self.epoch}"


class Stage(Coordinated):
    """The brokers, which note what they say to each other and what the coordinator writes."""

    def __init__(self, **settings: Any) -> None:
        self.noted: list[str] = []
        self.coordinator = FIRST
        self.who = ""
        """The producer that asks."""
        self._read = 0
        """The offset of the log of the coordinator up to which its records are noted."""
        is_cold = settings.pop("is_cold")
        super().__init__(**settings)
        for one in () if is_cold else (FIRST, NEXT):
            self.ask(one, InitProducerIdRequest(None, 60_000), 5)
        self.noted.clear()
        self.start_ms = self.brokers.now_ms

    def turn(self) -> bool:
        """One turn of each broker."""
        has_moved = super().turn()
        self.note_records()
        return has_moved

    def note_records(self) -> None:
        """Note the new records of the coordinator."""
        part = self.brokers.managers[self.coordinator].partitions.get((STATE, 0))
        if part is None or part.log.end_offset <= self._read:
            return
        data = part.log.read(self._read, 1 << 20)
        assert isinstance(data, bytes), data
        for batch in scan(data):
            for offset, one in enumerate(records(batch), batch.base_offset):
                if offset >= self._read:
                    self.noted.append(f"{self.coordinator} log {_record(one)}")
        self._read = part.log.end_offset

    def _deliver(self, asker: int, send: Send) -> None:
        assert send.target is not None, send
        is_lost = not self.dead.isdisjoint((asker, send.target.node_id))
        self.note_records()
        self.noted.append(f"{asker} -> {send.target.node_id} {_asked(send.message)}{' is lost' * is_lost}")
        super()._deliver(asker, send)

    def _end(self, broker: int, outcome: Any) -> None:
        assert isinstance(outcome, Answer), outcome
        self.note_records()
        asker = self._waiting[outcome.request_id][0] if outcome.request_id in self._waiting else self.who
        self.noted.append(f"{broker} => {asker} {_answered(outcome.message)}")
        super()._end(broker, outcome)

    def ask(self, broker: int, message: Message, version: int | None = None, *, markers: bool = True) -> Any:
        """Ask for a producer."""
        request_id, outcome = self.brokers.send(broker, message, version)
        if outcome is not None:
            self._end(broker, outcome)
        self.settle(markers=markers)
        return self.answers.pop(request_id)


class TransactionPlayer:
    """Carries out the commands of one file."""

    settings = _SETTINGS

    def __init__(self) -> None:
        self._stage = Stage(is_cold=True)
        self._producers: dict[str, Identity] = {}
        self._are_held = False

    def act(self, name: str, words: tuple[str, ...]) -> list[str]:
        """Carry out a command; returns what happened."""
        self._do(name, *parted(words))
        noted, self._stage.noted = self._stage.noted, []
        return noted

    def _do(self, name: str, plain: list[str], given: dict[str, str]) -> None:
        stage = self._stage
        match name, plain:
            case "cluster", _:
                self._stage = Stage(is_cold="cold" in plain, **{key: int(value) for key, value in given.items()})
                self._producers, self._are_held = {}, False
            case "hold", _:
                self._are_held = True
            case "release", _:
                self._are_held = False
                self._settle()
            case "stop", [broker]:
                stage.dead.add(int(broker))
            case "start", [broker]:
                stage.dead.discard(int(broker))
                self._settle()
            case "fail-over", _:
                stage.coordinator = NEXT
                fail_over(stage)
            case "record", [who, status, identity, *parts]:
                self._record(who, status, identity, parts)
            case "delete", [_]:
                stage.brokers.change(RemoveTopicRecord(topic_id=OUT))
                self._settle()
            case "level", [level]:
                stage.brokers.change(FeatureLevelRecord(name="transaction.version", feature_level=int(level)))
            case "at", [ms]:
                self._wait(stage.start_ms + int(ms))
            case _:
                self._ask(name, plain, given)

    def _settle(self) -> None:
        self._stage.settle(markers=not self._are_held)

    def _wait(self, until_ms: int) -> None:
        brokers = self._stage.brokers
        while brokers.now_ms < until_ms:
            before = len(self._stage.noted)
            at_ms = (brokers.now_ms - self._stage.start_ms) // STEP_MS * STEP_MS + STEP_MS
            brokers.now_ms = self._stage.start_ms + at_ms
            self._settle()
            if len(self._stage.noted) > before:
                self._stage.noted.insert(before, f"({at_ms} ms)")

    def _record(self, who: str, status: str, identity: str, parts: list[str]) -> None:
        """Append what a coordinator of another life has left."""
        brokers = self._stage.brokers
        producer_id, epoch = map(int, identity.split("/"))
        one = Transaction(
            producer_id=producer_id,
            epoch=epoch,
            status=STATUS_OF[status],
            timeout_ms=60_000,
            updated_ms=brokers.now_ms,
            previous_producer_id=producer_id,
            partitions=frozenset(_place(part) for part in parts),
            start_ms=brokers.now_ms if parts else -1,
        )
        made = record_of(who, one, 1)
        assert made.value is not None, made
        key, value = encode_key(made.key), encode_value(made.value, made.version)
        data = write_batch([Record(0, START_MS, 0, key, value)], epoch=0)
        manager = brokers.managers[FIRST]
        manager.leaders.append(brokers.part(FIRST, (STATE, 0)), data, brokers.now_ms, is_client=False)
        self._producers[who] = Identity(producer_id, epoch)
        self._settle()

    # --------------------------------------------------------------------------------------------------------- requests

    def _ask(self, name: str, plain: list[str], given: dict[str, str]) -> None:
        who = plain[0] if plain else "client"
        own = self._producers.setdefault(who, Identity())
        asked = structs.replace(own)
        if given.get("id", "own") != "own":
            asked.id, asked.epoch = map(int, given["id"].split("/"))
        elif name == "init" and "id" not in given:
            asked = Identity()
        stage, version = self._stage, int(given.get("version", _LATEST[name]))
        message = self._request(name, who, asked, plain[1:], given)
        to = int(given.get("to", stage.coordinator))
        if name == "write":
            to = stage.brokers.image.topics.by_id[OUT].partitions[_place(plain[1])[1]].leader
        stage.who = who
        answer = stage.ask(to, message, version, markers=not self._are_held)
        keeps = name == "init" or (name in ("commit", "abort") and version >= BUMPING_SINCE)
        if keeps and answer.error_code == Error.NONE:
            own.id, own.epoch = answer.producer_id, answer.producer_epoch

    def _request(self, name: str, who: str, asked: Identity, words: list[str], given: dict[str, str]) -> Message:
        match name:
            case "init":
                name_of = "" if who == "-" else who
                return InitProducerIdRequest(name_of, int(given.get("timeout", 60_000)), asked.id, asked.epoch)
            case "add":
                topics: dict[str, list[int]] = {}
                for topic, number in map(_place, words):
                    topics.setdefault(topic, []).append(number)
                return adding.AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=who,
                    v3_and_below_producer_id=asked.id,
                    v3_and_below_producer_epoch=asked.epoch,
                    v3_and_below_topics=[adding.AddPartitionsToTxnTopic(*one) for one in topics.items()],
                )
            case "add-offsets":
                return AddOffsetsToTxnRequest(who, asked.id, asked.epoch, words[0])
            case "commit" | "abort":
                return EndTxnRequest(who, asked.id, asked.epoch, name == "commit")
            case "describe":
                return DescribeTransactionsRequest([who])
            case "list":
                return ListTransactionsRequest()
            case "write":
                data = write_batch(
                    [Record(0, START_MS, 0, None, b"x")],
                    epoch=-1,
                    transactional=True,
                    producer_id=asked.id,
                    producer_epoch=asked.epoch,
                    base_sequence=int(given.get("sequence", 0)),
                )
                part = PartitionProduceData(_place(words[0])[1], data)
                written = TopicProduceData(name="out", topic_id=OUT, partition_data=[part])
                return ProduceRequest(transactional_id=who, acks=-1, timeout_ms=5000, topic_data=[written])
        raise AssertionError(f"no such command: {name} {words}")


_LATEST: Final = {
    "init": 5,
    "add": 3,
    "add-offsets": 3,
    "write": 13,
    "commit": 5,
    "abort": 5,
    "describe": 0,
    "list": 1,
}


def _place(part: str) -> tuple[str, int]:
    topic, _, number = part.rpartition("-")
    return topic, int(number)


def _record(one: Record) -> str:
    pair = decode_pair(TRANSACTION_STATE, one.key or b"", one.value)
    assert pair is not None, one
    assert isinstance(pair.key, TransactionLogKey), pair
    name = pair.key.transactional_id
    if pair.value is None:
        return f"{name} is forgotten"
    assert isinstance(pair.value, TransactionLogValue), pair
    known = transaction_of(pair.value)
    words = [name, known.status.title, f"{known.producer_id}/{known.epoch}"]
    if known.previous_producer_id not in (-1, known.producer_id):
        words.append(f"previous={known.previous_producer_id}")
    if known.next_producer_id != -1:
        words.append(f"next={known.next_producer_id}")
    words += [f"{topic}-{number}" for topic, number in sorted(known.partitions)]
    return " ".join([*words, *(["v2"] if known.bumps else [])])


def _asked(message: Message) -> str:
    match message:
        case WriteTxnMarkersRequest():
            return "; ".join(
                f"{'commit' if one.transaction_result else 'abort'} {one.producer_id}/{one.producer_epoch} "
                f"{_parts((each.name, each.partition_indexes) for each in one.topics)} "
                f"coordinator={one.coordinator_epoch}"
                for one in message.markers
            )
        case adding.AddPartitionsToTxnRequest():
            return "; ".join(
                f"{'verify' if one.verify_only else 'add'} {one.transactional_id} "
                f"{one.producer_id}/{one.producer_epoch} "
                f"{_parts((each.name, each.partitions) for each in one.topics)}"
                for one in message.transactions
            )
    raise AssertionError(message)


def _answered(message: Any) -> str:
    match message:
        case WriteTxnMarkersResponse():
            codes = [part.error_code for one in message.markers for each in one.topics for part in each.partitions]
            return "markers " + " ".join(Error.of(code).name for code in codes)
        case adding.AddPartitionsToTxnResponse():
            topics = [*message.results_by_topic_v3_and_below]
            topics += [each for one in message.results_by_transaction for each in one.topic_results]
            told = [
                f"{topic.name}-{one.partition_index} {Error.of(one.partition_error_code).name}"
                for topic in topics
                for one in topic.results_by_partition
            ]
            return "add " + ", ".join(told)
        case InitProducerIdResponse():
            return f"init {_identified(message)}"
        case EndTxnResponse():
            return f"end {_identified(message)}"
        case ProduceResponse():
            [part] = message.responses[0].partition_responses
            return f"write {Error.of(part.error_code).name}"
        case DescribeTransactionsResponse():
            [one] = message.transaction_states
            if one.error_code:
                return f"describe {Error.of(one.error_code).name}"
            parts = _parts((each.topic, each.partitions) for each in one.topics)
            return f"describe {one.transaction_state} {one.producer_id}/{one.producer_epoch} {parts}".rstrip()
        case ListTransactionsResponse():
            listed = [f"{one.transactional_id} {one.transaction_state}" for one in message.transaction_states]
            return "list " + (", ".join(listed) or "nothing")
    name = type(message).__name__.removesuffix("Response")
    return f"{name} {Error.of(message.error_code).name}"


def _identified(message: Any) -> str:
    error = Error.of(message.error_code)
    if error is not Error.NONE or message.producer_id < 0:
        return error.name
    return f"{error.name} {message.producer_id}/{message.producer_epoch}"


def _parts(topics: Any) -> str:
    return ",".join(f"{topic}-{number}" for topic, numbers in topics for number in numbers)
