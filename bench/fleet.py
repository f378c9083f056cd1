"""The rate of histories of a fleet in Spark: replayed inside the source, and as a window query over the raw records.

    python bench/fleet.py [--rounds 3] [--clusters 10] [--gib 0] [--dir DIR]
    python bench/fleet.py scale --help
    python bench/fleet.py tables --help
    python bench/fleet.py nights --help

One session `local[2]` reads the log of 653,294 records, and a fleet of copies of it with other cluster ids. Both
queries compute the same columns of each partition's history and discard the rows. A third query computes each column of
the source, causes included. Rounds alternate between them. Times are those of Spark's whole process tree: driver, JVM
and Python workers. With `--gib`, the bench reads a segment of that size through the raw view, and shows the peak memory
of a worker.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

from fleet_costs import nights, scale, tables  # noqa: E402
from pyspark.sql import DataFrame, DataFrameReader, SparkSession  # noqa: E402
from spread import spread  # noqa: E402

from metadata_log import OsDisk, scan  # noqa: E402
from metadata_log.log.segment import file_name  # noqa: E402
from metadata_log.spark import prepare_environment, views  # noqa: E402
from support.real_data import unpack  # noqa: E402
from support.spark.windows import PARTITIONS, RAW  # noqa: E402

RECORDS = 653_294
CHANGES = 600_000
COLUMNS = """
cluster string, topic_id string, partition int, leader int, leader_epoch int, isr array<int>, replicas array<int>,
adding_replicas array<int>, removing_replicas array<int>,
valid_from_offset bigint, valid_from timestamp, valid_to_offset bigint, valid_to timestamp
"""
VALID = """
select *, lead(offset) over told as valid_to_offset, lead(timestamp) over told as valid_to from partitions
window told as (partition by cluster, topic_id, partition_id order by offset)
"""


def main() -> None:
    if sys.argv[1:2] == ["scale"]:
        scale.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["nights"]:
        nights.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["tables"]:
        tables.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--gib", type=float, default=0)
    parser.add_argument("--dir", help="where the fleet is unpacked; default: a temporary directory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as scratch:
        prepare_environment(Path(scratch))
        fleet = make_fleet(Path(scratch), options.clusters)
        spark = session()
        try:
            compare(spark, fleet, options.clusters, options.rounds)
            if options.gib:
                read_large(spark, Path(scratch), options.gib)
        finally:
            spark.stop()


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "1500m").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def make_fleet(scratch: Path, clusters: int) -> Path:
    """Copies of the large log as several clusters; the files are links to one copy."""
    source = unpack("big", "", scratch / "big")
    for number in range(clusters):
        target = scratch / "fleet" / f"c{number:02d}"
        partition = target / "__cluster_metadata-0"
        partition.mkdir(parents=True)
        for file in source.iterdir():
            if file.suffix in {".log", ".checkpoint"} and file.name != "bootstrap.checkpoint":
                os.link(file, partition / file.name)
        (target / "meta.properties").write_text(f"#\nversion=1\nnode.id=1\ncluster.id=bench-{number}\n")
    return scratch / "fleet"


def compare(spark: SparkSession, fleet: Path, clusters: int, rounds: int) -> None:
    """Run both queries on one cluster and on all, in turn."""
    queries: dict[str, Callable[[str], DataFrame]] = {
        "inside the source": lambda path: history(spark, path).schema(COLUMNS).load(path),
        "all its columns": lambda path: history(spark, path).load(path),
        "window query": lambda path: windowed(spark, path),
    }
    paths = {1: f"{fleet}/c00", clusters: f"{fleet}/*"}
    counted = {title: make(paths[1]).count() for title, make in queries.items()}
    assert set(counted.values()) == {CHANGES}, counted
    costs: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for count, path in paths.items():
            for title, make in queries.items():
                one = cost(make(path))
                costs.setdefault((title, count), []).append(one)
                print(f"{title}, {count} clusters: {one[0]:.1f} s, {one[1]:.1f} CPU s", file=sys.stderr, flush=True)
    machine = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"partition history, {rounds} rounds, median (least-most); {machine}")
    print(f"{'':20}{'clusters':>9}{'wall s':>26}{'CPU s':>26}{'CPU µs/record':>15}")
    medians = {}
    for (title, count), found in costs.items():
        walls, cpus = zip(*found, strict=True)
        wall, cpu = spread(walls), spread(cpus)
        medians[title, count] = wall.median, cpu.median
        each_us = cpu.median / count / RECORDS * 1e6
        print(f"{title:20}{count:>9}{wall!s:>26}{cpu!s:>26}{each_us:>15.2f}")
    for count in paths:
        ratios = [medians["window query", count][at] / medians["inside the source", count][at] for at in (0, 1)]
        print(f"window query / source, {count} clusters: wall {ratios[0]:.2f}, CPU {ratios[1]:.2f}")
    flat = medians["inside the source", clusters][1] / medians["inside the source", 1][1] / clusters
    print(f"CPU per record, {clusters} clusters / 1: {flat:.2f}; most memory of a worker: {worker_mib():.0f} MiB")


def history(spark: SparkSession, path: str) -> DataFrameReader:
    views(spark, path)
    return spark.read.format("kraft").option("view", "partition_history")


def windowed(spark: SparkSession, path: str) -> DataFrame:
    for name in ("created", "changed"):
        views(spark, path).read(RAW[name]).createOrReplaceTempView(name)
    spark.sql(PARTITIONS).createOrReplaceTempView("partitions")
    return spark.sql(VALID)


def cost(rows: DataFrame) -> tuple[float, float]:
    """Wall and processor seconds of computing all rows."""
    cpu, wall = tree_seconds(), time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - wall, tree_seconds() - cpu


def read_large(spark: SparkSession, scratch: Path, gib: float) -> None:
    """Read one segment many times as large as the log, with consecutive batches: the CRC does not cover offsets."""
    segments = sorted((scratch / "big").glob("*.log"))
    target = scratch / "large" / "__cluster_metadata-0" / file_name(0)
    target.parent.mkdir(parents=True)
    offset = size = 0
    with target.open("wb") as file:
        while size < gib * 2**30:
            for segment in segments:
                content = OsDisk().read(str(segment))
                for batch in scan(content):
                    raw = bytearray(content[batch.position : batch.end_position])
                    raw[:8] = offset.to_bytes(8, "big")
                    size += file.write(raw)
                    offset += batch.last_offset_delta + 1
    wall, cpu = cost(views(spark, str(scratch / "large")).records())
    print(f"a segment of {size / 2**30:.2f} GiB, {offset:,} records: {wall:.0f} s, {cpu:.0f} CPU s")
    print(f"most memory of a worker: {worker_mib():.0f} MiB")


def tree() -> Iterator[Path]:
    """The descendant processes of this process."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(folder.name))
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        yield Path(f"/proc/{process}")
        waiting += parents.get(process, [])


def tree_seconds() -> float:
    """Processor seconds of the process tree so far, with those of processes that have ended and were waited for."""
    ticks = 0
    for folder in tree():
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def worker_mib() -> float:
    """The peak resident memory of Spark's Python workers."""
    most = 0
    for folder in tree():
        try:
            command, status = (folder / "cmdline").read_bytes(), (folder / "status").read_text()
        except OSError:
            continue
        if b"pyspark.daemon" in command:
            most = max(most, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")))
    return most / 1024


if __name__ == "__main__":
    main()
