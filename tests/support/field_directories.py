"""Log directories as people report them: one that Apache Kafka 4.3.1 wrote, damaged on purpose, one way at a time.

`test_field_directories.py` tries each with a broker of ours, `kraft dump --verify` and `kraft doctor`, and
`test_field_directories_on_kafka.py` starts Kafka on each. The page is printed from here:

PYTHONPATH=tests python -m support.field_directories > docs/reference/damaged-directories.md
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from metadata_log.records.batch_builder import build_batch, write_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import BrokerRegistrationChangeRecord
from metadata_log.records.record import Record
from support.real_data import unpack

ENDS: Final = "ends at its start"
SERVES: Final = "serves everything"
ALL_OFFLINE: Final = "the log directory is offline"
TOPICS: Final = {"gone": 5, "orders": 2000, "plain": 500}
"""The topics of the directory, each with one partition, and the ends of their logs."""
DIRECTORY_ID: Final = "cOP-1vZR7i-5HQwxF2uooA"
TAG: Final = "0123456789abcdef0123456789abcdef"
SEGMENT: Final = "00000000000000000000.log"


class Case(Struct, frozen=True, kw_only=True):
    """A directory as people report it.

    Args:
        name: The name of the case.
        what: The damage, for the page.
        make: Does the damage; it gets the directory with the log directories `data`, `meta` and `spare`.
        kafka: What becomes of Kafka's node, as `outcome` puts it.
        ours: The same of ours.
        verify: What `kraft dump --verify` says of the log directories; empty if all is sound.
        doctor: The id of the finding of `kraft doctor`; empty if it is none of its files.
    """

    name: str
    what: str
    make: Callable[[Path], object]
    kafka: str
    ours: str
    verify: str = ""
    doctor: str = ""


def outcome(ends: dict[str, int | None], renamed: int) -> str:
    """The fate of the topics, by the ends of their logs (None for offline) and how many directories became stray."""
    if not any(end is not None for end in ends.values()):
        return ALL_OFFLINE
    words = []
    for topic, end in sorted(ends.items()):
        if end is None:
            words.append(f"`{topic}` is offline")
        elif end != TOPICS[topic]:
            words.append(f"`{topic}` ends at offset {end}")
    if renamed:
        words.append("a directory is renamed to -stray")
    return "; ".join(words) or SERVES


def unpacked(case: Case, target: Path) -> Path:
    """The damaged directories of a case."""
    unpack("field_directory", "", target)
    case.make(target)
    return target


def properties(root: Path, controller: int, broker: int) -> Path:
    """A configuration of the node of the directories, for either make."""
    path = root / "node.properties"
    lines = (
        "process.roles=broker,controller",
        "node.id=1",
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        "controller.listener.names=CONTROLLER",
        f"listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        f"log.dirs={root / 'data'},{root / 'spare'}",
        f"metadata.log.dir={root / 'meta'}",
        "log.segment.delete.delay.ms=1000",
    )
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


# ------------------------------------------------------------------------------------------------------------ damage


def orders(root: Path, file: str) -> Path:
    """A file of the partition orders-0."""
    return root / "data" / "orders-0" / file


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text in a file."""
    text = path.read_text()
    assert old in text, (path, old)
    path.write_text(text.replace(old, new))


def meta(old: str, new: str) -> Callable[[Path], None]:
    """Replace a text in the meta.properties of the log directory."""
    return lambda root: edit(root / "data" / "meta.properties", old, new)


def content(file: str, data: bytes) -> Callable[[Path], object]:
    """Replace the content of a file of orders-0."""
    return lambda root: orders(root, file).write_bytes(data)


def missing(file: str) -> Callable[[Path], None]:
    """Remove a file of orders-0."""
    return lambda root: orders(root, file).unlink()


def torn(root: Path) -> None:
    """The last segment lacks its end, after a stop that the marker calls clean."""
    segment = orders(root, SEGMENT)
    segment.write_bytes(segment.read_bytes()[:-100])


def zeroed(root: Path) -> None:
    segment = orders(root, SEGMENT)
    segment.write_bytes(bytes(segment.stat().st_size))


def swap(root: Path) -> None:
    data = root / "data"
    (data / "orders-0").rename(data / "other")
    (data / "plain-0").rename(data / "orders-0")
    (data / "other").rename(data / "plain-0")


def without_log(root: Path) -> None:
    for file in (root / "data" / "orders-0").glob("0*"):
        if file.suffix != ".snapshot":
            file.unlink()


def deleted_with_subdirectory(root: Path) -> None:
    doomed = root / "data" / f"old-0.{TAG}-delete"
    shutil.copytree(root / "data" / "gone-0", doomed)
    (doomed / "sub").mkdir()
    (doomed / "sub" / "file").write_text("x")


def future_times(root: Path) -> None:
    """A record of the year 292278994 after the others, as the clock of a client was wrong."""
    with orders(root, SEGMENT).open("ab") as file:
        file.write(write_batch([Record(2000, 2**63 - 1, 0, b"k", b"v")], epoch=0))
    (root / "data" / ".kafka_cleanshutdown").unlink()


def recovery_point_beyond(root: Path) -> None:
    edit(root / "data" / "recovery-point-offset-checkpoint", "orders 0 2000", "orders 0 9000")
    (root / "data" / ".kafka_cleanshutdown").unlink()


def log_start_beyond(root: Path) -> None:
    (root / "data" / "log-start-offset-checkpoint").write_text("0\n1\norders 0 9000\n")


def garbled(file: str) -> Callable[[Path], object]:
    """Replace a checkpoint file of the log directory."""
    return lambda root: (root / "data" / file).write_text("garbage\n")


def wrong_epoch(root: Path) -> None:
    """A record of the metadata log names another epoch of the broker than its registration has."""
    record = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=999_999, fenced=1)
    with (root / "meta" / "__cluster_metadata-0" / SEGMENT).open("ab") as file:
        file.write(build_batch(298, 1, 1_795_702_330_000, [encode_record(record, 0)]))


def remedy_of_epochs(root: Path) -> None:
    """The remedy for a damaged leader-epoch-checkpoint."""
    for path in (orders(root, "leader-epoch-checkpoint"), root / "data" / ".kafka_cleanshutdown"):
        path.unlink()
    (root / "data" / "recovery-point-offset-checkpoint").unlink()


def copied(root: Path) -> None:
    shutil.copytree(root / "data" / "orders-0", root / "spare" / "orders-0")


METADATA: Final = "partition.metadata"
EPOCHS: Final = "leader-epoch-checkpoint"
OFFLINE: Final = "`orders` is offline"
EMPTY: Final = "`orders` ends at offset 0"
STRAY: Final = f"{EMPTY}; a directory is renamed to -stray"
DAMAGED: Final = "partition-files-damaged"

CASES: Final = (
    Case(name="control", what="nothing", make=lambda root: None, kafka=SERVES, ours=SERVES),
    Case(
        name="empty-partition-metadata",
        what="`partition.metadata` of `orders-0` is empty, as after a full disk",
        make=content(METADATA, b""),
        kafka=ENDS,
        ours=OFFLINE,
        verify="a line with the version is missing",
        doctor=DAMAGED,
    ),
    Case(
        name="garbled-partition-metadata",
        what="`partition.metadata` of `orders-0` is garbage",
        make=content(METADATA, b"\x00\xff\x80"),
        kafka=ALL_OFFLINE,
        ours=OFFLINE,
        verify="a line with the version is missing",
        doctor=DAMAGED,
    ),
    Case(
        name="no-partition-metadata",
        what="`partition.metadata` of `orders-0` is missing",
        make=missing(METADATA),
        kafka=STRAY,
        ours=STRAY,
        verify="a start makes the directory -stray",
        doctor="partition-metadata-missing",
    ),
    Case(
        name="swapped-directories",
        what="the directories of `orders-0` and `plain-0` are swapped",
        make=swap,
        kafka="`orders` is offline; `plain` is offline",
        ours="`orders` is offline; `plain` is offline",
        verify="the recovery point of orders-0 is 2000",
        doctor="misplaced-dirs",
    ),
    Case(
        name="renamed-directory",
        what="`orders-0` is renamed to `ordres-0`",
        make=lambda root: (root / "data" / "orders-0").rename(root / "data" / "ordres-0"),
        kafka=EMPTY,
        ours=OFFLINE,
        doctor="misplaced-dirs",
    ),
    Case(
        name="copied-directory",
        what="`orders-0` is in two log directories",
        make=copied,
        kafka=ENDS,
        ours="a directory is renamed to -stray",
    ),
    Case(
        name="lost-and-found",
        what="`lost+found` in the log directory, which is a mount point",
        make=lambda root: (root / "data" / "lost+found").mkdir(),
        kafka=ENDS,
        ours=SERVES,
        verify="this directory is no partition",
        doctor="foreign-dirs",
    ),
    Case(
        name="heap-dump",
        what="a plain file `heap-1234`",
        make=lambda root: (root / "data" / "heap-1234").write_text("x"),
        kafka=SERVES,
        ours=SERVES,
    ),
    Case(
        name="subdirectory-in-a-deleted-one",
        what="a subdirectory in a `-delete` directory",
        make=deleted_with_subdirectory,
        kafka=SERVES,
        ours=SERVES,
        verify="this is no file of a partition",
    ),
    Case(
        name="foreign-segment",
        what="a file `abc.log` in `orders-0`",
        make=content("abc.log", b"x"),
        kafka=ENDS,
        ours=SERVES,
        verify="this is no file of a partition",
    ),
    Case(
        name="garbled-epochs",
        what="`leader-epoch-checkpoint` of `orders-0` is garbage",
        make=content(EPOCHS, b"\x00\xff garbage\n"),
        kafka=ALL_OFFLINE,
        ours=OFFLINE,
        verify="unknown version",
        doctor=DAMAGED,
    ),
    Case(
        name="empty-epochs",
        what="`leader-epoch-checkpoint` of `orders-0` is empty: both serve without epochs",
        make=content(EPOCHS, b""),
        kafka=SERVES,
        ours=SERVES,
        verify="offset 0 has no epoch here",
        doctor=DAMAGED,
    ),
    Case(
        name="remedy-of-epochs",
        what="the remedy for damaged epochs: `leader-epoch-checkpoint`, `.kafka_cleanshutdown` and "
        "`recovery-point-offset-checkpoint` are removed; both build the epochs again",
        make=remedy_of_epochs,
        kafka=SERVES,
        ours=SERVES,
        verify="no start builds it again",
        doctor=DAMAGED,
    ),
    Case(
        name="no-index",
        what="the offset index of `orders-0` is missing",
        make=missing("00000000000000000000.index"),
        kafka=SERVES,
        ours=SERVES,
    ),
    Case(
        name="zeroed-index",
        what="the offset index of `orders-0` is 1 KiB of zeros",
        make=content("00000000000000000000.index", bytes(1024)),
        kafka=SERVES,
        ours=SERVES,
    ),
    Case(
        name="torn-segment",
        what="the segment of `orders-0`, one batch, lacks 100 bytes, beside a marker of a clean shutdown",
        make=torn,
        kafka=EMPTY,
        ours=EMPTY,
        verify="a batch of 22890 bytes ends after 22790",
    ),
    Case(
        name="zeroed-segment",
        what="the segment of `orders-0` is zeros, beside a marker of a clean shutdown",
        make=zeroed,
        kafka=ENDS,
        ours=EMPTY,
        verify="no batch has a length of 0",
    ),
    Case(
        name="snapshot-without-log",
        what="`orders-0` has a producer snapshot and no segment",
        make=without_log,
        kafka=EMPTY,
        ours=EMPTY,
        verify="there is no segment",
    ),
    Case(
        name="future-times",
        what="a record of the time 2⁶³ − 1 ms in `orders-0`, behind the recovery point",
        make=future_times,
        kafka="`orders` ends at offset 2001",
        ours="`orders` ends at offset 2001",
    ),
    Case(
        name="recovery-point-beyond-the-end",
        what="the recovery point of `orders-0` is 9000, without a clean shutdown",
        make=recovery_point_beyond,
        kafka=SERVES,
        ours=SERVES,
        verify="the recovery point of orders-0 is 9000",
    ),
    Case(
        name="log-start-beyond-the-end",
        what="the log start of `orders-0` is 9000",
        make=log_start_beyond,
        kafka="`orders` ends at offset 9000",
        ours="`orders` ends at offset 9000",
        verify="the log start of orders-0 is 9000",
    ),
    Case(
        name="garbled-watermarks",
        what="`replication-offset-checkpoint` is garbage",
        make=garbled("replication-offset-checkpoint"),
        kafka=ALL_OFFLINE,
        ours=SERVES,
        verify="unknown version 'garbage'",
    ),
    Case(
        name="other-cluster",
        what="`cluster.id` is another one",
        make=meta("MkU3OEVBNTcwNTJENDM2Qk", "XO-P46ilIL7-8UjP1bEZHg"),
        kafka=ENDS,
        ours=ENDS,
        doctor="cluster-id-mismatch",
    ),
    Case(
        name="other-node",
        what="`node.id` is another one",
        make=meta("node.id=1", "node.id=7"),
        kafka=ENDS,
        ours=ENDS,
        doctor="node-id-mismatch",
    ),
    Case(
        name="same-directory-id",
        what="two log directories have one `directory.id`",
        make=meta(DIRECTORY_ID, "BOP-1vZR7i-5HQwxF2uooA"),
        kafka=ENDS,
        ours=ENDS,
        doctor="directory-id-duplicate",
    ),
    Case(
        name="wrong-broker-epoch",
        what="the last record of the metadata log has another epoch of the broker than its registration",
        make=wrong_epoch,
        kafka=ENDS,
        ours=ENDS,
        doctor="record-contradicts",
    ),
)

HEAD: Final = """\
# Damaged log directories

What brokers make of log directories as people report them, Kafka 4.3.1 and ours, and what our two tools say of them
beforehand. The directory is that of a node of Kafka with the partitions `gone-0`, `orders-0` and `plain-0` after a
clean stop; the node has a second log directory, which is sound. Tests try every row with both makes.

| damage | Kafka 4.3.1 | trio-kraft | `kraft dump --verify` | `kraft doctor` |
| --- | --- | --- | --- | --- |
"""
TAIL: Final = """
A partition that is offline keeps its files, and a line in the log of our broker names the file and the remedy. *The log
directory is offline* means every partition in it. Where both makes begin a partition again, its records come back from
other replicas only: look with the two tools before the start. They read the directory of a running node, too, and
change nothing.
"""


def page() -> str:
    """The whole page."""
    rows = []
    for case in CASES[1:]:
        doctor = f"`{case.doctor}`" if case.doctor else "—"
        rows.append(f"| {case.what} | {case.kafka} | {case.ours} | {case.verify or '—'} | {doctor} |")
    return HEAD + "\n".join(rows) + "\n" + TAIL


if __name__ == "__main__":
    print(page(), end="")
