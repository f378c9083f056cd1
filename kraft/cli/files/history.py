"""`kraft history`: lists the changes of a cluster with time and cause, from its metadata log alone."""

from __future__ import annotations

import json
import os
import shlex
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

import click
from msgspec.structs import asdict, replace

from kraft.cli.files.history_lines import MOMENTS, STORY, Facts, Filter, HistoryLines, Row, by_name
from kraft.cli.files.history_names import Names
from kraft.cli.files.image_at import at_of, first_words, report_damages, show_secrets_option, unknown_record
from kraft.cli.near import end_words
from kraft.cli.private import make_private, make_private_directory
from kraft.cli.progress import LongJob
from kraft.cli.text import count, echo, echo_lines, table
from kraft.config.errors import CommandFailed
from metadata_log.disk import Disk, OsDisk
from metadata_log.errors import MetadataLogError
from metadata_log.history.engine import Options, rows
from metadata_log.history.views import VIEWS, View
from metadata_log.log.log_dir import META_PROPERTIES, PARTITION_DIRECTORY, parse_meta_properties
from metadata_log.log.segment import SUFFIX as LOG_SUFFIX
from metadata_log.reading.damage import Damage, OnDamage
from metadata_log.reading.entries import Entry
from metadata_log.reading.log_end import find_log_end
from metadata_log.reading.timeline import At, Base, TimelineBatch, moment_text, read_timeline
from metadata_log.records.batch import RecordBatch
from metadata_log.times import iso_time

GAPS: Final = "controller_gaps"
_RETENTION: Final = "retention"
_REPORTED_AS_DAMAGE: Final = frozenset({"damage", "fault"})
_HINT: Final = "The history after the damage is unknown, up to the next snapshot."


@click.command(
    "history",
    short_help="What happened to the cluster, when and why.",
    epilog="Example: kraft history /var/lib/kafka/metadata --topic orders-3 --since 2026-11-20T22:00:00Z",
)
@click.argument("path", type=click.Path(exists=True), metavar="DIR")
@click.option("--topic", metavar="T[-P]", help="Only changes of this topic, or of this partition of it.")
@click.option("--broker", type=int, metavar="N", help="Only changes that concern this broker.")
@click.option("--since", callback=at_of, metavar="T", help="Only what happened at this time or offset, or later.")
@click.option("--until", callback=at_of, metavar="T", help="Only what happened up to this time or offset.")
@click.option("--elections", is_flag=True, help="Each election of a leader and of a controller, and why it happened.")
@click.option("--gaps", is_flag=True, help="The times in which no controller was active.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows of the views, one JSON object a line.")
@click.option(
    "--html", type=click.Path(dir_okay=False), metavar="OUT", help="Write a page with timelines to this file."
)
@click.option("--title", metavar="TEXT", help="The title of that page; the default is the cluster id and DIR.")
@click.option(
    "--parquet",
    type=click.Path(),
    metavar="OUT",
    help="Write the rows to this directory, a Parquet file for each view.",
)
@click.option(
    "--on-damage",
    type=click.Choice([each.value for each in OnDamage]),
    default=OnDamage.SKIP.value,
    show_default=True,
    help="Whether damage ends the command, ends the history, or the history continues with the next snapshot.",
)
@show_secrets_option
@click.pass_context
def history_command(
    context: click.Context,
    path: str,
    *,
    topic: str | None,
    broker: int | None,
    since: At | None,
    until: At | None,
    elections: bool,
    gaps: bool,
    as_json: bool,
    html: str | None,
    title: str | None,
    parquet: str | None,
    on_damage: str,
    show_secrets: bool,
) -> None:
    """List the leaders, replicas in sync and fenced brokers, and each change of configurations, access rules, features
    and quotas, with offset, time, epoch and cause.

    DIR is a log directory, the directory of the metadata partition, or a segment; a running node's may be read.
    """
    if html is not None and parquet is not None:
        raise click.UsageError("--html and --parquet exclude each other")
    if title is not None and html is None:
        raise click.UsageError("--title is the title of a page: add --html OUT")
    if gaps and elections:
        raise click.UsageError("--gaps and --elections exclude each other")
    wanted = Filter(topic=topic, broker=broker)
    names = wanted.views((GAPS,) if gaps else MOMENTS if elections else STORY)
    if not names:
        raise click.UsageError("--gaps does not apply to a topic or a broker")
    options = Options(show_secrets=show_secrets, on_damage=OnDamage(on_damage))
    reading = _Reading(path, until, options, wanted)
    reading.check_since(since)
    if html is not None:
        _write_page(reading, wanted, since, Path(html), title)
    elif parquet is not None:
        _write_parquet(reading, names, wanted, since, Path(parquet))
    elif gaps:
        _show_gaps(reading, since, as_json)
    else:
        _print_history(reading, names, wanted, since, as_json)
    damaged = report_damages(reading.damages, hint=_HINT if reading.lost_sight else None)
    if (unknown := reading.unknown_time(since)) is not None:
        raise unknown
    context.exit(1 if damaged else 0)


class _Reading:
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
        self.until = until
        self.shows_secrets = options.show_secrets
        self._options = options

    def rows(self, views: Iterable[str]) -> Iterator[tuple[View, Row]]:
        """The rows of views in the order of their ends."""
        wanted = frozenset(views)
        read = wanted | {_RETENTION} | self._names.views
        with LongJob("Reading", _size(self.path)) as job:
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
                f"the history begins after offset {begins.end.offset - 1}, {iso_time(begins.timestamp_ms)}: "
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
            elif entry.record is None and (entry.type, entry.version) not in self._unknown:
                self._unknown.add((entry.type, entry.version))
                self.damages.append(unknown_record(entry, path, batch))
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


def _print_history(reading: _Reading, names: tuple[str, ...], wanted: Filter, since: At | None, as_json: bool) -> None:
    lines = HistoryLines(wanted)
    objects: list[tuple[int, str]] = []
    for view, row in reading.rows({*names, "quorum_epochs"}):
        if view.name == "quorum_epochs":
            lines.note_epoch(row)
        facts = lines.take(view, row) if view.name in names else None
        if as_json and facts is not None and _is_since(since, *_begin(facts)):
            objects.append((_begin(facts)[0], _object(view, facts)))
    if as_json:
        objects.sort(key=lambda one: one[0])
        echo_lines(line for _, line in objects)
        return
    events = [event for event in lines.events() if _is_since(since, event.offset, event.timestamp)]
    echo_lines(event.line() for event in events)
    for begins, base in reading.bases:
        place = f"after offset {base.end.offset - 1}, {iso_time(base.timestamp_ms)}"
        words = "begins with a snapshot" if begins else "continues with a snapshot"
        echo(f"The history {words}, {place}: earlier changes are unknown.", err=True)
    if not events and not reading.is_damaged:
        echo("No change matches.", err=True)


def _begin(facts: Facts) -> tuple[int, int]:
    """The offset and the time of a row."""
    if "offset" in facts:
        return facts["offset"], facts["timestamp"]
    return facts["valid_from_offset"], facts["valid_from"]


def _is_since(since: At | None, offset: int, timestamp: int | None) -> bool:
    if since is None:
        return True
    if since.offset is not None:
        return offset >= since.offset
    return timestamp is not None and since.timestamp_ms is not None and timestamp >= since.timestamp_ms


def _object(view: View, facts: Facts) -> str:
    """A row as one line of JSON, with formatted times."""
    shown = {
        column.name: iso_time(facts[column.name]) if column.type == "timestamp" else facts[column.name]
        for column in view.columns
    }
    return json.dumps({"view": view.name, **shown}, ensure_ascii=False)


def _show_gaps(reading: _Reading, since: At | None, as_json: bool) -> None:
    """The periods without an active controller: time, duration, controllers before and after."""
    found = [by_name(view, row) for view, row in reading.rows((GAPS,))]
    gaps = sorted((one for one in found if _is_since(since, *_begin(one))), key=_begin)
    if as_json:
        echo_lines(_object(VIEWS[GAPS], gap) for gap in gaps)
        return
    if not gaps and reading.is_damaged:
        return
    if not gaps:
        echo("There was no such gap: a controller was active all the time.")
        return
    names = ("from", "to", "seconds", "offset", "epochs", "controllers", "why")
    echo_lines(table(names, (_gap(gap) for gap in gaps)))
    total = sum(gap["seconds"] for gap in gaps)
    echo(f"{count(len(gaps), 'gap')}, {total:.1f} s in all, the longest {max(gap['seconds'] for gap in gaps):.1f} s")


def _gap(gap: Facts) -> tuple[object, ...]:
    return (
        iso_time(gap["valid_from"]),
        iso_time(gap["valid_to"]) or "",
        f"{gap['seconds']:.3f}",
        gap["valid_from_offset"],
        f"{gap['epoch_before']} → {gap['epoch']}",
        f"{gap['leader_before']} → {gap['leader_after']}",
        gap["cause_text"],
    )


def _write_page(reading: _Reading, wanted: Filter, since: At | None, out: Path, title: str | None) -> None:
    """One self-contained page with its findings in sentences, timelines, and the history as tables."""
    report = import_module("metadata_log.report")
    found = [(view.name, row) for view, row in _wanted_rows(reading, report.HISTORY_VIEWS, wanted, since)]
    if reading.shows_secrets:
        make_private(out)
    report.render_history(
        found,
        out,
        title=f"{reading.cluster} — {reading.path}" if title is None else title,
        notes=_notes(reading, wanted, since),
        read=wanted.views(report.HISTORY_VIEWS),
        commands=_page_commands(reading.path),
    )
    echo(f"{out}: {count(len(found), 'row')}")


def _page_commands(path: str) -> dict[str, str]:
    """By table of the page: the command that prints every row."""
    command = shlex.join(("kraft", "history", path))
    whole = ("fencing", "unclean", "reassignments", "configs", "acls", "features", "retention")
    return {
        "outages": f"{command} --unavailable",
        "moves": f"{command} --elections",
        "terms": f"{command} --elections",
        "gaps": f"{command} --gaps",
        **dict.fromkeys(whole, command),
    }


def _write_parquet(reading: _Reading, names: tuple[str, ...], wanted: Filter, since: At | None, out: Path) -> None:
    """One file for each view with rows."""
    arrow = import_module("metadata_log.arrow")
    found: dict[str, list[Row]] = {}
    for view, row in _wanted_rows(reading, names, wanted, since):
        found.setdefault(view.name, []).append(row)
    if reading.shows_secrets:
        make_private_directory(out)
    out.mkdir(parents=True, exist_ok=True)
    for name, of_view in sorted(found.items()):
        file = out / f"{name}.parquet"
        arrow.write_parquet(arrow.rows_reader(name, of_view), str(file), private=reading.shows_secrets)
        echo(f"{file}: {count(len(of_view), 'row')}")


def _notes(reading: _Reading, wanted: Filter, since: At | None) -> list[str]:
    notes = [f"Damage: {damage}" for damage in reading.damages]
    if wanted.topic is not None:
        notes.append(f"Only topic {wanted.topic}.")
    if wanted.broker is not None:
        notes.append(f"Only what concerns broker {wanted.broker}.")
    if since is not None:
        notes.append(f"Only what held at {moment_text(since)} or later.")
    if reading.until is not None:
        notes.append(f"Only up to {moment_text(reading.until)}.")
    return notes


def _wanted_rows(
    reading: _Reading, names: Iterable[str], wanted: Filter, since: At | None
) -> Iterator[tuple[View, Row]]:
    """The requested rows, including those that began earlier and were still valid."""
    latest: dict[tuple[object, ...], Facts] = {}
    for view, row in reading.rows(wanted.views(names)):
        if not wanted.may_take(view, row):
            continue
        facts = by_name(view, row)
        key = (view.name, *(facts[name] for name in view.key))
        before = latest.get(key)
        if view.key:
            latest[key] = facts
        if wanted.takes(facts, before) and _still_held(since, facts):
            yield view, row


def _still_held(since: At | None, facts: Facts) -> bool:
    if "valid_to_offset" in facts:
        end = facts["valid_to_offset"]
        return end is None or _is_since(since, end, facts["valid_to"])
    return "offset" not in facts or _is_since(since, *_begin(facts))


def cluster_of(disk: Disk, path: str) -> str:
    """The id in meta.properties of the log directory that a path is, or is in; else the name of the path."""
    place = os.path.abspath(path)
    for directory in (place, os.path.dirname(place), os.path.dirname(os.path.dirname(place))):
        file = f"{directory}/{META_PROPERTIES}"
        if disk.exists(file):
            with suppress(MetadataLogError):
                return parse_meta_properties(disk.read(file), where=file).cluster_id
    return os.path.basename(place)
