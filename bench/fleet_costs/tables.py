"""The cost of tables of one log beside that of Kafka's dump tool, each in a process of its own, with its start.

    python bench/fleet.py tables [--rounds 3] [--dir DIR]

Processor seconds, user and system, of `kraft fleet materialize` over the recorded log of 653,294 records: all views but
the states, one view, and a second run with nothing new; and of `DumpLogSegments` over the same files.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dump import Program, programs, run
from spread import spread

from metadata_log.types import PARTITION_DIRECTORY
from support.real_data import unpack

_ROWS = {"all views": (), "leader_history": ("--view", "leader_history"), "nothing new": ()}


def main(words: Sequence[str]) -> None:
    """Run the rounds, and print medians with their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", help="where the log and the tables are; default: a temporary directory")
    options = parser.parse_args(words)
    tool = next(program for program in programs() if program.title.startswith("Kafka"))
    with tempfile.TemporaryDirectory(dir=options.dir) as scratch:
        log = Path(scratch) / "log" / PARTITION_DIRECTORY
        unpack("big", "", log)
        (log / "bootstrap.checkpoint").unlink(missing_ok=True)
        files, output = sorted(log.glob("*.log")), Path(scratch) / "output"
        costs: dict[str, list[float]] = {title: [] for title in ("Kafka's dump tool", *_ROWS)}
        for _ in range(options.rounds):
            costs["Kafka's dump tool"].append(run(tool, files, output).cpu)
            for title, further in _ROWS.items():
                if title != "nothing new":
                    shutil.rmtree(Path(scratch) / title, ignore_errors=True)
                out = str(Path(scratch) / ("all views" if title == "nothing new" else title))
                command = [sys.executable, "-m", "kraft", "fleet", "materialize", "--out", out, "--jobs", "1", *further]
                costs[title].append(run(Program(title, command, b""), [log.parent], output).cpu)
    base = spread(costs["Kafka's dump tool"]).median
    for title, found in costs.items():
        print(f"{title:20}{spread(found)!s:>26} CPU s{spread(found).median / base:>8.2f}")
