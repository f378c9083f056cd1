"""The invariants of transactions, whatever happens to their coordinators and to the leaders of their partitions
(KIP-98, KIP-890, KIP-447).

The caller shows what is in the logs of all partitions, and what producers were told. The ledger shares no code with the
coordinators. Each data batch of a transaction tells what it is: `content` has the name of the attempt, and the inputs
that the attempt has transformed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from kraft.invariants.cluster_model import PartitionKey
from kraft.invariants.stored_batches import StoredBatch, is_commit
from kraft.invariants.violation import InvariantViolated
from metadata_log.records.batch import scan
from metadata_log.records.coordinator import TRANSACTION_STATE, decode_pair
from metadata_log.records.record import records
from metadata_log.records.transaction_state import TransactionLogKey, TransactionLogValue

ONGOING: Final = 1
PREPARED: Final = {2: True, 3: False}
"""The states with an outcome that partitions have still to learn, and whether they commit."""
BUMPING: Final = 2
"""The transaction version since which the end of a transaction raises the epoch of its producer (KIP-890)."""
COMPLETED: Final = {4: True, 5: False}


class Attempt(Struct, frozen=True):
    """One transaction of a worker, which has transformed the inputs from `first` on and below `end`."""

    name: str
    worker: str
    first: int
    end: int


def content(attempt: Attempt) -> tuple[bytes, bytes]:
    """The key and the value of a record of an attempt."""
    return attempt.name.encode(), f"{attempt.worker} {attempt.first} {attempt.end}".encode()


def attempts_in(data: bytes) -> list[Attempt]:
    """The attempts of the records in a batch."""
    attempts: dict[Attempt, None] = {}
    for batch in scan(data, verify=False):
        for record in records(batch):
            worker, first, end = (record.value or b"").decode().split()
            attempts[Attempt((record.key or b"").decode(), worker, int(first), int(end))] = None
    return list(attempts)


def _said(*, commits: bool) -> str:
    return "commit" if commits else "abort"


class _Known(Struct):
    """A transactional id as of its last record."""

    producer_id: int
    epoch: int
    status: int


class TransactionLedger:
    """The transactions in the logs, and the answers that producers got. Every method raises `InvariantViolated`."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._decided: dict[tuple[int, int], bool] = {}
        """Whether a transaction commits, by its producer and the epoch of its markers."""
        self._plain: dict[tuple[int, int], set[bool]] = {}
        """The outcomes of the transactions in which a producer has kept its epoch: there may be many of an epoch."""
        self._given: dict[tuple[int, int], None] = {}
        """The epochs that were given to producers."""
        self._fenced: dict[int, tuple[int, dict[PartitionKey, int]]] = {}
        """From which epoch on a producer may write, and from which offsets on."""
        self._closed: dict[tuple[PartitionKey, int], int] = {}
        """The epoch of the last marker, by partition and producer: nothing of an earlier one comes after it."""
        self._open: dict[tuple[PartitionKey, int], list[Attempt]] = {}
        self._outcomes: dict[str, tuple[bool, str]] = {}
        """Whether an attempt is committed, and the partition that has told it first."""
        self._resolved: dict[str, set[PartitionKey]] = {}
        self._acknowledged: dict[str, set[PartitionKey]] = {}
        """The partitions of which a producer was told that they have a record of an attempt."""
        self._visible: dict[tuple[PartitionKey, str], int] = {}
        """The end of the inputs that readers of committed records see, by partition and worker."""
        self.ended = 0
        """How many transactions were ended by their producers."""

    # Coordinators

    def decided(self, batch: StoredBatch) -> None:
        """A batch of `__transaction_state` is committed: each partition in the order of its log."""
        for raw in scan(batch.content, verify=False):
            for record in records(raw):
                pair = decode_pair(TRANSACTION_STATE, record.key or b"", record.value)
                if pair is None:
                    continue
                assert isinstance(pair.key, TransactionLogKey), pair
                name = pair.key.transactional_id
                if pair.value is None:
                    raise InvariantViolated(f"the transactional id {name} is forgotten: it is in use")
                assert isinstance(pair.value, TransactionLogValue), pair
                self._decide(name, pair.value)

    def _decide(self, name: str, value: TransactionLogValue) -> None:
        now = _Known(value.producer_id, value.producer_epoch, value.transaction_status)
        before = self._known.get(name)
        if before is not None and before.producer_id == now.producer_id and now.epoch < before.epoch:
            raise InvariantViolated(f"the epoch of {name} falls from {before.epoch} to {now.epoch}")
        if before is not None and before.status in PREPARED:
            commits = PREPARED[before.status]
            if COMPLETED.get(now.status, PREPARED.get(now.status)) is not commits:
                raise InvariantViolated(
                    f"the transaction of {name} was to {_said(commits=commits)}, and its next state is {now.status}"
                )
        if now.status in PREPARED:
            commits = PREPARED[now.status]
            if value.client_transaction_version < BUMPING:
                self._plain.setdefault((now.producer_id, now.epoch), set()).add(commits)
            elif self._decided.setdefault((now.producer_id, now.epoch), commits) is not commits:
                raise InvariantViolated(f"the transaction of {name} in epoch {now.epoch} has two outcomes")
        self._known[name] = now

    def initialized(self, name: str, producer_id: int, epoch: int, ends: Mapping[PartitionKey, int]) -> None:
        """A producer was given an epoch; `ends` are the ends of what is committed in each partition."""
        if (producer_id, epoch) in self._given:
            raise InvariantViolated(f"two producers of {name} have epoch {epoch} of producer id {producer_id}")
        self._given[producer_id, epoch] = None
        known = self._known.get(name)
        if known is None or (known.producer_id == producer_id and known.epoch < epoch):
            raise InvariantViolated(f"{name} is given epoch {epoch}, and no record of that is committed: {known}")
        if epoch > self._fenced.get(producer_id, (-1, {}))[0]:
            self._fenced[producer_id] = epoch, dict(ends)

    def ended_by(self, producer_id: int, epoch: int, *, commits: bool) -> None:
        """A producer was told that its transaction of an epoch is committed or aborted."""
        said = _said(commits=commits)
        decided = self._decided.get((producer_id, epoch + 1))
        if decided is not commits and commits not in self._plain.get((producer_id, epoch), ()):
            outcome = "has no outcome in the log" if decided is None else f"is to {_said(commits=decided)} by the log"
            raise InvariantViolated(
                f"producer {producer_id} was told of the {said} of its transaction in epoch {epoch}, which {outcome}"
            )
        self.ended += 1

    # Partitions

    def appended(self, name: str, batch: StoredBatch) -> None:
        """A batch is in the log of a replica, committed or not."""
        if not batch.is_control:
            return
        commits = is_commit(batch)
        producer = batch.producer_id, batch.producer_epoch
        decided = self._decided.get(producer)
        if decided is not commits and commits not in self._plain.get(producer, ()):
            outcome = "no outcome is committed" if decided is None else f"its outcome is {_said(commits=decided)}"
            raise InvariantViolated(
                f"{name} has a marker to {_said(commits=commits)} the transaction of producer {batch.producer_id} in"
                f" epoch {batch.producer_epoch}, and {outcome}"
            )

    def committed(self, key: PartitionKey, name: str, batch: StoredBatch, *, has_attempts: bool) -> None:
        """A batch is committed: each partition in the order of its log. `has_attempts` unless it has offsets."""
        if batch.is_control:
            self._closed[key, batch.producer_id] = batch.producer_epoch
            for one in self._open.pop((key, batch.producer_id), []):
                self._resolve(key, name, one, commits=is_commit(batch))
            return
        closed = self._closed.get((key, batch.producer_id), -1)
        if batch.is_transactional and batch.producer_epoch < closed:
            raise InvariantViolated(
                f"{name} has {batch} in epoch {batch.producer_epoch}, after a marker of epoch {closed}"
            )
        epoch, ends = self._fenced.get(batch.producer_id, (-1, {}))
        if batch.producer_epoch < epoch and batch.base_offset >= ends.get(key, 0):
            raise InvariantViolated(
                f"{name} has {batch} in epoch {batch.producer_epoch}, though the producer was fenced by epoch {epoch}"
            )
        if has_attempts and batch.is_transactional:
            self._open.setdefault((key, batch.producer_id), []).extend(attempts_in(batch.content))

    def _resolve(self, key: PartitionKey, name: str, one: Attempt, *, commits: bool) -> None:
        known, where = self._outcomes.setdefault(one.name, (commits, name))
        if known is not commits:
            raise InvariantViolated(
                f"transaction {one.name} is visible in part: it is to {_said(commits=commits)} in {name}, and to"
                f" {_said(commits=known)} in {where}"
            )
        self._resolved.setdefault(one.name, set()).add(key)
        if not commits:
            return
        before = self._visible.get((key, one.worker), 0)
        if one.first != before:
            raise InvariantViolated(
                f"{name} has outputs for the inputs {one.first} to {one.end - 1} of {one.worker}, and those before end"
                f" at {before}: an input has {'no output' if one.first > before else 'two outputs'}"
            )
        self._visible[key, one.worker] = one.end

    def acknowledged(self, key: PartitionKey, data: bytes) -> None:
        """A producer was told that a batch of its transaction is in a partition."""
        for one in attempts_in(data):
            self._acknowledged.setdefault(one.name, set()).add(key)

    # End

    def concluded(self, offsets: Mapping[str, int]) -> None:
        """All transactions are over: each is visible as a whole, or not at all; `offsets` are the committed ones."""
        for name, keys in self._acknowledged.items():
            missing = keys - self._resolved.get(name, set())
            commits, where = self._outcomes.get(name, (False, ""))
            if missing and commits:
                raise InvariantViolated(
                    f"transaction {name} is visible in part: {where} has its records, and {len(missing)} other"
                    f" partitions do not, though that was acknowledged"
                )
        for (_, worker), end in self._visible.items():
            if offsets.get(worker, -1) != end:
                raise InvariantViolated(
                    f"the outputs of {worker} end at input {end}, and its committed offset is {offsets.get(worker, -1)}"
                )
