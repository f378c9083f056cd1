"""A page as HTML: its sections, and the template. The page has no resource outside of its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import Struct

from metadata_log.printable import printable_lines
from metadata_log.report.figures import Figure, looks_in
from metadata_log.report.looks import LOOKS, Look
from metadata_log.report.tables import Table
from metadata_log.software import SOFTWARE_VERSION

Commands = Mapping[str, str]
"""By the name of a table: the command that prints every row of that table."""


class Section(Struct, frozen=True):
    """A section of the page. `none` is its text if the section has neither figures nor tables."""

    id: str
    title: str
    lead: str
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    none: str = ""


class Page(Struct, frozen=True, kw_only=True):
    """The content of a page.

    Attributes:
        title: The title.
        headline: The findings in sentences, the most important first; at least one.
        range: The range that the page covers, as text.
        notes: Further sentences for the top of the page.
        cards: The key figures, each with its name.
        sections: The sections in their order.
    """

    title: str
    headline: Sequence[str]
    range: str
    notes: Sequence[str]
    cards: Sequence[tuple[str, str]]
    sections: Sequence[Section]


def make_section(
    id: str,
    title: str,
    lead: str,
    drawn: Sequence[Figure | None],
    none: str,
    tables: Sequence[Table | None] = (),
) -> Section:
    """A section of the figures and tables that exist.

    Args:
        id: The anchor of the section.
        title: The heading.
        lead: The first sentence.
        drawn: The figures; None for a figure without data.
        none: The text of a section without figures and tables.
        tables: The tables; None for a table without rows.

    Returns:
        The section.
    """
    plots = [each for each in drawn if each is not None]
    present = [each for each in tables if each is not None]
    if not plots and not present:
        return Section(id, title, "", none=none)
    return Section(id, title, lead, plots, present)


def _seen(value: object) -> object:
    """A value for the page, with every character visible. Only this package marks a value as HTML."""
    return printable_lines(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def legend_of(sections: Sequence[Section]) -> list[Look]:
    """The looks of all plots, each once: the states in their fixed order, then the brokers by number."""
    used = {look for section in sections for figure in section.figures for look in looks_in(figure)}
    brokers = sorted(used - set(LOOKS), key=lambda look: int(look.id.removeprefix("broker-")))
    return [*(look for look in LOOKS[:-1] if look in used), *brokers, *(look for look in LOOKS[-1:] if look in used)]


def write_page(out: Path, page: Page) -> None:
    """Write a page.

    Args:
        out: The path of the page.
        page: The content.

    Raises:
        OSError: The page could not be written.
    """
    environment = Environment(
        loader=PackageLoader("metadata_log.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_seen,
    )
    legend = legend_of(page.sections)
    text = environment.get_template("page.html.jinja").render(
        title=page.title,
        headline=page.headline,
        notes=page.notes,
        range=page.range,
        cards=page.cards,
        sections=page.sections,
        legend=legend,
        looks=legend,
        version=SOFTWARE_VERSION,
    )
    out.write_text(text, encoding="utf-8")
