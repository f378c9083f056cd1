"""What leaders do: appends, fetches of followers, ISR and high watermark (Kafka: `Partition`, `ReplicaManager`)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from kraft.broker.log.outcomes import Appended, Refused
from kraft.broker.log.transaction_markers import TransactionMarker, marker_refusal
from kraft.broker.log.validation import Checked, checking_all
from kraft.broker.partitions.epoch_ends import diverging_end, end_of_epoch
from kraft.broker.partitions.hosted_partition import HostedPartition
from kraft.broker.partitions.hosting import Hosting
from kraft.broker.partitions.isr_proposals import IsrProposals
from kraft.broker.partitions.leading import Leading, new_leadership
from kraft.broker.replicas import PartitionKey
from kraft.broker.settings import NO_EPOCH
from metadata_log.image import Broker, Partition
from metadata_log.types import NEVER_MS, OffsetAndEpoch
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import ReplicaState

ALL: Final = -1
"""acks=all."""
EPOCHS_SINCE: Final = 10
"""The metadata.version, 3.5-IV1, since which a follower's Fetch has the epoch of its broker (KIP-903)."""
UP_TO_THE_WATERMARK: Final = -1
"""The offset in a DeleteRecords request that stands for the high watermark."""


class Leaders:
    """The leaderships of one broker."""

    def __init__(self, hosting: Hosting) -> None:
        self.isr = IsrProposals(hosting.partitions, self._on_isr)
        self._hosting = hosting
        self._broker_id = hosting.settings.broker_id
        self._lag_ms = hosting.settings.lag_time_max_ms
        self._now_ms = 0
        """The time of the last input, for the answers of the controller."""
        self._shrink_ms = NEVER_MS
        """When the ISRs are looked at next."""
        self._held: dict[PartitionKey, int] = {}
        """The partitions with a watermark that a follower outside of the ISR holds back, and until when in ms."""
        self._held_ms = NEVER_MS
        """No entry of `_held` is due before."""

    # ----------------------------------------------------------------------------------------------------- leadership

    def lead(self, part: HostedPartition, partition: Partition, now_ms: int) -> None:
        """Begin or go on leading a partition (becomeLeader); raises `OSError`."""
        self._now_ms = now_ms
        leading = part.leading
        if leading is None or leading.leader_epoch != partition.leader_epoch:
            self.isr.forget(part.key)
            part.leading = new_leadership(partition, leading, part.log, self._broker_id, now_ms)
            self._shrink_ms = min(self._shrink_ms, now_ms + self._lag_ms // 2)
        elif partition.partition_epoch > leading.partition_epoch:
            # The leader knows an equal epoch already, from the answer to its own proposal.
            leading.accept(partition.isr, partition.partition_epoch)
            leading.assign(partition, self._broker_id)
            self.isr.forget(part.key)
        part.note(partition)
        self.advance(part, now_ms)

    def advance(self, part: HostedPartition, now_ms: int) -> None:
        """Move the high watermark of a led partition as far as its replicas allow (`Partition.maybeIncrementLeaderHW`).

        To be called after everything that the watermark depends on: the ends of the logs, the ISR, the minimum of its
        size, and the brokers in the metadata. Time is the last: `poll` calls this when a follower is waited for no
        longer. Kafka does that with the next append only.
        """
        leading = part.leading
        if leading is None:
            return
        log, image = part.log, self._hosting.image
        offset, until_ms = leading.high_watermark(log, part.min_isr_setting, image, now_ms, self._lag_ms)
        if until_ms != NEVER_MS:
            self._held[part.key] = until_ms
            self._held_ms = min(self._held_ms, until_ms)
        elif self._held:
            self._held.pop(part.key, None)
        if offset > log.high_watermark:
            log.raise_high_watermark(offset)
            self._hosting.touch(part)

    def look_again(self, part: HostedPartition) -> None:
        """The settings of a partition have changed: `poll` is due at once."""
        self._held[part.key] = self._held_ms = 0

    def on_brokers(self) -> None:
        """The brokers in the metadata have changed. One that was waited for may be fenced, or lack a log directory."""
        if self._held:
            self._held_ms = 0
            self._held = dict.fromkeys(self._held, 0)

    def deadline_ms(self) -> int:
        """When the next `poll` is due."""
        return min(self._shrink_ms, self._held_ms)

    def poll(self, now_ms: int) -> None:
        """Do what is due: end the wait for followers, and remove members from ISRs."""
        self._now_ms = now_ms
        if now_ms >= self._held_ms:
            due = [key for key, until_ms in self._held.items() if until_ms <= now_ms]
            for key in due:
                del self._held[key]
            self._held_ms = min(self._held.values(), default=NEVER_MS)
            for key in due:
                part = self._hosting.partitions.get(key)
                if part is not None:
                    self.advance(part, now_ms)
        if now_ms >= self._shrink_ms:
            self._shrink(now_ms)

    def _on_isr(self, part: HostedPartition) -> None:
        self._hosting.touch(part)
        self.advance(part, self._now_ms)

    def _shrink(self, now_ms: int) -> None:
        """Propose to remove the members of the ISR that are not caught up (`ReplicaManager.maybeShrinkIsr`)."""
        leads = False
        for part in self._hosting.partitions.values():
            leading = part.leading
            if leading is None:
                continue
            leads = True
            if leading.proposed is not None:
                continue
            slow = leading.out_of_sync(part.log, now_ms, self._lag_ms)
            if slow:
                self.isr.propose(part, tuple(one for one in leading.isr if one not in slow))
                self._hosting.touch(part)
        self._shrink_ms = now_ms + self._lag_ms // 2 if leads else NEVER_MS

    # ---------------------------------------------------------------------------------------------- records of clients

    def checking(
        self, key: PartitionKey, records: bytes, *, acks: int, now_ms: int
    ) -> Generator[None, None, Checked | Refused]:
        """Check the batches of a producer, in steps; see `ReplicaManager.checking`."""
        part = self._writable(key, acks, now_ms)
        if isinstance(part, Refused):
            return part
        return (yield from checking_all(records, options=part.log.options, now_ms=now_ms, is_client=True))

    def append(self, key: PartitionKey, records: bytes | Checked, *, acks: int, now_ms: int) -> Appended | Refused:
        """Append the batches of a producer; see `ReplicaManager.append`."""
        part = self._writable(key, acks, now_ms)
        return part if isinstance(part, Refused) else self._append(part, records, now_ms)

    def append_marker(self, key: PartitionKey, marker: TransactionMarker, *, now_ms: int) -> Appended | Refused:
        """Append the marker of a transaction coordinator; see `ReplicaManager.append_marker`."""
        part = self._writable(key, ALL, now_ms)
        if isinstance(part, Refused):
            return part
        refusal = marker_refusal(part.log.producers.states, marker)
        if refusal is not None:
            return Refused(refusal.error, refusal.text)
        return self._append(part, marker.batch(now_ms), now_ms, is_client=False)

    def _writable(self, key: PartitionKey, acks: int, now_ms: int) -> HostedPartition | Refused:
        """The partition, if this broker leads it and enough replicas are in sync."""
        self._now_ms = now_ms
        refused = self._hosting.refusal(key, NO_EPOCH, needs_leader=True)
        if refused is not None:
            return refused
        part = self._hosting.partitions[key]
        if acks == ALL and len(part.isr) < part.min_isr:
            text = f"{part} has {len(part.isr)} replicas in sync; min.insync.replicas is {part.min_isr}"
            return Refused(Error.NOT_ENOUGH_REPLICAS, text)
        return part

    def _append(
        self, part: HostedPartition, records: bytes | Checked, now_ms: int, *, is_client: bool = True
    ) -> Appended | Refused:
        try:
            appended = part.log.append_as_leader(records, epoch=part.leader_epoch, now_ms=now_ms, is_client=is_client)
        except OSError as failed:
            self._hosting.fail(part, failed)
            return Refused(Error.KAFKA_STORAGE_ERROR, str(failed))
        if isinstance(appended, Appended):
            if appended.first_offset >= 0 and not appended.is_duplicate:
                self._hosting.touch(part)
            # As in Kafka, also for a batch that is here already: its producer waits for the watermark again.
            self.advance(part, now_ms)
        return appended

    def delete_records(self, key: PartitionKey, offset: int) -> int | Refused:
        """Raise the log start; see `ReplicaManager.delete_records`."""
        refused = self._hosting.refusal(key, NO_EPOCH, needs_leader=True)
        if refused is not None:
            return refused
        part = self._hosting.partitions[key]
        log = part.log
        if not log.options.is_deleted and log.options.is_compacted:
            return Refused(Error.POLICY_VIOLATION, f"{part} is compacted: its records are not deleted by offset")
        wanted = log.high_watermark if offset == UP_TO_THE_WATERMARK else offset
        if not 0 <= wanted <= log.high_watermark:
            return Refused(
                Error.OFFSET_OUT_OF_RANGE, f"{part}: offset {offset} is not within 0 and {log.high_watermark}"
            )
        try:
            log.raise_start(wanted)
        except OSError as failed:
            self._hosting.fail(part, failed)
            return Refused(Error.KAFKA_STORAGE_ERROR, str(failed))
        self._hosting.touch(part)
        return max(wanted, log.start_offset)

    def low_watermark(self, key: PartitionKey) -> int:
        """The smallest log start of the replicas that may fetch, as their fetches have told; -1 if unknown."""
        part, image = self._hosting.partitions[key], self._hosting.image
        starts, leading = [part.start_offset], part.leading
        if leading is not None:
            starts += [remote.start_offset for one, remote in leading.remotes.items() if leading.may_fetch(one, image)]
        return min(starts)

    # ------------------------------------------------------------------------------------------- requests of followers

    def on_follower_fetch(
        self, key: PartitionKey, follower: ReplicaState, fetch_offset: int, log_start: int, now_ms: int
    ) -> Refused | None:
        """Note the progress of a follower; see `ReplicaManager.on_follower_fetch`."""
        self._now_ms = now_ms
        refused = self._hosting.refusal(key, NO_EPOCH, needs_leader=True)
        if refused is not None:
            return refused
        part = self._hosting.partitions[key]
        leading = part.leading
        assert leading is not None, key
        remote = leading.remotes.get(follower.replica_id)
        if remote is None:
            return Refused(Error.UNKNOWN_LEADER_EPOCH, f"{part} has no replica on broker {follower.replica_id}")
        broker = self._hosting.image.brokers.by_id.get(follower.replica_id)
        if broker is not None and NO_EPOCH < follower.replica_epoch < broker.epoch:
            return Refused(
                Error.NOT_LEADER_OR_FOLLOWER,
                f"broker {follower.replica_id} fetches with epoch {follower.replica_epoch}; its registration has "
                f"{broker.epoch}",
            )
        if not self._proves(follower.replica_epoch, broker):
            return None
        before = remote.end_offset
        start_before = remote.start_offset
        remote.on_fetch(fetch_offset, log_start, part.end_offset, follower.replica_epoch, now_ms)
        self._maybe_expand(part, leading, follower.replica_id)
        if before != fetch_offset:
            self.advance(part, now_ms)
        if start_before != log_start:
            self._hosting.touch(part)
        return None

    def _proves(self, replica_epoch: int, broker: Broker | None) -> bool:
        """Whether a Fetch with this epoch may count as an acknowledgement of a registered broker.

        Kafka believes a Fetch without an epoch, and one with an epoch later than the registered one. Every broker sends
        its epoch since metadata.version 3.5-IV1, so that a Fetch without one is a stranger's. One with a later epoch
        counts from the moment at which the metadata has the registration.
        """
        if replica_epoch == NO_EPOCH:
            return (self._hosting.image.features.metadata_version or 0) < EPOCHS_SINCE
        return broker is not None and replica_epoch == broker.epoch

    def _maybe_expand(self, part: HostedPartition, leading: Leading, candidate: int) -> None:
        if leading.is_to_join(candidate, part.log, self._hosting.image):
            self.isr.propose(part, (*leading.isr, candidate))
            self._hosting.touch(part)

    def end_of_epoch(self, key: PartitionKey, leader_epoch: int) -> OffsetAndEpoch | None:
        """The end of a leader epoch in a log; see `ReplicaManager.end_of_epoch`."""
        log = self._hosting.partitions[key].log
        return end_of_epoch(log.epochs, leader_epoch, log.end_offset)

    def diverging(
        self, key: PartitionKey, last_fetched_epoch: int, fetch_offset: int
    ) -> OffsetAndEpoch | Refused | None:
        """Where the history of a fetcher parts from that of this log; see `ReplicaManager.diverging`."""
        if last_fetched_epoch < 0:
            return None
        part = self._hosting.partitions[key]
        if self.end_of_epoch(key, last_fetched_epoch) is None:
            text = f"{part} does not know epoch {last_fetched_epoch} of the last fetched record"
            return Refused(Error.OFFSET_OUT_OF_RANGE, text)
        return diverging_end(part.log.epochs, part.end_offset, last_fetched_epoch, fetch_offset)
