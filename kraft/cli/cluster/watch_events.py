"""The events of `kraft watch`: sentences with names and causes, or a JSON object for each."""

from __future__ import annotations

import json
from typing import Final

from kraft.cli.text import echo
from kraft.config.errors import CommandFailed
from kraft.observer import Committed, Jumped
from kraft.observer.live_events import LiveEvent, LiveEvents
from metadata_log.log.snapshot import snapshot_name
from metadata_log.reading.damage import Damage
from metadata_log.reading.entries import Entry, read_entries
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.times import iso_time, when_text
from metadata_log.types import OffsetAndEpoch

WHERE: Final = "the metadata log"


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
                    self._live.begin(entries, snapshot)
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
        found = []
        for entry in read_entries(batch, where):
            if isinstance(entry, Damage):
                self.is_sound = False
                echo(f"kraft: error: {entry}", err=True)
            else:
                found.append(entry)
        return found
