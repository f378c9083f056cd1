"""The commands over files for the page of the lab: what they print, as one text.

The page has no terminal and no network. `kraft doctor` looks at files alone there, as its command would load what asks
live nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final

import click

from kraft.cli.doctor.output import Report, report_lines
from kraft.cli.files.dump import dump_command
from kraft.cli.files.history import history_command
from kraft.operate.doctor.bundle import is_bundle
from kraft.operate.doctor.diagnose import diagnose
from kraft.operate.doctor.gather import gather

LONGEST: Final = 2_000_000
"""The most characters of an output that the page shows."""
REPORT: Final = "/report.html"


def run_tool(name: str, path: str) -> str:
    """The output of a command for a file or directory: `dump`, `history`, `doctor`, or `report` for an HTML page."""
    match name:
        case "dump":
            return _printed(dump_command, [path])
        case "history":
            return _printed(history_command, [path])
        case "report":
            Path(REPORT).unlink(missing_ok=True)
            said = _printed(history_command, [path, "--html", REPORT])
            return Path(REPORT).read_text(encoding="utf-8") if Path(REPORT).exists() else said
        case _:
            return diagnosis_of(path)


def diagnosis_of(path: str) -> str:
    """The report of `kraft doctor` on a directory, a properties file or a bundle."""
    if is_bundle(path):
        found = gather((), (), (path,))
    elif path.endswith(".properties"):
        found = gather((path,), ())
    else:
        found = gather((), (path,))
    if not found.facts.nodes:
        return "\n".join(("nothing was read", *(f"{one.path}: {one.why}" for one in found.unreadable)))
    report = Report(facts=found.facts, diagnosis=diagnose(found.facts), unreadable=found.unreadable)
    return "\n".join(report_lines(report))


def _printed(command: click.Command, arguments: Sequence[str]) -> str:
    """The output of a command, or why it fails, in one text."""
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        try:
            command.main(list(arguments), prog_name=f"kraft {command.name}", standalone_mode=False)
        except Exception as failure:
            click.echo(f"{type(failure).__name__}: {failure}")
    text = out.getvalue()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n… and {len(text) - LONGEST:,} characters more"
