"""The history engine: one pass over a metadata log that writes the rows of any views, each row when its interval ends
(Kafka: `MetadataLoader`, `MetadataDelta`).

The engine keeps the state of the cluster and the open rows; the log may be of any length. The image
(`metadata_log.image`) defines how records change the state; the engine observes those changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import length_hint
from typing import Final

from msgspec import Struct

from metadata_log.errors import ReplayError
from metadata_log.history.causes import CauseRow, Trigger
from metadata_log.history.changes import Change, Changes, Keyed, Template, Templates, whole_record
from metadata_log.history.cluster import OF_BROKERS, Cluster
from metadata_log.history.events import FULL_BATCH, BrokerEvent, trigger_at
from metadata_log.history.open_rows import Row, Sink, When, cause_of_snapshot
from metadata_log.history.quorum import GAP_TOLERANCE_MS
from metadata_log.history.retention import Retention
from metadata_log.history.state import state_rows
from metadata_log.history.unread import Unread, lacking_views
from metadata_log.history.views import STATE_VIEWS, VIEWS
from metadata_log.image.image import MetadataDelta, MetadataImage
from metadata_log.reading.damage import Damage, DamagedFile, OnDamage
from metadata_log.reading.timeline import At, Base, TimelineBatch
from metadata_log.records import metadata as records
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch

_MOST_HELD: Final = 64
"""The most full batches of one split decision that wait for the record that explains them."""


class Options(Struct, frozen=True, kw_only=True):
    """The options of a history.

    Args:
        session_timeout_ms: The brokers' broker.session.timeout.ms in ms, which the log does not hold. With this value
            the engine recognizes a broker that was fenced before its session could expire as shut down.
        gap_tolerance_ms: For how many ms the active controller may write nothing before that is a gap.
        show_secrets: Whether values of secret configurations are shown.
        on_damage: The reaction to damage and to records that contradict the state.
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

    A row is written when its interval ends; open rows come last. Rows of `*_state` views hold at the end of `items`, or
    at `at`. Without strict `on_damage`, faults and damage become rows of `retention`, and the history pauses until the
    next snapshot.

    Args:
        items: The items of `read_timeline`.
        views: The names of the views.
        cluster: The value of the column `cluster`.
        at: The end of the history (inclusive); None for the end of `items`.
        options: The options.

    Returns:
        An iterator of rows.

    Raises:
        KeyError: A view is unknown.
        ReplayError: A record contradicts the state, or the items are not of one log.
    """
    for view in views:
        VIEWS[view]
    story = HistoryPass(cluster, frozenset(views), options)
    for _ in steps(story, items, at):
        yield from story.sink.take()


def steps(story: HistoryPass, items: Iterable[Base | TimelineBatch | Damage], at: At | None = None) -> Iterator[None]:
    """Advance a pass item by item, and write the open rows at the end; the caller takes the rows of each step."""
    for item in items:
        if not story.tell(item, at):
            break
        yield
    story.finish()
    yield


class _Part(Struct, frozen=True):
    """The changes of one batch, with its time and epoch; `effective` is the end offset of a transaction."""

    changes: Changes
    timestamp: int
    epoch: int
    effective: int | None = None


class _OpenTransaction(Struct):
    name: str
    began: When
    changes: Changes


class HistoryPass:
    """The state of one pass over one log. `tell` takes the items of a timeline in order."""

    def __init__(self, cluster: str, views: frozenset[str], options: Options) -> None:
        self.sink = Sink(cluster, views)
        self._options = options
        self._cluster = Cluster(
            self.sink,
            show_secrets=options.show_secrets,
            gap_tolerance_ms=options.gap_tolerance_ms,
            session_timeout_ms=options.session_timeout_ms,
        )
        self._retention = Retention(self.sink)
        self._templates = Templates()
        self._states = sorted(views & STATE_VIEWS.keys())
        self._image = MetadataImage() if self._states else None
        self._last: When | None = None
        self._held: list[_Part] = []
        self._transaction: _OpenTransaction | None = None

    def unread(self) -> list[Unread]:
        """The records of a later release so far, which a strict reading has passed over only if it was told to."""
        return [
            Unread(
                type=kind,
                version=version,
                level=self._cluster.metadata_version,
                from_offset=first.offset,
                to_offset=last.offset + 1,
                records=count,
                views=[view for view in sorted(lacking_views(kind)) if view in self.sink.wanted],
            )
            for (kind, version), (first, last, count) in self._retention.unread.items()
        ]

    @property
    def unread_types(self) -> int:
        """How many types and versions they have."""
        return len(self._retention.unread)

    # ------------------------------------------------------------------------------------------------------ items

    def tell(self, item: Base | TimelineBatch | Damage, at: At | None) -> bool:
        """Process one item; returns False for an item beyond `at`, which ends the history."""
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
        """Write all open rows."""
        self._flush()
        now = self._last or When(-1, -1, -1)
        if self._transaction is not None:
            began, count = self._transaction.began, len(self._transaction.changes.all)
            self._retention.on_transaction("open-transaction", began, now, count, self._transaction.name)
        self._write_states(now)
        metadata_version = self._cluster.metadata_version
        self._cluster.finish(now)
        self._retention.finish(metadata_version)

    def _on_base(self, base: Base) -> None:
        when = When(base.end.offset - 1, base.timestamp_ms, base.end.epoch)
        if self._last is not None and not self._retention.is_lost:
            self._lose_sight(when)
        self._last = when
        cause = cause_of_snapshot()
        changes: list[Change] = []
        self._cluster.begin_batch()
        try:
            for entry in base.entries:
                if isinstance(entry, Damage):
                    self._on_damage(entry)
                    return
                if entry.record is None:
                    self._retention.on_unknown(entry, when)
                elif entry.is_control:
                    self._cluster.on_control(entry.record, when, in_snapshot=True)
                else:
                    changes.append((entry.offset, entry.record, b""))
                    self._tell_record(entry.record, entry.offset, when, cause, None)
        except DamagedFile as damaged:
            raise damaged.at_level(self._cluster.metadata_version) from None
        self._cluster.end_batch()
        self._replay(changes, base.end, is_snapshot=True)
        self._retention.on_base(base, when, len(changes))

    def _on_damage(self, damage: Damage) -> None:
        self._flush()
        before = self._last
        offset = 0 if before is None else before.offset + 1
        if damage.offset is not None:
            # After a gap the log continues at a later offset; damage within a batch has an earlier one.
            offset = min(offset, damage.offset)
        self._retention.on_damage(damage, offset, before)
        if not damage.unfinished:
            self._lose_sight(When(offset, -1, -1) if before is None else When(offset, before.timestamp, before.epoch))

    def _lose_sight(self, when: When) -> None:
        self._transaction = None
        self._cluster.lose_sight(when)
        if self._image is not None:
            self._image = MetadataImage()

    def _on_batch(self, item: TimelineBatch, last_offset: int | None) -> None:
        batch = item.batch
        timestamp, epoch = batch.max_timestamp, batch.epoch
        end = item.end_offset if last_offset is None else min(item.end_offset, last_offset + 1)
        first, last = When(item.from_offset, batch.base_timestamp, epoch), When(end - 1, timestamp, epoch)
        if not self._retention.is_lost and (wrong := self._out_of_order(first)) is not None:
            if self._options.on_damage is OnDamage.STRICT:
                raise ReplayError(wrong, where=item.path)
            expected = "the batch that comes next in this log"
            self._on_damage(Damage(where=item.path, what=wrong, expected=expected, position=0, offset=first.offset))
        if self._retention.is_lost:
            self._retention.on_ignored(first, last, end - item.from_offset)
            self._last = last
            return
        self._retention.on_records(item.path, first, last, end - item.from_offset)
        self._cluster.on_time(first)
        whole = item.from_offset <= batch.base_offset and end >= batch.next_offset and not batch.is_control
        changes = self._templates.read(batch) if whole else None
        damage = None
        if changes is None:
            changes, damage = self._read(item, end)
        if not batch.is_control:
            self._cluster.quorum.on_records(first, last, has_noop=changes.has_noop)
        if changes.all:
            self._on_changes(changes, timestamp, epoch)
        elif self._held:
            self._flush()
        self._last = last
        if damage is not None:
            self._on_damage(damage)

    def _out_of_order(self, first: When) -> str | None:
        """The error of a batch that does not follow the batch before: the batches are not of one log."""
        before = self._last
        if before is None:
            return None if first.offset == 0 else f"the history begins at offset {first.offset} and with no snapshot"
        if first.offset != before.offset + 1:
            return f"a batch from offset {first.offset} on follows offset {before.offset}"
        if first.epoch < before.epoch:
            return f"a batch of epoch {first.epoch} follows one of epoch {before.epoch}"
        return None

    def _read(self, item: TimelineBatch, end: int) -> tuple[Changes, Damage | None]:
        """The changes of a batch record by record, and the damage that ends the batch, if any."""
        changes = Changes()
        timestamp, epoch = item.batch.max_timestamp, item.batch.epoch
        try:
            for entry in item.entries():
                if isinstance(entry, Damage):
                    return changes, entry
                if entry.offset >= end:
                    break
                if entry.record is None:
                    self._retention.on_unknown(entry, When(entry.offset, timestamp, epoch))
                elif entry.is_control:
                    self._flush()
                    self._cluster.on_control(entry.record, When(entry.offset, timestamp, epoch), in_snapshot=False)
                else:
                    changes.add(entry.offset, entry.record, entry.value, self._templates)
        except DamagedFile as damaged:
            self._on_changes(changes, timestamp, epoch)
            self._flush()
            raise damaged.at_level(self._cluster.metadata_version) from None
        return changes, None

    # ---------------------------------------------------------------------------------------------------- changes

    def _on_changes(self, changes: Changes, timestamp: int, epoch: int) -> None:
        """Resolve transactions: changes inside one take effect at its end, or never."""
        in_transaction = self._transaction is not None
        if not in_transaction and not any(type(changes.all[index][1]) in _MARKERS for index in changes.others):
            may_go_on = len(changes.all) >= FULL_BATCH and type(changes.all[-1][1]) is Template
            self._tell_part(_Part(changes, timestamp, epoch), may_go_on=may_go_on)
            return
        plain = Changes()
        for change in changes.all:
            offset, record, _ = change
            kind = type(record)
            transaction = self._transaction
            if kind is records.BeginTransactionRecord:
                self._tell_part(_Part(plain, timestamp, epoch), may_go_on=False)
                plain = Changes()
                if transaction is not None:
                    self._fault(ReplayError(f"a transaction begins at offset {offset} while another is open"), offset)
                name = getattr(record, "name", None) or ""
                self._transaction = _OpenTransaction(name, When(offset, timestamp, epoch), Changes())
            elif transaction is None:
                if kind in _MARKERS:
                    self._fault(ReplayError(f"a transaction ends at offset {offset}, and none is open"), offset)
                else:
                    plain.put(change)
            elif kind is records.EndTransactionRecord:
                self._transaction = None
                self._tell_part(_Part(transaction.changes, timestamp, epoch, offset), may_go_on=False)
            elif kind is records.AbortTransactionRecord:
                self._transaction = None
                of = (transaction.began, When(offset, timestamp, epoch), len(transaction.changes.all), transaction.name)
                self._retention.on_transaction("aborted-transaction", *of)
            else:
                transaction.changes.put(change)
        self._tell_part(_Part(plain, timestamp, epoch), may_go_on=False)

    def _tell_part(self, part: _Part, *, may_go_on: bool) -> None:
        if part.changes.all and not self._retention.is_lost:
            self._held.append(part)
            if not may_go_on or len(self._held) >= _MOST_HELD:
                self._flush()

    def _flush(self) -> None:
        """Process the changes that waited for an explanation."""
        held, self._held = self._held, []
        events = self._events(held)
        before = 0
        for part in held:
            self._cluster.begin_batch()
            changes = part.changes.all
            for begin, end in part.changes.runs():
                offset, record, _ = changes[begin]
                if isinstance(record, Keyed):
                    self._tell_partitions(changes[begin:end], part, events, before + begin)
                else:
                    when = When(offset if part.effective is None else part.effective, part.timestamp, part.epoch)
                    trigger = trigger_at(events, before + begin) if events else None
                    self._tell_record(record, offset, when, None, trigger)
                if self._retention.is_lost:
                    return
            before += len(changes)
            self._cluster.end_batch()
            end_offset = (changes[-1][0] if part.effective is None else part.effective) + 1
            self._replay(changes, OffsetAndEpoch(epoch=part.epoch, offset=end_offset))

    def _tell_partitions(self, changes: list[Change], part: _Part, events: Sequence[BrokerEvent], index: int) -> None:
        remaining = iter(changes)
        while not self._retention.is_lost:
            try:
                self._cluster.on_changes(remaining, part.timestamp, part.epoch, part.effective, events, index)
            except (ReplayError, KeyError) as fault:
                offset, change, _ = changes[len(changes) - length_hint(remaining) - 1]
                known = fault if isinstance(fault, ReplayError) else _missing(_name_of(change), offset)
                self._fault(known, offset)
            else:
                return

    def _tell_record(
        self, record: Message, offset: int, when: When, snapshot: CauseRow | None, trigger: Trigger | None
    ) -> None:
        try:
            self._cluster.on_record(record, offset, when, snapshot, trigger)
        except (ReplayError, KeyError) as fault:
            known = fault if isinstance(fault, ReplayError) else _missing(type(record).__name__, offset)
            self._fault(known, offset)

    def _events(self, held: Sequence[_Part]) -> list[BrokerEvent]:
        """The broker events in the waiting batches, by the indexes of their records in all of these."""
        changed: list[tuple[int, Message]] = []
        before = 0
        for part in held:
            changes = part.changes.all
            changed += [
                (before + at, record)
                for at in part.changes.others
                if type(record := changes[at][1]) in OF_BROKERS and not isinstance(record, Keyed)
            ]
            before += len(changes)
        if not changed:
            return []
        together = held[0].changes.all if len(held) == 1 else [change for part in held for change in part.changes.all]
        return self._cluster.events(changed, together, held[-1].timestamp)

    def _fault(self, fault: ReplayError, offset: int) -> None:
        """Handle a record that no correct controller writes: raise, or skip the record and write a row."""
        if self._options.on_damage is OnDamage.STRICT:
            raise fault
        if self._options.on_damage is OnDamage.STOP:
            self._on_damage(Damage(where="", what=fault.what, expected="a record that fits", position=0, offset=offset))
            return
        self._retention.on_fault(fault.what, offset, self._last)

    def _replay(self, changes: Iterable[Change], end: OffsetAndEpoch, *, is_snapshot: bool = False) -> None:
        """Update the image too if a state view is requested."""
        if self._image is None:
            return
        delta = MetadataDelta(self._image, is_snapshot=is_snapshot)
        for offset, record, key in changes:
            # A fault was one for the histories too, and is in `retention`.
            with suppress(ReplayError):
                delta.replay(whole_record(record, key), offset)
        self._image = delta.apply(end)

    # ------------------------------------------------------------------------------------------------------ state

    def _write_states(self, now: When) -> None:
        """Write the rows of the requested `*_state` views."""
        if self._image is None:
            return
        image = self._image.stable
        for view in self._states:
            if view == "voters_state":
                states = self._cluster.voters_state()
            else:
                states = list(state_rows(image, view, show_secrets=self._options.show_secrets))
            if view == "features_state":
                states = sorted([*states, *self._cluster.kraft_version_state()])
            for row in states:
                self.sink.emit(view, (*row, now.offset, now.timestamp))


_MARKERS: Final = frozenset(
    {records.BeginTransactionRecord, records.EndTransactionRecord, records.AbortTransactionRecord}
)


def _name_of(change: Message | Keyed) -> str:
    return type(change.record if isinstance(change, Keyed) else change).__name__


def _missing(name: str, offset: int) -> ReplayError:
    return ReplayError(f"the {name} at offset {offset} names an object that does not exist")
