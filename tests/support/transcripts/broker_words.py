"""The words of the transcripts of brokers: requests and answers as text, and answers by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from metadata_log.errors import IncompleteBatch
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.records.record import records as records_of
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol import messages as m
from transport.protocol.errors import Error
from transport.protocol.messages import add_partitions_to_txn as txn
from transport.protocol.messages import fetch as f
from transport.protocol.messages import list_offsets as lo

START_MS = 1_795_390_000_000
"""The clock at 0 ms of a transcript."""
_MARKERS = {0: "ABORT", 1: "COMMIT"}
_USUAL = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 10 << 20, "isolation_level": 0, "rack_id": ""}
"""What every follower of Kafka asks for; shown if it differs."""
TIMES = {"latest": -1, "earliest": -2, "max-timestamp": -3}
"""What ListOffsets asks for with a time below 0."""
_TIME_NAMES = {number: name for name, number in TIMES.items()}


class Names:
    """The names of the random ids of a transcript."""

    def __init__(self) -> None:
        self.topics: dict[Uuid, str] = {}
        self.directories: dict[Uuid, str] = {}
        self._sessions: dict[int, str] = {0: "none"}

    def session(self, session_id: int) -> str:
        """The name of a fetch session; the first one is s1."""
        return self._sessions.setdefault(session_id, f"s{len(self._sessions)}")

    def session_id(self, name: str) -> int:
        """The fetch session of a name."""
        return next(number for number, one in self._sessions.items() if one == name)

    def topic(self, topic_id: Uuid) -> str:
        """The name of a topic."""
        return self.topics.get(topic_id, "?")

    def topic_id(self, name: str) -> Uuid:
        """The latest topic of this name."""
        return next(one for one in reversed(self.topics) if self.topics[one] == name)

    def key(self, partition: str) -> tuple[Uuid, int]:
        """The topic id and the number of `orders-0`."""
        topic, _, number = partition.rpartition("-")
        return self.topic_id(topic), int(number)

    def partition(self, topic_id: Uuid, name: str, number: int) -> str:
        """A partition of a message, which names its topic by id or by name."""
        return f"{name or self.topic(topic_id)}-{number}"


# ------------------------------------------------------------------------------------------------------------- records


def batch_of(values: Iterable[str], given: Mapping[str, str], now_ms: int) -> bytes:
    """A batch as a producer sends it; `producer=ID/EPOCH sequence= key= time= transactional` set its header."""
    producer_id, _, producer_epoch = given.get("producer", "-1/-1").partition("/")
    key = given["key"].encode() if "key" in given else None
    return write_batch(
        [Record(at, now_ms, 0, key, value.encode()) for at, value in enumerate(values)],
        epoch=-1,
        transactional="txn" in given or "transactional" in given,
        producer_id=int(producer_id),
        producer_epoch=int(producer_epoch),
        base_sequence=int(given.get("sequence", -1 if producer_id == "-1" else 0)),
    )


def copied(text: str, now_ms: int) -> bytes:
    """Batches as a leader has them: `4-6@3` has the offsets 4 and 5, and the leader epoch 3."""
    data = b""
    for part in text.split(","):
        offsets, _, epoch = part.partition("@")
        first, _, end = offsets.partition("-")
        data += write_batch(
            [Record(at, now_ms, 0, None, f"v{at}".encode()) for at in range(int(first), int(end))], epoch=int(epoch)
        )
    return data


def records_text(data: bytes | None, show: Callable[[RecordBatch], str]) -> str:
    """Batches as text; `...` stands for the piece of a batch after them."""
    found: list[str] = []
    try:
        found.extend(show(batch) for batch in scan(data or b""))
    except IncompleteBatch:
        found.append("...")
    return ",".join(found) or "-"


def range_text(batch: RecordBatch) -> str:
    """Offsets and leader epoch of a batch: `4-6@3`."""
    return f"{batch.base_offset}-{batch.next_offset}@{batch.epoch}"


def whole_text(batch: RecordBatch) -> str:
    """The same with what the records say: `4-6@3(a,b)`."""
    if batch.is_control:
        [marker] = records_of(batch)
        assert marker.key is not None
        said = [_MARKERS[marker.key[3]]]
    else:
        said = [",".join((one.value or b"-").decode() for one in records_of(batch))]
    if batch.producer_id >= 0:
        sequence = "" if batch.is_control else f"#{batch.base_sequence}"
        said.append(f"{'txn ' if batch.is_transactional else ''}{batch.producer_id}/{batch.producer_epoch}{sequence}")
    return f"{range_text(batch)}({' '.join(said)})"


# ------------------------------------------------------------------------------------------------------------ messages


def request_text(message: Message, names: Names) -> str:
    """A request that a broker sends."""
    words = [type(message).__name__.removesuffix("Request")]
    match message:
        case m.FetchRequest():
            words += [f"session={names.session(message.session_id)}/{message.session_epoch}"]
            words += [f"broker-epoch={message.replica_state.replica_epoch}"]
            sizes = {name: getattr(message, name) for name in _USUAL}
            words += [f"{name}={value}" for name, value in sizes.items() if value != _USUAL[name]]
            for topic in message.topics:
                for part in topic.partitions:
                    name = names.partition(topic.topic_id, topic.topic, part.partition)
                    epoch = "-" if part.last_fetched_epoch < 0 else part.last_fetched_epoch
                    words += [f"{name} at={part.fetch_offset}@{epoch} epoch={part.current_leader_epoch}"]
                    words += [f"start={part.log_start_offset}"] if part.log_start_offset > 0 else []
                    words += [] if part.partition_max_bytes == 1 << 20 else [f"max={part.partition_max_bytes}"]
            for gone in message.forgotten_topics_data:
                words += [f"forget={names.partition(gone.topic_id, gone.topic, one)}" for one in gone.partitions]
        case m.ListOffsetsRequest():
            for asked in message.topics:
                for one in asked.partitions:
                    words += [f"{asked.name}-{one.partition_index} {_TIME_NAMES[one.timestamp]}"]
                    words += [f"epoch={one.current_leader_epoch}"]
        case m.AlterPartitionRequest():
            for changed in message.topics:
                for change in changed.partitions:
                    isr = ",".join(f"{one.broker_id}:{one.broker_epoch}" for one in change.new_isr_with_epochs)
                    words += [f"{names.topic(changed.topic_id)}-{change.partition_index} isr={isr}"]
                    words += [f"epoch={change.leader_epoch} partition-epoch={change.partition_epoch}"]
                    words += [] if change.leader_recovery_state == 0 else ["RECOVERING"]
        case m.AssignReplicasToDirsRequest():
            for place in message.directories:
                for moved in place.topics:
                    parts = (f"{names.topic(moved.topic_id)}-{one.partition_index}" for one in moved.partitions)
                    words += [f"{names.directories[place.id]}:{','.join(parts)}"]
        case m.BrokerHeartbeatRequest():
            words += [f"offline={','.join(names.directories[one] for one in message.offline_log_dirs) or '-'}"]
            words += ["want-shut-down"] if message.want_shut_down else []
        case m.AddPartitionsToTxnRequest():
            for transaction in message.transactions:
                words += [transaction.transactional_id, f"{transaction.producer_id}/{transaction.producer_epoch}"]
                words += ["verify" if transaction.verify_only else "add"]
                words += [f"{topic.name}-{number}" for topic in transaction.topics for number in topic.partitions]
        case m.AllocateProducerIdsRequest():
            pass
        case _:
            raise AssertionError(message)
    return " ".join(words)


def answer_text(message: Message, names: Names, *, is_of_broker: bool) -> str:
    """The answer to a client, with what the records say, or to another broker."""
    words = [type(message).__name__.removesuffix("Response")]
    throttle_ms, error = getattr(message, "throttle_time_ms", 0), getattr(message, "error_code", 0)
    words += [Error.of(error).name] if error else []
    words += [f"throttle={throttle_ms}"] if throttle_ms else []
    if isinstance(message, m.FetchResponse) and message.session_id:
        words.append(f"session={names.session(message.session_id)}")
    words += _parts(message, names, range_text if is_of_broker else whole_text)
    ends = getattr(message, "node_endpoints", ())
    words += [f"at={one.node_id}@{one.host}:{one.port}" for one in ends]
    return " ".join(words)


def _parts(message: Message, names: Names, show: Callable[[RecordBatch], str]) -> Iterator[str]:
    match message:
        case m.ProduceResponse():
            for produced in message.responses:
                for one in produced.partition_responses:
                    yield names.partition(produced.topic_id, produced.name, one.index)
                    yield from _error(one.error_code)
                    yield f"base={_offset(one.base_offset)}"
                    yield from _time(one.log_append_time_ms)
                    yield from _start(one.log_start_offset)
                    if one.record_errors:
                        yield f"refused={','.join(str(each.batch_index) for each in one.record_errors)}"
                    yield from _leader(one.current_leader)
        case m.FetchResponse():
            for fetched in message.responses:
                for part in fetched.partitions:
                    yield names.partition(fetched.topic_id, fetched.topic, part.partition_index)
                    yield from _fetched(part, show)
        case m.ListOffsetsResponse():
            for listed in message.topics:
                for end in listed.partitions:
                    yield f"{listed.name}-{end.partition_index}"
                    yield from _error(end.error_code)
                    yield f"offset={_offset(end.offset)}@{_offset(end.leader_epoch)}"
                    yield from _time(end.timestamp)
        case m.OffsetForLeaderEpochResponse():
            for topic in message.topics:
                for found in topic.partitions:
                    yield f"{topic.topic}-{found.partition}"
                    yield from _error(found.error_code)
                    yield f"end={_offset(found.end_offset)}@{_offset(found.leader_epoch)}"
        case m.DeleteRecordsResponse():
            for deleted in message.topics:
                for low in deleted.partitions:
                    yield f"{deleted.name}-{low.partition_index}"
                    yield from _error(low.error_code)
                    yield f"low={_offset(low.low_watermark)}"
        case m.WriteTxnMarkersResponse():
            for marker in message.markers:
                for ended in marker.topics:
                    for each in ended.partitions:
                        yield f"{ended.name}-{each.partition_index} {Error.of(each.error_code).name}"
        case m.AlterReplicaLogDirsResponse():
            for result in message.results:
                for moved in result.partitions:
                    yield f"{result.topic_name}-{moved.partition_index} {Error.of(moved.error_code).name}"
        case m.InitProducerIdResponse():
            yield f"producer={message.producer_id}/{message.producer_epoch}"
        case _:
            raise AssertionError(message)


def _fetched(part: f.PartitionData, show: Callable[[RecordBatch], str]) -> Iterator[str]:
    yield from _error(part.error_code)
    if part.preferred_read_replica >= 0:
        yield f"preferred={part.preferred_read_replica}"
    if part.diverging_epoch.epoch >= 0:
        yield f"diverging={part.diverging_epoch.end_offset}@{part.diverging_epoch.epoch}"
    yield from _leader(part.current_leader)
    if part.error_code:
        return
    yield f"hw={part.high_watermark}"
    if part.last_stable_offset != part.high_watermark:
        yield f"stable={part.last_stable_offset}"
    yield from _start(part.log_start_offset)
    if part.aborted_transactions:
        yield f"aborted={','.join(f'{one.producer_id}from{one.first_offset}' for one in part.aborted_transactions)}"
    yield f"records={records_text(part.records, show)}"


def _error(code: int) -> Iterator[str]:
    if code:
        yield Error.of(code).name


def _start(offset: int) -> Iterator[str]:
    if offset > 0:
        yield f"start={offset}"


def _time(timestamp_ms: int) -> Iterator[str]:
    if timestamp_ms >= 0:
        yield f"time={timestamp_ms - START_MS}"


def _leader(leader: Any) -> Iterator[str]:
    if leader.leader_id >= 0 or leader.leader_epoch >= 0:
        yield f"leader={_offset(leader.leader_id)} epoch={leader.leader_epoch}"


def _offset(number: int) -> str:
    return "-" if number < 0 else str(number)


# ----------------------------------------------------------------------------------------------------- handmade answers


def handmade(request: Message, parts: list[str], given: Mapping[str, str], names: Names, now_ms: int) -> Message:
    """An answer to a request that no broker or controller of the transcript has given.

    `error=` is that of each partition, `top-error=` that of the whole answer.
    """
    error, top_error = Error[given.get("error", "NONE")], Error[given.get("top-error", "NONE")]
    match request:
        case m.FetchRequest():
            return _fetch_answer(request, parts, given, names, now_ms, error, top_error)
        case m.ListOffsetsRequest():
            return m.ListOffsetsResponse(
                topics=[
                    lo.ListOffsetsTopicResponse(
                        name=topic.name,
                        partitions=[
                            lo.ListOffsetsPartitionResponse(
                                partition_index=one.partition_index,
                                error_code=error,
                                offset=int(given.get("offset", -1)),
                                leader_epoch=one.current_leader_epoch,
                            )
                            for one in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        case m.AddPartitionsToTxnRequest():
            return m.AddPartitionsToTxnResponse(
                error_code=top_error,
                results_by_transaction=[
                    txn.AddPartitionsToTxnResult(
                        transactional_id=one.transactional_id,
                        topic_results=[
                            txn.AddPartitionsToTxnTopicResult(
                                name=topic.name,
                                results_by_partition=[
                                    txn.AddPartitionsToTxnPartitionResult(
                                        partition_index=number, partition_error_code=error
                                    )
                                    for number in topic.partitions
                                ],
                            )
                            for topic in one.topics
                        ],
                    )
                    for one in request.transactions
                ],
            )
        case m.AllocateProducerIdsRequest():
            return m.AllocateProducerIdsResponse(
                error_code=top_error,
                producer_id_start=int(given.get("first", 0)),
                producer_id_len=int(given.get("count", 1000)),
            )
        case m.AssignReplicasToDirsRequest():
            return m.AssignReplicasToDirsResponse(error_code=top_error)
    raise AssertionError(request)


def _fetch_answer(
    request: m.FetchRequest,
    parts: list[str],
    given: Mapping[str, str],
    names: Names,
    now_ms: int,
    error: Error,
    top_error: Error,
) -> m.FetchResponse:
    records = copied(given["records"], now_ms) if "records" in given else b""
    if "torn" in given:
        records = records[: -int(given["torn"])]
    if "damaged" in given:
        records = records[:-1] + bytes([records[-1] ^ 1])
    epoch_end = f.EpochEndOffset()
    if "diverging" in given:
        end, _, epoch = given["diverging"].partition("@")
        epoch_end = f.EpochEndOffset(epoch=int(epoch), end_offset=int(end))
    answered = [
        f.FetchableTopicResponse(
            topic_id=topic_id,
            partitions=[
                f.PartitionData(
                    partition_index=number,
                    error_code=error,
                    high_watermark=int(given.get("hw", -1 if error else 0)),
                    log_start_offset=int(given.get("start", -1 if error else 0)),
                    diverging_epoch=epoch_end,
                    records=records,
                )
            ],
        )
        for topic_id, number in map(names.key, parts)
    ]
    return m.FetchResponse(error_code=top_error, session_id=request.session_id, responses=answered)
