"""Transactions under random faults: readers of committed records see each committed value once, in order, and no other.

Three brokers replicate a partition as in the runs of clients. A coordinator of a few lines answers verifications, and
repeats its markers until a leader acknowledges them. Requests arrive late, even after the end of their transaction.
Each failure names its seed.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kraft.wire import Answer, Outcome, Send
from metadata_log.records import metadata as records
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.records.record import records as records_of
from metadata_log.types import Uuid
from random_replicas import RETRIED, TIMEOUT_MS, ClientsRun
from support.broker.data_brokers import KEY, part_of, registration
from support.broker.request_brokers import START_MS, due_of, fetch, only_partition, produce
from transport.protocol.errors import Error
from transport.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from transport.protocol.messages.produce import ProduceRequest
from transport.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NAME = "in-turn"
PRODUCER = 77
COORDINATOR = 9
STATE = Uuid(bytes([0, 9] * 8))
READ_COMMITTED = 1
REFUSED_LATE = {
    *RETRIED,
    *(Error.INVALID_PRODUCER_EPOCH, Error.INVALID_TXN_STATE, Error.CONCURRENT_TRANSACTIONS),
    Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
}


class Coordinator:
    """A coordinator that never fails, of one producer, with transaction version 2."""

    def __init__(self) -> None:
        self.epoch = 0
        self.has_partition = False
        self.marker: WritableTxnMarker | None = None
        """The marker that no leader has acknowledged yet."""

    def judge(self, epoch: int) -> Error:
        """Add the partition to the transaction of a producer."""
        if epoch < self.epoch:
            return Error.INVALID_PRODUCER_EPOCH
        if self.marker is not None:
            return Error.CONCURRENT_TRANSACTIONS
        self.has_partition = True
        return Error.NONE

    def answer(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """The answer to a broker."""
        [one] = request.transactions
        [topic] = one.topics
        error = self.judge(one.producer_epoch)
        parts = [AddPartitionsToTxnPartitionResult(number, error) for number in topic.partitions]
        result = AddPartitionsToTxnResult(one.transactional_id, [AddPartitionsToTxnTopicResult(topic.name, parts)])
        return AddPartitionsToTxnResponse(results_by_transaction=[result])

    def end(self, *, commit: bool) -> None:
        """End the transaction: the producer has the next epoch from now on."""
        self.epoch += 1
        if self.has_partition:
            topics = [WritableTxnMarkerTopic("t", [0])]
            self.marker = WritableTxnMarker(PRODUCER, self.epoch, commit, topics, 0, transaction_version=2)
        self.has_partition = False


class TransactionsRun(ClientsRun):
    """A random run with a producer of transactions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.coordinator = Coordinator()
        self.fates: dict[int, bool] = {}
        """Whether each ended transaction is committed, by its number."""
        self.expected: list[bytes] = []
        """The values of committed transactions."""
        self.late_refused = 0
        self._number = 0
        self._epoch = 0
        self._written: list[bytes] = []
        """The acknowledged values of the present transaction."""
        self._late: list[tuple[ProduceRequest, tuple[int, int]]] = []
        """Requests that may arrive once more, with epoch and sequence of the batch."""
        self._given_up: set[tuple[int, int]] = set()
        """The batches that the producer did not wait for: a leader may have them, without an acknowledgement."""
        self._late_ids: dict[tuple[int, int], bool] = {}
        """Copies without an answer, by broker and id: whether the batch had no acknowledgement when the copy came."""
        self._marking: tuple[int, int] | None = None
        """The broker and the id of the marker request that waits."""
        self.wired.commit(
            registration(COORDINATOR, 1000 + COORDINATOR),
            records.TopicRecord(name="__transaction_state", topic_id=STATE),
            records.PartitionRecord(
                partition_id=0,
                topic_id=STATE,
                replicas=(COORDINATOR,),
                isr=(COORDINATOR,),
                leader=COORDINATOR,
                directories=(Uuid(bytes([0, COORDINATOR] * 8)),),
            ),
        )

    # ------------------------------------------------------------------------------------------------------- actions

    def append(self) -> None:
        """The producer goes on, ends its transaction, or a request of the past arrives; the coordinator marks."""
        drawn = self.rng.random()
        if drawn < 0.1 and self._late:
            self.send_late()
        elif drawn < 0.3:
            self.mark()
        elif drawn < 0.4 and self._written and not self._batch:
            self.end_transaction(commit=self.rng.random() < 0.6)
        elif drawn < 0.43 and self._batch:
            # The producer has waited long enough: whether its last batch is in the log stays unknown.
            self._pending = None
            self._given_up.add((self._epoch, self._sequence))
            self.end_transaction(commit=False)
        else:
            self.send_batch()

    def leader(self) -> int | None:
        leaders = [one for one, manager in self.wired.managers.items() if part_of(manager).is_leader]
        return self.rng.choice(leaders) if leaders else None

    def send_batch(self) -> None:
        """Send a batch of the present transaction, or the last one again."""
        broker_id = self.leader()
        if self._pending is not None or broker_id is None:
            return
        if not self._batch:
            self._batch = tuple(b"%d %d" % (self._number, self.count + at) for at in range(self.rng.randrange(1, 4)))
            self.count += len(self._batch)
        else:
            self.repeated += 1
        contents = [Record(at, START_MS, 0, None, value) for at, value in enumerate(self._batch)]
        data = write_batch(
            contents,
            epoch=-1,
            transactional=True,
            producer_id=PRODUCER,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
        )
        request = replace(produce(KEY, data, timeout_ms=TIMEOUT_MS), transactional_id=NAME)
        if self.rng.random() < 0.3:
            self._late.append((request, (self._epoch, self._sequence)))
        request_id, outcome = self.served.send(broker_id, request)
        self._pending = broker_id, request_id
        if outcome is not None:
            self._on_outcome_of(broker_id, outcome)

    def send_late(self) -> None:
        """A request of the past arrives again."""
        broker_id = self.leader()
        if broker_id is not None:
            request, batch = self.rng.choice(self._late)
            request_id, outcome = self.served.send(broker_id, request)
            self._late_ids[broker_id, request_id] = batch == (self._epoch, self._sequence) or batch in self._given_up
            if outcome is not None:
                self._on_outcome_of(broker_id, outcome)

    def end_transaction(self, *, commit: bool) -> None:
        self.fates[self._number] = commit
        if commit:
            self.expected += self._written
        self._written, self._batch, self._sequence = [], (), 0
        self._number += 1
        self.coordinator.end(commit=commit)
        self._epoch = self.coordinator.epoch

    def mark(self) -> None:
        """The coordinator sends its marker, again if no leader has acknowledged it."""
        broker_id = self.leader()
        if self.coordinator.marker is not None and self._marking is None and broker_id is not None:
            request_id, outcome = self.served.send(broker_id, WriteTxnMarkersRequest([self.coordinator.marker]))
            self._marking = broker_id, request_id
            if outcome is not None:
                self._on_outcome_of(broker_id, outcome)

    def end(self) -> None:
        super().end()
        if self._marking is not None and self._marking[0] not in self.wired.managers:
            self._marking = None

    def answer(self) -> None:
        """The controller and the coordinator answer, and the brokers look at their waiting requests."""
        super(ClientsRun, self).answer()
        for one in self.wired.managers:
            requests = self.served.requests[one]
            sends = []
            requests.use(self.served.images[one])
            for outcome in due_of(requests, self.wired.now_ms):
                if isinstance(outcome, Send):
                    sends.append(outcome)
                else:
                    self._on_outcome_of(one, outcome)
            for send in sends:
                requests.on_reply(send.reply_to.key, self._verdict(one, send), self.wired.now_ms)

    def _verdict(self, broker_id: int, send: Send) -> AddPartitionsToTxnResponse | None:
        assert isinstance(send.message, AddPartitionsToTxnRequest)
        is_heard = broker_id not in self.wired.silent and self.rng.random() < 0.9
        answer = self.coordinator.answer(send.message) if is_heard else None
        # The answer may be lost, too: the partition is then added, and the leader does not know.
        return answer if self.rng.random() < 0.95 else None

    def _on_outcome_of(self, broker_id: int, outcome: Outcome) -> None:
        named = broker_id, outcome.request_id
        assert isinstance(outcome, Answer), outcome
        if named == self._marking:
            self._marking = None
            assert isinstance(outcome.message, WriteTxnMarkersResponse)
            [part] = outcome.message.markers[0].topics[0].partitions
            if part.error_code == Error.NONE:
                self.coordinator.marker = None
            else:
                assert part.error_code in RETRIED, Error(part.error_code)
        elif named in self._late_ids:
            is_new = self._late_ids.pop(named)
            part = only_partition(outcome.message)
            if part.error_code == Error.NONE:
                # A copy of a batch that the log holds, or the first one with an answer that the producer would take.
                assert is_new or part.base_offset in self.committed, part
            else:
                assert part.error_code in REFUSED_LATE, Error(part.error_code)
                self.late_refused += 1
        elif named == self._pending:
            part = only_partition(outcome.message)
            self._pending = None
            if part.error_code == Error.NONE:
                for at, value in enumerate(self._batch):
                    assert self.committed.setdefault(part.base_offset + at, value) == value, part
                self._written += self._batch
                self._sequence += len(self._batch)
                self._batch = ()
            elif part.error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER:
                assert broker_id != self.wired.partition.leader, part
            else:
                assert part.error_code in {*RETRIED, Error.CONCURRENT_TRANSACTIONS}, Error(part.error_code)

    # -------------------------------------------------------------------------------------------------------- checks

    def consume(self, broker_id: int) -> None:
        """A reader of committed records reads the whole log of a replica."""
        for value in self.visible(broker_id):
            number = int(value.split()[0])
            assert self.fates.get(number), f"read {value!r} of a transaction that is open or aborted"

    def visible(self, broker_id: int) -> list[bytes]:
        """The committed records of a replica, as a reader sees them (Kafka: `CompletedFetch.nextFetchedRecord`)."""
        found: list[bytes] = []
        at = 0
        while True:
            _, outcome = self.served.send(broker_id, fetch((KEY, at), isolation_level=READ_COMMITTED))
            assert isinstance(outcome, Answer)
            part = only_partition(outcome.message)
            assert part.error_code == Error.NONE, part
            if not part.records:
                return found
            starts = sorted(one.first_offset for one in part.aborted_transactions)
            is_aborted = False
            for each in scan(part.records):
                while starts and starts[0] <= each.last_offset:
                    is_aborted = True
                    del starts[0]
                if each.is_control:
                    is_aborted = False
                elif each.is_transactional and not is_aborted:
                    found += [record.value or b"" for record in records_of(each)]
                at = each.next_offset

    def calm(self) -> None:
        super(ClientsRun, self).calm()
        for _ in range(20):
            if self._batch:
                self.send_batch()
            self.mark()
            self.wired.run(1000)
            self.answer()
        assert not self._batch, "the producer is not acknowledged in a sound cluster"
        self.end_transaction(commit=True)
        for _ in range(20):
            self.mark()
            self.wired.run(1000)
            self.answer()
        assert self.coordinator.marker is None, "the marker is not acknowledged in a sound cluster"
        self.wired.run(1000)
        leader = part_of(self.wired.managers[self.wired.partition.leader])
        assert leader.log.last_stable_offset == leader.log.high_watermark == leader.log.end_offset
        for one in self.wired.managers:
            assert self.visible(one) == self.expected, one
        indexes = {one: part_of(manager).log.aborted(0, 1 << 40) for one, manager in self.wired.managers.items()}
        assert indexes[1] == indexes[2] == indexes[3]


def run_of(seed: int, steps: int = 200) -> TransactionsRun:
    print(f"seed {seed}")
    made = TransactionsRun(seed)
    made.run(steps)
    return made


@pytest.mark.parametrize("seed", range(8))
def test_readers_see_each_committed_value_once_and_no_other(seed: int) -> None:
    run_of(seed)


def test_the_runs_commit_and_abort_and_meet_late_requests() -> None:
    runs = [run_of(seed) for seed in range(20, 28)]
    assert sum(len(run.expected) for run in runs) > 30
    assert sum(not commit for run in runs for commit in run.fates.values()) > 10
    assert sum(run.late_refused for run in runs) > 3


@pytest.mark.soak
def test_readers_see_each_committed_value_once_in_many_random_runs() -> None:
    for seed in range(100, 400):
        run_of(seed, steps=250)
