"""The invariants of the records of partitions, whatever happens to their brokers (Kafka: the promises of acks=all, of
the high watermark and of idempotent producers; KIP-101, KIP-279, KIP-966).

The caller says what is in the files of each replica, what each replica calls its high watermark, and what clients were
told. The ledger shares no code with the brokers. It knows the committed metadata, and which power has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from kraft.invariants.cluster_model import PartitionKey, PartitionModel
from kraft.invariants.stored_batches import (
    StoredBatch,
    batches_between,
    is_commit,
    shown_to_reader,
    stable_end,
    stored_batches,
    was_committed,
)
from kraft.invariants.violation import InvariantViolated
from metadata_log.types import NO_PRODUCER, Uuid

NEVER: Final = -1


class Replica(Struct, frozen=True):
    """One replica, as a running broker describes it."""

    broker_id: int
    key: PartitionKey
    name: str
    """The topic and the number, for a reader."""
    start_offset: int
    end_offset: int
    high_watermark: int
    leader_epoch: int
    is_leader: bool

    def __str__(self) -> str:
        """The replica for a reader of a violation."""
        does = "leads" if self.is_leader else "follows in"
        log = f"log from {self.start_offset} to {self.end_offset}, high watermark {self.high_watermark}"
        return f"broker {self.broker_id} {does} epoch {self.leader_epoch}, {log}"


class Metadata(Protocol):
    """The committed metadata of partitions."""

    def partition_of(self, key: PartitionKey) -> PartitionModel | None:
        """The partition; None if its topic is deleted."""

    def least_min_isr(self, key: PartitionKey) -> int:
        """The smallest effective `min.insync.replicas` that the partition ever had."""


class Committed(Struct):
    """A batch below the high watermark of a replica. `epoch` is the leader epoch in which that was seen."""

    batch: StoredBatch
    epoch: int
    is_acknowledged: bool = False
    """Whether a producer was told that all members of the ISR have the batch."""

    def __repr__(self) -> str:
        """The batch, and what it is."""
        return f"{'acknowledged' if self.is_acknowledged else 'committed'} {repr(self.batch).removeprefix('the ')}"


class Held(Struct):
    """The batches of one replica, as of the last look at its files."""

    batches: list[StoredBatch] = []
    by_offset: dict[int, StoredBatch] = {}
    sequences: dict[tuple[int, int, int], StoredBatch] = {}
    """The batches of idempotent producers, by producer id, producer epoch and first sequence number."""
    start_offset: int = 0
    high_watermark: int = 0
    watermark_epoch: int = NEVER
    """The leader epoch in which the watermark last moved."""
    led_epoch: int = NEVER
    """The last leader epoch in which the replica began to lead."""
    reloaded: int = 0
    """The end of the log at its last start or truncation."""
    lost: dict[bytes, None] = {}
    """The committed batches that a power failure took, by their bytes."""


class RecordLedger:
    """The answers that clients got, and the batches of each replica. Every method raises `InvariantViolated`."""

    def __init__(self, metadata: Metadata, flush_messages: int | None) -> None:
        """Begin with empty partitions.

        Args:
            metadata: The committed metadata.
            flush_messages: The setting `flush.messages` of all topics; None for no flush.
        """
        self._metadata = metadata
        self._flush_messages = flush_messages
        self._held: dict[tuple[int, PartitionKey], Held] = {}
        self._had: dict[PartitionKey, dict[bytes, set[int]]] = {}
        """The brokers that ever had a batch, by its bytes."""
        self._committed: dict[PartitionKey, dict[int, Committed]] = {}
        """The batches below the watermark of any replica, by base offset."""
        self._unclean: dict[PartitionKey, int] = {}
        """The last leader epoch that began with a replica that may lack acknowledged records, as Kafka allows."""
        self._starts: dict[PartitionKey, int] = {}
        """The largest log start of any replica."""
        self.unsequenced: dict[Uuid, None] = {}
        """The topics of coordinators: each of their batches has the sequence number 0."""
        self.acknowledgements = 0
        self.excused = 0
        """How many committed batches were lost as Kafka allows."""
        self.consumed = 0
        self.ended = 0
        """How many markers of transactions were acknowledged."""

    # ------------------------------------------------------------------------------------------------ metadata, lives

    def elected_uncleanly(self, key: PartitionKey, epoch: int) -> None:
        """A leader was elected that may lack acknowledged records: what was acknowledged before may be gone."""
        if epoch > self._unclean.get(key, NEVER):
            self._unclean[key] = epoch

    def removed(self, broker_id: int, key: PartitionKey) -> None:
        """A running broker has no replica of a partition any more."""
        self._held.pop((broker_id, key), None)

    def deleted(self, key: PartitionKey, offset: int) -> None:
        """A broker had deleted all below an offset when it crashed, in a step that no look has seen."""
        self._starts[key] = max(min(offset, self.committed_end(key)), self._starts.get(key, 0))

    def held_by(self, broker_id: int, key: PartitionKey) -> Sequence[StoredBatch]:
        """The batches of a replica, as of the last look."""
        held = self._held.get((broker_id, key))
        return () if held is None else held.batches

    def committed_end(self, key: PartitionKey) -> int:
        """The end of what was below the watermark of any replica."""
        return max((one.batch.next_offset for one in self._committed.get(key, {}).values()), default=0)

    def committed_at(self, key: PartitionKey, offset: int) -> StoredBatch | None:
        """The committed batch with an offset; None if nothing is committed there."""
        committed = self._committed.get(key, {}).values()
        return next((one.batch for one in committed if one.batch.base_offset <= offset < one.batch.next_offset), None)

    def may_lack(self, key: PartitionKey, offset: int) -> bool:
        """Whether the loss of a record is allowed: by an unclean election, or because it was deleted."""
        return self.was_unclean(key) or offset < self._starts.get(key, 0)

    # ---------------------------------------------------------------------------------------------------- replicas

    def loaded(
        self, replica: Replica, batches: Sequence[StoredBatch], *, lost_power: bool, was_clean: bool, was_failing: bool
    ) -> None:
        """A broker has opened the log of a replica after its start, with these batches in its files.

        `lost_power` if the power has failed since the last look, `was_clean` if the former life ended with a clean
        shutdown, `was_failing` if a disk had failed before that: then the disk promises nothing.
        """
        key, broker_id = replica.key, replica.broker_id
        before = self._held.get((broker_id, key))
        now = self._held[broker_id, key] = Held()
        self._add(replica, now, batches)
        now.start_offset, now.high_watermark = replica.start_offset, replica.high_watermark
        now.watermark_epoch, now.reloaded = NEVER, replica.end_offset
        if before is None:
            return
        now.lost = before.lost
        self._check_loss(replica, before, now, may_lose=lost_power and not was_clean, is_failing=was_failing)
        if was_clean and not was_failing and replica.start_offset < before.start_offset:
            raise InvariantViolated(
                f"broker {broker_id} has stopped cleanly, and begins {replica.name} at offset {replica.start_offset}"
                f" again, though it had begun at offset {before.start_offset}: deleted records are back"
            )
        # The watermark comes from a former life: an unclean election since then has made it void.
        if self._unclean.get(key, NEVER) <= before.watermark_epoch:
            self._compare_committed(replica, now, 0, is_proof=False)

    def _check_loss(self, replica: Replica, before: Held, now: Held, *, may_lose: bool, is_failing: bool) -> None:
        """Note the committed batches that a restart has lost; only a power failure may take any."""
        broker_id, name, end = replica.broker_id, replica.name, before.batches[-1].next_offset if before.batches else 0
        for committed in self._committed.get(replica.key, {}).values():
            batch = committed.batch
            if not self._had_by(before, batch) or self._had_by(now, batch) or self._is_void(replica.key, committed):
                continue
            if not may_lose and not is_failing:
                raise InvariantViolated(
                    f"broker {broker_id} has lost the {committed} of {name} in a restart without a power failure;"
                    f" its log now ends at offset {_end_of(now)}"
                )
            promised = self._flush_messages
            if promised is not None and batch.next_offset <= end - promised + 1 and not is_failing:
                raise InvariantViolated(
                    f"broker {broker_id} has lost the {committed} of {name} in a power failure, though"
                    f" flush.messages={promised} puts all records below offset {end - promised + 1} on disk"
                )
            now.lost[batch.content] = None

    def moved(self, replica: Replica, kept: int, added: Sequence[StoredBatch]) -> None:
        """The files or the state of a replica have changed in a step: `kept` batches of the last look are still there,
        the rest was truncated, and `added` stand after those.
        """
        held = self._held[replica.broker_id, replica.key]
        start = self._starts[replica.key] = max(replica.start_offset, self._starts.get(replica.key, 0))
        truncated, held.batches = held.batches[kept:], held.batches[:kept]
        for batch in truncated:
            del held.by_offset[batch.base_offset]
            held.sequences = {each: one for each, one in held.sequences.items() if one is not batch}
        if truncated:
            held.reloaded = _end_of(held)
        self._add(replica, held, added)
        for batch in truncated:
            if batch.next_offset > start and not self._had_by(held, batch):
                self._check_truncated(replica, batch)
        held.start_offset = replica.start_offset
        if replica.start_offset > replica.high_watermark:
            raise InvariantViolated(
                f"broker {replica.broker_id} begins {replica.name} at offset {replica.start_offset}, above its high"
                f" watermark {replica.high_watermark}: records are gone that were never committed"
            )
        before = held.high_watermark
        if replica.high_watermark < before:
            self._check_fall(replica, held)
        if replica.high_watermark != before:
            self._note_watermark(replica, held, before)
        if replica.is_leader and replica.leader_epoch > held.led_epoch:
            held.led_epoch = replica.leader_epoch
            self._check_leader(replica, held)

    def _add(self, replica: Replica, held: Held, batches: Iterable[StoredBatch]) -> None:
        had = self._had.setdefault(replica.key, {})
        for batch in batches:
            if held.batches and batch.base_offset < held.batches[-1].next_offset:
                raise InvariantViolated(
                    f"broker {replica.broker_id} has {batch} of {replica.name} behind {held.batches[-1]}"
                )
            held.batches.append(batch)
            held.by_offset[batch.base_offset] = batch
            had.setdefault(batch.content, set()).add(replica.broker_id)
            held.lost.pop(batch.content, None)
            if batch.producer_id == NO_PRODUCER or batch.is_control or replica.key[0] in self.unsequenced:
                continue
            name = batch.producer_id, batch.producer_epoch, batch.base_sequence
            other = held.sequences.get(name)
            if other is not None and other.next_offset > replica.start_offset:
                raise InvariantViolated(
                    f"broker {replica.broker_id} has one batch of an idempotent producer twice in {replica.name}:"
                    f" {other}, and {batch}"
                )
            held.sequences[name] = batch

    def _check_truncated(self, replica: Replica, batch: StoredBatch) -> None:
        committed = self._committed.get(replica.key, {}).get(batch.base_offset)
        if committed is None or committed.batch.content != batch.content:
            return
        if not self._is_void(replica.key, committed):
            raise InvariantViolated(
                f"broker {replica.broker_id} truncates {replica.name} to offset {replica.end_offset}, and so removes"
                f" the {committed}; no unclean election allows that"
            )

    def _check_fall(self, replica: Replica, held: Held) -> None:
        if self._unclean.get(replica.key, NEVER) <= held.watermark_epoch:
            raise InvariantViolated(
                f"the high watermark of {replica.name} falls from {held.high_watermark} to {replica.high_watermark} on"
                f" broker {replica.broker_id} in leader epoch {replica.leader_epoch}, and no unclean election explains"
                f" that"
            )

    def _note_watermark(self, replica: Replica, held: Held, before: int) -> None:
        """Compare what is newly below the watermark with what other replicas have there."""
        watermark = replica.high_watermark
        if watermark > replica.end_offset:
            raise InvariantViolated(
                f"the high watermark of {replica.name} is {watermark} on broker {replica.broker_id}, behind the end"
                f" {replica.end_offset} of its log"
            )
        held.high_watermark, held.watermark_epoch = watermark, replica.leader_epoch
        if not self._is_outdated(replica):
            self._compare_committed(replica, held, before, is_proof=True)

    def _compare_committed(self, replica: Replica, held: Held, before: int, *, is_proof: bool) -> None:
        """Compare what is below the watermark with other replicas; a proof makes that committed."""
        key, watermark = replica.key, replica.high_watermark
        committed = self._committed.setdefault(key, {})
        for batch in batches_between(held.batches, before, watermark):
            if batch.next_offset <= self._starts.get(key, 0):
                continue
            other = committed.get(batch.base_offset)
            if not is_proof and (other is None or self._is_void(key, other)):
                continue
            known = self._know(committed, batch, replica)
            if known.content != batch.content:
                raise InvariantViolated(
                    f"the replicas of {replica.name} differ below the high watermark {watermark}: broker"
                    f" {replica.broker_id} has {batch}, and another one had {known}, with other bytes"
                )
            if replica.is_leader and is_proof:
                self._check_members(replica, batch, "counts as committed")

    def _know(self, committed: dict[int, Committed], batch: StoredBatch, replica: Replica) -> StoredBatch:
        """The committed batch at the offset of a batch: the batch itself, if nothing is known yet."""
        known = committed.get(batch.base_offset)
        if known is None or self._is_void(replica.key, known):
            known = committed[batch.base_offset] = Committed(batch, replica.leader_epoch)
        return known.batch

    def _check_members(self, replica: Replica, batch: StoredBatch, what: str) -> None:
        """Every member of the committed ISR has had a batch below the watermark of the leader."""
        partition = self._metadata.partition_of(replica.key)
        if partition is None or self._is_outdated(replica):
            return
        had = self._had[replica.key].get(batch.content, set())
        for one in partition.isr:
            if one not in had:
                raise InvariantViolated(
                    f"{batch} of {replica.name} {what} on broker {replica.broker_id}, and broker {one} of the ISR"
                    f" {list(partition.isr)} has never had it"
                )

    def _check_leader(self, replica: Replica, held: Held) -> None:
        """A new leader has everything that was committed, unless a power failure took it from the whole ISR."""
        key, missing = replica.key, list[Committed]()
        for committed in self._committed.get(key, {}).values():
            batch = committed.batch
            is_later = committed.epoch >= replica.leader_epoch
            if is_later or self._had_by(held, batch) or self._is_void(key, committed):
                continue
            if not self._is_lost_everywhere(key, batch):
                raise InvariantViolated(
                    f"broker {replica.broker_id} leads {replica.name} in epoch {replica.leader_epoch} without the"
                    f" {committed}; a power failure took it from {self._losers(key, batch) or 'no broker'}"
                )
            missing.append(committed)
        if missing:
            self.excused += len(missing)
            self.elected_uncleanly(key, replica.leader_epoch)

    def _is_lost_everywhere(self, key: PartitionKey, batch: StoredBatch) -> bool:
        """Whether power failures took a batch from every broker that may be elected cleanly."""
        partition = self._metadata.partition_of(key)
        return partition is None or set(partition.isr).union(partition.elr) <= set(self._losers(key, batch))

    def _losers(self, key: PartitionKey, batch: StoredBatch) -> list[int]:
        return [broker for (broker, of), held in self._held.items() if of == key and batch.content in held.lost]

    @staticmethod
    def _had_by(held: Held, batch: StoredBatch) -> bool:
        other = held.by_offset.get(batch.base_offset)
        return other is not None and other.content == batch.content

    def _is_void(self, key: PartitionKey, committed: Committed) -> bool:
        """Whether the loss of a batch is allowed: an unclean election came later, or the records were deleted."""
        is_deleted = committed.batch.next_offset <= self._starts.get(key, 0)
        return is_deleted or committed.epoch < self._unclean.get(key, NEVER)

    def _is_outdated(self, replica: Replica) -> bool:
        """Whether a replica does not know of the last unclean election yet."""
        return replica.leader_epoch < self._unclean.get(replica.key, NEVER)

    # ------------------------------------------------------------------------------------------------------ clients

    def answered(self, replica: Replica, base_offset: int, sent: bytes, *, is_for_all: bool) -> None:
        """A producer was told the offset of the batch that it had sent; `is_for_all` if it asked for acks=all."""
        key, held = replica.key, self._held[replica.broker_id, replica.key]
        batch = held.by_offset.get(base_offset)
        if batch is None and base_offset < self._starts.get(key, 0):
            return
        if batch is None or not batch.is_of_client(sent):
            raise InvariantViolated(
                f"broker {replica.broker_id} has answered that a batch is at offset {base_offset} of {replica.name},"
                f" where its log has {batch or 'no batch'}"
            )
        if not is_for_all:
            return
        self.acknowledgements += 1
        self._check_members(replica, batch, "is acknowledged")
        partition = self._metadata.partition_of(key)
        had = self._had[key][batch.content]
        wanted = self._metadata.least_min_isr(key)
        if partition is not None and len(had) < wanted and not self._is_outdated(replica):
            raise InvariantViolated(
                f"{batch} of {replica.name} is acknowledged by broker {replica.broker_id}; only brokers {sorted(had)}"
                f" have ever had it, and min.insync.replicas was never below {wanted}"
            )
        if not self._is_outdated(replica):
            committed = self._committed.setdefault(key, {})
            self._know(committed, batch, replica)
            committed[base_offset].is_acknowledged = True

    def marked(self, replica: Replica, producer_id: int, producer_epoch: int, *, is_committed: bool) -> None:
        """A coordinator was told that its marker has ended a transaction."""
        held = self._held[replica.broker_id, replica.key]
        ended = (
            one
            for one in batches_between(held.batches, 0, replica.high_watermark)
            if one.is_control and (one.producer_id, one.producer_epoch) == (producer_id, producer_epoch)
        )
        marker = next((one for one in ended if is_commit(one) is is_committed), None)
        if marker is not None:
            self.ended += 1
            self._check_members(replica, marker, "is acknowledged")
            return
        if replica.start_offset == 0 and not self._is_outdated(replica):
            raise InvariantViolated(
                f"broker {replica.broker_id} has answered that the transaction of producer {producer_id} has ended in"
                f" {replica.name}, and no marker of epoch {producer_epoch} is below its high watermark"
            )

    def stable_end(self, broker_id: int, key: PartitionKey) -> int:
        """Up to where a reader of committed records may read at a replica, as of the last look."""
        held = self._held[broker_id, key]
        return stable_end(held.batches, held.high_watermark, held.reloaded)

    def was_unclean(self, key: PartitionKey) -> bool:
        """Whether a leader may have lacked acknowledged records, as Kafka allows."""
        return key in self._unclean

    def consumed_by_client(
        self, replica: Replica, offset: int, data: bytes, aborted: Sequence[tuple[int, int]] | None = None
    ) -> None:
        """A consumer was given these bytes for an offset by a replica, and the aborted transactions by producer and
        first offset; None for a reader of all records.
        """
        if aborted is not None and data:
            self._check_committed_read(replica, data, aborted)
        key, held = replica.key, self._held[replica.broker_id, replica.key]
        committed = self._committed.setdefault(key, {})
        for batch in stored_batches(data):
            self.consumed += 1
            if batch.next_offset > replica.high_watermark:
                raise InvariantViolated(
                    f"broker {replica.broker_id} gives {batch} of {replica.name} to a consumer, above its high"
                    f" watermark {replica.high_watermark}"
                )
            if held.watermark_epoch < self._unclean.get(key, NEVER):
                continue
            known = self._know(committed, batch, replica)
            if known.content != batch.content:
                raise InvariantViolated(
                    f"broker {replica.broker_id} gives {batch} of {replica.name} to a consumer at offset {offset};"
                    f" before, other bytes were committed there: {known}"
                )

    def _check_committed_read(self, replica: Replica, data: bytes, aborted: Sequence[tuple[int, int]]) -> None:
        """A reader of committed records gets no open transaction, and can tell the aborted ones."""
        held = self._held[replica.broker_id, replica.key]
        stable = stable_end(held.batches, replica.high_watermark, held.reloaded)
        for batch, is_shown in shown_to_reader(stored_batches(data), aborted):
            if batch.next_offset > stable:
                raise InvariantViolated(
                    f"broker {replica.broker_id} gives {batch} of {replica.name} to a reader of committed"
                    f" records, above the last stable offset {stable}"
                )
            if is_shown is not was_committed(held.batches, batch):
                raise InvariantViolated(
                    f"broker {replica.broker_id} gives {batch} of {replica.name} as"
                    f" {'committed' if is_shown else 'aborted'}, and its marker says the opposite"
                )

    # ---------------------------------------------------------------------------------------------------------- end

    def concluded(self, key: PartitionKey, name: str, replicas: Sequence[Replica]) -> None:
        """All faults are over, and the replicas of a partition have caught up: they are equal, and nothing is lost."""
        start = max((one.start_offset for one in replicas), default=0)
        logs = {one.broker_id: self._held[one.broker_id, key] for one in replicas}
        first = None
        for broker_id, held in logs.items():
            content = [batch.content for batch in held.batches if batch.next_offset > start]
            first = content if first is None else first
            if content != first:
                raise InvariantViolated(
                    f"the logs of {name} differ at the end: {[(one, len(log.batches)) for one, log in logs.items()]}"
                )
            for committed in self._committed.get(key, {}).values():
                if not self._had_by(held, committed.batch) and not self._is_void(key, committed):
                    raise InvariantViolated(f"broker {broker_id} lacks the {committed} of {name} at the end")


def _end_of(held: Held) -> int:
    return held.batches[-1].next_offset if held.batches else 0
