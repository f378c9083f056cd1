"""The cost of a fleet for the source itself, without Spark around it: few clusters and many, short logs and long.

    python bench/fleet.py scale [--rounds 3] [--only plan,records,clusters,store,day] [--powers 5,6,7]
        [--gib 20] [--dir DIR]

Each figure is of processes of their own, with one core's worth of work. A process reads another log the same way first,
as what Python, pyarrow and the allocator prepare at their first use is no cost of a log; of Kafka's tool a process that
reads as little is taken off. `plan` plans 10,000 directories. `records` reads one log of 10⁵, 10⁶ and 10⁷ records, raw
and as partition_history, with the time and the peak memory of planning and of reading; the log is a recorded one, again
and again, so its mix of records is the same at each length. `clusters` reads 10, 100 and 500 clusters. `store` counts
requests and bytes of a simulated object store for each directory. `day` reads the second half of 500 real logs beside
Kafka's dump tool, which gets the same records as files of their own; our histories begin at saved passes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "tests")]

from dump import programs  # noqa: E402
from fleet_costs.logs import Rounds, batches_of, copy_log  # noqa: E402
from msgspec import Struct  # noqa: E402
from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: E402
from spread import spread  # noqa: E402

from metadata_log import scan  # noqa: E402
from metadata_log.log.segment import file_name, parse_file_name  # noqa: E402
from metadata_log.spark.options import parse_options  # noqa: E402
from metadata_log.spark.passes import save_passes  # noqa: E402
from metadata_log.spark.rows import spark_schema  # noqa: E402
from metadata_log.spark.scan import KraftReader  # noqa: E402
from metadata_log.spark.stream import KraftStreamReader  # noqa: E402
from metadata_log.spark.tasks import HistoryTask, flat  # noqa: E402
from metadata_log.types import PARTITION_DIRECTORY  # noqa: E402
from support.real_data import archive, unpack  # noqa: E402
from support.spark.counted_store import PROTOCOL, CountedStore  # noqa: E402

SECTIONS = ("plan", "records", "clusters", "store", "day")
DIRECTORIES = 10_000
_LEAST_RECORDS = 1_000_000
"""The records that a process reads at least in the sections records and clusters."""
_FIRST_ROUNDS = 19
"""The length of the log that a process reads before a log of the section records: some 10⁵ records."""
READ = """
import json, sys, time
from metadata_log.spark.options import parse_options
from metadata_log.spark.rows import spark_schema
from metadata_log.spark.scan import KraftReader
from metadata_log.spark.tasks import flat, pack
from pyspark.sql.datasource import InputPartition

def read(options, only):
    parsed = parse_options(options)
    reader = KraftReader(parsed, spark_schema(parsed))
    started = time.perf_counter()
    tasks = reader.partitions()
    told = {"planned": time.perf_counter() - started, "tasks": len(tasks)}
    if only == "last":
        last = [one for one in flat(task.value for task in tasks) if one.until is None]
        tasks = [InputPartition(one) for one in pack(last)]
    count = 0
    for task in [] if only == "plan" else tasks:
        for batch in reader.read(task):
            count += batch.num_rows
    return {**told, "rows": count}

options = json.loads(sys.argv[1])
only, first, times = options.pop("only", None), options.pop("first", None), int(options.pop("times", "1"))
if first is not None:
    read({**options, "path": first}, only)
before = time.process_time()
for _ in range(times):
    told = read(options, only)
told["cpu"] = (time.process_time() - before) / times
status = open("/proc/self/status").read()
told["memory"] = int(status.partition("VmHWM:")[2].split()[0]) / 1024
print(json.dumps(told))
"""


class Cost(Struct, frozen=True):
    """The cost of a process and what it printed."""

    cpu: float
    told: dict[str, float]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="fleet.py scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(SECTIONS), help="some of the sections")
    parser.add_argument("--powers", default="5,6,7", help="of the section records: the powers of ten of records")
    parser.add_argument("--gib", type=float, help="of the section records: the length of a further log in GiB")
    parser.add_argument("--views", default="records,partition_history", help="of the sections records and clusters")
    parser.add_argument("--dir", help="where logs are written; default: a temporary directory")
    options = parser.parse_args(arguments)
    views, powers = tuple(options.views.split(",")), tuple(map(int, filter(None, options.powers.split(","))))
    sections: dict[str, Callable[[Path, int], None]] = {
        "plan": plan,
        "records": partial(records, views=views, powers=powers, gib=options.gib),
        "clusters": partial(clusters, views=views),
        "store": store,
        "day": day,
    }
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(dir=options.dir) as scratch:
            sections[name](Path(scratch), options.rounds)
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)


def measured(command: Sequence[str]) -> Cost:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, cwd=ROOT, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    told = json.loads(done.stdout) if done.stdout.startswith(b"{") else {}
    return Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, told)


def reading(path: str, **options: str) -> dict[str, float]:
    """Run a query in a process of its own: `cpu` is that of planning and reading, after a reading of `first`.

    `only` says what is read: nothing for "plan", the parts at the ends of logs for "last". With `times` the query
    is made so often, and `cpu` is that of one.
    """
    return measured([sys.executable, "-c", READ, json.dumps({"path": path, **options})]).told


# --------------------------------------------------------------------------------------------------------- sections


def plan(scratch: Path, rounds: int) -> None:
    """Plan many directories."""
    content = archive("static3")[f"nodes/c1/{PARTITION_DIRECTORY}/{file_name(0)}"]
    (scratch / "one").write_bytes(content)
    for number in range(DIRECTORIES):
        partition = scratch / "fleet" / f"c{number:05d}" / PARTITION_DIRECTORY
        partition.mkdir(parents=True)
        os.link(scratch / "one", partition / file_name(0))
        (partition.parent / "meta.properties").write_text(f"#\nversion=1\nnode.id=1\ncluster.id=c-{number}\n")
    for view in ("records", "partition_history"):
        found = [reading(f"{scratch}/fleet/*", view=view, only="plan") for _ in range(rounds)]
        walls, cpus = [one["planned"] for one in found], [one["cpu"] for one in found]
        print(
            f"plan {DIRECTORIES:,} directories, {view}: {spread(walls)} s, {spread(cpus)} CPU s,"
            f" {found[0]['tasks']} tasks, {spread([one['memory'] for one in found])} MiB",
            flush=True,
        )


def records(scratch: Path, rounds: int, *, views: Sequence[str], powers: Sequence[int], gib: float | None) -> None:
    """Read one log, from short to long."""
    source = Rounds(unpack("static3", "nodes/c1", scratch / "one"))
    source.write(scratch / "first", _FIRST_ROUNDS)
    lengths = [10**power / source.records for power in powers] + ([] if gib is None else [gib * 2**30 / source.bytes])
    for length in lengths:
        path = scratch / "long"
        count, size = source.write(path, ceil(length))
        for view in views:
            found = [reading(str(path), **_often(view, count, f"{scratch}/first")) for _ in range(rounds)]
            plans = [reading(str(path), view=view, only="plan") for _ in range(rounds)]
            print(
                f"{view}, {count:,} records, {size / 2**20:,.0f} MiB:"
                f" {spread([one['cpu'] / count * 1e6 for one in found])} CPU µs/record, {found[0]['rows']:,} rows,"
                f" {spread([one['memory'] for one in found])} MiB; planning"
                f" {spread([one['planned'] for one in plans])} s, {plans[0]['tasks']} tasks,"
                f" {spread([one['memory'] for one in plans])} MiB",
                flush=True,
            )
        shutil.rmtree(path)


def _often(view: str, count: int, first: str) -> dict[str, str]:
    """Options of a query: one of few records is made several times, as garbage collections are few and large."""
    return {"view": view, "first": first, "times": str(max(1, _LEAST_RECORDS // count))}


def clusters(scratch: Path, rounds: int, *, views: Sequence[str]) -> None:
    """Read few and many clusters."""
    source = unpack("static3", "nodes/c1", scratch / "one")
    for number in range(500):
        copy_log(source, scratch / "fleet" / f"c{number:03d}", f"id-{number:03d}")
    for view in views:
        for count, pattern in ((10, "c00?"), (100, "c0??"), (500, "c*")):
            path = f"{scratch}/fleet/{pattern}"
            total = count * sum(batch.record_count for batch in batches_of(source))
            found = [reading(path, **_often(view, total, f"{scratch}/fleet/c00?")) for _ in range(rounds)]
            each = [one["cpu"] / total * 1e6 for one in found]
            print(f"{view}, {count} clusters, {total:,} records: {spread(each)} CPU µs/record", flush=True)


def store(scratch: Path, rounds: int) -> None:
    """Count requests and bytes of a simulated object store."""
    del rounds
    count = 100
    source = unpack("static3", "nodes/c1", scratch / "one")
    size = sum(file.stat().st_size for file in (source / PARTITION_DIRECTORY).glob("*.log"))
    segments = len(list((source / PARTITION_DIRECTORY).glob("*.log")))
    CountedStore.clear()
    for number in range(count):
        for file in (source / PARTITION_DIRECTORY).iterdir():
            if file.is_file():
                CountedStore().pipe_file(f"/fleet/c{number}/{PARTITION_DIRECTORY}/{file.name}", file.read_bytes())
        meta = f"#\nversion=1\nnode.id=1\ncluster.id=id-{number}\n"
        CountedStore().pipe_file(f"/fleet/c{number}/meta.properties", meta.encode())
    path = f"{PROTOCOL}://fleet/*"
    print(f"a simulated store: {count} directories, each {segments} segments with {size:,} bytes")

    def told(what: str) -> None:
        print(
            f"{what}: {CountedStore.total() / count:.2f} requests and {CountedStore.read_bytes / count:,.0f} bytes"
            f" a directory ({', '.join(f'{name} {one}' for name, one in sorted(CountedStore.requests.items()))})",
            flush=True,
        )
        CountedStore.reset()

    for view in ("records", "partition_history"):
        parsed = parse_options({"path": path, "view": view})
        reader = KraftReader(parsed, spark_schema(parsed))
        CountedStore.reset()
        tasks = reader.partitions()
        told(f"plan {view} into {len(tasks)} tasks")
        for task in tasks:
            for _ in reader.read(task):
                pass
        told(f"read {view}")
    parsed = parse_options({"path": path})
    stream = KraftStreamReader(parsed, spark_schema(parsed))
    begin = stream.initialOffset()
    CountedStore.reset()
    end = stream.latestOffset(begin, ReadAllAvailable())
    told("a stream's first trigger, on the driver")
    stream.latestOffset(end, ReadAllAvailable())
    told("a trigger with nothing new, on the driver")
    CountedStore.clear()


def day(scratch: Path, rounds: int) -> None:
    """Read the second half of many real logs, beside Kafka's tool."""
    count = 500
    source = unpack("static3", "nodes/c1", scratch / "one")
    half, new, bases = half_of(source, scratch / "day")
    for number in range(count):
        copy_log(source, scratch / "fleet" / f"c{number:03d}", f"id-{number:03d}")
    # Passes where the day begins: those of a log that ended there.
    save_day(source, scratch, half, count)
    total = new * count
    path = f"{scratch}/fleet/*"
    kafka = [program for program in programs() if program.title.startswith("Kafka")]
    costs: dict[str, list[float]] = {}
    asked: dict[str, dict[str, str]] = {
        "ours: raw": {"fromOffset": str(half)},
        "ours: partition_history, from saved passes": {
            "view": "partition_history",
            "passes": f"{scratch}/passes",
            "only": "last",
        },
    }
    for _ in range(rounds):
        for title, options in asked.items():
            costs.setdefault(title, []).append(reading(path, **options, first=f"{scratch}/fleet/c000")["cpu"])
        for program in kafka:
            files = [str(scratch / "day" / file_name(begin)) for begin in bases]
            none = measured([*program.command, ",".join(files)]).cpu
            whole = measured([*program.command, ",".join(files * count)]).cpu
            costs.setdefault("Kafka: DumpLogSegments", []).append((whole - none) * count / (count - 1))
    print(f"a day of {count} clusters: the {new:,} records behind offset {half} of each, {total:,} records")
    for title, found in costs.items():
        ratios = [other / mine for mine, other in zip(found, costs.get("Kafka: DumpLogSegments", found), strict=True)]
        each = [one / total * 1e6 for one in found]
        print(
            f"{title}: {spread(found)} CPU s, {spread(each)} µs/record, Kafka's CPU / this {spread(ratios)}", flush=True
        )


def half_of(source: Path, target: Path) -> tuple[int, int, list[int]]:
    """The first offset of the second half, its records, and the base offsets of the files with only these."""
    target.mkdir()
    batches = [
        (parse_file_name(file.name) or 0, content[one.position : one.end_position], one)
        for file in sorted((source / PARTITION_DIRECTORY).glob("*.log"))
        for content in [file.read_bytes()]
        for one in scan(content)
    ]
    half = batches[-1][2].next_offset // 2
    chosen = [each for each in batches if each[2].base_offset >= half]
    bases: list[int] = []
    for base in sorted({base for base, _, _ in chosen}):
        part = [(raw, one) for begin, raw, one in chosen if begin == base]
        bases.append(part[0][1].base_offset)
        (target / file_name(bases[-1])).write_bytes(b"".join(raw for raw, _ in part))
    return chosen[0][2].base_offset, sum(one.record_count for _, _, one in chosen), bases


def save_day(source: Path, scratch: Path, half: int, count: int) -> None:
    """Saved passes of each cluster at the offset where the day begins."""
    size = sum(one.size_bytes for one in batches_of(source) if one.base_offset < half)
    save_passes([f"{scratch}/fleet/c000"], f"{scratch}/first", every_bytes=size)
    listed = scratch / "first" / "cluster=id-000"
    known = json.loads((listed / "passes.json").read_bytes())
    (listed / "passes.json").write_text(json.dumps(known | {"passes": known["passes"][:1]}))
    for number in range(count):
        # The pass names its cluster, here with a name of the same length.
        target = scratch / "passes" / f"cluster=id-{number:03d}"
        target.mkdir(parents=True)
        for file in listed.iterdir():
            (target / file.name).write_bytes(file.read_bytes().replace(b"id-000", f"id-{number:03d}".encode()))
    parsed = parse_options({"path": f"{scratch}/fleet/c000", "view": "topic_history", "passes": f"{scratch}/passes"})
    parts = flat(task.value for task in KraftReader(parsed, spark_schema(parsed)).partitions())
    begins = [one.begins.place.offset for one in parts if isinstance(one, HistoryTask) and one.begins is not None]
    assert begins == [half], (begins, half)


if __name__ == "__main__":
    main(sys.argv[1:])
