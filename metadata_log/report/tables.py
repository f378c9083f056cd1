"""Tables of a page, and its values as text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from metadata_log.report.report_data import TIMES
from metadata_log.times import moment_at, when_text

_KINDS: Final = {
    **dict.fromkeys(("cause", "cluster", "kind", "outcome", "topic"), "name"),
    **dict.fromkeys(("cause_text", "text", "for example"), "why"),
    **dict.fromkeys(("value", "previous_value", "before", "after", "resource_name", "principal"), "any"),
}
"""By column the CSS class of its cells, which may wrap nowhere (`name`), between words (`why`) or anywhere (`any`)."""
_ABSENT: Final = "—"


class Link(NamedTuple):
    """A text that leads to a row of the page; without `target` it is plain text."""

    text: str
    target: str = ""


class Cell(NamedTuple):
    """A cell of a table.

    Attributes:
        text: The text.
        kind: The CSS classes, which decide where the text may wrap.
        sort: The number by which a reader sorts the rows; None for the text itself.
        title: What the cell says when a pointer rests on it.
        links: Texts after `text`; with `folds` they open below `text`.
        folds: Whether the links are folded away.
        anchor: The name of the row for links, in the first cell of the row.
    """

    text: str
    kind: str = ""
    sort: float | None = None
    title: str = ""
    links: Sequence[Link] = ()
    folds: bool = False
    anchor: str = ""


class Table(NamedTuple):
    """A table of a page: the titles of the columns, and the rows.

    Attributes:
        columns: The titles.
        rows: The cells of each row.
        picks: The places of the columns with few values, by which a reader may filter.
        more: A sentence about the rows that the table leaves out; empty if there are none.
        command: The command that prints all rows; empty if there is none.
        kind: The CSS classes of the table.
        group_by: The place of the column by which a reader may group the rows.
        name: The name of the table for a screen reader.
    """

    columns: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    picks: Collection[int] = ()
    more: str = ""
    command: str = ""
    kind: str = ""
    group_by: int | None = None
    name: str = ""


_PICKED: Final = {
    *("broker", "cause", "cluster", "field", "from_leader", "kind", "kinds", "leader_id", "operation", "outcome"),
    *("principal", "resource_type", "to_leader", "topic"),
}
"""The columns by which a reader may filter a table."""
_MOST_CHOICES: Final = 40

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


def make_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table of values; a column with numbers is aligned to the right."""
    cells = [[_cell(column, value) for column, value in zip(columns, row, strict=True)] for row in rows]
    numbers = [any(row[at].kind == "number" for row in cells) for at in range(len(columns))]
    for row in cells:
        row[:] = [
            cell._replace(kind="number") if is_number and cell.text == _ABSENT else cell
            for cell, is_number in zip(row, numbers, strict=True)
        ]
    titles = [
        Cell(_TITLES.get(column, column.replace("_", " ")), "number" if is_number else "")
        for column, is_number in zip(columns, numbers, strict=True)
    ]
    picks = {at for at, column in enumerate(columns) if column in _PICKED and _has_few_values(cells, at)}
    return Table(titles, cells, picks)


def _has_few_values(rows: Sequence[Sequence[Cell]], at: int) -> bool:
    values = {row[at].text for row in rows}
    return 1 < len(values) <= _MOST_CHOICES and len(rows) > len(values)


def _cell(column: str, value: object) -> Cell:
    if column in TIMES:
        return Cell(time_text(value) if isinstance(value, int) else "still" if column == "valid_to" else "", "time")
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, float):
        return Cell(f"{value:,.3f}" if value < 1000 else f"{value:,.0f}", "number")
    if isinstance(value, int):
        if value == -1 and "leader" in column:
            return Cell("no leader", "number")
        return Cell(str(value) if column in {"epoch", "broker"} else f"{value:,}", "number")
    return Cell(value_text(value), _KINDS.get(column, ""))


def left_out(table: Table, which: str, total: int, command: str) -> Table:
    """A table with a sentence about the rows that it lacks."""
    if len(table.rows) == total:
        return table
    return table._replace(more=f"The table has the {which} {len(table.rows)} of {total:,}.", command=command)


def anchor(*names: object) -> str:
    """The name of a row for links. Only letters, digits and dashes remain, and a number keeps names distinct."""
    text = "/".join(map(str, names))
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text)
    return f"{plain[:60]}-{crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def value_text(value: object) -> str:
    """A value as text: a dash for None, the elements of a list with commas."""
    if value is None:
        return _ABSENT
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def counted(count: int, one: str) -> str:
    """A number of things, with the plural of their name: `3 differences`."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"


def time_text(timestamp_ms: int, *, to_the: str = "milliseconds") -> str:
    """A time in UTC, such as `2026-11-21 08:17:20.234`, or to the minute."""
    moment = moment_at(timestamp_ms)
    if moment is None or timestamp_ms == -1:
        return when_text(timestamp_ms)
    return moment.isoformat(" ", to_the).removesuffix("+00:00")


def duration_text(seconds: float) -> str:
    """A duration in seconds, minutes, hours or days, such as `1.5 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} d"
