"""`kraft check`: checks the directories of a quorum against the invariants of consensus."""

from __future__ import annotations

import json

import click
import msgspec

from kraft.cli.progress import LongJob, progress_option
from kraft.cli.text import count, echo
from kraft.history_checker import History, check_history
from metadata_log.printable import printable


@click.command(
    "check",
    short_help="Check directories against the invariants.",
    epilog="Example: kraft check /backup/c1 /backup/c2 /backup/c3",
)
@click.argument("directories", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False), metavar="DIR…")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@progress_option
@click.pass_context
def check_command(context: click.Context, directories: tuple[str, ...], *, as_json: bool) -> None:
    """Compare the log directories of one quorum's nodes with each other and with the invariants of consensus.

    Each epoch has one leader, elected by a majority. Logs have the same bytes at the same offset and epoch. A
    snapshot's records are committed on a majority and equal the replayed log. Each partition change is legal. More
    directories allow more checks: use those of all nodes. They may belong to running nodes; the command writes nothing.
    The exit code is 1 if an invariant is broken.
    """
    with LongJob("Checking", None, unit="batches") as job:
        history = check_history(*directories, advance=job.advance)
    if as_json:
        echo(json.dumps(_json(history), ensure_ascii=False))
    else:
        _print(history)
    context.exit(0 if history.is_legal else 1)


def _json(found: History) -> dict[str, object]:
    return {
        "directories": list(found.directories),
        "isLegal": found.is_legal,
        "findings": [msgspec.to_builtins(finding) for finding in found.findings],
        "leaders": {str(epoch): leader for epoch, leader in found.leaders.items()},
        "provenEndOffset": found.proven_end,
        "comparedBatches": found.compared,
        "checkedPartitionChanges": found.changes,
        "notChecked": [{"where": one.where, "position": one.position, "what": one.what} for one in found.unfinished],
    }


def _print(found: History) -> None:
    for finding in found.findings:
        what = printable(f"{finding.what} ({finding.where})")
        click.echo(f"{click.style(finding.rule, fg='red', bold=True)}: {what}")
    verdict = "no invariant is violated" if found.is_legal else count(len(found.findings), "violation")
    echo(f"{count(len(found.directories), 'directory', 'directories')}: {verdict}.")
    if found.leaders:
        epochs = f"epochs {min(found.leaders)} to {max(found.leaders)}"
        echo(f"{count(len(found.leaders), 'leader')} known, of {epochs}.")
    echo(
        f"{count(found.compared, 'batch', 'batches')} compared between logs,"
        f" {count(found.changes, 'change')} of partitions looked at."
    )
    for one in found.unfinished:
        echo(printable(f"Not checked, as a crash or a running node leaves it: {one}."))
    if found.proven_end:
        echo(f"Everything below offset {found.proven_end:,} was committed, as a snapshot proves.")
