"""The events of a cluster in sentences, with names and causes, as its committed batches come.

The causes are those of `metadata_log.history.causes`. A history writes a row when its interval ends; `LiveEvents`
reports each change at once, and one event covers all partitions that changed for one cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from metadata_log.errors import ReplayError
from metadata_log.history.causes import UNKNOWN, Reason, explain, without
from metadata_log.history.events import BrokerEvent, broker_events, trigger_of
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.image.image_json import resource_type_name
from metadata_log.image.names import SCRAM_MECHANISMS
from metadata_log.image.persistent_map import in_key_order
from metadata_log.image.topics import NO_LEADER, Partition
from metadata_log.reading.entries import Entry
from metadata_log.records import control
from metadata_log.records import metadata as records
from metadata_log.records.redact import shown_config
from metadata_log.releases import unknown_record_text
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid

CONTRADICTS: Final = "contradicts"
"""The cause of a record that cannot be replayed after one that is not known."""
_MOST_TOPICS: Final = 3
_SUBJECTS: Final = {
    "preferred-election": "preferred leaders were elected",
    "unclean-election": "an unclean election: records may be lost",
    "clean-election": "an election was requested",
    "reassignment-started": "a reassignment was requested",
    "reassignment-changed": "a reassignment got another target",
    "reassignment-completed": "a reassignment is complete",
    "reassignment-cancelled": "a reassignment was cancelled",
    "isr-expand": "replicas caught up",
    "isr-shrink": "replicas did not keep up, or left",
    "isr-change": "leaders reported other replicas in sync",
    "leader-recovered": "leaders recovered after an unclean election",
    "directory-assigned": "brokers reported log directories",
    "elr-change": "the eligible leader replicas changed",
}
"""How an event of several partitions begins, by the code of the cause."""


class LiveEvent(Struct, frozen=True, kw_only=True):
    """One event: the offset of its record, the code of its cause, one sentence, and the partitions that changed."""

    offset: int
    cause: str
    text: str
    partitions: tuple[str, ...] = ()


class _Change(Struct, frozen=True):
    """The change of one partition by a batch."""

    offset: int
    name: str
    topic: str
    old: Partition
    new: Partition
    reason: Reason
    event: BrokerEvent | None


class LiveEvents:
    """The image of a cluster, empty before the first batch, and the events of each batch."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._held: list[Entry] = []
        """The records of an open transaction."""
        self.may_lack = False
        """Whether the image may lack what a record of a later release changed."""

    def begin(self, entries: Iterable[Entry], end: OffsetAndEpoch) -> list[LiveEvent]:
        """Replace the state by that of a snapshot; returns the records that nobody here knows, one of each kind.

        Raises `ReplayError` for records that contradict each other, if all are known.
        """
        self.may_lack = False
        delta = MetadataDelta(MetadataImage(), is_snapshot=True)
        unknown: dict[tuple[int, int], Entry] = {}
        for entry in entries:
            self._replay(delta, entry)
            if entry.record is None:
                unknown.setdefault((entry.type, entry.version), entry)
        self.image = delta.apply(end)
        self._held = []
        return [_unknown(entry, self.image) for entry in unknown.values()]

    def _replay(self, delta: MetadataDelta, entry: Entry) -> LiveEvent | None:
        """Replay a record; returns a contradiction that a record of a later release may have caused."""
        if entry.record is None:
            self.may_lack = True
        elif not entry.is_control:
            try:
                delta.replay(entry.record, entry.offset)
            except ReplayError as bad:
                if not self.may_lack:
                    raise
                text = f"{bad.what}: perhaps because a record before it is not known"
                return LiveEvent(offset=entry.offset, cause=CONTRADICTS, text=text)
        return None

    def take(self, entries: Sequence[Entry], end: OffsetAndEpoch, timestamp_ms: int) -> list[LiveEvent]:
        """Replay the records of one batch; returns the events in the order of their offsets.

        Changes in a metadata transaction become events at the end of the transaction.

        Raises:
            ReplayError: A record contradicts the state, and all records were known until then.
        """
        before = self.image.stable
        delta = MetadataDelta(self.image)
        wrong: list[LiveEvent] = []
        for entry in entries:
            if (contradiction := self._replay(delta, entry)) is not None:
                wrong.append(contradiction)
                continue
            if isinstance(entry.record, records.AbortTransactionRecord):
                self._held = []
            else:
                self._held.append(entry)
        self.image = delta.apply(end)
        if self.image.transaction is not None:
            return wrong
        held, self._held = self._held, []
        return sorted([*wrong, *_events(before, self.image, held, timestamp_ms)], key=lambda event: event.offset)


def _unknown(entry: Entry, image: MetadataImage) -> LiveEvent:
    """The event of a record of a later release."""
    text = unknown_record_text(entry.type, entry.version, image.features.metadata_version)
    if entry.is_control:
        text = f"a control record of type {entry.type} has an unknown meaning"
    return LiveEvent(offset=entry.offset, cause=UNKNOWN, text=text)


def _events(before: MetadataImage, after: MetadataImage, held: Sequence[Entry], now_ms: int) -> Iterator[LiveEvent]:
    changed = {
        (entry.record.topic_id, entry.record.partition_id): (index, entry, entry.record)
        for index, entry in enumerate(held)
        if isinstance(entry.record, records.PartitionChangeRecord)
    }
    pairs = {key: pair for key in changed if (pair := _pair(before, after, key)) is not None}

    def lost_leaderships(broker: int, start: int, end: int) -> bool:
        return any(
            start <= changed[key][0] < end and old.leader == broker != new.leader and broker not in new.isr
            for key, (_, old, new) in pairs.items()
        )

    of_brokers = [(index, entry.record) for index, entry in enumerate(held) if entry.record is not None]
    brokers = dict(before.brokers.by_id.items())
    events = broker_events(of_brokers, brokers, lost_leaderships, {}, now_ms, None)
    groups: dict[tuple[str, str], list[_Change]] = {}
    for key, (topic, old, new) in pairs.items():
        index, entry, record = changed[key]
        trigger = trigger_of(events, index, old, new)
        reason = explain(old, new, record, trigger)
        event = next((one for one in events if one.trigger is trigger), None)
        change = _Change(entry.offset, f"{topic}-{key[1]}", topic, old, new, reason, event)
        groups.setdefault((reason.code, "" if event is None else event.trigger.text), []).append(change)
    for (code, subject), changes in groups.items():
        yield _of_partitions(code, subject, changes)
    told = {change.event.index for changes in groups.values() for change in changes if change.event is not None}
    for event in events:
        if event.index not in told:
            text = event.trigger.text
            if (
                isinstance(held[event.index].record, records.RegisterBrokerRecord)
                and event.trigger.broker not in brokers
            ):
                text = f"broker {event.trigger.broker} registered"
            yield LiveEvent(offset=held[event.index].offset, cause=event.trigger.code, text=text)
    for entry in held:
        tell = None if entry.record is None else _TELLERS.get(type(entry.record))
        if entry.record is None:
            yield _unknown(entry, after)
        elif tell is not None and (told_text := tell(entry.record, entry, before, after)):
            yield LiveEvent(offset=entry.offset, cause=entry.name, text=told_text)
    yield from _grown_topics(before, after, held)


def _pair(
    before: MetadataImage, after: MetadataImage, key: tuple[Uuid, int]
) -> tuple[str, Partition, Partition] | None:
    """The topic, and the partition before and after; None for a partition that is new or gone."""
    old, new = before.topics.by_id.get(key[0]), after.topics.by_id.get(key[0])
    if old is None or new is None or key[1] >= len(old.partitions):
        return None
    return new.name, old.partitions[key[1]], new.partitions[key[1]]


def _of_partitions(code: str, subject: str, changes: Sequence[_Change]) -> LiveEvent:
    if len(changes) == 1:
        [one] = changes
        moved = f" ({_leader(one.old)} → {_leader(one.new)})" if one.old.leader != one.new.leader else ""
        text = f"{one.name}{moved}: {one.reason.text}"
    else:
        effects = "; ".join(_effects(changes)) or f"{_counted(changes)} changed"
        text = f"{subject or _SUBJECTS.get(code, code.replace('-', ' '))}; {effects}"
    offset = min(change.offset for change in changes)
    return LiveEvent(
        offset=offset,
        cause=code,
        text=text,
        partitions=tuple(change.name for change in changes),
    )


def _effects(changes: Sequence[_Change]) -> Iterator[str]:
    """Clauses about changed partitions, the worst first; each partition counts in the first clause that applies."""
    rest = list(changes)
    clauses: tuple[tuple[str, str, Callable[[Partition, Partition], bool]], ...] = (
        ("has no leader", "have no leader", lambda old, new: new.leader == NO_LEADER != old.leader),
        ("has a new leader", "have a new leader", lambda old, new: new.leader != old.leader),
        (
            "is being reassigned",
            "are being reassigned",
            lambda old, new: bool(new.adding_replicas or new.removing_replicas),
        ),
        ("has other replicas", "have other replicas", lambda old, new: old.replicas != new.replicas),
        ("has fewer replicas in sync", "have fewer replicas in sync", lambda old, new: bool(without(old.isr, new.isr))),
        ("has more replicas in sync", "have more replicas in sync", lambda old, new: bool(without(new.isr, old.isr))),
        ("has fewer eligible leaders", "have fewer eligible leaders", lambda old, new: bool(without(old.elr, new.elr))),
    )
    for one, many, applies in clauses:
        some = [change for change in rest if applies(change.old, change.new)]
        rest = [change for change in rest if not applies(change.old, change.new)]
        if some:
            yield f"{_counted(some)} {one if len(some) == 1 else many}"


def _counted(changes: Sequence[_Change]) -> str:
    """`12 partitions of 4 topics (orders, payments, users, …)`."""
    if len(changes) == 1:
        return changes[0].name
    topics = sorted({change.topic for change in changes})
    more = ", …" if len(topics) > _MOST_TOPICS else ""
    of = "1 topic" if len(topics) == 1 else f"{len(topics)} topics"
    return f"{len(changes):,} partitions of {of} ({', '.join(topics[:_MOST_TOPICS])}{more})"


def _leader(partition: Partition) -> str:
    return "no leader" if partition.leader == NO_LEADER else str(partition.leader)


def _grown_topics(before: MetadataImage, after: MetadataImage, held: Sequence[Entry]) -> Iterator[LiveEvent]:
    first: dict[Uuid, int] = {}
    for entry in held:
        if isinstance(entry.record, records.PartitionRecord):
            first.setdefault(entry.record.topic_id, entry.offset)
    for topic_id, offset in first.items():
        old, new = before.topics.by_id.get(topic_id), after.topics.by_id.get(topic_id)
        if old is not None and new is not None and len(new.partitions) > len(old.partitions):
            text = f"topic {new.name} grew from {len(old.partitions)} to {len(new.partitions)} partitions"
            yield LiveEvent(offset=offset, cause="partitions-added", text=text)


# ------------------------------------------------------------------------------------------------- sentences by record

_Teller = Callable[[Any, Entry, MetadataImage, MetadataImage], str | None]


def _topic(record: records.TopicRecord, entry: Entry, before: MetadataImage, after: MetadataImage) -> str | None:
    topic = after.topics.by_id.get(record.topic_id)
    if topic is None:
        return f"topic {record.name} was created, and deleted at once"
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    return f"topic {record.name} was created; partitions: {len(topic.partitions)}, replicas of each: {replicas}"


def _removed_topic(
    record: records.RemoveTopicRecord, entry: Entry, before: MetadataImage, after: MetadataImage
) -> str | None:
    topic = before.topics.by_id.get(record.topic_id)
    return None if topic is None else f"topic {topic.name} was deleted, with {len(topic.partitions)} partitions"


def _config(record: records.ConfigRecord, entry: Entry, before: MetadataImage, after: MetadataImage) -> str:
    resource = (record.resource_type, record.resource_name)
    was = dict(in_key_order(before.configs.of(resource))).get(record.name)
    old, new = (
        shown_config(record.resource_type, record.name, value, show_secrets=False) for value in (was, record.value)
    )
    what = f"{resource_type_name(record.resource_type).lower()} {record.resource_name or '<default>'}: {record.name}"
    return f"{what} was unset" if new is None else f"{what} = {new}" + ("" if old is None else f" (was {old})")


def _feature(record: records.FeatureLevelRecord, entry: Entry, before: MetadataImage, after: MetadataImage) -> str:
    return f"feature {record.name}: level {record.feature_level}"


def _quota(record: records.ClientQuotaRecord, entry: Entry, before: MetadataImage, after: MetadataImage) -> str:
    entity = ", ".join(
        f"{one.entity_type}={'<default>' if one.entity_name is None else one.entity_name}" for one in record.entity
    )
    return f"quota {entity}: {record.key} " + ("was removed" if record.remove else f"= {record.value:g}")


def _elected(record: control.LeaderChangeMessage, entry: Entry, before: MetadataImage, after: MetadataImage) -> str:
    votes = ", ".join(str(one.voter_id) for one in record.granting_voters)
    return f"controller {record.leader_id} leads in epoch {entry.epoch}, with the votes of {votes}"


def _voters(record: control.VotersRecord, entry: Entry, before: MetadataImage, after: MetadataImage) -> str:
    return f"the voters are {', '.join(str(one.voter_id) for one in record.voters)}"


_TELLERS: Final[Mapping[type[Message], _Teller]] = {
    records.TopicRecord: _topic,
    records.RemoveTopicRecord: _removed_topic,
    records.ConfigRecord: _config,
    records.FeatureLevelRecord: _feature,
    records.ClientQuotaRecord: _quota,
    records.UserScramCredentialRecord: lambda record, *_: (
        f"user {record.name} got a password ({SCRAM_MECHANISMS.get(record.mechanism, record.mechanism)})"
    ),
    records.RemoveUserScramCredentialRecord: lambda record, *_: (
        f"user {record.name} lost the password ({SCRAM_MECHANISMS.get(record.mechanism, record.mechanism)})"
    ),
    records.AccessControlEntryRecord: lambda record, *_: (
        f"an access rule of {record.principal} on {record.resource_name} was added"
    ),
    records.RemoveAccessControlEntryRecord: lambda record, entry, before, after: (
        None
        if (acl := before.acls.by_id.get(record.id)) is None
        else f"an access rule of {acl.principal} on {acl.resource_name} was removed"
    ),
    records.DelegationTokenRecord: lambda record, *_: f"delegation token {record.token_id} was set",
    records.RemoveDelegationTokenRecord: lambda record, *_: f"delegation token {record.token_id} was removed",
    records.RegisterControllerRecord: lambda record, *_: f"controller {record.controller_id} registered",
    records.UnregisterControllerRecord: lambda record, *_: f"controller {record.controller_id} was unregistered",
    control.LeaderChangeMessage: _elected,
    control.VotersRecord: _voters,
    control.KRaftVersionRecord: lambda record, *_: f"kraft.version is {record.kraft_version}",
}
