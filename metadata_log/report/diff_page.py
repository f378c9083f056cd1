"""The difference of two images as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from metadata_log.report import figures
from metadata_log.report.incidents import listed
from metadata_log.report.page import Commands, Page, Section, write_page
from metadata_log.report.report_data import TABLE_ROWS
from metadata_log.report.tables import counted, make_table, value_text


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
        """The old value; None if the object or field did not exist."""

    @property
    def after(self) -> object:
        """The new value; None if the object or field does not exist any more."""


def render_diff(
    differences: Iterable[Difference],
    out: Path,
    *,
    before: str,
    after: str,
    title: str = "Difference",
    commands: Commands = MappingProxyType({}),
) -> None:
    """Write the difference of two images as a page.

    Args:
        differences: The differences, in any order.
        out: The path of the page.
        before: The name of the earlier side.
        after: The name of the later side.
        title: The title of the page.
        commands: By kind: the command that prints all differences, for a table that leaves some out.

    Raises:
        OSError: The page could not be written.
    """
    kinds: Counter[str] = Counter()
    moves: Counter[tuple[str, str]] = Counter()
    rows: dict[str, list[tuple[object, ...]]] = {}
    names: dict[str, set[str]] = {}
    for each in differences:
        kinds[each.kind] += 1
        names.setdefault(each.kind, set()).add(each.name)
        if each.field == "leader" and each.before is not None and each.after is not None:
            moves[value_text(each.before), value_text(each.after)] += 1
        shown = rows.setdefault(each.kind, [])
        if len(shown) < TABLE_ROWS:
            shown.append((each.name, each.field, each.before, each.after))
    sections = [_diff_overview(kinds, moves)]
    for kind in sorted(rows):
        is_cut = kinds[kind] > TABLE_ROWS
        table = make_table(("name", "field", "before", "after"), rows[kind])
        if is_cut:
            more = f"The table has the first {TABLE_ROWS} of {kinds[kind]:,}."
            table = table._replace(more=more, command=commands.get(kind, ""))
        lead = f"{counted(kinds[kind], 'difference')}."
        sections.append(Section(kind, kind.replace("_", " ").capitalize(), lead, (), (table,)))
    cards = [("differences", f"{sum(kinds.values()):,}"), *((kind, f"{kinds[kind]:,}") for kind in sorted(kinds))]
    write_page(
        out,
        Page(
            title=title,
            headline=[_diff_headline(names, sum(moves.values()))],
            range=f"from {before} to {after}",
            notes=(),
            cards=cards,
            sections=sections,
        ),
    )


def _diff_headline(names: Mapping[str, Collection[str]], moved: int) -> str:
    """The number of objects that differ, and of partitions with another leader."""
    if not names:
        return "Both images are the same."
    kinds = listed([f"{len(names[kind]):,} of {kind.replace('_', ' ')}" for kind in sorted(names)])
    total = sum(map(len, names.values()))
    leaders = f"; {counted(moved, 'partition')} {'has' if moved == 1 else 'have'} another leader" if moved else ""
    return f"{counted(total, 'object')} {'differs' if total == 1 else 'differ'}: {kinds}{leaders}."


def _diff_overview(kinds: Counter[str], moves: Counter[tuple[str, str]]) -> Section:
    drawn = [
        figures.bars(kinds.most_common(), "differences"),
        figures.bars([(f"{old} → {new}", count) for (old, new), count in moves.most_common()], "leaders that moved"),
    ]
    if not kinds:
        return Section("overview", "Overview", "", none="Both images are the same.")
    lead = f"{counted(sum(kinds.values()), 'difference')} in {counted(len(kinds), 'kind')} of objects."
    return Section("overview", "Overview", lead, [each for each in drawn if each])
