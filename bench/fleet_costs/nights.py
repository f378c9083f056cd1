"""Files and requests of the nights of many clusters, whose logs lie in a simulated object store.

    python bench/fleet.py nights [--clusters 500] [--dir DIR]

Four nights of `kraft fleet materialize` over copies of a recorded log of 988 records: the first one; one in which each
leader was idle and wrote NoOp records; one in which each cluster got a topic; and one with nothing new. Each night once
with tables on disk, where files are counted, and once with tables of Parquet in the store, where requests are. Figures
are for each cluster. All views but the states. The output is a table in Markdown.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from metadata_log import scan
from metadata_log.log.segment import file_name
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import NoOpRecord, TopicRecord
from metadata_log.spark.lakes.publish import materialize_into
from metadata_log.spark.lakes.rows import Parquet
from metadata_log.spark.materialize import Run, find_fleet, make_job, run_here
from metadata_log.tables.files import RUNS
from metadata_log.types import PARTITION_DIRECTORY, Uuid
from support.real_data import archive
from support.spark.counted_store import PROTOCOL, CountedStore

_LOG = f"dynamic3/nodes/b101/{PARTITION_DIRECTORY}/{file_name(0)}"
_LOGS = f"{PROTOCOL}://fleet/*"
_LAKE = f"{PROTOCOL}://lake"
_NO_OPS = 10
_HEADER = (
    "| night | files on disk: made, removed, left | CPU ms | requests for the log | CPU ms with Parquet in the store"
    " | requests for log and tables |",
    "| --- | --- | --- | --- | --- | --- |",
)


def main(words: Sequence[str]) -> None:
    """Run the nights, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=500)
    parser.add_argument("--dir", help="where the tables are; default: a temporary directory")
    options = parser.parse_args(words)
    count = options.clusters
    log = archive("clusters")[_LOG]
    last = list(scan(log))[-1]
    records = [encode_record(NoOpRecord(), 0)] * _NO_OPS
    idle = log + build_batch(last.next_offset, last.epoch, last.max_timestamp + 500, records)
    topic = encode_record(TopicRecord(name="new", topic_id=Uuid(b"16 bytes long ok")), 0)
    busy = idle + build_batch(last.next_offset + _NO_OPS, last.epoch, last.max_timestamp + 9_000, [topic])
    began = time.perf_counter()
    print(*_HEADER, sep="\n", flush=True)
    with tempfile.TemporaryDirectory(dir=options.dir) as scratch:
        for number, (title, content) in enumerate((("first", log), ("idle", idle), ("busy", busy), ("again", busy))):
            for each in range(count):
                folder = f"/fleet/c{each}"
                CountedStore().pipe_file(f"{folder}/{PARTITION_DIRECTORY}/{file_name(0)}", content)
                CountedStore().pipe_file(f"{folder}/meta.properties", _meta(each))
            on_disk = _on_disk(Path(scratch) / "tables", number, count)
            in_the_store = _in_the_store(Path(scratch) / "state", number, count)
            print(f"| {title} | {on_disk} | {in_the_store} |", flush=True)
    machine = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"\n{count} clusters, {time.perf_counter() - began:.0f} s, {machine}")


def _meta(cluster: int) -> bytes:
    return f"#\nversion=1\nnode.id=1\ncluster.id=id-{cluster}\n".encode()


def _on_disk(out: Path, number: int, count: int) -> str:
    job = make_job(str(out), run=f"night-{number}")
    before = _files(out)
    measured = _measured(lambda: run_here(find_fleet([_LOGS], {}), job), count)
    after = _files(out)
    made, gone, kept = (len(some) / count for some in (after - before, before - after, after & before))
    return f"{made:.2f}, {gone:.2f}, {kept:.2f} | {measured}"


def _in_the_store(state: Path, number: int, count: int) -> str:
    job = make_job(str(state), run=f"night-{number}", is_staged=True)
    return _measured(lambda: materialize_into(Parquet(_LAKE), find_fleet([_LOGS], {}), job), count)


def _measured(work: Callable[[], Run], count: int) -> str:
    """The processor time of a run, and its requests, for each cluster: two cells of the table."""
    CountedStore.reset()
    began = time.process_time()
    run = work()
    cpu = time.process_time() - began
    assert run.is_sound, run.outcomes
    told: Counter[str] = CountedStore.requests
    kinds = ", ".join(f"{name} {number / count:.2f}" for name, number in sorted(told.items()))
    size = f"{CountedStore.read_bytes / count:,.0f} bytes"
    return f"{cpu / count * 1000:.1f} | {sum(told.values()) / count:.2f} ({kinds}; {size})"


def _files(out: Path) -> set[tuple[str, int]]:
    """The files of the tables, and when each was written."""
    found = out.rglob("*.parquet")
    return {(str(path), path.stat().st_mtime_ns) for path in found if path.relative_to(out).parts[0] != RUNS}


if __name__ == "__main__":
    main(sys.argv[1:])
