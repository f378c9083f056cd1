"""The broker's side towards the controllers, as one synchronous object.

It follows the metadata log, registers, sends heartbeats, and tells its replicas what to lead and to follow (Kafka:
`BrokerServer` with `BrokerMetadataPublisher`).

Time and answers are inputs, `poll` returns the requests; nothing here waits or draws random numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Protocol

from kraft.broker.directories import Directories
from kraft.broker.lifecycle import BrokerLifecycle, LifecycleState, NoLogDirectory
from kraft.broker.settings import BrokerSettings
from kraft.handling.reply_keys import Channel, FetchFrom, to_broker
from kraft.limits import PARTITIONS_PER_TURN
from kraft.partitions.replicas.cordoned import cordoned_directories, knows_cordoned
from kraft.partitions.replicas.isr_changes import IsrChanges
from kraft.partitions.replicas.key import PartitionKey
from kraft.wire import Send, Target
from metadata_log.image import Broker, MetadataImage, Partition
from metadata_log.image.features import DIRECTORIES_SINCE
from metadata_log.image.replaying import BatchReplay, SnapshotReplay
from metadata_log.records.metadata import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, NO_EPOCH, OffsetAndEpoch, Uuid

FAREWELL_MS: Final = 1000
"""For so long a broker without log directories tries to tell the controller, before it ends."""


class Followers(Protocol):
    """The partitions of a broker that other brokers lead."""

    def leaders(self) -> list[int]:
        """The leaders that this broker follows, in order of their ids."""

    def request(self, leader: int, broker_epoch: int, now_ms: int) -> Message | None:
        """The next request to a leader; None with nothing to fetch now."""

    def on_answer(self, leader: int, response: Message | None, now_ms: int) -> int | None:
        """Take the answer of a leader, None for a failed request; returns when the next request is due.

        None leaves that to the interval of the agent.
        """


class BrokerReplicas(Protocol):
    """The replicas of one broker: a `ReplicaManager`; those of the simulator may have no data."""

    @property
    def isr(self) -> IsrChanges:
        """The ISR changes that the leaders request."""

    @property
    def followers(self) -> Followers:
        """The followed partitions."""

    @property
    def partitions(self) -> Mapping[PartitionKey, object]:
        """All replicas."""

    @property
    def failed_directories(self) -> dict[Uuid, str]:
        """The log directories that have failed, with the reason."""

    @property
    def partitions_per_turn(self) -> int:
        """How many calls of `on_partition` the agent makes in one turn, by their weights."""

    def weight_of(self, *, is_new: bool) -> int:
        """For how many partitions a replica of this broker counts in a turn, or one whose log is made."""

    @property
    def is_loaded(self) -> bool:
        """Whether the logs are open."""

    def load_more(self, image: MetadataImage, now_ms: int) -> bool:
        """Open the logs, a portion in each call; returns whether all are open. Metadata changes follow then."""

    def on_image(self, image: MetadataImage) -> None:
        """New metadata, before the calls of `on_partition` for its changes."""

    def on_partition(
        self, key: PartitionKey, partition: Partition | None, now_ms: int, directory: Uuid | None = None
    ) -> None:
        """Take the metadata of a changed partition; None if this broker has no online replica of it any more.

        `directory` is the log directory for a new replica.
        """

    def directory_of(self, key: PartitionKey) -> Uuid | None:
        """The log directory that holds a replica already; None for a replica without a log."""

    def preferred_directory(self, key: PartitionKey) -> Uuid | None:
        """The log directory that somebody has asked for, of a replica that is not here yet; None if nobody has."""

    def take_failed_directories(self) -> Sequence[Uuid]:
        """The log directories that have failed since the last call."""

    def deadline_ms(self) -> int:
        """When the next `shrink` is due."""

    def shrink(self, now_ms: int) -> None:
        """Do what is due, such as the removal of slow followers from the ISR."""


class BrokerAgent:
    """One run of one broker, from start to stop.

    Args:
        settings: The settings of the broker.
        replicas: The replicas.
    """

    def __init__(self, settings: BrokerSettings, replicas: BrokerReplicas) -> None:
        options = settings.options
        self.settings = settings
        self.image = MetadataImage()
        """The metadata that this broker acts by: everything committed, without an open transaction."""
        self.lifecycle = BrokerLifecycle(settings)
        self.replicas = replicas
        self.directories = Directories(settings.broker_id, options.directories)
        self._cordoned: frozenset[Uuid] = frozenset()
        """The directories that take no new replicas."""
        self._latest = self.image
        self._changed: dict[PartitionKey, None] = {}
        """The partitions that records have changed since the last update of the replicas."""
        self._noted: dict[PartitionKey, None] = {}
        """The partitions that the records of the present batch change, during its replay."""
        self._is_everything_noted = False
        self._is_everything_changed = False
        self._gathering: Iterator[PartitionKey | None] | None = None
        """The partitions that are still to be collected in `_changed` after a change of everything."""
        self._publish_at_ms = 0
        """When the next part of the changes is published to the replicas."""
        self._published_offset = -1
        """The offset of the last record that the replicas know, or -1."""
        self._is_published = True
        """Whether the replicas know all metadata."""
        self._judged: tuple[Broker | None, bool] = (None, False)
        """The own registration and the cluster's level at the last decision on a new registration."""
        self._ends_ms = NEVER_MS
        """When the broker ends, as it has no log directory left, though it could not tell."""
        self._fetches: dict[int, int] = {}
        """When the next fetch is due, by leader id; `NEVER_MS` while one is outstanding."""
        self._addresses: dict[int, tuple[Broker, Target | None]] = {}
        """The addresses of other brokers, with the registrations that name them."""
        self._next_fetch_ms = NEVER_MS
        """The first of those times."""
        self._leaders: list[int] | None = None
        """The leaders for which `_fetches` is complete; None after an answer of one."""

    @property
    def metadata_offset(self) -> int:
        """The last replayed offset, or -1."""
        return self.image.end.offset - 1

    @property
    def may_stop(self) -> bool:
        """Whether the broker's process may stop now."""
        return self.lifecycle.is_stopped

    # The metadata log

    @property
    def is_between_transactions(self) -> bool:
        """Whether the replayed records end outside of a transaction."""
        return self._latest is self.image

    def begin_committed(self, base_offset: int) -> BatchReplay:
        """Begin to replay a committed batch, which takes effect in `finish_committed`."""
        return BatchReplay(self._latest, base_offset)

    def finish_committed(self, replay: BatchReplay, end: OffsetAndEpoch) -> None:
        """Apply a replayed batch after its records have passed `noted`; raises `ReplayError` for an incomplete one."""
        before = self._latest
        self._latest = replay.apply(end)
        if self._is_everything_noted or self._latest.transaction is not None or before.transaction is not None:
            self._is_everything_changed = True
        self._changed.update(self._noted)
        self._noted, self._is_everything_noted = {}, False
        self.image, self._is_published = self._latest.stable, False

    def finish_snapshot(self, replay: SnapshotReplay) -> None:
        """Replace the metadata by the image of a snapshot; raises `ReplayError` for an incomplete one."""
        self._latest = replay.apply()
        self._is_everything_changed = True
        self._noted, self._is_everything_noted = {}, False
        self.image, self._is_published = self._latest, False

    def noted(self, records: Iterable[Message]) -> Iterator[Message]:
        """Pass the records of a batch through, and note the partitions that they change."""
        for record in records:
            self._note(record)
            yield record

    def _note(self, record: Message) -> None:
        """Note the partitions that a record changes."""
        match record:
            case PartitionRecord() | PartitionChangeRecord():
                self._noted[record.topic_id, record.partition_id] = None
            case RemoveTopicRecord():
                topic = self._latest.topics.by_id.get(record.topic_id)
                if topic is not None:
                    self._noted.update(((topic.id, number), None) for number in range(len(topic.partitions)))
            case RegisterBrokerRecord(broker_id=broker_id) if broker_id == self.settings.broker_id:
                self._is_everything_noted = True
            case ClearElrRecord():
                # The record names no partitions, but raises the epochs of those that it clears.
                self._is_everything_noted = True

    def _publish(self, now_ms: int) -> bool:
        """Update the replicas, for one turn, with the changes since the last call (`BrokerMetadataPublisher`).

        Returns whether all changes are published.
        """
        left = PARTITIONS_PER_TURN
        self.replicas.on_image(self.image)
        if self._is_everything_changed:
            self._is_everything_changed = False
            self._changed = {}
            self._gathering = self._everything()
        if self._gathering is not None:
            for key in islice(self._gathering, left):
                left -= 1
                if key is not None:
                    self._changed[key] = None
            if left <= 0:
                return False
            self._gathering = None
        left = min(left, self.replicas.partitions_per_turn)
        while self._changed and left > 0:
            key = next(iter(self._changed))
            del self._changed[key]
            left -= self._publish_partition(key, now_ms)
        if self._changed:
            return False
        self._look_at_own_registration(now_ms)
        self._published_offset, self._is_published = self.metadata_offset, True
        return True

    @property
    def _has_changes(self) -> bool:
        """Whether the replicas do not know all metadata yet."""
        return bool(self._changed) or self._is_everything_changed or self._gathering is not None

    @property
    def _is_loading(self) -> bool:
        """Whether logs are to be opened: the metadata that says which ones belong here is complete."""
        if self.replicas.is_loaded or self.may_stop:
            return False
        return self.lifecycle.state not in {LifecycleState.NOT_RUNNING, LifecycleState.STARTING}

    def _load(self, now_ms: int) -> bool:
        """Open the next portion of the logs, if it is time; returns whether the replicas take metadata."""
        if not self._is_loading:
            return False
        self._publish_at_ms = now_ms + 1
        if self.replicas.load_more(self.image, now_ms):
            self._is_everything_changed, self._is_published = True, False
            self._look_at_failures(now_ms)
            self.lifecycle.on_loaded(now_ms)
        return self.replicas.is_loaded

    def _look_at_failures(self, now_ms: int) -> None:
        failed = self.replicas.take_failed_directories()
        for directory in failed:
            self.fail_directory(directory, now_ms)
        if failed and not self.directories.online:
            # Kafka's broker ends at once, and its partitions have no leader until its session is over.
            self._ends_ms = now_ms + FAREWELL_MS
            self.lifecycle.ask_to_be_fenced(now_ms)
        if self._ends_ms <= now_ms or self._has_said_farewell:
            why = "; ".join(self.replicas.failed_directories.values())
            raise NoLogDirectory(
                f"every log directory of the broker has failed: {why}",
                hint="Mend the disk, and start the broker again.",
            )

    @property
    def _has_said_farewell(self) -> bool:
        """Whether a broker without log directories leads nothing any more, so that it may end."""
        return self._ends_ms != NEVER_MS and self.lifecycle.is_fenced

    def _everything(self) -> Iterator[PartitionKey | None]:
        """The partitions with a present or former replica of this broker, and None for each other partition."""
        yield from list(self.replicas.partitions)
        topics = self.image.topics
        broker_id = self.settings.broker_id
        for name in topics:
            topic = topics[name]
            for number, partition in enumerate(topic.partitions):
                yield (topic.id, number) if broker_id in partition.replicas else None

    def _publish_partition(self, key: PartitionKey, now_ms: int) -> int:
        """Update one replica; returns for how many it counts in the turn."""
        topic_id, number = key
        broker_id = self.settings.broker_id
        topic = self.image.topics.by_id.get(topic_id)
        partition = topic.partitions[number] if topic is not None and number < len(topic.partitions) else None
        if partition is None or broker_id not in partition.replicas:
            self.directories.remove(key)
            self.replicas.on_partition(key, None, now_ms)
            return 1
        assigned = partition.directories[partition.replicas.index(broker_id)]
        if self.directories.is_lost(assigned):
            self.replicas.on_partition(key, None, now_ms)
            return 1
        actual = self.replicas.directory_of(key)
        is_told = self._knows_directories
        wanted = self.replicas.preferred_directory(key) if actual is None else None
        self.directories.place(key, assigned, is_told=is_told, found=actual, wanted=wanted, cordoned=self._cordoned)
        self.replicas.on_partition(key, partition, now_ms, self.directories.directory_of(key))
        return self.replicas.weight_of(is_new=actual is None)

    @property
    def _knows_directories(self) -> bool:
        return (self.image.features.metadata_version or 0) >= DIRECTORIES_SINCE

    def _look_at_cordoned(self, now_ms: int) -> None:
        """Tell the controller at once of other directories that take no new replicas (`DynamicLogConfig`)."""
        options = self.settings.options
        places = zip(options.directories, options.paths, strict=False)
        self._cordoned = cordoned_directories(self.image, self.settings.broker_id, places, options.cordoned)
        self.lifecycle.cordon(self._cordoned if knows_cordoned(self.image) else None, now_ms)

    def _look_at_own_registration(self, now_ms: int) -> None:
        """Register again once the cluster supports directories and the own registration does not name them
        (`BrokerRegistrationTracker`).
        """
        own, knows_directories = self.image.brokers.by_id.get(self.settings.broker_id), self._knows_directories
        if self._judged == (own, knows_directories):
            return
        self._judged = (own, knows_directories)
        is_this = own is not None and own.incarnation_id == self.settings.incarnation_id
        if own is not None and is_this and not own.directories and knows_directories:
            self.lifecycle.register_again(now_ms)

    # Orders from outside

    def begin_shutdown(self, now_ms: int) -> None:
        """Stop, with a transfer of this broker's leaderships."""
        self.lifecycle.begin_shutdown(now_ms)

    def fail_directory(self, directory: Uuid, now_ms: int) -> None:
        """Fail a log directory, and every replica in it."""
        for key in self.directories.fail(directory):
            self.replicas.on_partition(key, None, now_ms)
        self.lifecycle.fail_directory(directory, now_ms)

    # Requests and answers

    def deadline_ms(self) -> int:
        """When the next `poll` is due."""
        lifecycle, replicas = self.lifecycle, self.replicas
        if lifecycle.state is LifecycleState.NOT_RUNNING:
            return 0
        if self._ends_ms != NEVER_MS and lifecycle.is_fenced:
            return 0
        if self._has_changes if replicas.is_loaded else self._is_loading:
            return self._publish_at_ms
        if lifecycle.is_stopped:
            return NEVER_MS
        due_ms = lifecycle.deadline_ms()
        if lifecycle.epoch == NO_EPOCH:
            return due_ms
        changes_ms, assignments_ms = replicas.isr.deadline_ms(), self.directories.deadline_ms()
        due_ms = min(due_ms, self._ends_ms)
        return min(due_ms, replicas.deadline_ms(), changes_ms, assignments_ms, *self._fetches.values())

    def poll(self, now_ms: int) -> list[Send]:
        """Do the due work and return the requests to send; raises `RegistrationFailed` and `NoLogDirectory`.

        A node calls this in each of its turns, and nearly always little is due.
        """
        lifecycle, replicas = self.lifecycle, self.replicas
        if lifecycle.state is LifecycleState.NOT_RUNNING:
            lifecycle.begin(now_ms)
        if not self._is_published:
            self._look_at_cordoned(now_ms)
        if replicas.is_loaded or self._load(now_ms):
            if not self._is_published and not self._publish(now_ms):
                # Other requests, and answers, depend on metadata that the replicas know.
                self._publish_at_ms = now_ms + 1
                return [] if lifecycle.is_stopped else self._heartbeat_due(now_ms)
            self._publish_at_ms = 0
        elif not self._is_loading:
            self._publish_at_ms = 0
        if lifecycle.is_stopped:
            return []
        sends = self._heartbeat_due(now_ms) if now_ms >= lifecycle.deadline_ms() else []
        if lifecycle.epoch == NO_EPOCH:
            return sends
        replicas.shrink(now_ms)
        if replicas.failed_directories:
            self._look_at_failures(now_ms)
        leaders = replicas.followers.leaders()
        if leaders is not self._leaders or now_ms >= self._next_fetch_ms:
            sends += self._fetches_due(leaders, now_ms)
        timeout_ms = self.settings.options.replication.lag_time_max_ms
        if replicas.isr.unsent:
            changes = replicas.isr.request_due(self.image, lifecycle.epoch, now_ms)
            if changes is not None:
                sends.append(Send(changes, to_broker(Channel.ISR_CHANGES), timeout_ms))
        if self.directories.untold:
            assignments = self.directories.request_due(lifecycle.epoch, now_ms)
            if assignments is not None:
                sends.append(Send(assignments, to_broker(Channel.ASSIGNMENTS), timeout_ms))
        return sends

    def _heartbeat_due(self, now_ms: int) -> list[Send]:
        """The registration or heartbeat that is due. It names the metadata that the replicas know, so that it need not
        wait for the publication of more (Kafka: `MetadataLoader.lastAppliedOffset`).
        """
        is_loaded = self.replicas.is_loaded
        offset = self._published_offset if is_loaded else self.metadata_offset
        request = self.lifecycle.request_due(offset, now_ms, is_loading=not is_loaded)
        patience_ms = self.settings.options.heartbeat_interval_ms
        return [] if request is None else [Send(request, to_broker(Channel.HEARTBEATS), patience_ms)]

    def _fetches_due(self, leaders: list[int], now_ms: int) -> list[Send]:
        """The requests to leaders that are due; looked for only where a leader may have come or a time has passed."""
        fetches = self._fetches
        for leader in [one for one, due_ms in fetches.items() if one not in leaders and due_ms != NEVER_MS]:
            del fetches[leader]
        options = self.settings.options
        sends = []
        for leader in leaders:
            if now_ms < fetches.get(leader, 0):
                continue
            target = self._address(leader)
            request = None if target is None else self.replicas.followers.request(leader, self.lifecycle.epoch, now_ms)
            fetches[leader] = now_ms + options.replication.fetch_wait_max_ms if request is None else NEVER_MS
            if request is not None:
                sends.append(
                    Send(request, to_broker(FetchFrom(leader)), 4 * options.replication.fetch_wait_max_ms, target)
                )
        self._leaders, self._next_fetch_ms = leaders, min(fetches.values(), default=NEVER_MS)
        return sends

    def _address(self, broker_id: int) -> Target | None:
        """The address of another broker for this one, if that broker is registered."""
        broker = self.image.brokers.by_id.get(broker_id)
        if broker is None:
            return None
        known = self._addresses.get(broker_id)
        if known is None or known[0] is not broker:
            name = self.settings.options.inter_broker_listener or self.settings.listeners[0].name
            at = next((Target(broker_id, one.host, one.port) for one in broker.endpoints if one.name == name), None)
            known = self._addresses[broker_id] = broker, at
        return known[1]

    def on_reply(self, key: Hashable, response: Message | None, now_ms: int) -> None:
        """Process the reply to a request; None if the request failed."""
        match key:
            case Channel.HEARTBEATS:
                self.lifecycle.on_answer(response, now_ms)
            case Channel.ISR_CHANGES:
                self.replicas.isr.on_answer(response, now_ms)
            case Channel.ASSIGNMENTS:
                self.directories.on_answer(response, now_ms)
            case FetchFrom(leader_id=leader):
                due_ms = self.replicas.followers.on_answer(leader, response, now_ms)
                self._fetches[leader] = (
                    now_ms + self.settings.options.replication.fetch_wait_max_ms if due_ms is None else due_ms
                )
                self._leaders = None
            case _:
                raise AssertionError(f"the agent has not asked for {key}")
