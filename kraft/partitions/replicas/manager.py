"""The replicas of one broker (Kafka: `ReplicaManager`; startReplica, becomeLeader, becomeFollower and
stopReplica of the articles).

Metadata, appends, fetches and answers are inputs. `Hosting.take_changes` says which partitions have moved, and the
requests to leaders come out of `Followers.request`. Nothing waits and nothing reads a clock; the disk is a parameter.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas.background import Background
from kraft.partitions.replicas.followers import Followers
from kraft.partitions.replicas.hosted_partition import Copy, HostedPartition
from kraft.partitions.replicas.hosting import Hosting
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.leaders import Leaders
from kraft.partitions.replicas.log_store import FoundLog
from kraft.partitions.replicas.settings import DataSettings
from kraft.partitions.replicas.throttles import FOLLOWER_RATE, LEADER_RATE, MOVES_RATE, UNLIMITED, rate_of
from kraft.partitions.replicas.topic_settings import TopicSettings, topic_settings
from metadata_log.disk import DirectoryDisk
from metadata_log.errors import MetadataLogError
from metadata_log.image import ConfigsImage, MetadataImage, Partition
from metadata_log.log.partition_names import PartitionName
from metadata_log.types import Uuid


class ReplicaManager:
    """The replicas of one broker: which there are, and whether this broker leads or follows them.

    What clients, followers and leaders do with them is the business of its parts.

    Args:
        disk: The disk of the log directories.
        settings: The settings of the broker.
    """

    partitions_per_turn = 8
    """Few: a new leader epoch costs two fsyncs and a new log six, as in Kafka's broker."""

    def __init__(self, disk: DirectoryDisk, settings: DataSettings) -> None:
        self.settings = settings
        self.is_loaded = False
        """Whether the logs are open; before that there are no partitions."""
        self.hosting = Hosting(disk, settings)
        self.leaders = Leaders(self.hosting)
        self.isr = self.leaders.isr
        self.followers = Followers(self.hosting)
        self._background = Background(disk, self.hosting)
        self.moves = self._background.moves
        self.partitions: Mapping[PartitionKey, HostedPartition] = self.hosting.partitions
        """All replicas of this broker, by key."""
        self.findings = self.hosting.findings
        """The findings that the broker should log: stray directories, recovered logs, failed partitions. The owner
        empties it.
        """
        self.failed_directories = self.hosting.store.failures
        """The log directories that have failed, with the reason."""
        self._found: dict[PartitionKey, FoundLog] = {}
        """The logs of the load that no metadata has claimed yet."""
        self._loading: Generator[None, None, dict[PartitionKey, FoundLog]] | None = None
        self._topics: dict[str, TopicSettings] = {}
        self._told: dict[Uuid, None] = {}
        """The failed log directories that the owner knows."""

    def weight_of(self, *, is_new: bool) -> int:
        """For how many partitions a replica counts in a turn, or one whose log is made."""
        return self.settings.new_log_weight if is_new else self.settings.change_weight

    def directory_of(self, key: PartitionKey) -> Uuid | None:
        """The log directory that holds a replica already; None for a replica without a log."""
        part = self.hosting.partitions.get(key)
        found = self._found.get(key)
        if found is not None or part is None:
            return None if found is None else found.directory
        return self.moves.directory_of(part)

    def preferred_directory(self, key: PartitionKey) -> Uuid | None:
        """Where a replica that is not here shall be made, if AlterReplicaLogDirs has named a directory for it."""
        if not self.moves.preferred:
            return None
        topic = self.hosting.image.topics.by_id.get(key[0])
        return None if topic is None else self.moves.preferred.get(PartitionName(topic.name, key[1]))

    def take_failed_directories(self) -> list[Uuid]:
        """The log directories that have failed since the last call."""
        new = [directory for directory in self.failed_directories if directory not in self._told]
        self._told.update(dict.fromkeys(new))
        return new

    # ---------------------------------------------------------------------------------------------------- start, stop

    def load_more(self, image: MetadataImage, now_ms: int) -> bool:
        """Open the logs of all log directories, a portion in each call; returns whether all are open.

        Args:
            image: The metadata up to the present: it says which partitions belong here.
            now_ms: The time in ms since 1970.
        """
        if self.is_loaded:
            return True
        hosting = self.hosting
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
        self.hosting.take_findings()
        self._background.begin(now_ms)
        return True

    def close(self, *, broker_epoch: int) -> None:
        """Stop cleanly: flush all logs, write all checkpoints and the clean-shutdown file of each sound directory."""
        self._background.stop()
        self.hosting.partitions.clear()
        self._found.clear()
        if self._loading is not None:
            self._loading.close()
        if self.is_loaded:
            self.hosting.store.close(broker_epoch=broker_epoch)
            self.hosting.take_findings()

    # --------------------------------------------------------------------------------------------- metadata changes

    def on_image(self, image: MetadataImage) -> None:
        """New metadata, before the calls of `on_partition` for its changes."""
        hosting = self.hosting
        before, hosting.image = hosting.image, image
        if image.brokers is not before.brokers:
            self.leaders.on_brokers()
        if image.configs is before.configs:
            return
        self._topics.clear()
        self._take_rates(image.configs)
        hosting.leads_throttled = False
        for part in hosting.partitions.values():
            settings = self._settings_of(part.topic)
            self._take_throttles(part, settings)
            if part.min_isr_setting != settings.min_isr:
                part.set_min_isr(settings.min_isr)
                self.leaders.look_again(part)
            if not part.is_offline:
                part.log.options = settings.log
                if part.copy is not None:
                    part.copy.log.options = settings.log
                hosting.touch(part)

    def _take_rates(self, configs: ConfigsImage) -> None:
        """The rates of the throttles of this broker."""
        hosting, broker_id = self.hosting, self.settings.broker_id
        hosting.leader_throttle.bound = rate_of(LEADER_RATE, configs, broker_id)
        hosting.follower_throttle.bound = rate_of(FOLLOWER_RATE, configs, broker_id)
        default = self.settings.move_bytes_per_second
        self.moves.limit(rate_of(MOVES_RATE, configs, broker_id, UNLIMITED if default is None else default))

    def _take_throttles(self, part: HostedPartition, settings: TopicSettings) -> None:
        part.leads_throttled = part.number in settings.leads_throttled
        part.follows_throttled = part.number in settings.follows_throttled
        self.hosting.leads_throttled |= part.leads_throttled

    def _settings_of(self, topic: str) -> TopicSettings:
        settings = self._topics.get(topic)
        if settings is None:
            own = self.settings
            settings = topic_settings(topic, self.hosting.image.configs, own.broker_id, own.static)
            self._topics[topic] = settings
        return settings

    def on_partition(
        self, key: PartitionKey, partition: Partition | None, now_ms: int, directory: Uuid | None = None
    ) -> None:
        """Take the metadata of a partition that has changed.

        Args:
            key: The topic id and the number.
            partition: The metadata; None if this broker has no online replica of the partition any more.
            now_ms: The time in ms since 1970.
            directory: The log directory for a new replica.
        """
        hosting = self.hosting
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
            self.followers.stop(key)
            self.hosting.guarded(part, lambda: self.leaders.lead(part, partition, now_ms))
        else:
            part.leading = None
            self.isr.forget(key)
            part.note(partition)
            self.hosting.guarded(part, lambda: self.followers.follow(part, now_ms))
        hosting.note_leadership(part)
        hosting.touch(part)

    def _start(self, key: PartitionKey, directory: Uuid | None, now_ms: int) -> HostedPartition:
        """Host a partition: with the log that the load has found, else with a new one (startReplica)."""
        hosting = self.hosting
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
        settings = self._settings_of(topic)
        part = HostedPartition(key, topic, directory, log, settings.min_isr)
        self._take_throttles(part, settings)
        hosting.partitions[key] = part
        hosting.by_name[part.name] = key
        copy = hosting.store.futures.pop(key, None)
        if copy is not None and copy.log is not None and copy.directory in hosting.store.online and not part.is_offline:
            self.moves.go_on(part, Copy(copy.directory, copy.log), now_ms)
        return part

    def _create(self, key: PartitionKey, name: PartitionName, directory: Uuid, now_ms: int) -> PartitionLog | None:
        hosting = self.hosting
        former = hosting.by_name.get(name)
        if former is not None:
            # The topic was deleted and made again under the same name: the old log goes first.
            self._stop(former, now_ms)
        self._give_up_unclaimed(name, now_ms)
        self.moves.preferred.pop(name, None)
        if directory not in hosting.store.online:
            # It has failed at the old log.
            return None
        try:
            return hosting.store.create(directory, name, key[0], self._settings_of(name.topic).log, now_ms)
        except OSError as failed:
            hosting.fail_directory(directory, failed)
        except MetadataLogError as bad:
            hosting.report(f"{name} is offline: {bad}")
        return None

    def _give_up_unclaimed(self, name: PartitionName, now_ms: int) -> None:
        """The topic was made again after the load, which has found the log of the deleted one."""
        store = self.hosting.store
        for key in [one for one, found in self._found.items() if found.name == name]:
            found = self._found.pop(key)
            if found.log is not None and found.directory in store.online:
                try:
                    store.delete(found.directory, name, key[0], now_ms)
                except OSError as failed:
                    self.hosting.fail_directory(found.directory, failed)

    def _stop(self, key: PartitionKey, now_ms: int) -> None:
        """Give a replica up, and schedule its files for removal (stopReplica)."""
        hosting = self.hosting
        part = hosting.partitions.pop(key, None)
        self.isr.forget(key)
        self.followers.stop(key)
        if part is None:
            return
        if hosting.by_name.get(part.name) == key:
            del hosting.by_name[part.name]
        hosting.note_leadership(part)
        hosting.touch(part)
        self.moves.give_up(part, now_ms)
        directory = part.directory
        if directory is not None and directory in hosting.store.online and not part.is_offline:
            self.hosting.guarded(part, lambda: hosting.store.delete(directory, part.name, key[0], now_ms))

    # ----------------------------------------------------------------------------------------------------------- time

    def deadline_ms(self) -> int:
        """When the next `shrink` is due."""
        return min(self.leaders.deadline_ms(), self._background.deadline_ms())

    def shrink(self, now_ms: int) -> None:
        """Do what is due: remove slow members from the ISR, write checkpoints, delete old segments and old files, clean
        a compacted log a step further.
        """
        self.leaders.poll(now_ms)
        self._background.run(now_ms)
