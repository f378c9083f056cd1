"""The three pages: the history of one directory, the history of a fleet, and the difference of two images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from jinja2 import Environment

Row = tuple[object, ...]
"""A row of a view of `metadata_log.history.views`, in the order of its columns."""

HISTORY_VIEWS: Final = (
    "partition_history",
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
)
"""The views whose rows `render_history` wants; others are ignored, and one without rows becomes a sentence."""

FLEET_VIEWS: Final = (
    "leadership_changes",
    "unavailability",
    "controller_gaps",
    "controller_elections",
    "fencing",
    "churn",
    "unclean_elections",
    "acl_audit",
    "retention",
)
"""The views whose rows `render_fleet` wants."""

_PAGE: Final = Environment(autoescape=True).from_string(
    "<!doctype html><html lang=en><meta charset=utf-8><title>{{ title }}</title><h1>{{ title }}</h1>"
    "{% for note in notes %}<p>{{ note }}</p>{% endfor %}"
    "<table>{% for name, count in counts %}<tr><td>{{ name }}<td>{{ count }}{% endfor %}</table></html>\n"
)


def render_history(rows: Iterable[tuple[str, Row]], out: Path, *, title: str, notes: Sequence[str] = ()) -> None:
    """Write the story of one directory to `out`.

    `rows` are pairs of a view's name and a row, as `metadata_log.history` yields them for `HISTORY_VIEWS`; `title` is
    the name of the cluster or directory; `notes` are sentences for the top: the range, damage, what is left out.
    """
    _write(rows, out, title, notes)


def render_fleet(rows: Iterable[tuple[str, Row]], out: Path, *, title: str, notes: Sequence[str] = ()) -> None:
    """Write what happened to many clusters to `out`; arguments as for `render_history`, views of `FLEET_VIEWS`."""
    _write(rows, out, title, notes)


def render_diff(
    differences: Iterable[tuple[str, str, str, object, object]], out: Path, *, before: str, after: str
) -> None:
    """Write the difference of two images to `out`.

    `differences` are (kind, name, field, before, after) as of `metadata_log.image.diff`; `before` and `after` name the
    two sides. None stands for what is not there.
    """
    _write(((kind, ()) for kind, *_ in differences), out, f"{before} → {after}", ())


def _write(rows: Iterable[tuple[str, Row]], out: Path, title: str, notes: Sequence[str]) -> None:
    counts = sorted(Counter(name for name, _ in rows).items())
    out.write_text(_PAGE.render(title=title, notes=notes, counts=counts), encoding="utf-8")
