"""The steps of transactions in the words of `docs/protocol/Transaction.tla`: what coordinators have committed in
`__transaction_state`, what partitions have committed of each producer, and what producers have sent.

A trace ends where the run leaves the specification: with records that are lost as Kafka allows, or another producer id.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.invariants.cluster_model import PartitionKey
from kraft.invariants.stored_batches import StoredBatch, is_commit, stored_batches
from kraft.invariants.transactions import COMPLETED, ONGOING, PREPARED, attempts_in
from kraft.sim.workloads.coordinator_watch import OFFSETS, OUTPUT, STATES, CoordinatorWatch
from kraft.sim.world.actions import Action
from kraft.sim.world.world import World
from metadata_log.records.batch import scan
from metadata_log.records.consumer_offsets import OffsetCommitValue
from metadata_log.records.coordinator import CONSUMER_OFFSETS, TRANSACTION_STATE, decode_pair
from metadata_log.records.record import records
from metadata_log.records.transaction_state import TransactionLogKey, TransactionLogValue
from metadata_log.serde import Message
from transport.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from transport.protocol.messages.end_txn import EndTxnRequest
from transport.protocol.messages.produce import ProduceRequest
from transport.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

MOST_STEPS: Final = 2_000
"""The bound on the steps of one transactional id; its trace ends there."""
OUTSIDE: Final = (" late", " outside")
"""How the names of attempts end that belong to no transaction: what a process sends as somebody else, or before one."""


class TransactionStep(Struct, frozen=True):
    """One step of a process, of the coordinator or of a partition."""

    what: str
    """The name of the action in the specification; `Stray` is the sending of something that belongs to no transaction,
    `Again` of something that was sent before, and `Told` the answer of success to who asked for an end.
    """
    epoch: int
    """The producer epoch after it; of a record that of the record."""
    part: int = 0
    transaction: int = 0
    """The number of the transaction; 0 for none."""
    sequence: int = 0
    kind: str = ""
    """`Commit` or `Abort`."""
    was_asked: bool = False
    """Whether a process has asked for this end."""


class TransactionTrace(Struct):
    """The steps of one transactional id, from its first producer on."""

    name: str
    steps: list[TransactionStep] = []
    why_over: str = ""
    """Why the trace ends before the run does; empty if it does not."""
    version: int = 2
    """The version of transactions of its processes: in version 1 these name partitions themselves."""
    producer_id: int = -1
    parts: dict[tuple[str, int], int] = {}
    """The number of each partition, from 1 on."""
    numbers: dict[str, int] = {}
    """The number of each transaction by the name of the attempt, from 1 on."""
    begun: int = 0
    open: dict[int, int] = {}
    """The transaction that the process of an epoch has begun."""
    in_transaction: frozenset[tuple[str, int]] = frozenset()
    said: set[tuple[int, int, str]] = set()
    """The records that were sent: the epoch, the partition, the attempt."""
    unnumbered: dict[tuple[int, int], list[int]] = {}
    """Of offsets, by epoch and partition, how many were sent and how many taken: those have no sequence numbers."""
    finished: TransactionStep | None = None
    """The end of a transaction that is told with the end of the action: a leader may see it before its last markers."""
    commits: set[int] = set()
    """The epochs in which a process has asked for a commit."""


class TransactionRecorder:
    """Observes a run (`Simulator.on_performed`)."""

    def __init__(self) -> None:
        self.traces: dict[str, TransactionTrace] = {}
        self._watch: CoordinatorWatch | None = None
        self._names: dict[int, str] = {}
        """The transactional id of each producer id."""

    def __call__(self, world: World, action: Action) -> None:
        """An action was performed: from the first one on the recorder is told of commits and requests."""
        if self._watch is None:
            assert isinstance(world.watch, CoordinatorWatch), world.watch
            self._watch = world.watch
            self._watch.on_committed.append(self._committed)
            self._watch.on_asked.append(self._asked)
            self._watch.on_ended.append(self._ended)
        for trace in self.traces.values():
            _finish(trace)
            if self._watch.is_void:
                trace.why_over = trace.why_over or "records are lost as Kafka allows"

    # Processes

    def _asked(self, request: Message) -> None:
        match request:
            case AddPartitionsToTxnRequest(v3_and_below_transactional_id=name) if name in self.traces:
                self.traces[name].version = 1
                _begin(self.traces[name], request.v3_and_below_producer_epoch)
            case EndTxnRequest(transactional_id=name, committed=True) if name in self.traces:
                self.traces[name].commits.add(request.producer_epoch)
            case ProduceRequest(transactional_id=str(name), topic_data=[of_topic]) if name in self.traces:
                (sent,) = of_topic.partition_data
                ((batch,), (attempt,)) = list(stored_batches(sent.records or b"")), attempts_in(sent.records or b"")
                place = OUTPUT, sent.index
                self._send(self.traces[name], place, batch.producer_epoch, attempt.name, batch.base_sequence)
            case TxnOffsetCommitRequest(transactional_id=name, topics=[of_topic]) if name in self.traces:
                assert self._watch is not None
                key = self._watch.partition_for(request.group_id)
                if key is not None:
                    (wanted,) = of_topic.partitions
                    attempt_name = wanted.committed_metadata or ""
                    self._send(self.traces[name], (OFFSETS, key[1]), request.producer_epoch, attempt_name)

    def _ended(self, request: EndTxnRequest) -> None:
        trace = self.traces.get(request.transactional_id)
        if trace is not None and not trace.why_over and request.producer_id == trace.producer_id:
            _add(trace, TransactionStep("Told", request.producer_epoch, kind=_kind(commits=request.committed)))

    def _send(
        self, trace: TransactionTrace, place: tuple[str, int], epoch: int, attempt: str, sequence: int | None = None
    ) -> None:
        if trace.why_over:
            return
        part, number = _part(trace, place), 0
        if not attempt.endswith(OUTSIDE):
            number = trace.numbers.setdefault(attempt, _begin(trace, epoch))
        fact = epoch, part, attempt
        if fact not in trace.said:
            trace.said.add(fact)
            self._say(trace, part, epoch, number, sequence)

    def _say(self, trace: TransactionTrace, part: int, epoch: int, number: int, sequence: int | None) -> None:
        if sequence is None:
            counts = trace.unnumbered.setdefault((epoch, part), [0, 0])
            sequence = counts[0]
            counts[0] += 1
        _add(trace, TransactionStep("Produce" if number else "Stray", epoch, part, number, sequence))

    # Logs

    def _committed(self, topic: str, key: PartitionKey, batch: StoredBatch) -> None:
        if topic == STATES:
            for raw in scan(batch.content, verify=False):
                for record in records(raw):
                    pair = decode_pair(TRANSACTION_STATE, record.key or b"", record.value)
                    if pair is not None and isinstance(pair.value, TransactionLogValue):
                        assert isinstance(pair.key, TransactionLogKey), pair
                        self._decided(pair.key.transactional_id, pair.value)
        elif batch.is_transactional and batch.producer_id in self._names:
            trace = self.traces[self._names[batch.producer_id]]
            if not trace.why_over:
                self._stored(trace, (topic, key[1]), batch)

    def _decided(self, name: str, value: TransactionLogValue) -> None:
        trace = self.traces.setdefault(name, TransactionTrace(name))
        if trace.producer_id not in (-1, value.producer_id):
            trace.why_over = trace.why_over or "there is another producer id"
        trace.producer_id = value.producer_id
        self._names[value.producer_id] = name
        _finish(trace)
        if trace.why_over:
            return
        epoch, status = value.producer_epoch, value.transaction_status
        partitions = frozenset((one.topic, n) for one in value.transaction_partitions or () for n in one.partition_ids)
        if status == ONGOING:
            for place in sorted(partitions - trace.in_transaction):
                _add(trace, TransactionStep("Add", epoch, _part(trace, place)))
        elif status in PREPARED:
            kind = _kind(commits=PREPARED[status])
            trace.open.pop(epoch, None)
            asked = epoch - 1 in trace.commits if trace.version > 1 else epoch in trace.commits
            _add(trace, TransactionStep("End", epoch, kind=kind, was_asked=asked))
        elif status in COMPLETED:
            trace.finished = TransactionStep("Finish", epoch, kind=_kind(commits=COMPLETED[status]))
        else:
            _add(trace, TransactionStep("Init", epoch))
        trace.in_transaction = partitions

    def _stored(self, trace: TransactionTrace, place: tuple[str, int], batch: StoredBatch) -> None:
        part, epoch = _part(trace, place), batch.producer_epoch
        if batch.is_control:
            _add(trace, TransactionStep("Mark", epoch, part, kind=_kind(commits=is_commit(batch))))
            return
        attempt, sequence = _attempt(place[0], batch), batch.base_sequence
        number = trace.numbers.get(attempt, 0)
        if place[0] == OFFSETS:
            counts = trace.unnumbered.setdefault((epoch, part), [0, 0])
            if counts[0] == counts[1]:
                # Offsets that are sent again are taken again, under a number of their own.
                _add(trace, TransactionStep("Again", epoch, part, number, counts[0]))
                counts[0] += 1
            sequence = counts[1]
            counts[1] += 1
        _add(trace, TransactionStep("Take", epoch, part, number, sequence))


def _begin(trace: TransactionTrace, epoch: int) -> int:
    """The number of the open transaction of a process, which it begins otherwise."""
    if epoch not in trace.open:
        trace.begun += 1
        trace.open[epoch] = trace.begun
        _add(trace, TransactionStep("Begin", epoch, transaction=trace.begun))
    return trace.open[epoch]


def _attempt(topic: str, batch: StoredBatch) -> str:
    """The name of the attempt of a batch."""
    if topic != OFFSETS:
        return attempts_in(batch.content)[0].name
    first = next(record for raw in scan(batch.content, verify=False) for record in records(raw))
    pair = decode_pair(CONSUMER_OFFSETS, first.key or b"", first.value)
    assert pair is not None
    assert isinstance(pair.value, OffsetCommitValue), pair
    return pair.value.metadata


def _kind(*, commits: bool) -> str:
    return "Commit" if commits else "Abort"


def _part(trace: TransactionTrace, place: tuple[str, int]) -> int:
    return trace.parts.setdefault(place, len(trace.parts) + 1)


def _finish(trace: TransactionTrace) -> None:
    if trace.finished is not None:
        _add(trace, trace.finished)
        trace.finished = None


def _add(trace: TransactionTrace, step: TransactionStep) -> None:
    trace.steps.append(step)
    if len(trace.steps) >= MOST_STEPS:
        trace.why_over, trace.finished = "there are too many steps", None
