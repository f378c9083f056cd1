"""`kraft fleet materialize` and `kraft fleet save-passes`: what a run publishes into tables, and where queries cut the
histories of long logs into parts.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct

from kraft.cli.moments import moment_of
from kraft.cli.progress import LongJob
from kraft.cli.text import count, echo, echo_lines, table
from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from metadata_log.errors import MetadataLogError
from metadata_log.reading.timeline import moment_text

if TYPE_CHECKING:
    from metadata_log.cluster_names import ClusterNames
    from metadata_log.spark.materialize import Fleet, Run
    from metadata_log.spark.passes import Saved
    from metadata_log.tables.cluster import Job, Outcome


_TIMES: Final = frozenset({"since", "until", "asoftimestamp"})
"""The options of the source with a time, in lower case."""


def pairs(given: Sequence[str], option: str, hint: str | None = None) -> dict[str, str]:
    """The names and values of an option that may be repeated, such as `--conf`."""
    chosen = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise UsageError("a name and a value are expected", where=f"{option} {text}", hint=hint)
        chosen[name] = value
    return chosen


def chosen_options(options: Sequence[str], allowed: Sequence[str]) -> dict[str, str]:
    """The values of `--option`, by names that are allowed."""
    chosen = {}
    for option in options:
        name, separator, value = option.partition("=")
        known = next((one for one in allowed if one.lower() == name.lower()), None)
        if known is None or not separator:
            where = f"--option {option}"
            raise UsageError("a name and a value are expected", where=where, hint=f"One of {', '.join(allowed)}.")
        chosen[known] = value
    return chosen


def in_full(options: Mapping[str, str]) -> dict[str, str]:
    """The options of the source with their times in full: the source knows no time of today."""
    return {name: _in_full(name, text) if name.lower() in _TIMES else text for name, text in options.items()}


def _in_full(name: str, text: str) -> str:
    try:
        at = moment_of(text)
    except ValueError as bad:
        raise UsageError(str(bad), where=f"--option {name}={text}") from bad
    return text if at.timestamp_ms is None else moment_text(at)


@contextmanager
def plain_failures() -> Iterator[None]:
    """Translate failures to exceptions of this program, and SIGTERM to the effect of Ctrl-C."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except MetadataLogError as failed:
        raise CommandFailed(MetadataLogError.__str__(failed), hint=failed.hint) from failed
    finally:
        signal.signal(signal.SIGTERM, before)


_SHOWN: Final = 20
_OPTIONS: Final = ("cluster", "storageOptions", "showSecrets", "sessionTimeoutMs")
_COLUMNS: Final = ("cluster", "status", "offsets", "records", "closed rows", "open rows")


@click.command(
    "materialize",
    short_help="Histories as tables that grow by each day's records.",
    epilog="Example: kraft fleet materialize '/backup/*' --out /lake/kafka --gate warn --json",
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--out", required=True, metavar="DIR", help="The directory of the tables; made if missing.")
@click.option(
    "--view", "views", multiple=True, metavar="VIEW", help="A view; may be repeated.  [default: all but states]"
)
@click.option(
    "--gate",
    type=click.Choice(("fail", "warn", "settle")),
    default="fail",
    show_default=True,
    help="On damage and gaps: stop in front and exit with 1, go on and warn, or go on and accept the damage for good.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(("parquet", "delta", "iceberg")),
    default="parquet",
    show_default=True,
    help="The format of the tables. Delta Lake and Iceberg are written through Spark.",
)
@click.option("--location", metavar="URL", help="Where tables of Delta Lake or Iceberg are.  [default: --out]")
@click.option(
    "--namespace",
    default="kraft.fleet",
    show_default=True,
    metavar="CATALOG.NAME",
    help="The catalog and the namespace of tables of Iceberg.",
)
@click.option(
    "--packages",
    multiple=True,
    metavar="G:A:V",
    help="Maven coordinates of the format's jar; may be repeated.  [default: the known release for this Spark]",
)
@click.option("--conf", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
@click.option(
    "--clusters",
    "named_by",
    metavar="FILE",
    help="Names of the clusters: TOML, CSV, JSON or Parquet; they become the table clusters.",
)
@click.option("--compact", is_flag=True, help="Merge small files after the run.")
@click.option("--rebuild", is_flag=True, help="Make the tables again from the beginning of each log.")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Processes on this machine.  [default: its processors]"
)
@click.option("--master", metavar="URL", help="Work in the tasks of Spark at this master, and not on this machine.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"An option of the source: {', '.join(_OPTIONS)}; may be repeated.",
)
@click.option("--run-id", metavar="ID", help="The id of the run, such as a scheduler's.  [default: the time]")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome of every cluster as JSON, one a line.")
def materialize_command(
    *,
    paths: Sequence[str],
    out: str,
    views: Sequence[str],
    gate: str,
    kind: str,
    location: str | None,
    namespace: str,
    packages: Sequence[str],
    settings: Sequence[str],
    named_by: str | None,
    compact: bool,
    rebuild: bool,
    jobs: int | None,
    master: str | None,
    options: Sequence[str],
    run_id: str | None,
    as_json: bool,
) -> None:
    """Bring tables of the histories up to date with the logs.

    PATH is a log directory or a glob. A run reads what is new since the last run, and closes the rows that were open. A
    second run changes nothing. A run that was killed is finished by the next one. The table `runs` has a row for each
    run and cluster. With --clusters the table `clusters` has the name, the environment and the labels of each cluster.

    Exit codes: 0 the tables are up to date; 1 a cluster failed, or damage stopped a cluster (--gate fail).
    """
    from metadata_log.cluster_names import ClusterNames
    from metadata_log.disk import OsDisk
    from metadata_log.spark.cluster_table import write_clusters
    from metadata_log.spark.materialize import find_fleet, make_job, new_run_id
    from metadata_log.spark.named import ids_of, load_cluster_names
    from metadata_log.spark.options import parse_options
    from metadata_log.tables.cluster import Gate

    if jobs is not None and (master is not None or kind != "parquet"):
        raise UsageError("processes of this machine and tasks of Spark exclude each other", where="--jobs, --master")
    if kind == "parquet" and (location is not None or packages):
        raise UsageError("this is for --format delta or iceberg", where="--location, --packages")
    spark = _Spark(
        kind=kind,
        location=location or os.path.abspath(out),
        namespace=namespace,
        master=master,
        packages=list(packages),
        conf=pairs(settings, "--conf"),
    )
    with plain_failures():
        source = parse_options({**chosen_options(options, _OPTIONS), "paths": json.dumps(list(paths))})
        job = make_job(
            out,
            run=run_id or new_run_id(datetime.now(UTC)),
            views=views,
            gate=Gate(gate),
            rebuild=rebuild,
            show_secrets=source.show_secrets,
            session_timeout_ms=source.session_timeout_ms,
            is_staged=kind != "parquet",
        )
        names = load_cluster_names(named_by)
        fleet = find_fleet(paths, source.storage, ids_of(source.clusters, names))
        if kind == "parquet":
            run = _run(fleet, job, jobs, spark, compact)
            if names is not None:
                write_clusters(OsDisk(), job.root, fleet.directories, names)
        else:
            run = _run_into(fleet, job, spark, compact, names)
    if as_json:
        echo_lines(json.dumps(_as_json(run, outcome, names), ensure_ascii=False) for outcome in run.outcomes)
    else:
        _show(run, names or ClusterNames())
    _tell_problems(run, names or ClusterNames())
    if not run.is_sound:
        raise CommandFailed


class _Spark(Struct, frozen=True, kw_only=True):
    """The format of the tables, and the session of Spark."""

    kind: str
    location: str
    namespace: str
    master: str | None
    packages: list[str]
    conf: dict[str, str]


def _run(fleet: Fleet, job: Job, jobs: int | None, spark: _Spark, compact: bool) -> Run:
    from metadata_log.spark.materialize import compact_here, run_here, run_in_spark

    processes = jobs or os.cpu_count() or 1
    if spark.master is not None:
        from metadata_log.spark.fleet import plain_errors, plain_session

        with plain_session(spark.master, spark.conf) as session, plain_errors():
            run = run_in_spark(session, fleet, job)
    else:
        with LongJob("materialize", len(fleet.directories)) as progress:
            run = run_here(fleet, job, processes=processes, on_outcome=lambda _: progress.advance(1))
    if compact:
        compact_here(run, job)
    return run


def _run_into(fleet: Fleet, job: Job, spark: _Spark, compact: bool, names: ClusterNames | None) -> Run:
    """The same into tables of Delta Lake or Iceberg, with the table of clusters among them."""
    from metadata_log.spark.fleet import plain_errors
    from metadata_log.spark.lakes.lake import Delta, Iceberg
    from metadata_log.spark.lakes.lake_session import lake_session
    from metadata_log.spark.lakes.publish import compact_tables, materialize_into

    lake = Delta(spark.location) if spark.kind == "delta" else Iceberg(spark.namespace)
    opened = lake_session(
        lake, spark.location, master=spark.master or "local[*]", packages=spark.packages, conf=spark.conf
    )
    with opened as session, plain_errors():
        run = materialize_into(session, lake, fleet, job, names)
        if compact:
            compact_tables(session, lake, job)
    return run


def _as_json(run: Run, outcome: Outcome, names: ClusterNames | None) -> dict[str, Any]:
    from msgspec.structs import asdict

    facts = {"run": run.id, **asdict(outcome), "status": str(outcome.status)}
    if names is None:
        return facts
    cluster = outcome.cluster
    return {**facts, "cluster_name": names.name(cluster), "environment": names.environment(cluster)}


def _show(run: Run, names: ClusterNames) -> None:
    """The clusters with news as a table, and the sum of all."""
    from metadata_log.tables.cluster import Status

    news = [outcome for outcome in run.outcomes if outcome.status is not Status.NOTHING]
    if news:
        echo_lines(table(_COLUMNS, [_line(outcome, names) for outcome in news[:_SHOWN]]))
    if len(news) > _SHOWN:
        echo(f"{count(len(news), 'cluster')} with news, of which {_SHOWN} are shown; --json shows all.")
    counted = {status: sum(one.status is status for one in run.outcomes) for status in Status}
    told = ", ".join(f"{number} {status}" for status, number in counted.items() if number)
    records = sum(outcome.records for outcome in run.outcomes)
    echo(f"run {run.id}: {count(len(run.outcomes), 'cluster')} ({told}), {count(records, 'record')}")


def _line(outcome: Outcome, names: ClusterNames) -> list[str]:
    span = "-" if outcome.from_offset is None else f"{outcome.from_offset} to {outcome.to_offset}"
    back = f", {count(outcome.taken_back, 'step')} taken back" if outcome.taken_back else ""
    numbers = [outcome.records, outcome.closed_rows, "-" if outcome.open_rows is None else outcome.open_rows]
    return [names.name(outcome.cluster) or "-", f"{outcome.status}{back}", span, *map(str, numbers)]


def _tell_problems(run: Run, names: ClusterNames) -> None:
    """The damage of logs and the failures of clusters, on stderr."""
    from metadata_log.tables.cluster import Gate

    word = "error" if run.gate is Gate.FAIL else "warning"
    for outcome in run.outcomes:
        cluster = names.name(outcome.cluster)
        if outcome.text is not None:
            echo(f"kraft: error: {outcome.text} (cluster {cluster or 'unknown'})", err=True)
        if outcome.damage is not None:
            echo(f"kraft: {word}: {outcome.damage} (cluster {cluster})", err=True)


_MIB: Final = 1 << 20
_OPTIONS_OF_PASSES: Final = ("cluster", "storageOptions", "showSecrets", "sessionTimeoutMs", "gapToleranceMs")
_COLUMNS_OF_PASSES: Final = ("cluster", "added", "passes", "until offset")


@click.command(
    "save-passes",
    short_help="Cut the histories of long logs into parts for queries.",
    epilog="Example: kraft fleet save-passes '/backup/*' --out /backup-passes --every-mib 64",
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--out", required=True, metavar="DIR", help="The directory of the passes; made if missing.")
@click.option(
    "--every-mib",
    type=click.FloatRange(min=0, min_open=True),
    default=64,
    show_default=True,
    metavar="N",
    help="About how many MiB of a log lie between two passes.",
)
@click.option("--master", metavar="URL", help="Work in the tasks of Spark at this master, and not on this machine.")
@click.option("--conf", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"An option of the later queries: {', '.join(_OPTIONS_OF_PASSES)}; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result of every cluster as JSON, one a line.")
def save_passes_command(
    *,
    paths: Sequence[str],
    out: str,
    every_mib: float,
    master: str | None,
    settings: Sequence[str],
    options: Sequence[str],
    as_json: bool,
) -> None:
    """Save passes of the histories, at which queries cut a long log into tasks.

    PATH is a log directory or a glob. A pass is what a replay knows at one offset. A run reads what is new since the
    last run. A query uses the passes with the option passes=DIR, and returns the same rows. The passes hold what the
    logs hold, secrets too.

    Exit codes: 0 the passes are saved; 1 a log cannot be read to its end.
    """
    from msgspec.structs import asdict

    from metadata_log.spark.options import history_options, parse_options
    from metadata_log.spark.passes import save_passes

    conf = pairs(settings, "--conf")
    with plain_failures():
        source = parse_options({**chosen_options(options, _OPTIONS_OF_PASSES), "paths": json.dumps(list(paths))})
        save = partial(
            save_passes,
            paths,
            out,
            storage=source.storage,
            clusters=source.clusters,
            options=history_options(source),
            every_bytes=max(1, int(every_mib * _MIB)),
        )
        if master is None:
            found = save()
        else:
            from metadata_log.spark.fleet import plain_errors, plain_session

            with plain_session(master, conf) as spark, plain_errors():
                found = save(spark=spark)
    if as_json:
        echo_lines(json.dumps(asdict(one), ensure_ascii=False) for one in found)
    else:
        _show_passes(found)
    for one in found:
        if one.problem is not None:
            echo(f"kraft: error: {one.problem} (cluster {one.cluster or 'unknown'})", err=True)
    if any(one.problem is not None for one in found):
        raise CommandFailed


def _show_passes(found: Sequence[Saved]) -> None:
    """The clusters with new passes as a table, and the sum of all."""
    news = [one for one in found if one.added]
    if news:
        rows = [[one.cluster, *map(str, (one.added, one.passes, one.until))] for one in news[:_SHOWN]]
        echo_lines(table(_COLUMNS_OF_PASSES, rows))
    if len(news) > _SHOWN:
        echo(f"{count(len(news), 'cluster')} with new passes, of which {_SHOWN} are shown; --json shows all.")
    added = sum(one.added for one in found)
    echo(f"{count(len(found), 'cluster')}: {count(added, 'new pass', 'new passes')}")
