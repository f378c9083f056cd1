"""One pass over a metadata log that tells its story: rows of any views, each written when what it tells ends
(Kafka: `MetadataLoader`, `MetadataDelta`).

The state kept is that of the cluster and of the rows that still hold; the log may be of any length. The rules by which
records change things are those of the image (`metadata_log.image`); here they are only watched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from metadata_log.history.acls import Acls
from metadata_log.history.brokers import Brokers
from metadata_log.history.causes import NO_LEADER, CauseRow, Trigger
from metadata_log.history.churn import Churn
from metadata_log.history.configs import MIN_ISR, Configs
from metadata_log.history.events import FULL_BATCH, BrokerEvent, Change, broker_events
from metadata_log.history.families import Families
from metadata_log.history.leaders import (
    IsrFlaps,
    IsrHistory,
    LeaderHistory,
    Reassignments,
    Unavailability,
    UncleanElections,
)
from metadata_log.history.open_rows import Row, Sink, When, cause_of_snapshot
from metadata_log.history.partitions import Partitions
from metadata_log.history.quorum import GAP_TOLERANCE_MS, Quorum
from metadata_log.history.retention import Retention
from metadata_log.history.state import state_rows
from metadata_log.history.topics import CREATED, DELETED, ENLARGED, Topics
from metadata_log.history.values import feature_values
from metadata_log.history.views import STATE_VIEWS, VIEWS
from metadata_log.image.brokers import FENCE, UNFENCE
from metadata_log.image.faults import ReplayError
from metadata_log.image.features import KRAFT_VERSION
from metadata_log.image.image import MetadataDelta, MetadataImage
from metadata_log.image.topics import NO_LEADER_CHANGE
from metadata_log.reader import Damage, OnDamage
from metadata_log.records import control
from metadata_log.records import metadata as records
from metadata_log.serde import Message
from metadata_log.timeline import At, Base, TimelineBatch
from metadata_log.types import OffsetAndEpoch, Uuid

_MOST_HELD: Final = 64
"""So many full batches, one decision cut in pieces, wait for the record that explains them."""


class Options(Struct, frozen=True, kw_only=True):
    """How a history is told.

    `session_timeout_ms` is the brokers' broker.session.timeout.ms, which is not in the log: with it, a broker that was
    fenced sooner after a sign of life is known to have shut down. `gap_tolerance_ms` is how long the active controller
    may write nothing. Without `show_secrets`, values of secret configurations are hidden.
    """

    session_timeout_ms: int | None = None
    gap_tolerance_ms: int = GAP_TOLERANCE_MS
    show_secrets: bool = False
    on_damage: OnDamage = OnDamage.STRICT


def rows(
    items: Iterable[Base | TimelineBatch | Damage],
    views: Collection[str],
    *,
    cluster: str,
    at: At | None = None,
    options: Options = Options(),
) -> Iterator[tuple[str, Row]]:
    """The rows of `views` from a timeline, each as the view's name and a tuple in the order of its columns.

    A row comes when it ends, those that still hold come last; `*_state` views hold at the end of `items`, or at `at`,
    up to which the history then is told. With an `on_damage` that is not strict, faults and damage become rows of
    `retention`, and nothing is told of what lies behind until a snapshot begins anew.

    Raises `KeyError` for a view that is not known, `ReplayError` for a log that breaks its own rules.
    """
    for view in views:
        VIEWS[view]
    story = Story(cluster, frozenset(views), options)
    for item in items:
        if not story.tell(item, at):
            break
        yield from story.sink.take()
    story.finish()
    yield from story.sink.take()


class _Part(Struct, frozen=True):
    """The changes of one batch, with its time and epoch; `effective` is where they become true, in a transaction."""

    changes: list[Change]
    timestamp: int
    epoch: int
    effective: int | None = None


class _OpenTransaction(Struct):
    name: str
    began: When
    changes: list[Change]


class Story:
    """The state of one pass: every family, and who listens to whom. `tell` takes the items of a timeline in order."""

    def __init__(self, cluster: str, views: frozenset[str], options: Options) -> None:
        self.sink = sink = Sink(cluster, views)
        self._options = options
        self._configs = Configs(sink, show_secrets=options.show_secrets)
        self._partitions = Partitions(sink, self._configs.unclean_allowed)
        self._brokers = Brokers(sink)
        self._topics = Topics(sink)
        self._acls = Acls(sink)
        self._families = Families(sink)
        self._quorum = Quorum(sink, gap_tolerance_ms=options.gap_tolerance_ms)
        self._retention = Retention(sink)
        self._churn = Churn(sink) if "churn" in views else None
        self._flaps = IsrFlaps(sink)
        self._kraft_version: int | None = None
        self._derived: list[Any] = []
        self._listen(views)
        self._image = MetadataImage() if views & STATE_VIEWS.keys() else None
        self._views = views
        self._last: When | None = None
        self._held: list[_Part] = []
        self._transaction: _OpenTransaction | None = None
        self._born: set[Uuid] = set()
        """Topics that the present batch creates."""
        self._min_isr_set: set[str] = set()
        """Resources whose min.insync.replicas the present batch sets."""
        self._table = self._changes_by_type()

    def _listen(self, views: frozenset[str]) -> None:
        partitions, sink = self._partitions, self.sink
        if "topic_history" in views:
            partitions.listeners.append(self._topics.on_partition)
        if views & {"leader_history", "leadership_changes"}:
            self._derive(LeaderHistory(sink))
        for name, make in (("isr_history", IsrHistory), ("unclean_elections", UncleanElections)):
            if name in views:
                self._derive(make(sink))
        if "isr_flaps" in views:
            partitions.listeners.append(self._flaps.on_partition)
        if "reassignments" in views:
            self._derive(Reassignments(sink))
        if "unavailability" in views:
            self._derive(Unavailability(sink, self._configs))
        if views & {"fencing"}:
            partitions.listeners.append(self._brokers.fencing.on_partition)
        if self._churn is not None:
            partitions.listeners.append(self._churn.on_partition)

    def _derive(self, derived: Any) -> None:
        self._derived.append(derived)
        self._partitions.listeners.append(derived.on_partition)

    # ------------------------------------------------------------------------------------------------------ items

    def tell(self, item: Base | TimelineBatch | Damage, at: At | None) -> bool:
        """Take in one item; False if it lies behind `at`, so that the story is over."""
        if isinstance(item, Base):
            self._on_base(item)
            return True
        if isinstance(item, Damage):
            self._on_damage(item)
            return True
        if at is not None:
            if at.timestamp_ms is not None and item.batch.max_timestamp > at.timestamp_ms:
                return False
            if at.offset is not None and item.from_offset > at.offset:
                return False
        self._on_batch(item, None if at is None else at.offset)
        return True

    def finish(self) -> None:
        """Write all that still holds."""
        self._flush()
        now = self._last or When(-1, -1, -1)
        if self._transaction is not None:
            began, count = self._transaction.began, len(self._transaction.changes)
            self._retention.on_transaction("open-transaction", began, now, count, self._transaction.name)
        self._write_state(now)
        self._partitions.finish()
        for family in (self._brokers, self._topics, self._configs, self._acls, self._families, self._quorum):
            family.finish(now)
        for derived in self._derived:
            derived.rows.finish(now)
        self._flaps.forget_all()
        if self._churn is not None:
            self._churn.finish()
        self._retention.finish()

    def _on_base(self, base: Base) -> None:
        when = When(base.end.offset - 1, base.timestamp_ms, base.end.epoch)
        if self._last is not None and not self._retention.is_lost:
            self._lose_sight(when)
        if self._image is not None:
            self._image = MetadataImage()
        self._last = when
        cause = cause_of_snapshot()
        self._born.clear()
        changes: list[Change] = []
        for entry in base.entries:
            if isinstance(entry, Damage):
                self._on_damage(entry)
                return
            if entry.record is None:
                self._retention.on_unknown(entry, when)
            elif entry.is_control:
                self._on_control(entry.record, when, in_snapshot=True)
            else:
                changes.append((entry.offset, entry.record))
                self._apply(entry.record, entry.offset, when, cause)
        self._topics.on_batch_end()
        self._replay(changes, base.end)
        self._retention.on_base(base, when, len(changes))

    def _on_damage(self, damage: Damage) -> None:
        self._flush()
        self._retention.on_damage(damage, self._last)
        if not damage.unfinished:
            before = self._last or When(-1, -1, -1)
            self._lose_sight(When(before.offset + 1, before.timestamp, before.epoch))

    def _lose_sight(self, when: When) -> None:
        self._transaction = None
        self._partitions.lose_sight(when)
        self._kraft_version = None
        for family in (self._brokers, self._topics, self._configs, self._acls, self._families, self._quorum):
            family.lose_sight(when)
        for derived in self._derived:
            lose = getattr(derived, "lose_sight", derived.rows.lose_sight)
            lose(when)
        self._flaps.forget_all()
        if self._image is not None:
            self._image = MetadataImage()

    def _on_batch(self, item: TimelineBatch, last_offset: int | None) -> None:
        batch = item.batch
        timestamp, epoch = batch.max_timestamp, batch.epoch
        end = item.end_offset if last_offset is None else min(item.end_offset, last_offset + 1)
        first, last = When(item.from_offset, batch.base_timestamp, epoch), When(end - 1, timestamp, epoch)
        if self._retention.is_lost:
            self._retention.on_ignored(first, last, end - item.from_offset)
            self._last = last
            return
        self._retention.on_records(item.path, first, last, end - item.from_offset)
        if self._churn is not None:
            self._churn.on_time(first)
        changes: list[Change] = []
        damage: Damage | None = None
        noop = False
        is_control = batch.is_control
        for entry in item.entries():
            if isinstance(entry, Damage):
                damage = entry
                break
            record = entry.record
            if type(record) is records.NoOpRecord:
                noop = True
            elif entry.offset >= end:
                break
            elif record is None:
                self._retention.on_unknown(entry, When(entry.offset, timestamp, epoch))
            elif is_control:
                self._flush()
                self._on_control(record, When(entry.offset, timestamp, epoch), in_snapshot=False)
            else:
                changes.append((entry.offset, _plain(record)))
        if not is_control:
            self._quorum.on_records(first, last, has_noop=noop)
        if changes:
            self._on_changes(changes, timestamp, epoch, is_full=len(changes) >= FULL_BATCH)
        elif self._held:
            self._flush()
        self._last = last
        if damage is not None:
            self._on_damage(damage)

    def _on_control(self, record: Message, when: When, *, in_snapshot: bool) -> None:
        match record:
            case control.LeaderChangeMessage():
                self._quorum.on_leader_change(record, when)
            case control.VotersRecord():
                self._quorum.on_voters(record, when, in_snapshot=in_snapshot)
            case control.KRaftVersionRecord():
                self._kraft_version = record.kraft_version
                cause = cause_of_snapshot() if in_snapshot else None
                of = (when, cause, "KRaftVersionRecord", when.offset)
                self._families.on_feature(KRAFT_VERSION, record.kraft_version, *of)
            case _:
                pass

    # ---------------------------------------------------------------------------------------------------- changes

    def _on_changes(self, changes: list[Change], timestamp: int, epoch: int, *, is_full: bool) -> None:
        """Sort out transactions; what lies in one becomes true when it ends, or never."""
        plain: list[Change] = []
        for change in changes:
            offset, record = change
            kind = type(record)
            if kind is records.BeginTransactionRecord:
                self._tell_part(_Part(plain, timestamp, epoch), is_full=False)
                plain = []
                if self._transaction is not None:
                    self._fault(ReplayError(f"a transaction begins at offset {offset} while another is open"))
                name = getattr(record, "name", None) or ""
                self._transaction = _OpenTransaction(name, When(offset, timestamp, epoch), [change])
                continue
            transaction = self._transaction
            if transaction is None:
                if kind in (records.EndTransactionRecord, records.AbortTransactionRecord):
                    self._fault(ReplayError(f"a transaction ends at offset {offset}, and none is open"))
                else:
                    plain.append(change)
                continue
            transaction.changes.append(change)
            if kind is records.EndTransactionRecord:
                self._transaction = None
                self._tell_part(_Part(transaction.changes, timestamp, epoch, offset), is_full=False)
            elif kind is records.AbortTransactionRecord:
                self._transaction = None
                when, count = When(offset, timestamp, epoch), len(transaction.changes) - 2
                of = (transaction.began, when, count, transaction.name)
                self._retention.on_transaction("aborted-transaction", *of)
        self._tell_part(_Part(plain, timestamp, epoch), is_full=is_full)

    def _tell_part(self, part: _Part, *, is_full: bool) -> None:
        if part.changes:
            self._held.append(part)
            if not is_full or len(self._held) >= _MOST_HELD:
                self._flush()

    def _flush(self) -> None:
        """Tell what was held back until it could be explained."""
        held, self._held = self._held, []
        if not held:
            return
        changes = held[0].changes if len(held) == 1 else [change for part in held for change in part.changes]
        events = self._events(changes, held[-1].timestamp)
        index = 0
        on_change = self._partitions.on_change
        for part in held:
            timestamp, epoch, effective = part.timestamp, part.epoch, part.effective
            self._born.clear()
            self._min_isr_set.clear()
            for offset, record in part.changes:
                when = When(offset if effective is None else effective, timestamp, epoch)
                try:
                    if type(record) is records.PartitionChangeRecord:
                        on_change(record, offset, when, events, index)
                    elif type(record) is records.BrokerRegistrationChangeRecord:
                        self._on_registration_change(record, offset, when, _own_trigger(events, index))
                    else:
                        self._apply(record, offset, when, None)
                except (ReplayError, KeyError) as fault:
                    self._fault(fault if isinstance(fault, ReplayError) else _missing(record, offset), when)
                index += 1
            self._topics.on_batch_end()
            self._replay(part.changes, OffsetAndEpoch(epoch=epoch, offset=(part.effective or part.changes[-1][0]) + 1))

    def _events(self, changes: Sequence[Change], now_ms: int) -> list[BrokerEvent]:
        if not any(type(record) in _OF_BROKERS for _, record in changes):
            return []
        lost: dict[int, list[int]] = {}
        for index, (_, record) in enumerate(changes):
            if type(record) is records.PartitionChangeRecord and record.leader != NO_LEADER_CHANGE:
                old = self._partitions.peek(record)
                if old is not None and (record.leader == NO_LEADER or old.leader not in (record.isr or old.isr)):
                    lost.setdefault(old.leader, []).append(index)
        brokers = self._brokers
        of = (brokers.last_seen_ms, now_ms, self._options.session_timeout_ms)
        return broker_events(changes, brokers.image.by_id, lost, *of)

    def _fault(self, fault: ReplayError, when: When | None = None) -> None:
        """A record that no correct controller would have written: an error, or a row that says so."""
        if self._options.on_damage is OnDamage.STRICT:
            raise fault
        where = fault.where or ""
        offset = None if when is None else when.offset
        self._on_damage(Damage(where=where, what=fault.what, expected="a record that fits", position=0, offset=offset))

    def _replay(self, changes: Iterable[Change], end: OffsetAndEpoch) -> None:
        """Keep the image, too, where a state is asked for."""
        if self._image is None:
            return
        delta = MetadataDelta(self._image)
        for offset, record in changes:
            delta.replay(record, offset)
        self._image = delta.apply(end)

    def _apply(self, record: Message, offset: int, when: When, snapshot: CauseRow | None) -> None:
        change = self._table.get(type(record))
        if change is not None:
            change(record, offset, when, snapshot)

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
        }

    # --------------------------------------------------------------------------------------------------- families

    def _on_topic(self, record: records.TopicRecord, offset: int, when: When, snapshot: CauseRow | None) -> None:
        self._partitions.on_topic(record)
        self._born.add(record.topic_id)
        cause = snapshot or (CREATED, "TopicRecord", offset, None, f"topic {record.name} was created")
        self._topics.on_topic(record.name, str(record.topic_id), when, cause)

    def _on_partition(
        self, record: records.PartitionRecord, offset: int, when: When, snapshot: CauseRow | None
    ) -> None:
        code, text = (
            (CREATED, "the topic was created; the first live replica leads")
            if record.topic_id in self._born
            else (ENLARGED, f"partition {record.partition_id} was added to the topic; its first live replica leads")
        )
        cause = snapshot or (code, "PartitionRecord", offset, None, text)
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
        code, text = self._configs.how(record)
        if snapshot is None and self._churn is not None:
            self._churn.on_config(record)
        if record.name == MIN_ISR:
            self._min_isr_set.add(record.resource_name)
        self._configs.on_config(record, when, snapshot or (code, "ConfigRecord", offset, None, text))

    def _on_register_broker(
        self, record: records.RegisterBrokerRecord, offset: int, when: When, snapshot: CauseRow | None
    ) -> None:
        self._brokers.on_register(record, offset, when, in_snapshot=snapshot is not None)
        if snapshot is None and self._churn is not None:
            self._churn.on_registered(record.broker_id)

    def _on_registration_change(
        self, record: records.BrokerRegistrationChangeRecord, offset: int, when: When, trigger: Trigger | None
    ) -> None:
        before = self._brokers.image.by_id.get(record.broker_id)
        self._brokers.on_registration_change(record, offset, when, trigger)
        if self._churn is not None and record.fenced == FENCE and before is not None and not before.fenced:
            self._churn.on_fenced(record.broker_id)

    # ------------------------------------------------------------------------------------------------------ state

    def _write_state(self, now: When) -> None:
        """The rows of the wanted `*_state` views."""
        if self._image is None:
            return
        image = self._image.stable
        for view in sorted(self._views & STATE_VIEWS.keys()):
            found: Iterable[Row]
            if view == "voters_state":
                found = self._quorum.voters_state()
            elif view == "features_state" and self._kraft_version is not None:
                found = [feature_values(KRAFT_VERSION, self._kraft_version), *state_rows(image, view)]
                found = sorted(found, key=lambda row: str(row[0]))
            else:
                found = state_rows(image, view, show_secrets=self._options.show_secrets)
            for row in found:
                self.sink.emit(view, (*row, now.offset, now.timestamp))


_Apply = Callable[[Any, int, When, CauseRow | None], None]
_OF_BROKERS: Final = frozenset(
    {records.BrokerRegistrationChangeRecord, records.RegisterBrokerRecord, records.UnregisterBrokerRecord}
)
ELR_CLEARED: Final = "elr-cleared"
MIN_ISR_CHANGED: Final = "min-isr-changed"


def _plain(record: Message) -> Message:
    """The records by which Kafka before 3.2 fenced and unfenced brokers, as those that replaced them."""
    if isinstance(record, records.FenceBrokerRecord):
        return records.BrokerRegistrationChangeRecord(broker_id=record.id, broker_epoch=record.epoch, fenced=FENCE)
    if isinstance(record, records.UnfenceBrokerRecord):
        return records.BrokerRegistrationChangeRecord(broker_id=record.id, broker_epoch=record.epoch, fenced=UNFENCE)
    return record


def _own_trigger(events: Sequence[BrokerEvent], index: int) -> Trigger | None:
    return next((event.trigger for event in events if event.index == index), None)


def _missing(record: Message, offset: int) -> ReplayError:
    return ReplayError(f"the {type(record).__name__} at offset {offset} names something that is not there")
