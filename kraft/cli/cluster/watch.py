"""`kraft watch`: prints the metadata changes of a live cluster as they are committed (Kafka: KIP-595)."""

from __future__ import annotations

import json
import math
import sys
from functools import partial
from typing import Final

import click
from msgspec.structs import replace

from kraft.cli.cluster.administration import (
    bootstrap_option,
    client_security,
    command_config_option,
    find_controllers,
    servers_option,
    told_by,
)
from kraft.cli.cluster.quorum_why import NoLeaderReport
from kraft.cli.moments import moment_of
from kraft.cli.near import type_names
from kraft.cli.text import echo, joined
from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from kraft.observer import Committed, Jumped, watch
from kraft.observer.live_events import LiveEvent, LiveEvents
from kraft.operate.interrupts import run_tasks
from metadata_log.log.snapshot import snapshot_name
from metadata_log.reading.damage import Damage
from metadata_log.reading.dump_records import Range, RecordLines, RecordsWanted
from metadata_log.reading.entries import Entry, read_entries
from metadata_log.reading.timeline import At
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.times import iso_time, when_text
from metadata_log.types import OffsetAndEpoch


class EventFeed:
    """Prints the events of a log that is followed from its beginning, up to `most` events.

    Args:
        since: The offset of the first record to tell of; None for the end of the log at the start.
        since_ms: The time of the first record to tell of, in ms since 1970; None for any time.
        most: The limit of events; None for no limit.
        as_json: Whether to print JSON.
    """

    def __init__(self, *, since: int | None, since_ms: int | None = None, most: int | None, as_json: bool) -> None:
        self.is_sound = True
        self._since = since
        self._since_ms = since_ms
        self._is_checked = False
        self._left = most
        self._as_json = as_json
        self._live = LiveEvents()

    def show(self, what: Committed | Jumped) -> bool:
        """Print the events; returns whether the limit leaves room for more."""
        match what:
            case Committed(batches, high_watermark):
                self._check_since(high_watermark)
                for batch in batches:
                    self._show(batch)
            case Jumped(snapshot, data, offset):
                if (gap := what.gap) is not None:
                    echo(f"kraft: warning: {gap}", err=True)
                elif self._since is not None and 0 < self._since < offset:
                    raise CommandFailed(
                        f"offsets {self._since} to {offset - 1} are gone: the leader's log begins at {offset}",
                        hint="`--since beginning` begins with the snapshot of the leader.",
                    )
                elif self._since_ms is not None:
                    echo(
                        f"kraft: warning: the leader's log begins at offset {offset}: nothing before it is told",
                        err=True,
                    )
                if snapshot.offset == offset:
                    name = snapshot_name(snapshot)
                    entries = [one for batch in scan(data, where=name) for one in self._entries(batch, name)]
                    for event in self._live.begin(entries, snapshot):
                        echo(f"kraft: error: {event.text} ({name})", err=True)
        self.is_sound &= not self._live.may_lack
        return self._left != 0

    def _check_since(self, high_watermark: int) -> None:
        if self._is_checked:
            return
        self._is_checked = True
        if self._since is None:
            self._since = high_watermark
        elif self._since > high_watermark:
            raise CommandFailed(
                f"offset {self._since} is not there yet: only {high_watermark} are committed",
                hint="Is this the cluster that you mean? Its log may have been lost.",
            )

    def _show(self, batch: RecordBatch) -> None:
        entries = self._entries(batch, WHERE)
        end = OffsetAndEpoch(epoch=batch.epoch, offset=batch.next_offset)
        events = self._live.take(entries, end, batch.max_timestamp)
        if self._since_ms is not None and batch.max_timestamp < self._since_ms:
            return
        shown = [event for event in events if self._since is not None and event.offset >= self._since]
        if self._left is not None:
            shown = shown[: self._left]
            self._left -= len(shown)
        for event in shown:
            echo(self._line(event, batch))

    def _line(self, event: LiveEvent, batch: RecordBatch) -> str:
        if not self._as_json:
            return f"{when_text(batch.max_timestamp)} {event.offset} {event.text}"
        return json.dumps(
            {
                "offset": event.offset,
                "time": iso_time(batch.max_timestamp),
                "epoch": batch.epoch,
                "cause": event.cause,
                "text": event.text,
                "partitions": event.partitions,
            },
            ensure_ascii=False,
        )

    def _entries(self, batch: RecordBatch, where: str) -> list[Entry]:
        entries = []
        for entry in read_entries(batch, where):
            if isinstance(entry, Damage):
                self.is_sound = False
                echo(f"kraft: error: {entry}", err=True)
            else:
                entries.append(entry)
        return entries


NOW: Final = "now"
BEGINNING: Final = "beginning"
WHERE: Final = "the metadata log"


@click.command("watch", short_help="Show a live cluster's metadata changes.")
@bootstrap_option
@servers_option
@command_config_option
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="T",
    help="Only records of this type: a name such as PartitionChangeRecord, or a number. May be repeated.",
)
@click.option(
    "--since",
    "since",
    default=NOW,
    show_default=True,
    metavar="OFFSET|TIME|now|beginning",
    help="Where to begin. The beginning is the start of the leader's log, perhaps a snapshot; a time such as -10m.",
)
@click.option("--for", "seconds", type=click.FloatRange(min=0), metavar="SECONDS", help="End after this time.")
@click.option("--count", "most", type=click.IntRange(min=1), metavar="N", help="End after this many lines.")
@click.option(
    "--timeout", default=10.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds to look for a leader."
)
@click.option("--raw", is_flag=True, help="Print records. --type, --noop and --show-secrets imply this.")
@click.option("--allow-gap", is_flag=True, help="Continue with a snapshot after records that were deleted unread.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each event or record.")
@click.option("--noop", is_flag=True, help="Print NoOp records, too.")
@click.option("--show-secrets", is_flag=True, help="Print credentials and passwords as they are.")
@click.pass_context
def watch_command(
    context: click.Context,
    *,
    bootstrap: str | None,
    servers: str | None,
    command_config: str | None,
    types: tuple[str, ...],
    since: str,
    seconds: float | None,
    most: int | None,
    timeout: float,
    raw: bool,
    allow_gap: bool,
    as_json: bool,
    noop: bool,
    show_secrets: bool,
) -> None:
    """Print what happens to the cluster, in sentences with names and causes: one line for each event. An event covers
    all partitions that changed for one cause.

    With --raw, print each committed record once and in order, with the fields of `kraft dump --records --json`; into a
    pipe as JSON lines.

    Elections do not interrupt the output, which continues with the next leader. The exit code is 1 if records were
    deleted before they were read, if a leader contradicts committed records, or if a controller belongs to another
    cluster.

    \b
    Example:
        kraft watch --bootstrap-controller 127.0.0.1:9093
        kraft watch --bootstrap-controller 127.0.0.1:9093 --type PartitionChangeRecord
    """
    begin = At(offset=0) if since in {NOW, BEGINNING} else _moment(since)
    wanted = RecordsWanted(
        types=type_names(types),
        span=Range(first_offset=begin.offset or 0),
        as_json=as_json or not sys.stdout.isatty(),
        noop=noop,
        show_secrets=show_secrets,
    )
    start = None if since == NOW else wanted.span.first_offset
    since_ms = begin.timestamp_ms
    is_raw = raw or bool(types) or noop or show_secrets
    feed: _Feed | EventFeed = (
        _Feed(wanted, most, since_ms)
        if is_raw
        else EventFeed(since=start, since_ms=since_ms, most=most, as_json=as_json)
    )
    security = client_security(command_config)
    work = partial(
        watch,
        find_controllers(bootstrap, servers, security, int(timeout * 1000)),
        feed.show,
        since=start if is_raw else 0,  # the names and the former state come from the whole log
        timeout_ms=int(timeout * 1000),
        seconds=math.inf if seconds is None else seconds,
        allow_gap=allow_gap,
        on_notice=_warn,
        transport=security.transport(),
        delays=NoLeaderReport(repeats=False),
    )
    with told_by(security):
        run_tasks(work)
    context.exit(0 if feed.is_sound else 1)


def _moment(text: str) -> At:
    try:
        return moment_of(text)
    except ValueError as bad:
        raise UsageError(str(bad), where="--since", hint=f"Give an offset, a time, {NOW} or {BEGINNING}.") from bad


def _warn(what: str) -> None:
    echo(f"kraft: warning: {what}", err=True)


class _Feed:
    """Prints received records, up to `most` lines."""

    def __init__(self, wanted: RecordsWanted, most: int | None, since_ms: int | None) -> None:
        self.wanted = wanted
        self._since_ms = since_ms
        self.is_sound = True
        self._left = most
        self._of_log = RecordLines(wanted, lambda where, batch: "")

    def show(self, what: Committed | Jumped) -> bool:
        """Print the selected records; returns whether the limit of lines leaves room for more."""
        match what:
            case Committed(batches):
                for batch in batches:
                    if self._since_ms is None or batch.max_timestamp >= self._since_ms:
                        self._show(batch, self._of_log, WHERE)
            case Jumped(snapshot, data, offset):
                if (gap := what.gap) is not None:
                    _warn(gap)
                elif snapshot.offset == offset:
                    _warn(f"the leader's log begins at offset {offset}: what was before comes from its snapshot")
                if snapshot.offset == offset and self._since_ms is None:
                    name = snapshot_name(snapshot)
                    of_snapshot = RecordLines(
                        replace(self.wanted, span=Range()), lambda where, batch: f'"snapshot": "{name}", '
                    )
                    for batch in scan(data, where=name):
                        self._show(batch, of_snapshot, name)
        return self._left != 0

    def _show(self, batch: RecordBatch, record_lines: RecordLines, where: str) -> None:
        lines = record_lines.quickly(batch, where)
        if lines is None:
            entries = list(read_entries(batch, where))
            for damage in (entry for entry in entries if isinstance(entry, Damage)):
                self.is_sound = False
                echo(f"kraft: error: {damage}", err=True)
            shown = record_lines.wanted.of(batch, [entry for entry in entries if isinstance(entry, Entry)])
            lines = [record_lines.line(batch, entry, where) for entry in shown]
        if self._left is not None:
            lines = lines[: self._left]
            self._left -= len(lines)
        if not self.wanted.as_json:
            lines = [f"{when_text(batch.max_timestamp)} {line.strip()}" for line in lines]
        if lines:
            click.echo(joined(lines))
