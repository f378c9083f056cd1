"""The decisions of a transactional producer, without a network: both versions of transactions, repetition, fencing."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from kraft.client import ClientError, Delivered, TransactionSettings
from kraft.client.state.batches import NewRecord
from kraft.client.state.grouping import MemberOffsets
from kraft.client.state.producing import Undelivered
from kraft.client.state.requests import Ask
from kraft.client.state.transacting import Phase, TransactionState
from metadata_log.records.batch import RecordBatch, read_batch
from metadata_log.serde import Message
from metadata_log.serde.fields import OPEN_END
from support.kraft.client_wires import TOPIC_ID, Wire, metadata
from transport.protocol.errors import Error
from transport.protocol.inbound import Cause
from transport.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from transport.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from transport.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from transport.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from transport.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from transport.protocol.messages.metadata import MetadataRequest
from transport.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from transport.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ID = 4711
SETTINGS = TransactionSettings()


def coordinator(port: int = 2, error: Error = Error.NONE) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=[Coordinator("k", 2, "h", port, error)])


def levels(version: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(finalized_features=[FinalizedFeatureKey("transaction.version", version, version)])


def identified(epoch: int = 0, error: Error = Error.NONE) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=ID, producer_epoch=epoch)


def produced(error: Error = Error.NONE, base_offset: int = 0) -> ProduceResponse:
    found = PartitionProduceResponse(index=0, error_code=error, base_offset=base_offset)
    return ProduceResponse(responses=[TopicProduceResponse(partition_responses=[found])])


def added(error: Error = Error.NONE) -> AddPartitionsToTxnResponse:
    result = AddPartitionsToTxnTopicResult("t", [AddPartitionsToTxnPartitionResult(0, error)])
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[result])


def offsets_committed(error: Error = Error.NONE) -> TxnOffsetCommitResponse:
    parts = [TxnOffsetCommitResponsePartition(0, error)]
    return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic("t", TOPIC_ID, parts)])


def batch_of(ask: Ask) -> RecordBatch:
    assert isinstance(ask.message, ProduceRequest)
    return read_batch(bytes(ask.message.topic_data[0].partition_data[0].records or b""))


OFFSETS = MemberOffsets("g", "m", None, 3, "t", TOPIC_ID, {0: 7})


class Producing:
    """A producer with its network, whose coordinator has broker 2's port."""

    def __init__(self, version: int, settings: TransactionSettings = SETTINGS) -> None:
        self.state = TransactionState("id", [("h", 1)], settings, rng=Random(1))
        self.wire = Wire(self.state)
        self.answer(FindCoordinatorRequest, coordinator())
        self.answer(ApiVersionsRequest, levels(version))
        self.answer(InitProducerIdRequest, identified())
        self.state.begin()

    def answer(self, expected: type[Message], outcome: Message | Cause) -> Ask:
        return self.wire.answer(expected, outcome)

    def send(self) -> None:
        """A record whose topic is known."""
        is_new = not self.state._topics
        self.state.add("t", NewRecord(value=b"v", partition=0), self.wire.now_ms)
        if is_new:
            self.answer(MetadataRequest, metadata((1,)))

    def end(self, *, commits: bool) -> None:
        self.state.end(self.wire.now_ms, commits=commits)

    def begin(self) -> None:
        self.wire.open += self.state.poll(self.wire.now_ms)
        self.state.begin()

    @property
    def results(self) -> Mapping[int, int | str]:
        """The offset of each record by its number, or its error."""
        return {
            one.number: one.offset if isinstance(one, Delivered) else str(one.error)
            for _, one in self.state.take_results()
        }


def test_in_version_2_the_leader_adds_its_partition_and_each_end_raises_the_epoch():
    one = Producing(2)
    one.send()
    sent = one.answer(ProduceRequest, produced(base_offset=5))
    assert (sent.highest, sent.is_to_coordinator) == (OPEN_END, False)
    batch = batch_of(sent)
    assert (batch.is_transactional, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (True, ID, 0, 0)
    assert isinstance(sent.message, ProduceRequest)
    assert sent.message.transactional_id == "id"
    one.end(commits=True)
    ended = one.answer(EndTxnRequest, EndTxnResponse(producer_id=ID, producer_epoch=1))
    assert (ended.highest, ended.to, ended.is_to_coordinator) == (OPEN_END, ("h", 2), True)
    assert ended.message == EndTxnRequest("id", ID, 0, True)
    assert one.results == {0: 5}
    one.begin()
    one.send()
    batch = batch_of(one.answer(ProduceRequest, produced()))
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)


def test_in_version_1_the_producer_adds_the_partition_and_keeps_its_epoch():
    one = Producing(1)
    one.send()
    asked = one.answer(AddPartitionsToTxnRequest, added())
    assert asked.highest == 3
    sent = one.answer(ProduceRequest, produced())
    assert sent.highest == 11
    one.end(commits=True)
    assert one.answer(EndTxnRequest, EndTxnResponse()).highest == 4
    one.begin()
    one.send()
    one.answer(AddPartitionsToTxnRequest, added())
    batch = batch_of(one.answer(ProduceRequest, produced()))
    assert (batch.producer_epoch, batch.base_sequence) == (0, 1)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_without_a_record_asks_nobody(version: int, commits: bool):
    one = Producing(version)
    one.end(commits=commits)
    assert one.state.poll(one.wire.now_ms) == []
    assert one.state.phase is Phase.READY


@pytest.mark.parametrize("version", [1, 2])
def test_the_offsets_of_a_group_go_to_its_coordinator(version: int):
    one = Producing(version)
    one.state.add_offsets(OFFSETS)
    if version == 1:
        asked = one.answer(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse())
        assert asked.message == AddOffsetsToTxnRequest("id", ID, 0, "g")
    one.answer(FindCoordinatorRequest, coordinator(port=9))
    one.answer(TxnOffsetCommitRequest, offsets_committed(Error.NOT_COORDINATOR))
    one.answer(FindCoordinatorRequest, coordinator(port=8))
    asked = one.answer(TxnOffsetCommitRequest, offsets_committed())
    assert (asked.to, asked.highest) == (("h", 8), 4 if version == 1 else OPEN_END)
    assert isinstance(asked.message, TxnOffsetCommitRequest)
    assert (asked.message.generation_id_or_member_epoch, asked.message.member_id) == (3, "m")
    assert one.state.are_offsets_added
    one.end(commits=True)
    one.answer(EndTxnRequest, EndTxnResponse(producer_id=ID, producer_epoch=1))


@pytest.mark.parametrize("version", [1, 2])
def test_while_the_former_transaction_ends_the_request_comes_again_soon(version: int):
    one = Producing(version)
    one.send()
    begun = one.wire.now_ms
    for _ in range(3):
        if version == 1:
            one.answer(AddPartitionsToTxnRequest, added(Error.CONCURRENT_TRANSACTIONS))
        else:
            one.answer(ProduceRequest, produced(Error.CONCURRENT_TRANSACTIONS))
    if version == 1:
        one.answer(AddPartitionsToTxnRequest, added())
    one.answer(ProduceRequest, produced())
    assert one.wire.now_ms - begun == 60
    assert one.state.failure is None


def test_the_end_of_a_transaction_follows_its_coordinator():
    one = Producing(2)
    one.send()
    one.answer(ProduceRequest, produced())
    one.end(commits=True)
    one.answer(EndTxnRequest, Cause.RESET)
    one.answer(FindCoordinatorRequest, Cause.REFUSED)
    one.answer(FindCoordinatorRequest, coordinator(error=Error.COORDINATOR_NOT_AVAILABLE))
    one.answer(FindCoordinatorRequest, coordinator(port=1))
    one.answer(ApiVersionsRequest, levels(2))
    one.answer(EndTxnRequest, EndTxnResponse(error_code=Error.COORDINATOR_LOAD_IN_PROGRESS))
    one.answer(FindCoordinatorRequest, coordinator(port=1))
    one.answer(ApiVersionsRequest, levels(2))
    assert one.answer(EndTxnRequest, EndTxnResponse(producer_id=ID, producer_epoch=1)).to == ("h", 1)
    assert one.state.phase is Phase.READY


def test_a_coordinator_that_moves_for_ever_ends_the_patience():
    one = Producing(2)
    one.send()
    one.answer(ProduceRequest, produced())
    one.end(commits=True)
    began = one.wire.now_ms

    def go_on() -> None:
        while True:
            one.answer(EndTxnRequest, EndTxnResponse(error_code=Error.NOT_COORDINATOR))
            one.answer(FindCoordinatorRequest, coordinator())
            one.answer(ApiVersionsRequest, levels(2))

    with pytest.raises(ClientError, match="no coordinator answered within 30 s: EndTxnRequest: NOT_COORD") as told:
        go_on()
    assert "may be committed all the same" in (told.value.hint or "")
    assert one.wire.now_ms - began <= 31_000


def test_a_level_that_was_raised_meanwhile_is_used_by_the_next_transaction():
    one = Producing(1)
    one.send()
    one.answer(AddPartitionsToTxnRequest, Cause.RESET)
    one.answer(FindCoordinatorRequest, coordinator())
    one.answer(ApiVersionsRequest, levels(2))
    one.answer(AddPartitionsToTxnRequest, added())
    assert one.answer(ProduceRequest, produced()).highest == 11
    one.end(commits=True)
    assert one.answer(EndTxnRequest, EndTxnResponse()).highest == 4
    one.begin()
    one.send()
    assert one.answer(ProduceRequest, produced()).highest == OPEN_END


@pytest.mark.parametrize("version", [1, 2])
def test_a_refused_record_lets_the_transaction_only_be_aborted(version: int):
    one = Producing(version)
    one.send()
    if version == 1:
        one.answer(AddPartitionsToTxnRequest, added())
    one.answer(ProduceRequest, produced(Error.INVALID_RECORD))
    assert one.state.failure is not None
    assert one.state.failure.error is Error.INVALID_RECORD
    one.send()
    one.end(commits=False)
    assert set(one.results.values()) == {"partition t-0: INVALID_RECORD"}
    ended = one.answer(EndTxnRequest, EndTxnResponse(producer_id=ID, producer_epoch=1))
    assert ended.message == EndTxnRequest("id", ID, 0, False)
    if version == 1:
        one.begin()
        one.send()
        one.answer(AddPartitionsToTxnRequest, added())
        assert batch_of(one.answer(ProduceRequest, produced())).base_sequence == 0
    else:
        assert one.state.phase is Phase.READY


def test_after_an_abort_that_lost_a_batch_version_1_asks_for_another_epoch():
    one = Producing(1)
    one.send()
    one.answer(AddPartitionsToTxnRequest, added())
    one.answer(ProduceRequest, Cause.TIMEOUT)
    one.end(commits=False)
    assert one.results == {0: "the transaction was aborted"}
    one.answer(EndTxnRequest, EndTxnResponse())
    asked = one.answer(InitProducerIdRequest, identified(epoch=1))
    assert asked.message == InitProducerIdRequest("id", SETTINGS.transaction_timeout_ms, ID, 0)
    one.begin()
    one.send()
    one.answer(AddPartitionsToTxnRequest, added())
    batch = batch_of(one.answer(ProduceRequest, produced()))
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)


def test_an_abort_waits_for_the_batch_on_its_way_and_drops_the_others():
    one = Producing(2)
    one.send()
    sent = one.wire.next(ProduceRequest)
    one.send()
    one.end(commits=False)
    assert one.state.poll(one.wire.now_ms) == []
    assert one.results == {1: "the transaction was aborted"}
    one.state.on_outcome(sent.token, produced(Error.NOT_LEADER_OR_FOLLOWER), one.wire.now_ms)
    assert one.results == {0: "the transaction was aborted"}
    while isinstance(one.wire.due().message, MetadataRequest):
        one.answer(MetadataRequest, metadata((1,)))
    one.answer(EndTxnRequest, EndTxnResponse(producer_id=ID, producer_epoch=1))
    assert one.state.phase is Phase.READY


@pytest.mark.parametrize("error", [Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_ends(error: Error):
    one = Producing(2)
    one.send()
    one.answer(ProduceRequest, produced(Error.INVALID_PRODUCER_EPOCH))
    assert one.state.failure is not None
    one.end(commits=False)
    with pytest.raises(ClientError, match="transactional id id: PRODUCER_FENCED") as told:
        one.answer(EndTxnRequest, EndTxnResponse(error_code=error))
    assert told.value.error is Error.PRODUCER_FENCED
    assert "Another producer" in (told.value.hint or "")


@pytest.mark.parametrize(
    ("error", "ends_the_producer"),
    [
        (Error.TRANSACTION_ABORTABLE, False),
        (Error.TOPIC_AUTHORIZATION_FAILED, False),
        (Error.UNKNOWN_PRODUCER_ID, False),
        (Error.INVALID_TXN_STATE, True),
        (Error.INVALID_PRODUCER_ID_MAPPING, True),
        (Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, True),
    ],
)
def test_an_error_of_the_coordinator_ends_the_transaction_or_the_producer(error: Error, ends_the_producer: bool):
    one = Producing(1)
    one.send()
    if ends_the_producer:
        with pytest.raises(ClientError, match=error.name):
            one.answer(AddPartitionsToTxnRequest, added(error))
        return
    one.answer(AddPartitionsToTxnRequest, added(error))
    assert one.state.failure is not None
    assert one.state.failure.error is error
    one.end(commits=False)
    assert one.state.poll(one.wire.now_ms) == []
    assert one.state.phase is Phase.READY


@pytest.mark.parametrize("error", [Error.ILLEGAL_GENERATION, Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID])
def test_a_member_that_has_lost_its_partitions_aborts(error: Error):
    one = Producing(2)
    one.state.add_offsets(OFFSETS)
    one.answer(FindCoordinatorRequest, coordinator())
    one.answer(TxnOffsetCommitRequest, offsets_committed(error))
    assert one.state.failure is not None
    assert one.state.failure.error is error
    one.end(commits=False)
    ended = one.answer(EndTxnRequest, EndTxnResponse(producer_id=ID, producer_epoch=1))
    assert ended.message == EndTxnRequest("id", ID, 0, False)


def test_a_topic_that_brokers_refuse_ends_the_transaction_and_not_the_producer():
    one = Producing(2)
    one.state.add("t", NewRecord(value=b"v", partition=0), one.wire.now_ms)
    one.answer(MetadataRequest, metadata((), error=Error.TOPIC_AUTHORIZATION_FAILED))
    assert one.state.failure is not None
    assert [result for _, result in one.state.take_results() if not isinstance(result, Undelivered)] == []
    one.end(commits=False)
    one.begin()
    one.send()
    one.answer(ProduceRequest, produced())
    assert one.results == {0: 0}


def test_the_producer_that_an_older_one_keeps_waiting_gets_its_id():
    state = TransactionState("id", [("h", 1), ("h", 3)], SETTINGS, rng=Random(1))
    wire = Wire(state)
    wire.answer(FindCoordinatorRequest, Cause.REFUSED)
    assert wire.answer(FindCoordinatorRequest, coordinator()).to == ("h", 3)
    wire.answer(ApiVersionsRequest, levels(2))
    wire.answer(InitProducerIdRequest, identified(error=Error.CONCURRENT_TRANSACTIONS))
    wire.answer(InitProducerIdRequest, identified(epoch=4))
    assert state.phase is Phase.READY
