"""`kraft history`: lists the changes of a cluster with time and cause, from its metadata log alone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from kraft.cli.files.history_lines import MOMENTS, STORY, Facts, Filter, HistoryLines, Row, by_name
from kraft.cli.files.history_reading import HistoryReading
from kraft.cli.files.image_at import report_damages, show_secrets_option
from kraft.cli.files.unavailable import UNAVAILABILITY, VIEWS_READ, intervals, text_lines, totals
from kraft.cli.moments import MOMENT
from kraft.cli.progress import progress_option
from kraft.cli.text import count, echo, echo_lines, make_private, make_private_directory, table
from metadata_log.history.engine import Options
from metadata_log.history.views import VIEWS, View
from metadata_log.reading.damage import OnDamage
from metadata_log.reading.timeline import At, moment_text
from metadata_log.times import iso_time, when_text
from metadata_log.types import BOOTSTRAP_SNAPSHOT

GAPS: Final = "controller_gaps"
_HINT: Final = "The history after the damage is unknown, up to the next snapshot."


@click.command(
    "history",
    short_help="What happened to the cluster, when and why.",
    epilog="Example: kraft history /var/lib/kafka/metadata --topic orders-3 --since 2026-11-20T22:00:00Z",
)
@click.argument("path", type=click.Path(exists=True), metavar="DIR")
@click.option("--topic", metavar="T[-P]", help="Only changes of this topic, or of this partition of it.")
@click.option("--broker", type=int, metavar="N", help="Only changes that concern this broker.")
@click.option("--since", type=MOMENT, help="Only what happened at this time or offset, or later.")
@click.option("--until", type=MOMENT, help="Only what happened up to this time or offset.")
@click.option("--elections", is_flag=True, help="Each election of a leader and of a controller, and why it happened.")
@click.option("--gaps", is_flag=True, help="The times in which no controller was active.")
@click.option(
    "--unavailable", is_flag=True, help="The times in which partitions had no leader or too few replicas in sync."
)
@click.option("--json", "as_json", is_flag=True, help="Print the rows of the views, one JSON object a line.")
@progress_option
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
    unavailable: bool,
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
    if gaps + elections + unavailable > 1:
        raise click.UsageError("--gaps, --elections and --unavailable exclude each other")
    wanted = Filter(topic=topic, broker=broker)
    names = wanted.views((GAPS,) if gaps else MOMENTS if elections else (UNAVAILABILITY,) if unavailable else STORY)
    if not names:
        raise click.UsageError("--gaps does not apply to a topic or a broker")
    options = Options(show_secrets=show_secrets, on_damage=OnDamage(on_damage))
    reading = HistoryReading(path, until, options, wanted)
    reading.check_since(since)
    if html is not None:
        _write_page(reading, wanted, since, Path(html), title)
    elif parquet is not None:
        _write_parquet(reading, names, wanted, since, Path(parquet))
    elif gaps:
        _show_gaps(reading, since, as_json)
    elif unavailable:
        _show_unavailable(reading, wanted, since, as_json)
    else:
        _print_history(reading, names, wanted, since, as_json)
    damaged = report_damages(reading.damages, hint=_HINT if reading.lost_sight else None)
    if (unknown := reading.unknown_time(since)) is not None:
        raise unknown
    context.exit(1 if damaged else 0)


def _print_history(
    reading: HistoryReading, names: tuple[str, ...], wanted: Filter, since: At | None, as_json: bool
) -> None:
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
    _announce_snapshots(reading)
    if not events and not reading.is_damaged:
        echo("No change matches.", err=True)


def _announce_snapshots(reading: HistoryReading) -> None:
    for begins, base in reading.bases:
        if base.end == BOOTSTRAP_SNAPSHOT:
            echo("These are the bootstrap records: no node has started the cluster.", err=True)
            continue
        place = f"after offset {base.end.offset - 1}, {when_text(base.timestamp_ms)}"
        words = "begins with a snapshot" if begins else "continues with a snapshot"
        echo(f"The history {words}, {place}: earlier changes are unknown.", err=True)


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


def _object(view: View, facts: Facts, **more: object) -> str:
    """A row as one line of JSON, with formatted times, and more fields."""
    shown = {
        column.name: iso_time(facts[column.name]) if column.type == "timestamp" else facts[column.name]
        for column in view.columns
    }
    return json.dumps({"view": view.name, **shown, **more}, ensure_ascii=False)


def _show_gaps(reading: HistoryReading, since: At | None, as_json: bool) -> None:
    """The periods without an active controller: time, duration, controllers before and after."""
    rows = [by_name(view, row) for view, row in reading.rows((GAPS,))]
    gaps = sorted((one for one in rows if _is_since(since, *_begin(one))), key=_begin)
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


def _show_unavailable(reading: HistoryReading, wanted: Filter, since: At | None, as_json: bool) -> None:
    """The intervals in which partitions were unavailable, with causes and totals."""
    outages = intervals(reading.rows(VIEWS_READ), wanted, lambda facts: _still_held(since, facts))
    if as_json:
        view = VIEWS[UNAVAILABILITY]
        echo_lines(_object(view, one.row, lost_brokers=[lost.facts() for lost in one.lost]) for one in outages)
        echo_lines(
            json.dumps({"total_by": what, what: name, **total.facts()}, ensure_ascii=False)
            for what, groups in totals(outages).items()
            for name, total in groups
        )
        return
    _announce_snapshots(reading)
    if outages:
        echo_lines(text_lines(outages))
    elif not reading.is_damaged:
        echo("No partition was without a leader or below min.insync.replicas.")


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


def _write_page(reading: HistoryReading, wanted: Filter, since: At | None, out: Path, title: str | None) -> None:
    """One self-contained page with its findings in sentences, timelines, and the history as tables."""
    report = import_module("metadata_log.report")
    rows = [(view.name, row) for view, row in _wanted_rows(reading, report.HISTORY_VIEWS, wanted, since)]
    if reading.shows_secrets:
        make_private(out)
    report.render_history(
        rows,
        out,
        title=f"{reading.cluster} — {reading.path}" if title is None else title,
        notes=_notes(reading, wanted, since),
        read=wanted.views(report.HISTORY_VIEWS),
        commands=_page_commands(reading.path),
    )
    echo(f"{out}: {count(len(rows), 'row')}")


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


def _write_parquet(
    reading: HistoryReading, names: tuple[str, ...], wanted: Filter, since: At | None, out: Path
) -> None:
    """One file for each view with rows."""
    arrow = import_module("metadata_log.arrow")
    by_view: dict[str, list[Row]] = {}
    for view, row in _wanted_rows(reading, names, wanted, since):
        by_view.setdefault(view.name, []).append(row)
    if reading.shows_secrets:
        make_private_directory(out)
    out.mkdir(parents=True, exist_ok=True)
    for name, of_view in sorted(by_view.items()):
        file = out / f"{name}.parquet"
        arrow.write_parquet(arrow.rows_reader(name, of_view), str(file), private=reading.shows_secrets)
        echo(f"{file}: {count(len(of_view), 'row')}")


def _notes(reading: HistoryReading, wanted: Filter, since: At | None) -> list[str]:
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
    reading: HistoryReading, names: Iterable[str], wanted: Filter, since: At | None
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
