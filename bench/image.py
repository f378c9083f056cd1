"""The cost of the metadata image at full size, beside a plain dictionary of partitions in the same run.

Figures are processor time, the best of several rounds where possible, with the garbage collector off. "plain" is the
minimum: the same codec decodes the same records into one flat dictionary that changes in place, without an index,
without older versions, without rollback. `python bench/image.py [TOPICSxPARTITIONS…]`; the default is 10000x100. Needs
about 2 GB of memory.
"""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace

from metadata_log.disk import OsDisk
from metadata_log.image import MetadataDelta, MetadataImage, memberships, merge, partition_of
from metadata_log.image.diff import changed_partitions, differences
from metadata_log.image.records import records
from metadata_log.log.log import MetadataLog
from metadata_log.log.snapshot import read_snapshot, snapshot_name
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.reading.replay_log import replay
from metadata_log.records import metadata
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record, read_record
from metadata_log.records.record import records as records_of
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid

BROKERS = 300
ROUNDS = 5
FENCED = 10_000
CHANGED = 110_000
END = OffsetAndEpoch(epoch=1, offset=2_000_000)
RECORDS_IN_BATCH = 1024
Plain = dict[tuple[Uuid, int], Any]


def timed(work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """The least processor time of several rounds, in seconds."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def write_snapshot(directory: str, topics: int, partitions: int) -> str:
    """Write a snapshot with this many topics, of this many partitions each."""
    writer = SnapshotWriter(OsDisk(), directory, END, timestamp_ms=0, last_contained_log_timestamp=0)
    for values in batches(topics, partitions):
        writer.append(values, 0)
    writer.freeze(0)
    return f"{directory}/{snapshot_name(END)}"


def write_log(directory: str, topics: int, partitions: int) -> None:
    """Write a log that creates this many topics, of this many partitions each."""
    log = MetadataLog.open(OsDisk(), directory)
    for values in batches(topics, partitions):
        log.append(build_batch(log.end_offset, END.epoch, 0, values))
    log.close()


def batches(topics: int, partitions: int) -> Iterator[list[bytes]]:
    """The values of the records of a cluster, in portions of one batch."""
    rng = Random(1)
    directories = [Uuid(rng.randbytes(16)) for _ in range(BROKERS)]
    values = [encode_record(metadata.FeatureLevelRecord(name="metadata.version", feature_level=30), 0)]
    for topic in range(topics):
        topic_id = Uuid(rng.randbytes(16))
        values.append(encode_record(metadata.TopicRecord(name=f"topic-{topic}", topic_id=topic_id), 0))
        for number in range(partitions):
            first = rng.randrange(BROKERS)
            ids = tuple((first + step) % BROKERS for step in range(3))
            record = metadata.PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=ids,
                isr=ids,
                leader=first,
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(directories[broker] for broker in ids),
            )
            values.append(encode_record(record, 2))
            if len(values) >= RECORDS_IN_BATCH:
                yield values
                values = []
    if values:
        yield values


def load_plain(path: str) -> Plain:
    """The reference: each partition of a snapshot in one dictionary."""
    found: Plain = {}
    for batch in read_snapshot(OsDisk(), path):
        if not batch.is_control:
            for record in records_of(batch):
                _, _, _, message = read_record(record.value or b"")
                if isinstance(message, metadata.PartitionRecord):
                    found[message.topic_id, message.partition_id] = partition_of(message)
    return found


def in_a_process_of_its_own(what: str, path: str) -> tuple[float, float]:
    """Processor seconds and megabytes of loading a snapshot with one implementation."""
    out = subprocess.run([sys.executable, __file__, what, path], check=True, capture_output=True, text=True).stdout
    seconds, megabytes = map(float, out.split())
    return seconds, megabytes


def load(what: str, path: str) -> None:
    """Load a snapshot, in a separate process."""
    before = resident_bytes()
    gc.disable()
    began = time.process_time()
    loaded = replay(path) if what == "image" else load_plain(path)
    seconds = time.process_time() - began
    assert loaded
    print(seconds, (resident_bytes() - before) / 1e6)


def resident_bytes() -> int:
    """The resident memory of this process (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def line(what: str, ours: float, plain: float | None) -> None:
    """One row of the table."""
    ratio = "" if plain is None else f"{1000 * plain:10.3f} ms   x {ours / plain:5.2f}"
    print(f"{what:64} {1000 * ours:10.3f} ms {ratio}")


def apply(image: MetadataImage, changes: list[Message]) -> MetadataImage:
    """Apply one batch of records."""
    delta = MetadataDelta(image)
    for offset, record in enumerate(changes, image.end.offset):
        delta.replay(record, offset)
    return delta.apply(replace(image.end, offset=image.end.offset + len(changes)))


def fencing(image: MetadataImage, broker: int) -> list[Message]:
    """The records that remove a broker from each ISR, found by the index."""
    return [
        leaving(topic_id, number, partition.isr, partition.leader, broker)
        for topic_id, number, partition in memberships(image.topics, broker)
    ]


def leaving(topic_id: Uuid, number: int, isr: tuple[int, ...], leader: int, broker: int) -> Message:
    left = tuple(each for each in isr if each != broker)
    return metadata.PartitionChangeRecord(number, topic_id, left, left[0] if leader == broker else -2)


def measure(topics: int, partitions: int) -> None:
    """Measure one shape of a cluster."""
    total = topics * partitions
    print(f"\n{topics:,} topics of {partitions:,} partitions, {total:,} in all, {BROKERS} brokers")
    with tempfile.TemporaryDirectory() as directory:
        path = write_snapshot(directory, topics, partitions)
        ours, plain = in_a_process_of_its_own("image", path), in_a_process_of_its_own("plain", path)
        line("load a snapshot, index included", ours[0], plain[0])
        print(f"{'  memory':64} {ours[1]:10.0f} MB {plain[1]:10.0f} MB   x {ours[1] / plain[1]:5.2f}")
        image, flat = replay(path), load_plain(path)
    changes = fencing(image, 7)
    line(
        f"find the {len(changes):,} partitions of one broker",
        timed(lambda: fencing(image, 7)),
        timed(lambda: scan(flat)),
    )
    line(
        f"replay {len(changes):,} changes of a fence, index included",
        timed(lambda: apply(image, changes)),
        plain_s(flat, changes),
    )
    rng = Random(2)
    keys = sorted(flat)
    leaders: list[Message] = [
        metadata.PartitionChangeRecord(number, topic_id, None, flat[topic_id, number].replicas[1])
        for topic_id, number in rng.sample(keys, min(CHANGED, total))
    ]
    line(f"replay {len(leaders):,} changes of a leader", timed(lambda: apply(image, leaders)), plain_s(flat, leaders))
    one = leaders[:1]
    line("replay 1 change", timed(lambda: [apply(image, one) for _ in range(100)]) / 100, plain_s(flat, one))
    topic_id = Uuid(bytes(range(16)))
    created: list[Message] = [metadata.TopicRecord(name="new", topic_id=topic_id)]
    created += [
        metadata.PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=(1, 2, 3),
            isr=(1, 2, 3),
            leader=1,
            directories=(topic_id,) * 3,
        )
        for number in range(FENCED)
    ]
    line(f"create a topic of {FENCED:,} partitions", timed(lambda: apply(image, created)), None)
    no_op: list[Message] = [metadata.NoOpRecord()]
    line("a batch of one NoOp", timed(lambda: [apply(image, no_op) for _ in range(1000)]) / 1000, None)
    after = apply(image, leaders)
    pairs = timed(lambda: sum(1 for _ in changed_partitions(image.topics, after.topics)))
    line(f"find {len(leaders):,} changed partitions among all", pairs, timed(lambda: compare(flat, keys)))
    line("  with every field that differs", timed(lambda: sum(1 for _ in differences(image, after))), None)
    line("walk all as records of a snapshot", timed(lambda: sum(1 for _ in records(image)), 1), None)


def scan(flat: Plain) -> list[Message]:
    """The reference's search for a broker's partitions."""
    return [leaving(key[0], key[1], each.isr, each.leader, 7) for key, each in flat.items() if 7 in each.isr]


def plain_s(flat: Plain, changes: list[Message]) -> float:
    """The same changes in place."""

    def work() -> None:
        for record in changes:
            assert isinstance(record, metadata.PartitionChangeRecord)
            key = record.topic_id, record.partition_id
            flat[key] = merge(flat[key], record)

    return timed(work)


def compare(flat: Plain, keys: list[tuple[Uuid, int]]) -> int:
    """The reference has no older version; the minimum would be to examine each partition once."""
    return sum(flat[key] is None for key in keys)


def main() -> None:
    if sys.argv[1:2] in (["image"], ["plain"]):
        load(*sys.argv[1:3])
        return
    gc.disable()
    print(f"{'':64} {'image':>13} {'plain':>13}   ratio")
    for shape in sys.argv[1:] or ["10000x100"]:
        measure(*map(int, shape.split("x")))
        gc.collect()


if __name__ == "__main__":
    main()
