"""`kraft fleet materialize` and `kraft fleet save-passes`: what a run publishes into tables, and where queries cut the
histories of long logs into parts.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from kraft.cli.moments import moment_of
from kraft.cli.progress import LongJob, progress_option
from kraft.cli.text import count, echo, echo_lines, table
from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from metadata_log.errors import MetadataLogError
from metadata_log.reading.timeline import moment_text

if TYPE_CHECKING:
    from metadata_log.cluster_names import ClusterNames
    from metadata_log.spark.lakes.rows import Lake
    from metadata_log.spark.materialize import Fleet, Run
    from metadata_log.spark.passes import Saved
    from metadata_log.tables.cluster import ClusterOutcome, Job


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
    from metadata_log.spark.options import OPTION_NAMES

    chosen = {}
    listed = f"One of {', '.join(allowed)}."
    for option in options:
        name, separator, value = option.partition("=")
        where = f"--option {option}"
        if not separator:
            raise UsageError("a name and a value are expected", where=where, hint=listed)
        known = next((one for one in allowed if one.lower() == name.lower()), None)
        if known is None and name.lower() in {one.lower() for one in OPTION_NAMES}:
            raise UsageError(f"the option {name} is one of queries, and not of this command", where=where, hint=listed)
        if known is None:
            raise UsageError(f"there is no option {name!r}", where=where, hint=listed)
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
    "--view",
    "views",
    multiple=True,
    metavar="VIEW",
    help="A view, which is added to tables without it; may be repeated.  [default: those of the tables, or all but"
    " states]",
)
@click.option(
    "--gate",
    type=click.Choice(("fail", "warn", "settle")),
    default="fail",
    show_default=True,
    help="On damage, gaps and logs of another identity: stop and exit with 1, go on and warn, or go on and accept the"
    " damage for good.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(("parquet", "delta", "iceberg")),
    default="parquet",
    show_default=True,
    help="The format of the tables. Delta Lake and Iceberg need the extra of this name.",
)
@click.option(
    "--location",
    metavar="URL",
    help="Where the tables are, such as s3://lake/kafka; --out then has the checkpoints.  [default: --out]",
)
@click.option(
    "--catalog",
    metavar="NAME",
    help="A catalog of Iceberg that pyiceberg's configuration or --lake-option describes.  [default: a file in --out]",
)
@click.option(
    "--namespace", default="fleet", show_default=True, metavar="NAME", help="The namespace of tables of Iceberg."
)
@click.option(
    "--lake-option",
    "lake_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of deltalake's storage, of fsspec's, or a property of pyiceberg's catalog; may be repeated.",
)
@click.option("--conf", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
@click.option(
    "--clusters",
    "named_by",
    metavar="FILE",
    help="Names of the clusters: TOML, CSV, JSON or Parquet; they become the table clusters.",
)
@click.option("--compact", is_flag=True, help="Merge small files after the run.")
@click.option("--rebuild", is_flag=True, help="Make the tables again from each log, with any views.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes on this machine.  [default: by the logs' sizes]",
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
@progress_option
def materialize_command(
    *,
    paths: Sequence[str],
    out: str,
    views: Sequence[str],
    gate: str,
    kind: str,
    location: str | None,
    catalog: str | None,
    namespace: str,
    lake_options: Sequence[str],
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
    if kind == "parquet" and location is None and master is None:
        from metadata_log.arrow.lean_pyarrow import load_lean_pyarrow

        load_lean_pyarrow()
    from metadata_log.cluster_names import ClusterNames
    from metadata_log.disk import OsDisk
    from metadata_log.spark.cluster_table import is_wanted, write_clusters
    from metadata_log.spark.lakes.lineage import told_to_openlineage
    from metadata_log.spark.materialize import compact_here, find_fleet, make_job, new_run_id
    from metadata_log.spark.named import ids_of, load_cluster_names
    from metadata_log.spark.options import parse_options
    from metadata_log.tables.cluster import Gate

    if jobs is not None and master is not None:
        raise UsageError(
            "--jobs counts processes of this machine, and with --master the work is in tasks of Spark",
            where=f"--jobs {jobs}",
            hint="Leave out one of the two.",
        )
    if settings and master is None:
        raise UsageError("settings of Spark need --master", where="--conf", hint="Without --master no Spark starts.")
    for option in options:
        if option.lower().partition("=")[0] == "mode":
            hint = "mode=PERMISSIVE is --gate warn, and mode=FAILFAST is --gate fail."
            raise UsageError("--gate says what a run does at damage", where=f"--option {option}", hint=hint)
    lake = _lake(kind, os.path.abspath(out), location, catalog, namespace, pairs(lake_options, "--lake-option"))
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
            is_staged=lake is not None,
        )
        names = load_cluster_names(named_by)
        with told_to_openlineage(job, lake, warn=_warn) as night:
            fleet = find_fleet(paths, source.storage, ids_of(source.clusters, names))
            night.begins(fleet)
            with _work(jobs, master, pairs(settings, "--conf")) as work:
                if lake is None:
                    run = work(fleet, job)
                    if names is not None or is_wanted(OsDisk(), job.root):
                        write_clusters(OsDisk(), job.root, fleet.directories, names)
                    if compact:
                        compact_here(run, job)
                else:
                    from metadata_log.spark.lakes.publish import compact_tables, materialize_into

                    run = materialize_into(lake, fleet, job, names, work=work)
                    if compact:
                        compact_tables(lake, job)
            night.ends(run)
    if as_json:
        echo_lines(json.dumps(_as_json(run, outcome, names), ensure_ascii=False) for outcome in run.outcomes)
    else:
        _show(run, names or ClusterNames())
    _tell_problems(run, names or ClusterNames())
    if not run.is_sound:
        raise CommandFailed


def _lake(
    kind: str, out: str, location: str | None, catalog: str | None, namespace: str, options: dict[str, str]
) -> Lake | None:
    """The format and the place of the tables; None for plain Parquet on disk."""
    if kind != "iceberg" and catalog is not None:
        raise UsageError("a catalog is for --format iceberg", where=f"--catalog {catalog}")
    if kind == "parquet" and location is None:
        if options:
            raise UsageError("this is for --location, --format delta or iceberg", where="--lake-option")
        return None
    from metadata_log.spark.lakes.rows import Delta, Iceberg, Parquet, local_catalog
    from metadata_log.spark.storage import is_remote

    if kind == "delta":
        return Delta(location or out, options)
    if kind == "parquet":
        assert location is not None
        if not is_remote(location):
            hint = "For Parquet on this machine or a mounted file system, --out is the place of the tables."
            raise UsageError("the URL of an object store is expected", where=f"--location {location}", hint=hint)
        return Parquet(location, options)
    if catalog is None:
        return Iceberg(namespace, "kraft", {**local_catalog(out, location), **options})
    return Iceberg(namespace, catalog, {**({} if location is None else {"warehouse": location}), **options})


@contextmanager
def _work(jobs: int | None, master: str | None, conf: dict[str, str]) -> Iterator[Callable[[Fleet, Job], Run]]:
    """The function that brings clusters up to date: in processes of this machine, or in tasks of a Spark session."""
    from metadata_log.spark.materialize import processes_for, run_here, run_in_spark

    if master is not None:
        from metadata_log.spark.fleet import plain_errors, plain_session

        with plain_session(master, conf) as session, plain_errors():
            yield partial(run_in_spark, session)
        return

    def work(fleet: Fleet, job: Job) -> Run:
        with LongJob("Materializing", len(fleet.directories), unit="clusters") as progress:
            processes = jobs or processes_for(fleet, os.cpu_count() or 1)
            return run_here(fleet, job, processes=processes, on_outcome=lambda _: progress.advance(1))

    yield work


def _as_json(run: Run, outcome: ClusterOutcome, names: ClusterNames | None) -> dict[str, Any]:
    from metadata_log.spark.materialize import outcome_facts

    facts = {"run": run.id, **outcome_facts(outcome)}
    if names is None:
        return facts
    cluster = outcome.cluster
    return {**facts, "cluster_name": names.name(cluster), "environment": names.environment(cluster)}


def _warn(text: str) -> None:
    echo(f"kraft: warning: {text}", err=True)


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


def _line(outcome: ClusterOutcome, names: ClusterNames) -> list[str]:
    span = "-" if outcome.from_offset is None else f"{outcome.from_offset} to {outcome.to_offset}"
    back = f", {count(outcome.taken_back, 'step')} taken back" if outcome.taken_back else ""
    numbers = [outcome.records, outcome.closed_rows, "-" if outcome.open_rows is None else outcome.open_rows]
    return [names.name(outcome.cluster) or "-", f"{outcome.status}{back}", span, *map(str, numbers)]


def _tell_problems(run: Run, names: ClusterNames) -> None:
    """Damage, changes of identity, records of a newer Kafka, and failures, on stderr."""
    from metadata_log.tables.cluster import Gate

    word = "error" if run.gate is Gate.FAIL else "warning"
    for outcome in run.outcomes:
        cluster = names.name(outcome.cluster)
        if outcome.text is not None:
            echo(f"kraft: error: {outcome.text} (cluster {cluster or 'unknown'})", err=True)
        for doubt in outcome.doubts:
            echo(f"kraft: {word}: {doubt} (cluster {cluster})", err=True)


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
@progress_option
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
            with LongJob("Saving passes", None):
                passes = save()
        else:
            from metadata_log.spark.fleet import plain_errors, plain_session

            with plain_session(master, conf) as spark, plain_errors():
                passes = save(spark=spark)
    if as_json:
        echo_lines(json.dumps(asdict(one), ensure_ascii=False) for one in passes)
    else:
        _show_passes(passes)
    for one in passes:
        if one.problem is not None:
            echo(f"kraft: error: {one.problem} (cluster {one.cluster or 'unknown'})", err=True)
    if any(one.problem is not None for one in passes):
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
