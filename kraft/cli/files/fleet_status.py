"""`kraft fleet status`: whether a nightly job keeps its tables up to date, for people, schedulers and Prometheus."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from kraft.cli.files.fleet_materialize import plain_failures
from kraft.cli.text import count, echo, echo_lines, table
from kraft.config import UsageError
from kraft.config.errors import CommandFailed

if TYPE_CHECKING:
    from kraft.metrics.exposition import Gauge
    from metadata_log.tables.status import ClusterStatus

_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}
_COLUMNS: Final = ("cluster", "last status", "up to date", "open rows", "problems")


@click.command(
    "status",
    short_help="Whether all clusters of the tables are up to date.",
    epilog="Example: kraft fleet status /lake/kafka --max-age 26h --prometheus /var/lib/node_exporter/kraft.prom",
)
@click.argument("out", metavar="DIR")
@click.option(
    "--max-age", default="26h", show_default=True, metavar="TIME", help="When tables are stale, such as 90m, 26h or 3d."
)
@click.option(
    "--growing",
    default=7,
    show_default=True,
    type=click.IntRange(min=2),
    metavar="N",
    help="Tell clusters with more open rows N times in a row.",
)
@click.option("--prometheus", metavar="FILE", help="Write the state for the textfile collector of the node exporter.")
@click.option("--json", "as_json", is_flag=True, help="Print the state of every cluster as JSON, one a line.")
def status_command(*, out: str, max_age: str, growing: int, prometheus: str | None, as_json: bool) -> None:
    """Check the tables that kraft fleet materialize keeps in DIR; no log is read.

    A cluster is stale if no run has brought its tables to the end of the log for so long. The gate has failed if the
    last run stopped or failed. Open rows that grow in each run may be rows whose end was not read. Closed clusters are
    left out.

    Exit codes: 0 all is well; 1 a cluster has a problem.
    """
    from msgspec import to_builtins

    from metadata_log.arrow.lean_pyarrow import load_lean_pyarrow

    load_lean_pyarrow()
    from metadata_log.disk import OsDisk, replace_file
    from metadata_log.tables.commit import STAGING, known_clusters
    from metadata_log.tables.status import fleet_status

    with plain_failures():
        if known_clusters(OsDisk(), os.path.join(out, STAGING)):
            hint = "Query the table `runs` of the lake."
            raise UsageError("only tables of Parquet are checked here, not those of a lake", where=out, hint=hint)
        statuses = fleet_status(OsDisk(), out, datetime.now(UTC), max_age=_age(max_age), growing=growing)
        if not statuses:
            raise UsageError("no run has written tables here", where=out, hint="Give the --out of the runs.")
        if prometheus is not None:
            from kraft.metrics.exposition import text_of_gauges

            folder, name = os.path.split(os.path.abspath(prometheus))
            replace_file(OsDisk(), folder, name, text_of_gauges(_gauges(statuses)))
    bad = [one for one in statuses if one.problems]
    if as_json:
        echo_lines(json.dumps(to_builtins(one), ensure_ascii=False) for one in statuses)
    else:
        echo_lines(table(_COLUMNS, [_line(one) for one in bad or statuses]))
        echo(f"{count(len(statuses), 'cluster')}, {len(bad)} with a problem")
    for one in bad:
        echo(f"kraft: error: {one.text} (cluster {one.cluster})", err=True)
    if bad:
        raise CommandFailed


def _line(one: ClusterStatus) -> list[str]:
    rows = str(one.open_rows[-1]) if one.open_rows else "-"
    since = "never" if one.age_s is None else f"{one.age_s / 3600:.1f} h ago"
    return [one.cluster, one.status, since, rows, ", ".join(one.problems) or "-"]


def _gauges(found: Sequence[ClusterStatus]) -> list[Gauge]:
    """The state for the textfile collector of Prometheus's node exporter."""
    from kraft.metrics.exposition import Gauge
    from metadata_log.tables.status import PROBLEMS

    ages = [({"cluster": one.cluster}, one.age_s) for one in found if one.age_s is not None]
    rows = [({"cluster": one.cluster}, float(one.open_rows[-1])) for one in found if one.open_rows]
    problems = [
        ({"cluster": one.cluster, "check": check}, float(check in one.problems)) for one in found for check in PROBLEMS
    ]
    return [
        Gauge("kraft_fleet_age_seconds", "Seconds since the tables of the cluster were up to date.", ages),
        Gauge("kraft_fleet_open_rows", "Open rows.", rows),
        Gauge("kraft_fleet_problem", "Whether a check of the cluster fails.", problems),
    ]


def _age(text: str) -> timedelta:
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and unit in _UNITS):
        raise UsageError(f"{text!r} is no time", where="--max-age", hint="Such as 90m, 26h or 3d.")
    return timedelta(**{_UNITS[unit]: int(number)})
