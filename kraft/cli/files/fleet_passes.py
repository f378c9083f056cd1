"""`kraft fleet save-passes`: where queries cut the histories of long logs into parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from kraft.cli.files.fleet_given import chosen_options, pairs, plain_failures
from kraft.cli.text import count, echo, echo_lines, table
from kraft.config.errors import CommandFailed

if TYPE_CHECKING:
    from metadata_log.spark.passes import Saved

_MIB: Final = 1 << 20
_SHOWN: Final = 20
_OPTIONS: Final = ("cluster", "storageOptions", "showSecrets", "sessionTimeoutMs", "gapToleranceMs")
_COLUMNS: Final = ("cluster", "added", "passes", "until offset")


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
    help=f"An option of the later queries: {', '.join(_OPTIONS)}; may be repeated.",
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
        source = parse_options({**chosen_options(options, _OPTIONS), "paths": json.dumps(list(paths))})
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
        _show(found)
    for one in found:
        if one.problem is not None:
            echo(f"kraft: error: {one.problem} (cluster {one.cluster or 'unknown'})", err=True)
    if any(one.problem is not None for one in found):
        raise CommandFailed


def _show(found: Sequence[Saved]) -> None:
    """The clusters with new passes as a table, and the sum of all."""
    news = [one for one in found if one.added]
    if news:
        rows = [[one.cluster, *map(str, (one.added, one.passes, one.until))] for one in news[:_SHOWN]]
        echo_lines(table(_COLUMNS, rows))
    if len(news) > _SHOWN:
        echo(f"{count(len(news), 'cluster')} with new passes, of which {_SHOWN} are shown; --json shows all.")
    added = sum(one.added for one in found)
    echo(f"{count(len(found), 'cluster')}: {count(added, 'new pass', 'new passes')}")
