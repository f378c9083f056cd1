"""The cost of a history: views of a large log beside the decoding alone, in one run.

    python bench/history.py [--reps 5]

A Kafka 4.3.1 controller wrote the log: 653,294 records, 576,000 of them changes of 24,000 partitions. Rows: each record
decoded to a typed object, which is the minimum for a history; then histories with more and more views. Rates are
records of the log per second of this process's processor time. The rounds alternate, and the table shows medians
and their spread. The garbage collector is off, as in a worker. Memory is the peak of a process for one row alone
(Linux).
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from spread import spread

from metadata_log import OsDisk, history
from metadata_log.reading.timeline import Base, TimelineBatch, read_timeline
from support.real_data import unpack

RECORDS = 653_294
DECODING = "every record decoded"
VIEWS: dict[str, tuple[str, ...]] = {
    "partition_history": ("partition_history",),
    "leader_history": ("leader_history",),
    "all histories": tuple(history.HISTORY_VIEWS),
    "what follows from them": tuple(history.DERIVED_VIEWS),
    "partitions_state": ("partitions_state",),
}


def decode(directory: str) -> int:
    """Decode each record; returns the number of records."""
    items = read_timeline(OsDisk(), directory)
    return sum(1 for item in items if isinstance(item, Base | TimelineBatch) for _ in _entries(item))


def _entries(item: Base | TimelineBatch) -> Iterable[object]:
    return item.entries if isinstance(item, Base) else item.entries()


def tell(directory: str, views: Sequence[str]) -> int:
    """Compute a history; returns the number of rows."""
    return sum(1 for _ in history.rows(read_timeline(OsDisk(), directory), views, cluster="big"))


def program(name: str, directory: str) -> Callable[[], int]:
    """The function of a row."""
    return (lambda: decode(directory)) if name == DECODING else (lambda: tell(directory, VIEWS[name]))


def peak_mib(name: str, directory: str) -> float:
    """The peak memory of a process for one row alone."""
    run = subprocess.run(
        [sys.executable, __file__, "--peak", name, "--dir", directory], capture_output=True, text=True, check=True
    )
    return float(run.stdout)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--reps", type=int, default=5, help="rounds (5)")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    parser.add_argument("--dir", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peak is not None:
        program(args.peak, args.dir)()
        # Not ru_maxrss, which begins with the parent's value.
        [line] = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM:")]
        print(int(line.split()[1]) / 1024)
        return
    names = [DECODING, *VIEWS]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        directory = str(unpack("big", "", Path(scratch)))
        gc.disable()
        for round_ in range(args.reps):
            for name in names[round_ % len(names) :] + names[: round_ % len(names)]:
                started = time.process_time()
                counts[name] = program(name, directory)()
                seconds[name].append(time.process_time() - started)
                gc.collect()
        memory = {name: peak_mib(name, directory) for name in names}
    print(f"median (least-most) of {args.reps} rounds")
    print(f"{'':24} {'rows':>9} {'CPU s':>20} {'records/s':>11} {'of decoding':>20} {'peak MiB':>9}")
    for name in names:
        took = spread(seconds[name])
        share = spread([mine / least for mine, least in zip(seconds[name], seconds[DECODING], strict=True)])
        rate = RECORDS / took.median
        print(f"{name:24} {counts[name]:9,} {took!s:>20} {rate:11,.0f} {share!s:>20} {memory[name]:9.0f}")


if __name__ == "__main__":
    main()
