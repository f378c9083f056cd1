"""One pass over the history of a directory: the rows of views, the damage, what the log does not cover,
and whether the names of a filter ever existed.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

from msgspec.structs import asdict, replace

from kraft.cli.files.history_lines import Filter, Row, by_name
from kraft.cli.files.image_at import first_words, report_damages, unknown_record
from kraft.cli.near import end_words, unknown_broker, unknown_topic
from kraft.cli.progress import LongJob
from kraft.config.errors import CommandFailed
from metadata_log.disk import Disk, OsDisk
from metadata_log.errors import MetadataLogError
from metadata_log.history.engine import Options, rows
from metadata_log.history.views import VIEWS, View
from metadata_log.log.log_dir import META_PROPERTIES, parse_meta_properties
from metadata_log.log.segment import SUFFIX as LOG_SUFFIX
from metadata_log.reading.damage import Damage
from metadata_log.reading.entries import Entry
from metadata_log.reading.log_end import find_log_end
from metadata_log.reading.timeline import At, Base, TimelineBatch, moment_text, read_timeline
from metadata_log.records.batch import RecordBatch
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.releases import METADATA_VERSION
from metadata_log.times import when_text
from metadata_log.types import PARTITION_DIRECTORY

_TOPICS: Final = "topic_history"
_BROKERS: Final = "broker_history"
_PARTITIONS: Final = "partition_history"
_CONFIGS: Final = "config_history"


class Names:
    """Collects the topics and brokers of a history that a filter may name, including deleted topics."""

    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted
        self._topics: dict[str, int] = {}
        self._brokers: set[int] = set()
        self.views: frozenset[str] = frozenset()
        """The views with the names."""
        if wanted.topic is not None:
            self.views |= {_TOPICS}
        if wanted.broker is not None:
            self.views |= {_BROKERS, _PARTITIONS}

    def note(self, view: str, row: Row) -> None:
        """Account for the names in a row."""
        if self._wanted.topic is not None and view == _TOPICS:
            name, partitions = row[_AT[_TOPICS, "topic"]], row[_AT[_TOPICS, "partitions"]]
            self._topics[name] = max(self._topics.get(name, 0), partitions)
        elif self._wanted.topic is not None and view == _CONFIGS and row[_AT[_CONFIGS, "resource_type"]] == "TOPIC":
            self._topics.setdefault(row[_AT[_CONFIGS, "resource_name"]], 0)
        elif self._wanted.broker is not None and view == _BROKERS:
            self._brokers.add(row[_AT[_BROKERS, "broker"]])
        elif self._wanted.broker is not None and view == _PARTITIONS:
            self._brokers.update(row[_AT[_PARTITIONS, "replicas"]])
        elif self._wanted.broker is not None and view == _CONFIGS and row[_AT[_CONFIGS, "resource_type"]] == "BROKER":
            name = row[_AT[_CONFIGS, "resource_name"]]
            self._brokers |= {int(name)} if name.isdecimal() else set()

    def unknown(self) -> CommandFailed | None:
        """The failure for a name without any row; None if all requested names are known."""
        topic, broker = self._wanted.topic, self._wanted.broker
        if topic is not None and topic not in self._topics:
            name, dash, number = topic.rpartition("-")
            if not (dash and number.isdecimal() and name in self._topics):
                return unknown_topic(
                    topic, self._topics, hint="`kraft replay` lists the topics of the end, or of --at."
                )
            if int(number) >= self._topics[name]:
                partitions = self._topics[name]
                return CommandFailed(f"there is no partition {topic}", hint=f"{name} never had more than {partitions}.")
        if broker is not None and broker not in self._brokers:
            return unknown_broker(broker, self._brokers, verb="never was")
        return None


_AT: Final = {
    (view, column): VIEWS[view].names.index(column)
    for view, column in (
        (_TOPICS, "topic"),
        (_TOPICS, "partitions"),
        (_BROKERS, "broker"),
        (_PARTITIONS, "replicas"),
        (_CONFIGS, "resource_type"),
        (_CONFIGS, "resource_name"),
    )
}
"""The index of a column in the rows of a view."""


_RETENTION: Final = "retention"
_REPORTED_AS_DAMAGE: Final = frozenset({"damage", "fault"})


class HistoryReading:
    """One pass over the history of a path, with the damage found."""

    def __init__(self, path: str, until: At | None, options: Options, wanted: Filter) -> None:
        self.path = path
        self.cluster = cluster_of(OsDisk(), path)
        self.end = find_log_end(OsDisk(), path)
        self._names = Names(wanted)
        self.damages: list[Damage] = []
        self.lost_sight = False
        """Whether damage hides a part of the history."""
        self.bases: list[tuple[bool, Base]] = []
        """The snapshots at the beginning of the history (True), or after damage (False)."""
        self._places: list[tuple[int, str]] = []
        self._unknown: set[tuple[int, int]] = set()
        self._level: int | None = None
        """The metadata.version where the reading stands."""
        self.until = until
        self.shows_secrets = options.show_secrets
        self._options = options

    def rows(self, views: Iterable[str]) -> Iterator[tuple[View, Row]]:
        """The rows of views in the order of their ends."""
        wanted = frozenset(views)
        read = wanted | {_RETENTION} | self._names.views
        with LongJob("Reading", _size(self.path), unit="bytes") as job:
            items = self._items(job)
            for name, row in rows(items, read, cluster=self.cluster, options=self._options):
                if name == _RETENTION:
                    self._on_retention(row)
                self._names.note(name, row)
                if name in wanted:
                    yield VIEWS[name], row
        self._check_read()

    @property
    def is_damaged(self) -> bool:
        """Whether the history may lack changes because of damage."""
        return any(not damage.unfinished for damage in self.damages)

    def check_since(self, since: At | None) -> None:
        """Raise `CommandFailed` for a beginning after the end of the log."""
        if since is not None and self.end.offset >= 0 and not self.end.reaches(since):
            end = end_words(self.end.offset, self.end.timestamp_ms)
            raise CommandFailed(f"--since {moment_text(since)} is beyond the end: {end} ({self.path})")

    def _check_read(self) -> None:
        """Raise `CommandFailed` if nothing was read, or the requested period is unknown."""
        until = self.until
        if not (self._places or self.bases or self.damages):
            if until is None or self.end.offset < 0:
                raise CommandFailed(f"{end_words(-1, None)} ({self.path})")
            raise CommandFailed(
                f"no record here is as old as --until {moment_text(until)} ({self.path})", hint=first_words(self.path)
            )
        if (unknown := self._names.unknown()) is not None:
            report_damages(self.damages)
            raise unknown

    def unknown_time(self, since: At | None) -> CommandFailed | None:
        """The failure for a requested period that the log does not cover."""
        begins = next((base for first, base in self.bases if first), None)
        if since is not None and begins is not None and _is_before(since, begins):
            return CommandFailed(
                f"the history begins after offset {begins.end.offset - 1}, {when_text(begins.timestamp_ms)}: "
                f"what happened from --since {moment_text(since)} to there is not known ({self.path})"
            )
        if self.until is not None and not self.end.reaches(self.until):
            end = end_words(self.end.offset, self.end.timestamp_ms)
            return CommandFailed(f"--until {moment_text(self.until)} is beyond the end: {end} ({self.path})")
        return None

    def _items(self, job: LongJob) -> Iterator[Base | TimelineBatch | Damage]:
        for item in read_timeline(OsDisk(), self.path, until=self.until, on_damage=self._options.on_damage):
            match item:
                case Damage():
                    self.damages.append(item)
                    yield item
                case Base():
                    self.bases.append((not self._places, item))
                    yield replace(item, entries=self._watch(item.entries, item.path, None))
                case TimelineBatch():
                    job.advance(item.batch.size_bytes)
                    self._places.append((item.from_offset, item.path))
                    yield _Watched(**asdict(item), watch=self._watch)

    def _watch(
        self, entries: Iterable[Entry | Damage], path: str, batch: RecordBatch | None
    ) -> Iterator[Entry | Damage]:
        for entry in entries:
            if isinstance(entry, Damage):
                self.damages.append(entry)
            elif isinstance(entry.record, FeatureLevelRecord) and entry.record.name == METADATA_VERSION:
                self._level = entry.record.feature_level
            elif entry.record is None and (entry.type, entry.version) not in self._unknown:
                self._unknown.add((entry.type, entry.version))
                self.damages.append(unknown_record(entry, path, batch, self._level))
            yield entry

    def _on_retention(self, row: Row) -> None:
        """Note the gaps of the history that do not come from file damage, which is reported in more detail."""
        facts = by_name(VIEWS[_RETENTION], row)
        offset = facts["from_offset"]
        self.lost_sight |= facts["kind"] == "damage"
        if facts["kind"] not in _REPORTED_AS_DAMAGE or any(
            damage.offset == offset or facts["text"].startswith(damage.what) for damage in self.damages
        ):
            return
        index = bisect_right(self._places, offset, key=lambda place: place[0]) - 1
        where = facts["path"] or (self._places[index][1] if index >= 0 else self.path)
        expected = "records that agree with each other"
        self.damages.append(Damage(where=where, what=facts["text"], expected=expected, offset=offset))


class _Watched(TimelineBatch, frozen=True, kw_only=True):
    """A batch that also reports its damage to the reading."""

    watch: Callable[[Iterable[Entry | Damage], str, RecordBatch | None], Iterator[Entry | Damage]]

    def entries(self) -> Iterator[Entry | Damage]:
        """The records, decoded during the iteration."""
        return self.watch(TimelineBatch.entries(self), self.path, self.batch)


def _is_before(at: At, base: Base) -> bool:
    """Whether a moment is before the end of the history's first snapshot."""
    if at.offset is not None:
        return at.offset < base.end.offset
    return at.timestamp_ms is not None and at.timestamp_ms < base.timestamp_ms


def _size(path: str) -> int:
    """The total size in bytes of a path's segments, as far as they still exist."""
    if os.path.isfile(path):
        return os.path.getsize(path)
    inner = os.path.join(path, PARTITION_DIRECTORY)
    total = 0
    with os.scandir(inner if os.path.isdir(inner) else path) as files:
        for file in files:
            if file.name.endswith(LOG_SUFFIX):
                with suppress(FileNotFoundError):
                    total += file.stat().st_size
    return total


def cluster_of(disk: Disk, path: str) -> str:
    """The id in meta.properties of the log directory that a path is, or is in; else the name of the path."""
    place = os.path.abspath(path)
    for directory in (place, os.path.dirname(place), os.path.dirname(os.path.dirname(place))):
        file = f"{directory}/{META_PROPERTIES}"
        if disk.exists(file):
            with suppress(MetadataLogError):
                return parse_meta_properties(disk.read(file), where=file).cluster_id
    return os.path.basename(place)
