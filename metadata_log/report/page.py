"""A page as HTML: its sections, and the template with plots that need no network."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from metadata_log.printable import printable_lines
from metadata_log.report.figures import Figure
from metadata_log.report.tables import Table


class Section(NamedTuple):
    """A section of a page. `none` is its text if the section has neither figures nor tables."""

    id: str
    title: str
    lead: str
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    none: str = ""


def make_section(
    id: str,
    title: str,
    lead: str,
    drawn: Sequence[Figure | None],
    none: str,
    tables: Sequence[tuple[str, Table] | Table | None] = (),
) -> Section:
    """A section of the figures and tables that exist.

    Args:
        id: The anchor of the section.
        title: The heading.
        lead: The first sentence.
        drawn: The figures; None for a figure without data.
        none: The text of a section without figures and tables.
        tables: The tables, each alone or with a sentence for the lead; None for a table without rows.

    Returns:
        The section.
    """
    plots = [each for each in drawn if each is not None]
    found = [each for each in tables if each is not None]
    counts = [each[0] for each in found if not isinstance(each, Table) and each[0]]
    if not plots and not found:
        return Section(id, title, "", none=none)
    shown = [each if isinstance(each, Table) else each[1] for each in found]
    return Section(id, title, " ".join((lead, *counts)), plots, shown)


def _seen(value: object) -> object:
    """A value for the page, with every character visible. Only this package marks a value as HTML."""
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


def write_page(
    out: Path,
    title: str,
    notes: Sequence[str],
    range: str,
    cards: Sequence[tuple[str, str]],
    sections: Sequence[Section],
) -> None:
    """Write a page.

    Args:
        out: The path of the page.
        title: The title.
        notes: Sentences for the top of the page.
        range: The range that the page covers, as text.
        cards: The key figures, each with its name.
        sections: The sections in their order.
    """
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
