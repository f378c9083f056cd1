"""The three pages: the history of one directory, the history of a fleet, and the difference of two images."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from metadata_log.printable import printable_lines
from metadata_log.report import figures
from metadata_log.report.figures import Figure
from metadata_log.report.report_data import TABLE_ROWS, TIMES, ReportData, Row

HISTORY_VIEWS: Final = (
    "leader_history",
    "isr_history",
    "broker_history",
    "topic_history",
    "config_history",
    "acl_history",
    "feature_history",
    "quorum_epochs",
    "controller_gaps",
    "leadership_changes",
    "unavailability",
    "fencing",
    "unclean_elections",
    "reassignments",
    "retention",
)
"""The views that `render_history` uses; rows of others are ignored, and a view without rows becomes a sentence."""

FLEET_VIEWS: Final = (
    "quorum_epochs",
    "controller_gaps",
    "leadership_changes",
    "unavailability",
    "fencing",
    "churn",
    "unclean_elections",
    "acl_audit",
    "retention",
)
"""The views that `render_fleet` uses."""

_KINDS: Final = {
    **dict.fromkeys(("cause", "cluster", "kind", "outcome", "topic"), "name"),
    **dict.fromkeys(("cause_text", "text", "for example"), "why"),
    **dict.fromkeys(("value", "previous_value", "before", "after", "resource_name", "principal"), "any"),
}
"""Where the cells of a column may wrap: nowhere, between words, anywhere."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Difference(Protocol):
    """One difference of two images, in the form of `metadata_log.image.diff`."""

    @property
    def kind(self) -> str:
        """The family, such as `topics`."""

    @property
    def name(self) -> str:
        """The name of the object, such as `orders-3`."""

    @property
    def field(self) -> str:
        """The name of the field."""

    @property
    def before(self) -> object:
        """The old value; None = the object or field did not exist."""

    @property
    def after(self) -> object:
        """The new value; None = the object or field does not exist any more."""


class _Cell(NamedTuple):
    text: str
    kind: str = ""


class _Table(NamedTuple):
    columns: Sequence[_Cell]
    rows: Iterable[Sequence[_Cell]]


class _Section(NamedTuple):
    id: str
    title: str
    lead: str
    figures: Sequence[Figure] = ()
    tables: Sequence[_Table] = ()
    none: str = ""


def render_history(rows: Iterable[tuple[str, Row]], out: Path, *, title: str, notes: Sequence[str] = ()) -> None:
    """Write the history of one directory as a page.

    Args:
        rows: Pairs of a view's name and a row, as `metadata_log.history` yields them for `HISTORY_VIEWS`.
        out: The path of the page.
        title: The name of the cluster or directory.
        notes: Sentences for the top of the page: the range, damage, omissions.
    """
    report = ReportData()
    report.take_all(rows)
    _write(out, title, notes, _range(report), _history_cards(report), _history_sections(report))


def render_fleet(rows: Iterable[tuple[str, Row]], out: Path, *, title: str, notes: Sequence[str] = ()) -> None:
    """Write the history of many clusters as a page; arguments as for `render_history`, views of `FLEET_VIEWS`."""
    report = ReportData()
    report.take_all(rows)
    _write(out, title, notes, _range(report), _fleet_cards(report), _fleet_sections(report))


def render_diff(differences: Iterable[Difference], out: Path, *, before: str, after: str) -> None:
    """Write the difference of two images as a page; `before` and `after` name the two sides."""
    kinds: Counter[str] = Counter()
    moves: Counter[tuple[str, str]] = Counter()
    rows: dict[str, list[tuple[object, ...]]] = {}
    for each in differences:
        kinds[each.kind] += 1
        if each.field == "leader" and each.before is not None and each.after is not None:
            moves[_value(each.before), _value(each.after)] += 1
        shown = rows.setdefault(each.kind, [])
        if len(shown) < TABLE_ROWS:
            shown.append((each.name, each.field, each.before, each.after))
    sections = [_diff_overview(kinds, moves)]
    for kind in sorted(rows):
        lead = _said(kinds[kind], "difference") + (f"; the first {TABLE_ROWS} are shown" * (kinds[kind] > TABLE_ROWS))
        table = _table(("name", "field", "before", "after"), rows[kind])
        sections.append(_Section(kind, kind.replace("_", " ").capitalize(), f"{lead}.", (), (table,)))
    cards = [("differences", f"{sum(kinds.values()):,}"), *((kind, f"{kinds[kind]:,}") for kind in sorted(kinds))]
    _write(out, "Difference", (), f"from {before} to {after}", cards, sections)


def _diff_overview(kinds: Counter[str], moves: Counter[tuple[str, str]]) -> _Section:
    drawn = [
        figures.bars(kinds.most_common(), "differences"),
        figures.bars([(f"{old} → {new}", count) for (old, new), count in moves.most_common()], "leaders that moved"),
    ]
    if not kinds:
        return _Section("overview", "Overview", "", none="Both images are the same.")
    lead = f"{_said(sum(kinds.values()), 'difference')} in {_said(len(kinds), 'kind')} of objects."
    return _Section("overview", "Overview", lead, [each for each in drawn if each])


# ---------------------------------------------------------------------------------------------------- one directory


def _range(report: ReportData) -> str:
    if report.begin is None or report.end is None:
        return "Nothing happened."
    names = ", ".join(report.clusters) if len(report.clusters) < 4 else f"{len(report.clusters)} clusters"
    return f"{names}: {_time(report.begin)} to {_time(report.end)} ({_duration((report.end - report.begin) / 1000)})"


def _history_cards(report: ReportData) -> list[tuple[str, str]]:
    return [
        ("brokers seen", f"{len(report.brokers):,}"),
        ("topics seen", f"{len(report.topics):,}"),
        ("partitions seen", f"{len(report.leaders):,}"),
        *_common_cards(report),
    ]


def _common_cards(report: ReportData) -> list[tuple[str, str]]:
    return [
        ("leadership changes", f"{report.total('leadership changes'):,.0f}"),
        ("without a leader, sum over partitions", _duration(report.total("leaderless partition seconds"))),
        ("below min ISR, sum over partitions", _duration(report.total("below-min-isr partition seconds"))),
        ("without a controller", _duration(report.total("seconds without a controller"))),
        ("unclean elections", f"{report.total('unclean elections'):,.0f}"),
    ]


def _history_sections(report: ReportData) -> list[_Section]:
    return [
        _section(
            "brokers",
            "Brokers",
            "When each broker was active, in controlled shutdown or fenced.",
            [figures.broker_timeline(report)],
            "No broker is registered in this history.",
            [_shown(report, "fencing")],
        ),
        _section(
            "leaders",
            "Leaders",
            f"The {len(figures.moved_partitions(report))} partitions with the most changes of leader, "
            f"of {len(report.leaders):,}.",
            [figures.leader_timeline(report)],
            "No partition changed its leader.",
        ),
        _section(
            "causes",
            "Causes of leader changes",
            "Changes of leadership by cause, and the latest of them.",
            [figures.cause_bars(report)],
            "No partition changed its leader.",
            [_examples(report), _shown(report, "moves")],
        ),
        _section(
            "topics",
            "Changes of leadership by topic",
            "Each cell counts the partitions of a topic that got another leader, or none.",
            [figures.move_map(report)],
            "No partition changed its leader.",
        ),
        _section(
            "skew",
            "Leader skew",
            "The number of partitions that each broker led; even lines are an even load.",
            [figures.leader_skew(report)],
            "No partition had a leader.",
        ),
        _section(
            "isr",
            "In-sync replicas",
            "The number of impaired partitions, from a missing replica to no leader at all.",
            [figures.isr_bands(report)],
            "Every replica of every partition was in sync all the time.",
        ),
        *_outage_sections(report, by_cluster=False),
        _controller_section(report, [figures.controller_timeline(report)]),
        _section(
            "unclean",
            "Unclean elections",
            "Elections of a replica that may lack acknowledged records.",
            [],
            "No leader was elected uncleanly.",
            [_shown(report, "unclean")],
        ),
        _section(
            "reassignments",
            "Reassignments",
            "Moves of replicas from the request to the end.",
            [],
            "No partition was reassigned.",
            [_shown(report, "reassignments")],
        ),
        _section(
            "changes",
            "Configurations, access rules, features",
            "The changes; the log does not record their authors.",
            [],
            "No configuration, access rule or feature was changed.",
            [_shown(report, "configs"), _shown(report, "acls"), _shown(report, "features")],
        ),
        _retention_section(report),
    ]


def _outage_sections(report: ReportData, *, by_cluster: bool) -> list[_Section]:
    what = "cluster" if by_cluster else "topic"
    return [
        _section(
            "leaderless",
            "Partitions without a leader",
            f"Seconds that partitions of a {what} could be neither written nor read, summed over its partitions.",
            [figures.outage_map(report, "leaderless", by_cluster=by_cluster)],
            "No partition was without a leader.",
        ),
        _section(
            "min-isr",
            "Partitions below min ISR",
            f"Seconds that partitions of a {what} refused writes with acks=all, summed over its partitions.",
            [figures.outage_map(report, "below-min-isr", by_cluster=by_cluster)],
            "No partition had fewer in-sync replicas than min.insync.replicas.",
        ),
        _section(
            "outages",
            "Unavailable partitions",
            "The beginning, the duration and the cause of each interval.",
            [],
            "No partition was unavailable.",
            [_shown(report, "outages")],
        ),
    ]


def _controller_section(report: ReportData, drawn: Sequence[Figure | None]) -> _Section:
    return _section(
        "controllers",
        "Controllers",
        "The active controllers, and gaps without one: the active controller writes a record every half second.",
        drawn,
        "No leader of the quorum was elected in this history.",
        [_shown(report, "gaps"), _shown(report, "terms")],
    )


def _retention_section(report: ReportData) -> _Section:
    return _section(
        "retention",
        "Known and unknown ranges of this history",
        "The beginning, the snapshots, and the unknown ranges.",
        [],
        "There is no information about the history itself.",
        [_shown(report, "retention")],
    )


# ----------------------------------------------------------------------------------------------------------- a fleet


def _fleet_cards(report: ReportData) -> list[tuple[str, str]]:
    return [
        ("clusters", f"{len(report.clusters):,}"),
        *_common_cards(report),
        ("controller elections", f"{len(report.terms):,}"),
        ("brokers fenced", f"{report.total('fencings'):,.0f}"),
    ]


_OVERVIEW: Final = (
    "leadership changes",
    "leaderless partition seconds",
    "below-min-isr partition seconds",
    "seconds without a controller",
    "unclean elections",
    "fencings",
    "partition changes",
)


def _fleet_sections(report: ReportData) -> list[_Section]:
    ranked = sorted(report.clusters, key=lambda name: tuple(-_total(report, name, each) for each in _OVERVIEW[1:]))
    overview = [(name, *(round(_total(report, name, each), 1) for each in _OVERVIEW)) for name in ranked[:TABLE_ROWS]]
    return [
        _section(
            "overview",
            "Clusters",
            "The clusters with the longest outages first.",
            [],
            "No cluster was found.",
            [_table(("cluster", *_OVERVIEW), overview) if overview else None],
        ),
        *_outage_sections(report, by_cluster=True),
        _controller_section(report, [figures.controller_timeline(report), figures.gap_timeline(report)]),
        _section(
            "causes",
            "Causes of leader changes",
            "Changes of leadership by cluster, cause and time.",
            [figures.cause_bars(report, by_cluster=True), figures.move_map(report, by_cluster=True)],
            "No partition changed its leader.",
            [_examples(report), _shown(report, "moves")],
        ),
        _section(
            "churn",
            "Churn",
            "The topics and the brokers with the most changes of partitions.",
            [figures.churn_bars(report, "topic"), figures.churn_bars(report, "broker")],
            "No partition changed.",
        ),
        _section(
            "fencing",
            "Brokers fenced",
            "The time and cause of each fencing, and the leaderships of the broker.",
            [],
            "No broker was fenced.",
            [_shown(report, "fencing")],
        ),
        _section(
            "unclean",
            "Unclean elections",
            "Elections of a replica that may lack acknowledged records.",
            [],
            "No leader was elected uncleanly.",
            [_shown(report, "unclean")],
        ),
        _section(
            "access",
            "Wide access rules",
            "Rules that allow every principal, or every operation.",
            [],
            "No rule allows every principal or every operation.",
            [_shown(report, "wide rules")],
        ),
        _retention_section(report),
    ]


def _total(report: ReportData, cluster: str, name: str) -> float:
    return report.totals.get(cluster, {}).get(name, 0)


# ------------------------------------------------------------------------------------------------------------ pieces


def _section(
    id: str,
    title: str,
    lead: str,
    drawn: Sequence[Figure | None],
    none: str,
    tables: Sequence[tuple[str, _Table] | _Table | None] = (),
) -> _Section:
    """A section; `none` is its text without a plot and a table."""
    plots = [each for each in drawn if each is not None]
    found = [each for each in tables if each is not None]
    counts = [each[0] for each in found if not isinstance(each, _Table) and each[0]]
    if not plots and not found:
        return _Section(id, title, "", none=none)
    shown = [each if isinstance(each, _Table) else each[1] for each in found]
    return _Section(id, title, " ".join((lead, *counts)), plots, shown)


def _shown(report: ReportData, name: str) -> tuple[str, _Table] | None:
    """A table of the latest or longest rows of a kind, and a sentence if more rows exist."""
    kept = report.tables.get(name)
    if kept is None:
        return None
    several = len(report.clusters) > 1
    columns = [column for column in kept.columns if several or column != "cluster"]
    places = [kept.columns.index(column) for column in columns]
    rows = [[row[place] for place in places] for row in kept.rows()]
    which = "longest" if kept.longest else "latest"
    more = f"The table has the {which} {len(rows)} of {kept.seen:,}." if kept.seen > len(rows) else ""
    return more, _table(columns, rows)


def _examples(report: ReportData) -> _Table | None:
    counts: Counter[str] = Counter()
    for (_, cause), count in report.causes.items():
        counts[cause] += count
    rows = [(cause, count, report.examples[cause]) for cause, count in counts.most_common()]
    return _table(("cause", "times", "for example"), rows) if rows else None


_TITLES: Final = {
    "valid_from": "from",
    "valid_to": "until",
    "timestamp": "when",
    "from_time": "from",
    "to_time": "until",
    "cause_text": "why",
    "leader_id": "leader",
    "previous_leader_id": "leader before",
    "quorum_epoch": "epoch",
}


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> _Table:
    cells = [[_cell(column, value) for column, value in zip(columns, row, strict=True)] for row in rows]
    numbers = [any(row[at].kind == "number" for row in cells) for at in range(len(columns))]
    titles = [
        _Cell(_TITLES.get(column, column.replace("_", " ")), "number" if is_number else "")
        for column, is_number in zip(columns, numbers, strict=True)
    ]
    return _Table(titles, cells)


def _cell(column: str, value: object) -> _Cell:
    if column in TIMES:
        return _Cell(_time(value) if isinstance(value, int) else "still" if column == "valid_to" else "", "time")
    if isinstance(value, bool):
        return _Cell("yes" if value else "no")
    if isinstance(value, float):
        return _Cell(f"{value:,.3f}" if value < 1000 else f"{value:,.0f}", "number")
    if isinstance(value, int):
        if value == -1 and "leader" in column:
            return _Cell("no leader", "number")
        return _Cell(str(value) if column in {"epoch", "broker"} else f"{value:,}", "number")
    return _Cell(_value(value), _KINDS.get(column, ""))


def _value(value: object) -> str:
    if value is None:
        return "—"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _said(count: int, one: str) -> str:
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"


def _time(timestamp_ms: int) -> str:
    """`2026-11-21 08:17:20.234`."""
    return f"{_EPOCH + timedelta(milliseconds=timestamp_ms):%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} d"


def _seen(value: object) -> object:
    """A value for the page, with every character visible; a value that is marked as HTML is this module's own."""
    return printable_lines(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


_MARKUP: Final = re.compile(r"<(?!/?(?:b|i|br|extra)/?>)")
"""The beginning of a foreign tag: Plotly interprets some HTML, such as links, in every text."""


def _drawn(value: Any) -> Any:
    """A figure with literal texts."""
    match value:
        case str():
            return _MARKUP.sub("&lt;", printable_lines(value))
        case dict():
            return {name: _drawn(one) for name, one in value.items()}
        case list() | tuple():
            return [_drawn(one) for one in value]
        case _:
            return value


def _write(
    out: Path,
    title: str,
    notes: Sequence[str],
    range: str,
    cards: Sequence[tuple[str, str]],
    sections: Sequence[_Section],
) -> None:
    environment = Environment(
        loader=PackageLoader("metadata_log.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_seen,
    )
    drawn: dict[str, Any] = {
        f"{section.id}-{number}": figure for section in sections for number, figure in enumerate(section.figures, 1)
    }
    page = environment.get_template("page.html.jinja").render(
        title=title,
        notes=notes,
        range=range,
        cards=cards,
        sections=sections,
        plotly=get_plotlyjs(),
        # A text of a log must not end the script.
        figures=json.dumps(_drawn(drawn), separators=(",", ":")).replace("<", "\\u003c"),
        version=version("trio-kraft"),
    )
    out.write_text(page, encoding="utf-8")
