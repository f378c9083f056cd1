"""The image in a directory at an offset or a time, and the options for it, for all commands that show images."""

from __future__ import annotations

from collections.abc import Iterable

import click
from msgspec import Struct
from msgspec.structs import replace

from kraft.cli.moments import MOMENT
from kraft.cli.near import end_words
from kraft.cli.progress import LongJob
from kraft.cli.text import echo
from kraft.config.errors import CommandFailed
from metadata_log.disk import OsDisk
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataDelta, MetadataImage, ReplayError
from metadata_log.image.tree import Provenance
from metadata_log.reading.annotate import value_position
from metadata_log.reading.damage import Damage, DamagedFile, OnDamage, stops
from metadata_log.reading.entries import Entry
from metadata_log.reading.log_end import find_log_end
from metadata_log.reading.timeline import At, Base, From, TimelineBatch, read_timeline
from metadata_log.records.batch import RecordBatch
from metadata_log.releases import unknown_record_text
from metadata_log.times import when_text
from metadata_log.types import OffsetAndEpoch

at_option = click.option(
    "--at",
    type=MOMENT,
    help="The state after the record at this offset, or at this time, such as 2026-11-21T08:17:00Z or -10m.",
)
reading_options = click.option(
    "--on-damage",
    type=click.Choice([each.value for each in OnDamage]),
    default=OnDamage.STOP.value,
    show_default=True,
    help="Whether damage ends the command, ends the reading at the damage, or is skipped.",
)
show_secrets_option = click.option("--show-secrets", is_flag=True, help="Print credentials and passwords as they are.")


class ImageAt(Struct, frozen=True, kw_only=True):
    """The image of a path at a moment, with its last record and the damage found before."""

    path: str
    image: MetadataImage
    provenance: Provenance
    damages: tuple[Damage, ...]
    open_since: int | None = None
    """The start offset of an open transaction; its changes are not in the image."""
    stopped: bool = False
    """Whether damage ended the reading."""
    lacks_unknown: bool = False
    """Whether records of a later release were passed over."""

    @property
    def is_damaged(self) -> bool:
        """Whether the image may be incomplete; an incomplete end of a growing log does not count."""
        return any(not damage.unfinished for damage in self.damages)

    @property
    def hint(self) -> str | None:
        """A hint for the damage."""
        if self.stopped:
            return "This is the state before the damage; --on-damage skip-damage continues after the damage."
        if self.lacks_unknown:
            return "What these records changed is missing here. Run the release of trio-kraft that knows them."
        return None

    @property
    def where(self) -> str:
        """A text for the moment."""
        if self.provenance.offset < 0:
            return f"{self.path} before the first record"
        time = when_text(self.provenance.timestamp_ms)
        text = f"{self.path} after offset {self.provenance.offset}, epoch {self.provenance.epoch}, {time}"
        open_since = self.open_since
        return text if open_since is None else f"{text}, without the transaction that is open since offset {open_since}"


def image_at(path: str, at: At | None, on_damage: OnDamage = OnDamage.STOP, moment: str = "--at") -> ImageAt:
    """Replay a directory, a segment or a snapshot up to a moment, without the changes of an open transaction.

    `moment` is what a user would leave out for the end of the log.

    Raises `MetadataLogError` or `CommandFailed` if the state at that moment is unknown.
    """
    try:
        replayed = _read(path, at, "latest", on_damage)
    except MetadataLogError as bad:
        if on_damage is OnDamage.STRICT:
            raise
        # After a damaged snapshot, an older one or the log itself may lead to the same moment.
        replayed = _read(path, at, "earliest", on_damage)
        replayed = replace(replayed, damages=(_damage_of(bad, path), *replayed.damages))
    _check_moment(replayed, at, moment)
    return replayed


def _read(path: str, at: At | None, begin: From, on_damage: OnDamage) -> ImageAt:
    reading = _Reading(on_damage)
    with LongJob("Replaying", None, unit="batches") as job:
        for item in read_timeline(OsDisk(), path, until=at, from_base=begin, on_damage=on_damage):
            reading.take(item)
            job.advance(1)
            if reading.over:
                break
    return reading.result(path)


def _damage_of(bad: MetadataLogError, path: str) -> Damage:
    if isinstance(bad, DamagedFile):
        return bad.damage
    return Damage(where=bad.where or path, what=bad.what, expected="a sound snapshot", position=bad.position)


class _Reading:
    """An image in progress."""

    def __init__(self, on_damage: OnDamage) -> None:
        self._on_damage = on_damage
        self._delta = MetadataDelta(MetadataImage())
        self._provenance = Provenance()
        self._damages: list[Damage] = []
        self._unknown: set[tuple[int, int]] = set()
        """The types and versions of the records that were not known."""
        self.over = False

    def take(self, item: Base | TimelineBatch | Damage) -> None:
        """Continue with the next item."""
        try:
            match item:
                case Damage():
                    self._damages.append(item)
                    # Missing files below the first snapshot are reported last, and do not end the reading.
                    is_below = item.offset is not None and item.offset <= self._provenance.offset
                    self.over = stops(item, self._on_damage) and not is_below
                case Base():
                    self._delta = MetadataDelta(MetadataImage())
                    self._replay_base(item)
                case TimelineBatch():
                    self._replay_batch(item)
        except DamagedFile as damaged:
            raise damaged.at_level(self._delta.features.metadata_version) from None

    def _replay_base(self, base: Base) -> None:
        """Replay a snapshot. A part of a snapshot is not a valid state: damage is fatal, unless it is to be skipped."""
        for entry in base.entries:
            problem = entry if isinstance(entry, Damage) else self._one(entry, base.path, None)
            if problem is not None:
                if self._ends_at(entry, problem):
                    raise DamagedFile(problem)
                self._note(entry, problem)
        self._provenance = Provenance(offset=base.end.offset - 1, epoch=base.end.epoch, timestamp_ms=base.timestamp_ms)

    def _replay_batch(self, batch: TimelineBatch) -> None:
        offset, timestamp_ms = batch.end_offset - 1, batch.batch.max_timestamp
        for entry in batch.entries():
            problem = entry if isinstance(entry, Damage) else self._one(entry, batch.path, batch.batch)
            if problem is not None:
                self._note(entry, problem)
                if self._ends_at(entry, problem):
                    self.over = True
                    offset = batch.from_offset - 1 if problem.offset is None else problem.offset - 1
                    break
        if offset > self._provenance.offset:
            self._provenance = Provenance(offset=offset, epoch=batch.batch.epoch, timestamp_ms=timestamp_ms)

    def _note(self, entry: Entry | Damage, problem: Damage) -> None:
        """Keep damage for the report; of records of a later release the first of each kind."""
        if isinstance(entry, Entry) and entry.record is None:
            if (entry.type, entry.version) in self._unknown:
                return
            self._unknown.add((entry.type, entry.version))
        self._damages.append(problem)

    def _ends_at(self, entry: Entry | Damage, problem: Damage) -> bool:
        """Whether reading ends there. What a record of a later release changed is missing, and nothing else."""
        is_unknown = isinstance(entry, Entry) and entry.record is None
        return self._on_damage is OnDamage.STRICT if is_unknown else stops(problem, self._on_damage)

    def _one(self, entry: Entry, path: str, batch: RecordBatch | None) -> Damage | None:
        """Replay one record; returns its damage, or None."""
        if entry.is_control:
            return None
        try:
            if entry.record is not None:
                self._delta.replay(entry.record, entry.offset)
                return None
            return unknown_record(entry, path, batch, self._delta.features.metadata_version)
        except ReplayError as fault:
            expected = "a record that agrees with those before it"
            position = None if batch is None else _position(entry, batch)
            return Damage(where=path, what=fault.what, expected=expected, position=position, offset=entry.offset)

    def result(self, path: str) -> ImageAt:
        """The resulting image."""
        end = OffsetAndEpoch(epoch=max(self._provenance.epoch, 0), offset=self._provenance.offset + 1)
        image = self._delta.apply(end)
        return ImageAt(
            path=path,
            image=image.stable,
            provenance=self._provenance,
            damages=tuple(self._damages),
            open_since=None if image.transaction is None else image.transaction.start_offset,
            stopped=self.over,
            lacks_unknown=bool(self._unknown),
        )


def _check_moment(found: ImageAt, at: At | None, moment: str) -> None:
    """Refuse a moment outside the history; after damage, the report of the damage is enough."""
    if at is None or found.is_damaged:
        return
    last = found.provenance.offset
    if at.offset is not None and last < at.offset:
        raise CommandFailed(
            f"offset {at.offset} is beyond the end: {end_words(last, found.provenance.timestamp_ms)} ({found.path})",
            hint=f"Leave {moment} out for the end of the log.",
        )
    if at.offset is not None and last > at.offset:
        raise CommandFailed(
            f"the state at offset {at.offset} is unknown: this holds the state after offset {last} ({found.path})"
        )
    if at.timestamp_ms is not None and (last < 0 or found.provenance.timestamp_ms > at.timestamp_ms):
        raise CommandFailed(
            f"no record here is as old as {when_text(at.timestamp_ms)} ({found.path})", hint=first_words(found.path)
        )
    if at.timestamp_ms is not None and at.timestamp_ms > found.provenance.timestamp_ms:
        end = find_log_end(OsDisk(), found.path)
        if at.timestamp_ms > max(end.timestamp_ms, found.provenance.timestamp_ms):
            raise CommandFailed(
                f"{when_text(at.timestamp_ms)} is beyond the end: {end_words(end.offset, end.timestamp_ms)}"
                f" ({found.path})",
                hint=f"Leave {moment} out for the end of the log.",
            )


def first_words(path: str) -> str | None:
    """A text with the beginning of the history."""
    for item in read_timeline(OsDisk(), path, on_damage=OnDamage.SKIP):
        if isinstance(item, TimelineBatch):
            return f"The history begins at offset {item.from_offset}, {when_text(item.batch.base_timestamp)}."
        if isinstance(item, Base):
            return f"The history begins after offset {item.end.offset - 1}, {when_text(item.timestamp_ms)}."
    return None


def unknown_record(entry: Entry, path: str, batch: RecordBatch | None, level: int | None) -> Damage:
    """The damage for a record of a newer Kafka with unknown effect; the batch is that of a log, `level` the
    metadata.version at that point, if known.
    """
    return Damage(
        where=path,
        what=unknown_record_text(entry.type, entry.version, level),
        expected="a record that this version knows",
        position=None if batch is None else _position(entry, batch),
        offset=entry.offset,
    )


def _position(entry: Entry, batch: RecordBatch) -> int:
    """The position of a record's value in its file; that of its batch if the batch is compressed."""
    return batch.position + (value_position(batch, entry.offset - batch.base_offset) or 0)


def damage_json(damage: Damage) -> dict[str, object]:
    """A damage as JSON fields."""
    place = {"position": damage.position, "offset": damage.offset, "unfinished": damage.unfinished}
    return {"file": damage.where, "damage": damage.what, "expected": damage.expected, **place}


def report_damages(damages: Iterable[Damage], *, hint: str | None = None) -> bool:
    """Report damages and a hint on stderr; returns whether there are any, besides the end of a growing log."""
    damaged = False
    for damage in damages:
        damaged |= not damage.unfinished
        echo(f"kraft: {'warning' if damage.unfinished else 'error'}: {damage}", err=True)
    if damaged and hint is not None:
        echo(f"hint: {hint}", err=True)
    return damaged
