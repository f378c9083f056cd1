"""The replicas of one broker with data (Kafka: `ReplicaManager`; startReplica, becomeLeader, becomeFollower and
stopReplica of the articles).

Metadata, appends, fetches and answers are inputs. `take_changes` says which partitions have moved, and the requests to
leaders come out of `fetch_from`. Nothing waits and nothing reads a clock; the disk is a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Set
from typing import TypeVar

from kraft.broker.log.outcomes import Appended, Place, Refused
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.log.transaction_markers import TransactionMarker
from kraft.broker.log.validation import Checked
from kraft.broker.partitions.background import Background
from kraft.broker.partitions.followers import Followers
from kraft.broker.partitions.hosted_partition import Copy, HostedPartition
from kraft.broker.partitions.hosting import Hosting
from kraft.broker.partitions.leaders import Leaders
from kraft.broker.partitions.log_store import FoundLog
from kraft.broker.partitions.reading import answer_fetch
from kraft.broker.partitions.settings import DataSettings
from kraft.broker.partitions.topic_settings import TopicSettings, topic_settings
from kraft.broker.replicas import LedPartition, PartitionKey
from kraft.broker.settings import NO_EPOCH
from metadata_log.disk import DirectoryDisk
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataImage, Partition
from metadata_log.log.partition_names import PartitionName
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState

Found = TypeVar("Found")


class ReplicaManager:
    """The replicas of one broker, their logs, and what followers and leaders do with them.

    Args:
        disk: The disk of the log directories.
        settings: The settings of the broker.
    """

    def __init__(self, disk: DirectoryDisk, settings: DataSettings) -> None:
        self.settings = settings
        self.is_loaded = False
        """Whether the logs are open; before that there are no partitions."""
        self._hosting = Hosting(disk, settings)
        self._leaders = Leaders(self._hosting)
        self._followers = Followers(self._hosting)
        self._found: dict[PartitionKey, FoundLog] = {}
        """The logs of the load that no metadata has claimed yet."""
        self._loading: Generator[None, None, dict[PartitionKey, FoundLog]] | None = None
        self._topics: dict[str, TopicSettings] = {}
        self._told: dict[Uuid, None] = {}
        """The failed log directories that the owner knows."""
        self._background = Background(disk, self._hosting)

    @property
    def partitions_per_turn(self) -> int:
        """Few: a new leader epoch and a new log cost two fsyncs or more each, as in Kafka's broker."""
        return 8

    # ------------------------------------------------------------------------------------------------ what is there

    @property
    def findings(self) -> list[str]:
        """What the broker should log: stray directories, recovered logs, failed partitions. The owner empties it."""
        return self._hosting.findings

    def partition(self, key: PartitionKey) -> HostedPartition | None:
        """The replica of a partition on this broker; None if there is none."""
        return self._hosting.partitions.get(key)

    @property
    def image(self) -> MetadataImage:
        """The metadata that the replicas know."""
        return self._hosting.image

    @property
    def partitions(self) -> Mapping[PartitionKey, HostedPartition]:
        """All replicas of this broker, by key."""
        return self._hosting.partitions

    def hosted(self) -> list[PartitionKey]:
        """The keys of all replicas of this broker."""
        return list(self._hosting.partitions)

    def directory_of(self, key: PartitionKey) -> Uuid | None:
        """The log directory that holds a replica already; None for a replica without a log."""
        part = self._hosting.partitions.get(key)
        found = self._found.get(key)
        if found is not None or part is None:
            return None if found is None else found.directory
        return self._background.moves.directory_of(part)

    @property
    def failed_directories(self) -> dict[Uuid, str]:
        """The log directories that have failed, with the reason."""
        return self._hosting.store.failures

    def take_changes(self) -> Set[PartitionKey]:
        """The partitions of which end, watermark, stable offset, start, ISR or leadership may have moved since the last
        call, in the order of their first change.
        """
        changed, self._hosting.changed = self._hosting.changed, {}
        return changed.keys()

    def take_failed_directories(self) -> list[Uuid]:
        """The log directories that have failed since the last call."""
        new = [directory for directory in self.failed_directories if directory not in self._told]
        self._told.update(dict.fromkeys(new))
        return new

    # ---------------------------------------------------------------------------------------------------- start, stop

    def load(self, image: MetadataImage, now_ms: int) -> None:
        """Open all logs at once; see `load_more`."""
        while not self.load_more(image, now_ms):
            pass

    def load_more(self, image: MetadataImage, now_ms: int) -> bool:
        """Open the logs of all log directories, a portion in each call; returns whether all are open.

        Args:
            image: The metadata up to the present: it says which partitions belong here.
            now_ms: The time in ms since 1970.
        """
        if self.is_loaded:
            return True
        hosting = self._hosting
        if self._loading is None:
            self.on_image(image)
            self._loading = hosting.store.loading(
                hosting.directory_in_metadata, image.topics, lambda topic: self._settings_of(topic).log, now_ms
            )
        try:
            next(self._loading)
        except StopIteration as end:
            self._found = end.value
        else:
            return False
        self._loading = None
        self.is_loaded = True
        self._hosting.take_findings()
        self._background.begin(now_ms)
        return True

    def close(self, *, broker_epoch: int) -> None:
        """Stop cleanly: flush all logs, write all checkpoints and the clean-shutdown file of each sound directory."""
        self._background.stop()
        self._hosting.partitions.clear()
        self._found.clear()
        if self._loading is not None:
            self._loading.close()
        if self.is_loaded:
            self._hosting.store.close(broker_epoch=broker_epoch)
            self._hosting.take_findings()

    # --------------------------------------------------------------------------------------------- metadata changes

    def on_image(self, image: MetadataImage) -> None:
        """New metadata, before the calls of `on_partition` for its changes."""
        hosting = self._hosting
        before, hosting.image = hosting.image, image
        if image.brokers is not before.brokers:
            self._leaders.on_brokers()
        if image.configs is before.configs:
            return
        self._topics.clear()
        for part in hosting.partitions.values():
            settings = self._settings_of(part.topic)
            if part.min_isr_setting != settings.min_isr:
                part.min_isr_setting = settings.min_isr
                self._leaders.look_again(part)
            if not part.is_offline:
                part.log.options = settings.log
                if part.copy is not None:
                    part.copy.log.options = settings.log
                hosting.touch(part)

    def _settings_of(self, topic: str) -> TopicSettings:
        found = self._topics.get(topic)
        if found is None:
            own = self.settings
            found = topic_settings(topic, self._hosting.image.configs, own.broker_id, own.static)
            self._topics[topic] = found
        return found

    def on_partition(
        self, key: PartitionKey, partition: Partition | None, now_ms: int, directory: Uuid | None = None
    ) -> None:
        """A partition has changed.

        Args:
            key: The topic id and the number.
            partition: The metadata; None if this broker has no online replica of the partition any more.
            now_ms: The time in ms since 1970.
            directory: The log directory for a new replica.
        """
        hosting = self._hosting
        if partition is None:
            if hosting.assigned(key) is None:
                self._stop(key, now_ms)
            elif key in hosting.partitions and hosting.partitions[key].directory not in hosting.store.online:
                hosting.go_offline(hosting.partitions[key], "the log directory is offline")
            return
        part = hosting.partitions.get(key) or self._start(key, directory, now_ms)
        if partition.leader_epoch < part.leader_epoch or partition.partition_epoch < part.partition_epoch:
            return
        if part.is_offline:
            part.note(partition)
        elif partition.leader == self.settings.broker_id:
            self._followers.stop(key)
            self._hosting.guarded(part, lambda: self._leaders.lead(part, partition, now_ms))
        else:
            part.leading = None
            self._leaders.isr.forget(key)
            part.note(partition)
            self._hosting.guarded(part, lambda: self._followers.follow(part, now_ms))
        hosting.touch(part)

    def _start(self, key: PartitionKey, directory: Uuid | None, now_ms: int) -> HostedPartition:
        """Host a partition: with the log that the load has found, else with a new one (startReplica)."""
        hosting = self._hosting
        topic = hosting.image.topics.by_id[key[0]].name
        found = self._found.pop(key, None)
        log: PartitionLog | None = None
        if found is not None:
            directory = found.directory
            log = found.log if directory in hosting.store.online else None
            if found.damage is not None:
                hosting.report(f"{topic}-{key[1]} is offline: {found.damage}")
        elif directory is not None and directory in hosting.store.online:
            log = self._create(key, PartitionName(topic, key[1]), directory, now_ms)
        part = HostedPartition(key, topic, directory, log, self._settings_of(topic).min_isr)
        hosting.partitions[key] = part
        hosting.by_name[part.name] = key
        copy = hosting.store.futures.pop(key, None)
        if copy is not None and copy.log is not None and copy.directory in hosting.store.online and not part.is_offline:
            self._background.moves.go_on(part, Copy(copy.directory, copy.log), now_ms)
        return part

    def _create(self, key: PartitionKey, name: PartitionName, directory: Uuid, now_ms: int) -> PartitionLog | None:
        hosting = self._hosting
        former = hosting.by_name.get(name)
        if former is not None:
            # The topic was deleted and made again under the same name: the old log goes first.
            self._stop(former, now_ms)
        try:
            self._give_up_unclaimed(name, now_ms)
            return hosting.store.create(directory, name, key[0], self._settings_of(name.topic).log, now_ms)
        except OSError as failed:
            hosting.store.fail(directory, failed)
            hosting.look_at_failures()
        except MetadataLogError as bad:
            hosting.report(f"{name} is offline: {bad}")
        return None

    def _give_up_unclaimed(self, name: PartitionName, now_ms: int) -> None:
        """The topic was made again after the load, which has found the log of the deleted one; raises `OSError`."""
        store = self._hosting.store
        for key in [one for one, found in self._found.items() if found.name == name]:
            found = self._found.pop(key)
            if found.log is not None and found.directory in store.online:
                store.delete(found.directory, name, key[0], now_ms)

    def _stop(self, key: PartitionKey, now_ms: int) -> None:
        """Give a replica up, and schedule its files for removal (stopReplica)."""
        hosting = self._hosting
        part = hosting.partitions.pop(key, None)
        self._leaders.isr.forget(key)
        self._followers.stop(key)
        if part is None:
            return
        if hosting.by_name.get(part.name) == key:
            del hosting.by_name[part.name]
        hosting.touch(part)
        self._background.moves.give_up(part, now_ms)
        directory = part.directory
        if directory is not None and directory in hosting.store.online and not part.is_offline:
            self._hosting.guarded(part, lambda: hosting.store.delete(directory, part.name, key[0], now_ms))

    # ------------------------------------------------------------------------------------------- requests of clients

    def refusal(self, key: PartitionKey, current_leader_epoch: int, *, needs_leader: bool) -> Refused | None:
        """Why a request for a partition is refused (`Partition.checkCurrentLeaderEpoch`, `localLogWithEpochOrThrow`).

        Args:
            key: The partition.
            current_leader_epoch: The leader epoch that the request names; -1 for none.
            needs_leader: Whether only the leader may answer.
        """
        return self._hosting.refusal(key, current_leader_epoch, needs_leader=needs_leader)

    def checking(
        self, key: PartitionKey, records: bytes, *, acks: int, now_ms: int
    ) -> Generator[None, None, Checked | Refused]:
        """Check the batches of a producer, in steps of less than a millisecond; `append` takes the result.

        Args:
            key: The partition.
            records: The batches.
            acks: As for `append`.
            now_ms: The time in ms since 1970.

        Returns:
            What the log may append, or why nothing is appended.
        """
        return self._leaders.checking(key, records, acks=acks, now_ms=now_ms)

    def append(self, key: PartitionKey, records: bytes | Checked, *, acks: int, now_ms: int) -> Appended | Refused:
        """Append the batches of a producer to a partition that this broker leads (`appendRecordsToLeader`).

        Args:
            key: The partition.
            records: The batches, or what `checking` has made of them.
            acks: -1 for all members of the ISR, 1 for the leader, 0 for no answer.
            now_ms: The time in ms since 1970.

        Returns:
            The offsets, or why nothing was appended. With acks=-1 the caller answers once the high watermark has passed
            the last offset.
        """
        return self._leaders.append(key, records, acks=acks, now_ms=now_ms)

    def append_marker(self, key: PartitionKey, marker: TransactionMarker, *, now_ms: int) -> Appended | Refused:
        """Append the marker of a transaction coordinator to a partition that this broker leads, as with acks=all.

        Args:
            key: The partition.
            marker: The end of the transaction.
            now_ms: The time in ms since 1970.

        Returns:
            The offset of the marker, or why it was not appended.
        """
        return self._leaders.append_marker(key, marker, now_ms=now_ms)

    def read(
        self,
        key: PartitionKey,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int | None = None,
        at_least_one: bool = True,
    ) -> bytes | Refused:
        """Read batches as `PartitionLog.read` does; a failure of the disk takes the log directory offline."""
        return self._read(
            key, lambda log: log.read(offset, max_bytes, end_offset=end_offset, at_least_one=at_least_one)
        )

    def place_of(self, key: PartitionKey, offset: int) -> Place | Refused:
        """Where a reader begins (`PartitionLog.place_of`); a failure of the disk takes the log directory offline."""
        return self._read(key, lambda log: log.place_of(offset))

    def _read(self, key: PartitionKey, act: Callable[[PartitionLog], Found | Refused]) -> Found | Refused:
        refused = self.refusal(key, NO_EPOCH, needs_leader=False)
        if refused is not None:
            return refused
        part = self._hosting.partitions[key]
        try:
            return act(part.log)
        except OSError as failed:
            self._hosting.fail(part, failed)
            return Refused(Error.KAFKA_STORAGE_ERROR, str(failed))
        except MetadataLogError as bad:
            return Refused(Error.CORRUPT_MESSAGE, str(bad))

    def delete_records(self, key: PartitionKey, offset: int) -> int | Refused:
        """Raise the log start of a partition that this broker leads (`Partition.deleteRecordsOnLeader`).

        Args:
            key: The partition.
            offset: The new log start; -1 for the high watermark.

        Returns:
            The offset that `low_watermark` reaches once the followers have fetched, or a refusal.
        """
        return self._leaders.delete_records(key, offset)

    def low_watermark(self, key: PartitionKey) -> int:
        """The smallest log start of the replicas that may fetch; -1 while one of them has not fetched."""
        return self._leaders.low_watermark(key)

    def end_of_epoch(self, key: PartitionKey, leader_epoch: int) -> OffsetAndEpoch | None:
        """The end of a leader epoch in the log of a replica that is online, for OffsetForLeaderEpoch.

        Returns:
            The largest known epoch up to `leader_epoch` and its end, which is the end of the log for the newest epoch;
            None for an epoch above the newest one.
        """
        return self._leaders.end_of_epoch(key, leader_epoch)

    def alter_log_dir(self, key: PartitionKey, path: str, now_ms: int) -> Error:
        """Move a replica to another log directory of this broker (`alterReplicaLogDirs`).

        Args:
            key: The partition.
            path: The log directory, as the configuration names it.
            now_ms: The time in ms since 1970.

        Returns:
            NONE if the replica is there, or moves from now on; else the error.
        """
        return self._background.moves.alter(key, path, now_ms)

    def take_assignments(self) -> dict[PartitionKey, Uuid]:
        """The replicas that are about to move, and that the controller has to learn of, with their directories."""
        return self._background.moves.take_wanted()

    # ----------------------------------------------------------------------------------------- requests of followers

    def on_follower_fetch(
        self, key: PartitionKey, follower: ReplicaState, fetch_offset: int, log_start: int, now_ms: int
    ) -> Refused | None:
        """Note the progress of a follower: its end, the ISR, the high watermark (`updateFollowerFetchState`).

        The caller has read the records before, calls this for the first read of a request only, and not for a follower
        with a diverging epoch.

        Args:
            key: The partition.
            follower: The broker and its epoch as in the request.
            fetch_offset: The end of the follower's log.
            log_start: The start of the follower's log.
            now_ms: The time in ms since 1970.

        Returns:
            Why the fetch is refused: the broker has no replica of the partition, or has registered again since.
        """
        return self._leaders.on_follower_fetch(key, follower, fetch_offset, log_start, now_ms)

    def diverging(
        self, key: PartitionKey, last_fetched_epoch: int, fetch_offset: int
    ) -> OffsetAndEpoch | Refused | None:
        """Whether a fetcher has another history than the log of this replica, which is online (KIP-595).

        Args:
            key: The partition.
            last_fetched_epoch: The epoch of the fetcher's last record; -1 for none.
            fetch_offset: The offset that the fetcher wants.

        Returns:
            The epoch and the end for the field `divergingEpoch`; a refusal for an epoch that the log does not know;
            None if the fetcher may go on.
        """
        return self._leaders.diverging(key, last_fetched_epoch, fetch_offset)

    def on_fetch(self, request: FetchRequest, image: MetadataImage, now_ms: int) -> FetchResponse:
        """Answer a follower's Fetch at once, without a session; a broker that waits for records has more to do."""
        return answer_fetch(self, request, now_ms)

    # ---------------------------------------------------------------------------------------- the followed partitions

    def leaders(self) -> list[int]:
        """The leaders that this broker follows, in order of their ids."""
        return self._followers.leaders()

    def fetch_from(self, leader: int, broker_epoch: int, now_ms: int) -> Message | None:
        """The next request to a leader: a Fetch, or a ListOffsets after an offset that is out of range.

        Args:
            leader: The leader.
            broker_epoch: The epoch of this broker's registration.
            now_ms: The time in ms since 1970.

        Returns:
            The request; the caller passes exactly one answer to `on_fetched`. None with nothing to fetch now.
        """
        return self._followers.request(leader, broker_epoch, now_ms)

    def on_fetched(self, leader: int, response: Message | None, now_ms: int) -> int:
        """Take the answer of a leader: append, truncate, follow the high watermark.

        Args:
            leader: The leader.
            response: The answer; None if the request failed. Then its partitions wait `replica.fetch.backoff.ms`.
            now_ms: The time in ms since 1970.

        Returns:
            When the next request to this leader is due, in ms since 1970.
        """
        return self._followers.on_answer(leader, response, now_ms)

    # ---------------------------------------------------------------- the ISR changes that are sent to the controller

    @property
    def proposals(self) -> dict[PartitionKey, None]:
        """The partitions with an unsent proposal."""
        return self._leaders.isr.unsent

    def take_proposals(self) -> Iterator[tuple[PartitionKey, LedPartition]]:
        """Take all proposals that are to be sent now."""
        return self._leaders.isr.take()

    def accepted(self, key: PartitionKey, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller has answered with the present partition."""
        self._leaders.isr.accepted(key, leader_epoch, isr, partition_epoch)

    def withdrawn(self, key: PartitionKey, partition_epoch: int) -> None:
        """A member is not eligible."""
        self._leaders.isr.withdrawn(key, partition_epoch)

    def given_up(self, key: PartitionKey, partition_epoch: int) -> None:
        """The controller has newer metadata."""
        self._leaders.isr.given_up(key, partition_epoch)

    def again(self, key: PartitionKey, partition_epoch: int) -> None:
        """The request failed: the proposal is sent again."""
        self._leaders.isr.again(key, partition_epoch)

    # ----------------------------------------------------------------------------------------------------------- time

    def deadline_ms(self) -> int:
        """When the next `shrink` is due."""
        return min(self._leaders.deadline_ms(), self._background.deadline_ms())

    def shrink(self, now_ms: int) -> None:
        """Do what is due: remove slow members from the ISR, write checkpoints, delete old segments and old files, clean
        a compacted log a step further.
        """
        self._leaders.poll(now_ms)
        self._background.run(now_ms)
