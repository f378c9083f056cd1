"""The rate of reading a whole metadata log: ours beside Kafka's dump tool, on the same 653,294 records, in one run.

    python bench/dump.py [--reps 5] [--dir DIR]

Rows: our reader alone (each batch checked, each record a typed object), `kraft dump --records` with `--json` and as
text, and Kafka's `DumpLogSegments` with its metadata decoder and the options of its start script. Each row is a
separate process that writes to a file. Rates are per second of processor time, user and system, of all its threads. The
start of a process is measured with a log of one batch, subtracted, and shown separately. The order of rows rotates with
the rounds.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from spread import spread

from support.interop.real_kafka import DUMP_TOOL, KafkaInstallation
from support.kafka_jars import KafkaUnavailable
from support.real_data import unpack

ROOT = Path(__file__).parent.parent
RECORDS = 653_294
SERVER_OPTIONS = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExplicitGCInvokesConcurrent")
"""The options that kafka-run-class.sh gives each tool."""

READ = """
import sys
from metadata_log import Damage, OsDisk, read_entries, read_file
disk, count = OsDisk(), 0
for path in sys.argv[1:]:
    for batch in read_file(disk, path):
        assert not isinstance(batch, Damage), batch
        for entry in read_entries(batch, path):
            assert not isinstance(entry, Damage), entry
            count += 1
print(count)
"""


class Cost(Struct, frozen=True):
    """The cost of a process, in seconds."""

    cpu: float
    wall: float


class Program(Struct, frozen=True):
    """A row: a command with files as arguments."""

    title: str
    command: Sequence[str]
    counts: bytes
    """The prefix of lines that show one record each; if empty, the only line is the number of records."""
    separator: str | None = None
    """The separator of files, if they are one argument."""

    def records_in(self, output: Path) -> int:
        content = output.read_bytes()
        return (b"\n" + content).count(b"\n" + self.counts) if self.counts else int(content)


def run(program: Program, files: Sequence[Path], output: Path) -> Cost:
    names = [str(file) for file in files]
    arguments = names if program.separator is None else [program.separator.join(names)]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with output.open("wb") as target:
        done = subprocess.run(
            [*program.command, *arguments], stdout=target, stderr=subprocess.PIPE, cwd=ROOT, check=False
        )
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr.decode()
    return Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def programs() -> list[Program]:
    dump = [sys.executable, "-m", "kraft", "dump", "--records", "--noop", "--show-secrets"]
    found = [
        Program("ours: reader", [sys.executable, "-c", READ], b""),
        Program("ours: kraft dump --json", [*dump, "--json"], b"{"),
        Program("ours: kraft dump", dump, b"  "),
    ]
    try:
        kafka = KafkaInstallation.find()
    except KafkaUnavailable as reason:
        print(f"Kafka's dump tool is left out: {reason}")
        return found
    options = [*SERVER_OPTIONS, "-Djava.awt.headless=true"]
    print(f"Kafka: JVM flags {' '.join(options)}, a new JVM for each row")
    command = kafka.command(DUMP_TOOL, "--cluster-metadata-decoder", "--files", options=options)
    return [*found, Program("Kafka: DumpLogSegments", command, b"| offset: ", separator=",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--dir", help="where the log is unpacked and output goes; default: a temporary directory")
    options = parser.parse_args()
    rows = programs()
    with tempfile.TemporaryDirectory(dir=options.dir) as scratch:
        log = unpack("big", "", Path(scratch))
        files, output = sorted(log.glob("*.log")), Path(scratch) / "output"
        small = Path(scratch) / "small" / files[0].name
        small.parent.mkdir()
        small.write_bytes(files[0].read_bytes()[:91])
        starts: dict[str, list[Cost]] = {row.title: [] for row in rows}
        costs: dict[str, list[Cost]] = {row.title: [] for row in rows}
        for turn in range(options.reps):
            for row in rows[turn % len(rows) :] + rows[: turn % len(rows)]:
                starts[row.title].append(run(row, [small], output))
                costs[row.title].append(run(row, files, output))
                assert row.records_in(output) == RECORDS, row.title
    report(starts, costs)


def report(starts: dict[str, list[Cost]], costs: dict[str, list[Cost]]) -> None:
    """Print medians over the rounds with their spread; the ratios are of rates of one round, against the last row."""
    print(f"{RECORDS} records, {len(next(iter(costs.values())))} rounds, median (least-most)")
    columns = ("start, CPU s", "CPU s", "wall s", "records/CPU s", "ratio")
    print(f"{'':26}" + "".join(f"{column:>26}" for column in columns))
    rates = {
        title: [RECORDS / (whole.cpu - start.cpu) for whole, start in zip(found, starts[title], strict=True)]
        for title, found in costs.items()
    }
    last = list(rates.values())[-1]
    for title, found in costs.items():
        cells = (
            [start.cpu for start in starts[title]],
            [cost.cpu for cost in found],
            [cost.wall for cost in found],
            rates[title],
            [mine / other for mine, other in zip(rates[title], last, strict=True)],
        )
        print(f"{title:26}" + "".join(f"{spread(cell)!s:>26}" for cell in cells))


if __name__ == "__main__":
    main()
