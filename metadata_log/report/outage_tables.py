"""The tables of the outages: the incidents with their partitions inside, and the interval of each partition.

An incident leads to its intervals, to the fencings of its brokers, and to the changes of leaders that began it; an
interval leads back to its incident. A link exists only if its row is on the page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import nsmallest
from typing import Final

from metadata_log.report.incidents import Incident, Interval
from metadata_log.report.page import Commands
from metadata_log.report.report_data import TABLE_ROWS, ReportData
from metadata_log.report.tables import Cell, Link, Table, anchor, counted, duration_text, left_out, make_table

_NAMED: Final = 60
"""The most partitions that an incident names."""
_LINKED: Final = 6
"""The most links of the other kinds."""


def outage_tables(
    report: ReportData, intervals: Sequence[Interval], incidents: Sequence[Incident], commands: Commands
) -> Iterator[Table | None]:
    """The table of incidents and the table of intervals; None without outages.

    Args:
        report: The collected data.
        intervals: The intervals, as `intervals_of` returns them.
        incidents: The incidents, as `incidents_of` returns them.
        commands: The commands that list every incident and every interval, as `incidents` and `outages`.
    """
    if not incidents:
        return
    shown = incidents[:TABLE_ROWS]
    numbers = {_key(each): number for number, incident in enumerate(shown, 1) for each in incident.intervals}
    longest = nsmallest(
        TABLE_ROWS,
        intervals,
        key=lambda each: (-each.leaderless, -each.below_min_isr, each.begin, each.topic, each.partition),
    )
    targets = {_interval_anchor(each) for each in longest} | _rows_on_page(report)
    yield _incident_table(report, shown, targets, len(incidents), commands)
    yield _interval_table(report, longest, numbers, len(intervals), commands)


def _key(interval: Interval) -> tuple[str, str, int, int]:
    return interval.cluster, interval.topic, interval.partition, interval.begin


def _interval_anchor(interval: Interval) -> str:
    return anchor("outage", *_key(interval))


def _rows_on_page(report: ReportData) -> set[str]:
    """The rows of other tables to which an incident may lead."""
    anchors = set()
    for name, kind, columns in (
        ("fencing", "fencing", ("cluster", "broker", "valid_from")),
        ("moves", "move", ("cluster", "offset")),
    ):
        kept = report.tables.get(name)
        if kept is not None:
            places = [kept.columns.index(column) for column in columns]
            anchors |= {anchor(kind, *(row[place] for place in places)) for row in kept.rows()}
    return anchors


def _incident_table(
    report: ReportData, incidents: Sequence[Incident], targets: Collection[str], total: int, commands: Commands
) -> Table:
    several = len(report.clusters) > 1
    titles = ("incident", *(("cluster",) if several else ()))
    titles += ("from", "duration", "no leader", "below min ISR", "partitions", "after", "records")
    plain = make_table(
        ("incident", *(("cluster",) if several else ()), "valid_from"),
        [(number, *((each.cluster,) if several else ()), each.begin) for number, each in enumerate(incidents, 1)],
    )
    rows = []
    for number, (each, begun) in enumerate(zip(incidents, plain.rows, strict=True), 1):
        leaderless = len({(one.topic, one.partition) for one in each.leaderless})
        below = len({(one.topic, one.partition) for one in each.intervals if one.below_min_isr > 0})
        first, *rest = begun
        rows.append(
            [
                first._replace(anchor=f"incident-{number}"),
                *rest,
                _how_long(report, each),
                Cell(f"{leaderless:,}", "number", sort=leaderless),
                Cell(f"{below:,}", "number", sort=below),
                _partitions(each, targets),
                _after(each, targets),
                _records(each, targets),
            ]
        )
    kinds = {"incident": "number", "no leader": "number", "below min ISR": "number", "duration": "number"}
    columns = [Cell(title, kinds.get(title, "")) for title in titles]
    return left_out(Table(columns, rows, plain.picks, kind="incidents"), "worst", total, commands.get("incidents", ""))


def _how_long(report: ReportData, incident: Incident) -> Cell:
    end = report.ends[incident.cluster] if incident.end is None else incident.end
    seconds = (end - incident.begin) / 1000
    return Cell(duration_text(seconds) + (", still" if incident.end is None else ""), "number", sort=seconds)


def _partitions(incident: Incident, targets: Collection[str]) -> Cell:
    """The partitions, folded away; each leads to its interval."""
    by_name = {each.name: each for each in sorted(incident.intervals, key=lambda one: (one.topic, one.partition))}
    links = [Link(name, _target(_interval_anchor(each), targets)) for name, each in by_name.items()][:_NAMED]
    if len(by_name) > _NAMED:
        links.append(Link(f"and {len(by_name) - _NAMED:,} more"))
    topics = len({each.topic for each in incident.intervals})
    return Cell(f"{counted(len(by_name), 'partition')} of {counted(topics, 'topic')}", "any", links=links, folds=True)


def _after(incident: Incident, targets: Collection[str]) -> Cell:
    """The causes in words, and the fencings of the brokers."""
    links: list[Link] = []
    for each in incident.fencings:
        target = _target(anchor("fencing", each.cluster, each.broker, each.begin), targets)
        if target and len(links) < _LINKED:
            links.append(Link(f"broker {each.broker}", target))
    return Cell(incident.after, "why", links=links)


def _records(incident: Incident, targets: Collection[str]) -> Cell:
    """The offsets of the causing records; they lead to the changes of leaders at these offsets."""
    offsets = sorted({piece.offset for each in incident.intervals for piece in each.pieces if piece.offset is not None})
    if not offsets:
        return Cell("—")
    on_page = [at for at in offsets if anchor("move", incident.cluster, at) in targets]
    links = [Link(str(at), anchor("move", incident.cluster, at)) for at in on_page[:_LINKED]]
    span = str(offsets[0]) if len(offsets) == 1 else f"{offsets[0]} to {offsets[-1]}"
    return Cell(span, "any", links=links)


def _target(name: str, targets: Collection[str]) -> str:
    return name if name in targets else ""


def _interval_table(
    report: ReportData,
    longest: Sequence[Interval],
    numbers: dict[tuple[str, str, int, int], int],
    total: int,
    commands: Commands,
) -> Table:
    several = len(report.clusters) > 1
    columns = (
        *(("cluster",) if several else ()),
        *("topic", "partition", "valid_from", "valid_to", "seconds without a leader", "seconds below min ISR"),
        *("cause_text", "incident"),
    )
    rows = [
        (
            *((each.cluster,) if several else ()),
            *(each.topic, each.partition, each.begin, each.end),
            *(each.leaderless or None, each.below_min_isr or None, each.why, numbers.get(_key(each))),
        )
        for each in longest
    ]
    table = make_table(columns, rows)
    linked = []
    for each, row in zip(longest, table.rows, strict=True):
        number = numbers.get(_key(each))
        first, last = row[0]._replace(anchor=_interval_anchor(each)), row[-1]
        if number is not None:
            last = last._replace(text="", links=[Link(str(number), f"incident-{number}")])
        linked.append([first, *row[1:-1], last])
    return left_out(table._replace(rows=linked), "longest", total, commands.get("outages", ""))
