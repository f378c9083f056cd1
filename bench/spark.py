"""The rate of converting a metadata log to Arrow: ours beside Kafka's dump tool, on the same 653,294 records, in one
run.

    python bench/spark.py [--reps 5] [--dir DIR]

Rows: the raw view (each record: position, type, version, key, value) and the view of PartitionChangeRecord (88 % of the
records, each field a column), by NumPy and in plain Python, and Kafka's `DumpLogSegments` with its metadata decoder and
the options of its start script. Each row checks each CRC. Each row is a separate process with one core's worth of work.
Rates are records of the log per second of processor time, user and system, of all its threads. The start of a process
is measured with a log of one batch, subtracted, and shown separately. The order of rows rotates with the rounds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from dump import Cost, Program, programs, report, run

from support.real_data import unpack

RECORDS = 653_294
READ = """
import sys
import pyarrow
from metadata_log.arrow import Filters, read_records, read_typed
view, decoder, *paths = sys.argv[1:]
count = 0
for path in paths:
    reader = read_records(path, decoder=decoder) if view == "records" else read_typed(path, view, decoder=decoder)
    count += sum(batch.num_rows for batch in reader)
print(count)
"""
ROWS = {"records": RECORDS, "PartitionChangeRecord": 576_000}


def rows() -> dict[str, tuple[Program, int]]:
    """Each row, and the number of records that it shows."""
    found = {}
    for view, count in ROWS.items():
        for decoder in ("numpy", "python"):
            title = f"{'raw' if view == 'records' else 'typed'}, {decoder}"
            found[title] = (Program(title, [sys.executable, "-c", READ, view, decoder], b""), count)
    dump = [program for program in programs() if program.title.startswith("Kafka")]
    return found | {program.title: (program, RECORDS) for program in dump}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--dir", help="where the log is unpacked and output goes; default: a temporary directory")
    options = parser.parse_args()
    wanted = rows()
    titles = list(wanted)
    with tempfile.TemporaryDirectory(dir=options.dir) as scratch:
        log = unpack("big", "", Path(scratch))
        files, output = sorted(log.glob("*.log")), Path(scratch) / "output"
        small = Path(scratch) / "small" / files[0].name
        small.parent.mkdir()
        small.write_bytes(files[0].read_bytes()[:91])
        starts: dict[str, list[Cost]] = {title: [] for title in titles}
        costs: dict[str, list[Cost]] = {title: [] for title in titles}
        for turn in range(options.reps):
            for title in titles[turn % len(titles) :] + titles[: turn % len(titles)]:
                program, count = wanted[title]
                starts[title].append(run(program, [small], output))
                costs[title].append(run(program, files, output))
                assert program.records_in(output) == count, title
    report(starts, costs)


if __name__ == "__main__":
    main()
