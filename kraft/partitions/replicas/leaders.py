"""The work of leaders: appends, fetches of followers, ISR, high watermark (Kafka: `Partition`, `ReplicaManager`)."""

from __future__ import annotations

from typing import Final

from kraft.agenda import Slot
from kraft.partitions.log.outcomes import Appended, RefusedAppend
from kraft.partitions.log.transaction_markers import TransactionMarker, marker_refusal
from kraft.partitions.log.validation import Checked
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.hosting import Hosting
from kraft.partitions.replicas.isr_changes import IsrChanges
from kraft.partitions.replicas.key import END, WATERMARK, PartitionKey
from kraft.partitions.replicas.leading import Leading, new_leadership
from metadata_log.image import Partition
from metadata_log.records.batch import RecordBatch
from metadata_log.types import NEVER_MS, NO_EPOCH
from transport.protocol.errors import Error

EPOCHS_SINCE: Final = 10
"""The metadata.version, 3.5-IV1, since which a follower's Fetch has the epoch of its broker (KIP-903)."""
UP_TO_THE_WATERMARK: Final = -1
"""The offset in a DeleteRecords request that stands for the high watermark."""


class Leaders:
    """The leaderships of one broker.

    A request first finds its partition with `Hosting.served`, in the same turn.
    """

    def __init__(self, hosting: Hosting) -> None:
        self.isr = IsrChanges(hosting.settings.broker_id, self._leading, self._on_isr)
        self._hosting = hosting
        self._broker_id = hosting.settings.broker_id
        self._lag_ms = hosting.settings.replication.lag_time_max_ms
        self._shrink_ms = NEVER_MS
        """When the ISRs are looked at next."""
        self._held: dict[PartitionKey, int] = {}
        """The partitions with a watermark that a follower outside of the ISR holds back, and until when in ms."""
        self._held_ms = NEVER_MS
        """No entry of `_held` is due before."""

    def _leading(self, key: PartitionKey) -> Leading | None:
        part = self._hosting.partitions.get(key)
        return None if part is None else part.leading

    # ----------------------------------------------------------------------------------------------------- leadership

    def lead(self, part: HostedPartition, partition: Partition, now_ms: int) -> None:
        """Begin or go on leading a partition (becomeLeader); raises `OSError`.

        The epoch enters the epoch cache even without a record: a later leader then answers a follower that asks for the
        end of this epoch.
        """
        leading = part.leading
        if leading is None or leading.leader_epoch != partition.leader_epoch:
            self.isr.forget(part.key)
            part.log.assign_epoch(partition.leader_epoch)
            part.leading = new_leadership(partition, leading, part.log.end_offset, self._broker_id, now_ms)
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
        log = part.log
        offset, until_ms = leading.high_watermark(
            log.end_offset, log.high_watermark, part.min_isr, self._hosting.image, now_ms, self._lag_ms
        )
        if until_ms != NEVER_MS:
            self._held[part.key] = until_ms
            self._held_ms = min(self._held_ms, until_ms)
            self._hosting.agenda.by(Slot.AGENT, until_ms)
        elif self._held:
            self._held.pop(part.key, None)
        if offset > log.high_watermark:
            log.raise_high_watermark(offset)
            self._hosting.touch(part, WATERMARK)

    def look_again(self, part: HostedPartition) -> None:
        """The settings of a partition have changed: `poll` is due at once."""
        self._held[part.key] = self._held_ms = 0

    def on_brokers(self) -> None:
        """Look again at what is held after a change of brokers: one waited for may be fenced, or lack a directory."""
        if self._held:
            self._held_ms = 0
            self._held = dict.fromkeys(self._held, 0)

    def deadline_ms(self) -> int:
        """When the next `poll` is due."""
        return min(self._shrink_ms, self._held_ms)

    def poll(self, now_ms: int) -> None:
        """Do what is due: end the wait for followers, and remove members from ISRs."""
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

    def _on_isr(self, key: PartitionKey, now_ms: int) -> None:
        """Go on with a partition for which the controller has answered with an ISR."""
        part = self._hosting.partitions[key]
        self._hosting.touch(part)
        self.advance(part, now_ms)

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
            slow = leading.out_of_sync(part.log.end_offset, now_ms, self._lag_ms)
            if slow:
                self.isr.propose(part.key, leading, tuple(one for one in leading.isr if one not in slow))
                self._hosting.touch(part)
        self._shrink_ms = now_ms + self._lag_ms // 2 if leads else NEVER_MS

    # ---------------------------------------------------------------------------------------------- records of clients

    def too_few_in_sync(self, part: HostedPartition) -> RefusedAppend | None:
        """Why a write with acks=all is refused: fewer replicas are in sync than `min.insync.replicas` allows."""
        leading = part.leading
        count = 0 if leading is None else len(leading.isr)
        if count >= part.min_isr:
            return None
        text = f"{part} has {count} replicas in sync; min.insync.replicas is {part.min_isr}"
        return RefusedAppend(Error.NOT_ENOUGH_REPLICAS, text)

    def append(
        self, part: HostedPartition, records: bytes | Checked | RecordBatch, now_ms: int, *, is_client: bool = True
    ) -> Appended | RefusedAppend:
        """Append the batches of a producer to a partition that this broker leads (`appendRecordsToLeader`).

        Args:
            part: The partition.
            records: The batches, or what `checking_all` has made of them, or a batch that the log `takes_as_is`.
            now_ms: The time in ms since 1970.
            is_client: Whether a producer sent the batches.

        Returns:
            The offsets, or why nothing was appended. With acks=all the caller has asked `too_few_in_sync` before, and
            answers once the high watermark has passed the last offset.
        """
        try:
            appended = part.log.append_as_leader(records, epoch=part.leader_epoch, now_ms=now_ms, is_client=is_client)
        except OSError as failed:
            self._hosting.fail(part, failed)
            return RefusedAppend(Error.KAFKA_STORAGE_ERROR, str(failed))
        if isinstance(appended, Appended):
            if appended.first_offset >= 0 and not appended.is_duplicate:
                self._hosting.touch(part, END)
            # As in Kafka, also for a batch that is here already: its producer waits for the watermark again.
            self.advance(part, now_ms)
        return appended

    def append_marker(self, part: HostedPartition, marker: TransactionMarker, now_ms: int) -> Appended | RefusedAppend:
        """Append the marker of a transaction coordinator to a partition that this broker leads, as with acks=all.

        Args:
            part: The partition.
            marker: The end of the transaction.
            now_ms: The time in ms since 1970.

        Returns:
            The offset of the marker, or why it was not appended.
        """
        few = self.too_few_in_sync(part)
        if few is not None:
            return few
        refusal = marker_refusal(part.log.producers.states, marker)
        if refusal is not None:
            return RefusedAppend(refusal.error, refusal.text)
        return self.append(part, marker.batch(now_ms), now_ms, is_client=False)

    def delete_records(self, part: HostedPartition, offset: int) -> int | RefusedAppend:
        """Raise the log start of a partition that this broker leads (`Partition.deleteRecordsOnLeader`).

        Args:
            part: The partition.
            offset: The new log start; -1 for the high watermark.

        Returns:
            The offset that `low_watermark` reaches once the followers have fetched, or a refusal.
        """
        log = part.log
        if not log.options.is_deleted and log.options.is_compacted:
            return RefusedAppend(Error.POLICY_VIOLATION, f"{part} is compacted: its records are not deleted by offset")
        wanted = log.high_watermark if offset == UP_TO_THE_WATERMARK else offset
        if not 0 <= wanted <= log.high_watermark:
            return RefusedAppend(
                Error.OFFSET_OUT_OF_RANGE, f"{part}: offset {offset} is not within 0 and {log.high_watermark}"
            )
        try:
            log.raise_start(wanted)
        except OSError as failed:
            self._hosting.fail(part, failed)
            return RefusedAppend(Error.KAFKA_STORAGE_ERROR, str(failed))
        self._hosting.touch(part)
        return max(wanted, log.start_offset)

    def low_watermark(self, part: HostedPartition) -> int:
        """The smallest log start of the replicas that may fetch, as their fetches have told; -1 while one of them has
        not fetched.
        """
        starts, leading = [part.log.start_offset], part.leading
        if leading is not None:
            image = self._hosting.image
            starts += [remote.start_offset for one, remote in leading.remotes.items() if leading.may_fetch(one, image)]
        return min(starts)

    # ------------------------------------------------------------------------------------------- requests of followers

    def on_follower_fetch(
        self, part: HostedPartition, replica_id: int, replica_epoch: int, fetch_offset: int, log_start: int, now_ms: int
    ) -> RefusedAppend | None:
        """Note the progress of a follower: its end, the ISR, the high watermark (`updateFollowerFetchState`).

        The caller has read the records before, calls this for the first read of a request only, and not for a follower
        with a diverging epoch.

        Args:
            part: The partition.
            replica_id: The broker that fetches.
            replica_epoch: The epoch of its registration as in the request.
            fetch_offset: The end of the follower's log.
            log_start: The start of the follower's log.
            now_ms: The time in ms since 1970.

        Returns:
            Why the fetch is refused: the broker has no replica of the partition, or has registered again since.
        """
        leading = part.leading
        assert leading is not None, part.key
        remote = leading.remotes.get(replica_id)
        if remote is None:
            return RefusedAppend(Error.UNKNOWN_LEADER_EPOCH, f"{part} has no replica on broker {replica_id}")
        broker = self._hosting.image.brokers.by_id.get(replica_id)
        if broker is None or replica_epoch != broker.epoch:
            if broker is not None and NO_EPOCH < replica_epoch < broker.epoch:
                return RefusedAppend(
                    Error.NOT_LEADER_OR_FOLLOWER,
                    f"broker {replica_id} fetches with epoch {replica_epoch}; its registration has {broker.epoch}",
                )
            if replica_epoch != NO_EPOCH or not self._believes_without_epoch():
                return None
        log = part.log
        before, start_before = remote.end_offset, remote.start_offset
        remote.on_fetch(fetch_offset, log_start, log.end_offset, replica_epoch, now_ms)
        if replica_id not in leading.isr and leading.is_to_join(replica_id, log.high_watermark, self._hosting.image):
            self.isr.propose(part.key, leading, (*leading.isr, replica_id))
            self._hosting.agenda.by(Slot.AGENT, self.isr.deadline_ms())
            self._hosting.touch(part)
        if before != fetch_offset:
            self.advance(part, now_ms)
        if start_before != log_start:
            self._hosting.touch(part)
        return None

    def _believes_without_epoch(self) -> bool:
        """Whether a Fetch without the epoch of its broker may count as an acknowledgement.

        Kafka believes such a Fetch, and one with an epoch later than the registered one. Every broker sends its epoch
        since metadata.version 3.5-IV1, so that a Fetch without one is a stranger's. One with a later epoch counts from
        the moment at which the metadata has the registration.
        """
        return (self._hosting.image.features.metadata_version or 0) < EPOCHS_SINCE
