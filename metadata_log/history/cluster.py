"""All families of a cluster's history together: dispatches records to families, and changes to listeners
(`MetadataDelta`).

Derived views listen to partitions, configurations and brokers; only requested views listen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, cast, get_args

from metadata_log.history.acls import Acls
from metadata_log.history.brokers import Brokers
from metadata_log.history.causes import CauseRow, Trigger
from metadata_log.history.changes import Change, Keyed, Template
from metadata_log.history.churn import Churn
from metadata_log.history.configs import MIN_ISR, Configs
from metadata_log.history.events import BrokerEvent, RegistrationChange, as_registration_change, broker_events
from metadata_log.history.families import Families
from metadata_log.history.incidents import Incidents
from metadata_log.history.leaders import (
    IsrFlaps,
    IsrHistory,
    LeaderHistory,
    Reassignments,
    Unavailability,
    UncleanElections,
)
from metadata_log.history.open_rows import Row, Sink, When, cause_of_snapshot
from metadata_log.history.partitions import CREATED, Follower, Partitions, reason_of_new
from metadata_log.history.quorum import Quorum
from metadata_log.history.topics import DELETED, Topics
from metadata_log.history.values import feature_values
from metadata_log.image.brokers import FENCE
from metadata_log.image.features import KRAFT_VERSION
from metadata_log.image.topics import NO_LEADER, NO_LEADER_CHANGE
from metadata_log.records import control
from metadata_log.records import metadata as records
from metadata_log.serde import Message
from metadata_log.types import Uuid

ELR_CLEARED: Final = "elr-cleared"
MIN_ISR_CHANGED: Final = "min-isr-changed"
OF_BROKERS: Final = frozenset(
    {*get_args(RegistrationChange), records.RegisterBrokerRecord, records.UnregisterBrokerRecord}
)
"""The record types of broker events."""

_Apply = Callable[[Any, int, When, CauseRow | None], None]


class Family(Protocol):
    """A holder of open rows."""

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""

    def finish(self, now: When) -> None:
        """Write every open row at the end of the history."""


class FamilyOfPartitions(Family, Follower, Protocol):
    """A family that follows partitions."""


class Cluster:
    """Every family of one cluster. Records arrive in order, batch by batch, each batch with its broker events."""

    def __init__(
        self, sink: Sink, *, show_secrets: bool, gap_tolerance_ms: int, session_timeout_ms: int | None
    ) -> None:
        self.quorum = Quorum(sink, gap_tolerance_ms=gap_tolerance_ms)
        self._sink = sink
        self._session_timeout_ms = session_timeout_ms
        self._configs = Configs(sink, show_secrets=show_secrets)
        self._partitions = Partitions(sink, self._configs.unclean_allowed)
        self._brokers = Brokers(sink)
        self._topics = Topics(sink)
        self._acls = Acls(sink)
        self._families = Families(sink)
        self._churn = Churn(sink) if "churn" in sink.wanted else None
        self._incidents: Incidents | None = None
        self._kraft_version: int | None = None
        self._kept: list[Family] = [
            self._partitions,
            self._brokers,
            self._topics,
            self._configs,
            self._acls,
            self._families,
            self.quorum,
        ]
        self._listen()
        self._born: set[Uuid] = set()
        """The topics that the present batch creates."""
        self._min_isr_set: set[str] = set()
        """The resources with a min.insync.replicas that the present batch sets."""
        self._table = self._changes_by_type()

    def _listen(self) -> None:
        wanted, sink, followers = self._sink.wanted, self._sink, self._partitions.followers
        if "topic_history" in wanted:
            followers.append(self._topics)
        if "fencing" in wanted:
            followers.append(self._brokers.fencing)
        if self._churn is not None:
            followers.append(self._churn)
        following: list[FamilyOfPartitions] = []
        if "leader_history" in wanted or "leadership_changes" in wanted:
            following.append(LeaderHistory(sink))
        if "isr_history" in wanted:
            following.append(IsrHistory(sink))
        if "isr_flaps" in wanted:
            following.append(IsrFlaps(sink))
        if "unclean_elections" in wanted:
            following.append(UncleanElections(sink))
        if "reassignments" in wanted:
            following.append(Reassignments(sink))
        if "unavailability" in wanted or "incidents" in wanted:
            unavailability = Unavailability(sink, self._configs, self._partitions.cells_of)
            self._incidents = unavailability.incidents
            following.append(unavailability)
        followers += following
        self._kept += following

    @property
    def metadata_version(self) -> int | None:
        """The level in force, if known."""
        return self._families.metadata_version

    # -------------------------------------------------------------------------------------------------- batches

    def on_time(self, when: When) -> None:
        """A batch has this timestamp."""
        if self._churn is not None:
            self._churn.on_time(when)
        if self._incidents is not None:
            self._incidents.on_time(when)

    def begin_batch(self) -> None:
        """The records of the next batch follow."""
        self._born.clear()
        self._min_isr_set.clear()

    def end_batch(self) -> None:
        """The batch is complete."""
        self._topics.on_batch_end()

    def lose_sight(self, when: When) -> None:
        """End every row and drop the state: the following history is unknown."""
        self._kraft_version = None
        for family in self._kept:
            family.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write every open row at the end of the history."""
        for family in self._kept:
            family.finish(now)
        if self._churn is not None:
            self._churn.finish()

    def voters_state(self) -> list[Row]:
        """The rows of `voters_state`, which an image does not hold."""
        return self.quorum.voters_state()

    def kraft_version_state(self) -> list[Row]:
        """The row of kraft.version in `features_state`, which an image does not hold; empty without one."""
        return [] if self._kraft_version is None else [feature_values(KRAFT_VERSION, self._kraft_version)]

    # --------------------------------------------------------------------------------------------------- events

    def events(self, found: Sequence[tuple[int, Message]], changes: Sequence[Change], now_ms: int) -> list[BrokerEvent]:
        """The broker events among `changes`, given the records about brokers and their indexes."""

        def lost_leaderships(broker: int, first: int, end: int) -> bool:
            return any(self._takes_leadership(changes[index], broker) for index in range(first, end))

        brokers = self._brokers
        of = (brokers.last_seen_ms, now_ms, self._session_timeout_ms)
        return broker_events(found, brokers.image.by_id, lost_leaderships, *of)

    def _takes_leadership(self, change: Change, broker: int) -> bool:
        """Whether a change removes a broker both as leader and from the ISR."""
        template = change[1]
        if not isinstance(template, Template) or template.record.leader == NO_LEADER_CHANGE:
            return False
        old = self._partitions.peek(change[2])
        if old is None or old.leader != broker:
            return False
        return template.record.leader == NO_LEADER or broker not in (template.record.isr or old.isr)

    # -------------------------------------------------------------------------------------------------- records

    def on_changes(
        self,
        changes: Iterator[Change],
        timestamp: int,
        epoch: int,
        effective: int | None,
        events: Sequence[BrokerEvent],
        index: int,
    ) -> None:
        """Consecutive changes of partitions: see `Partitions.on_changes`."""
        keyed = cast("Iterator[tuple[int, Keyed, bytes]]", changes)
        self._partitions.on_changes(keyed, timestamp, epoch, effective, events, index, self._born)

    def on_record(
        self, record: Message, offset: int, when: When, snapshot: CauseRow | None, trigger: Trigger | None
    ) -> None:
        """Any other record, with its own event; raises `ReplayError` or `KeyError` for a contradiction."""
        if isinstance(record, RegistrationChange):
            self._on_registration_change(record, offset, when, trigger)
        elif (change := self._table.get(type(record))) is not None:
            change(record, offset, when, snapshot)

    def on_control(self, record: Message, when: When, *, in_snapshot: bool) -> None:
        """A control record."""
        match record:
            case control.LeaderChangeMessage():
                self.quorum.on_leader_change(record, when)
            case control.VotersRecord():
                self.quorum.on_voters(record, when, in_snapshot=in_snapshot)
            case control.KRaftVersionRecord():
                self._kraft_version = record.kraft_version
                cause = cause_of_snapshot() if in_snapshot else None
                of = (when, cause, "KRaftVersionRecord", when.offset)
                self._families.on_feature(KRAFT_VERSION, record.kraft_version, *of)
            case _:
                pass

    def _changes_by_type(self) -> dict[type[Message], _Apply]:
        families = self._families
        return {
            records.TopicRecord: self._on_topic,
            records.PartitionRecord: self._on_partition,
            records.RemoveTopicRecord: self._on_remove_topic,
            records.ClearElrRecord: self._on_clear_elr,
            records.ConfigRecord: self._on_config,
            records.RegisterBrokerRecord: self._on_register_broker,
            records.UnregisterBrokerRecord: lambda record, offset, when, _: self._brokers.on_unregister(record, when),
            records.AccessControlEntryRecord: lambda record, offset, when, cause: self._acls.on_acl(
                record, when, cause, offset
            ),
            records.RemoveAccessControlEntryRecord: lambda record, offset, when, _: self._acls.on_remove(
                record, when, offset
            ),
            records.FeatureLevelRecord: lambda record, offset, when, cause: families.on_feature(
                record.name, record.feature_level, when, cause, "FeatureLevelRecord", offset
            ),
            records.ClientQuotaRecord: lambda record, offset, when, cause: families.on_quota(
                record, when, cause, offset
            ),
            records.UserScramCredentialRecord: lambda record, offset, when, cause: families.on_scram(
                record, when, cause, offset
            ),
            records.RemoveUserScramCredentialRecord: lambda record, _, when, __: families.on_remove_scram(record, when),
            records.DelegationTokenRecord: lambda record, offset, when, cause: families.on_token(
                record, when, cause, offset
            ),
            records.RemoveDelegationTokenRecord: lambda record, _, when, __: families.on_remove_token(record, when),
            records.ProducerIdsRecord: lambda record, offset, when, cause: families.on_producer_ids(
                record, when, cause, offset
            ),
            records.RegisterControllerRecord: lambda record, offset, when, cause: families.on_controller(
                record, when, cause, offset
            ),
            records.UnregisterControllerRecord: lambda record, _, when, __: families.on_unregister_controller(
                record, when
            ),
        }

    def _on_topic(self, record: records.TopicRecord, offset: int, when: When, snapshot: CauseRow | None) -> None:
        topic = self._partitions.on_topic(record)
        self._born.add(record.topic_id)
        cause = snapshot or (CREATED, "TopicRecord", offset, None, f"topic {record.name} was created")
        self._topics.on_topic(record.name, topic.id_text, when, cause)

    def _on_partition(
        self, record: records.PartitionRecord, offset: int, when: When, snapshot: CauseRow | None
    ) -> None:
        reason = reason_of_new(record.partition_id, is_born=record.topic_id in self._born)
        cause = snapshot or (reason.code, "PartitionRecord", offset, None, reason.text)
        self._partitions.on_partition(record, when, cause)

    def _on_remove_topic(self, record: records.RemoveTopicRecord, offset: int, when: When, _: CauseRow | None) -> None:
        cause = (DELETED, "RemoveTopicRecord", offset, None, "the topic was deleted")
        topic = self._partitions.on_remove_topic(record.topic_id, when, cause)
        self._topics.on_remove(topic.id_text, when)
        self._configs.on_remove_topic(topic.name, when)

    def _on_clear_elr(self, record: records.ClearElrRecord, offset: int, when: When, _: CauseRow | None) -> None:
        of = f"topic {record.topic_name}" if record.topic_name else "all topics"
        code, text = ELR_CLEARED, f"the eligible leader replicas of {of} were cleared"
        if self._min_isr_set & {record.topic_name}:
            code, text = MIN_ISR_CHANGED, f"{text}, as min.insync.replicas was set"
        self._partitions.on_clear_elr(record.topic_name, when, (code, "ClearElrRecord", offset, None, text))

    def _on_config(self, record: records.ConfigRecord, offset: int, when: When, snapshot: CauseRow | None) -> None:
        if snapshot is None and self._churn is not None:
            self._churn.on_config(record)
        if record.name == MIN_ISR:
            self._min_isr_set.add(record.resource_name)
        self._configs.on_config(record, when, snapshot, offset)

    def _on_register_broker(
        self, record: records.RegisterBrokerRecord, offset: int, when: When, snapshot: CauseRow | None
    ) -> None:
        self._brokers.on_register(record, offset, when, in_snapshot=snapshot is not None)
        if snapshot is None and self._churn is not None:
            self._churn.on_registered(record.broker_id)

    def _on_registration_change(
        self, record: RegistrationChange, offset: int, when: When, trigger: Trigger | None
    ) -> None:
        change = as_registration_change(record)
        before = self._brokers.image.by_id.get(change.broker_id)
        self._brokers.on_registration_change(change, type(record).__name__, offset, when, trigger)
        if self._churn is not None and change.fenced == FENCE and before is not None and not before.fenced:
            self._churn.on_fenced(change.broker_id)
