"""The commands over files for the page of the lab: what they print, as one text.

The page has no terminal and no network. `kraft doctor` looks at files alone there, as its command would load what asks
live nodes.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final

import click
from msgspec import json

from kraft.cli.doctor.output import Report, report_lines
from kraft.cli.files.dump import dump_command
from kraft.cli.files.history import history_command
from kraft.cli.files.replay import replay_command
from kraft.operate.doctor.bundle import MANIFEST, is_bundle
from kraft.operate.doctor.diagnose import diagnose
from kraft.operate.doctor.gather import gather

LONGEST: Final = 2_000_000
"""The most characters of an output that the page shows."""
ARCHIVES: Final = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
MOST_UNPACKED: Final = 500_000_000
"""The most bytes that are unpacked of an archive."""
UNPACKED: Final = ".unpacked"
NODE: Final = "meta.properties"
"""The file by which a directory is that of a node."""
REPORT: Final = "/report.html"


def run_tool(name: str, path: str, topic: str = "") -> str:
    """The output of a command for a file, directory or bundle: `dump`, `history`, `replay`, `doctor`, or `report` for
    an HTML page.

    History and replay are those of one topic, or of one partition of it, if `topic` is given. A bundle has no log: of
    its metadata there is the state alone.
    """
    only = ["--topic", topic] if topic else []
    folder = Path(f"{path}{UNPACKED}")
    if folder.exists() and not _is_of_bundle(folder):
        path = nodes_in(str(folder))[0]
    elif folder.exists() and name != "doctor":
        snapshots = sorted(folder.rglob("*.checkpoint"))
        if not snapshots:
            return "This bundle has no metadata: `kraft doctor collect --records` adds it."
        path = str(snapshots[0])
    match name:
        case "replay":
            return _printed(replay_command, [path, *only])
        case "dump":
            return _printed(dump_command, ["--records", path])
        case "history":
            return _printed(history_command, [path, *only])
        case "report":
            Path(REPORT).unlink(missing_ok=True)
            said = _printed(history_command, [path, "--html", REPORT, *only])
            return Path(REPORT).read_text(encoding="utf-8") if Path(REPORT).exists() else said
        case _:
            return diagnosis_of(path)


def unpacked(path: str) -> str:
    """Unpack an archive into a folder beside it; returns the paths of the files as JSON, none if it is no archive or
    a bundle, which the commands take as it is.

    The folder has the name of the archive with `UNPACKED`. Nothing outside of it is written.
    """
    if not path.endswith(ARCHIVES):
        return "[]"
    folder = Path(f"{path}{UNPACKED}")
    try:
        with tarfile.open(path) as archive:
            left = MOST_UNPACKED
            for member in archive:
                left -= member.size
                if left < 0:
                    break
                if member.isfile():
                    archive.extract(member, folder, filter="data")
    except (OSError, EOFError, tarfile.TarError, zlib.error):
        if not folder.exists():
            return "[]"
    if _is_of_bundle(folder):
        return "[]"
    return json.encode(sorted(str(one) for one in folder.rglob("*") if one.is_file())).decode()


def _is_of_bundle(folder: Path) -> bool:
    return (folder / MANIFEST).exists()


def diagnosis_of(path: str) -> str:
    """The report of `kraft doctor` on a directory, those of several nodes in one, a properties file or a bundle."""
    if is_bundle(path):
        found = gather((), (), (path,))
    elif path.endswith(".properties"):
        found = gather((path,), ())
    else:
        found = gather((), nodes_in(path))
    if not found.facts.nodes:
        return "\n".join(("nothing was read", *(f"{one.path}: {one.why}" for one in found.unreadable)))
    report = Report(facts=found.facts, diagnosis=diagnose(found.facts), unreadable=found.unreadable)
    return click.unstyle("\n".join(report_lines(report)))


def nodes_in(path: str) -> tuple[str, ...]:
    """The directories of nodes in a directory, or the directory itself; of a file, the directory of its node."""
    where = Path(path) if Path(path).is_dir() else Path(path).parent
    if not (where / NODE).exists() and (where.parent / NODE).exists():
        where = where.parent
    inside = sorted(str(one.parent) for one in where.rglob(NODE) if one.parent != where)
    return tuple(inside) if inside and not (where / NODE).exists() else (str(where),)


def _printed(command: click.Command, arguments: Sequence[str]) -> str:
    """The output of a command, or why it fails, in one text."""
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        try:
            command.main(list(arguments), prog_name=f"kraft {command.name}", standalone_mode=False)
        except Exception as failure:
            hint = getattr(failure, "hint", None)
            click.echo(f"{failure}" + (f"\n{hint}" if hint else ""))
    text = out.getvalue()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n… and {len(text) - LONGEST:,} characters more"
