"""The behaviour of a node with a directory, a level or a record of another release: each cell is tried.

PYTHONPATH=tests python -m support.interop.release_table > docs/reference/releases.md

It starts some fifty nodes, one after the other.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Final

from metadata_log.log.segment import file_name
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import decode_record, encode_record
from metadata_log.records.metadata import (
    BrokerEndpoint,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
)
from metadata_log.records.record import records
from metadata_log.releases import METADATA_VERSION, METADATA_VERSIONS
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.interop.kafka_or_skip import found_or_skipped
from support.interop.mixed_quorum import batches_in
from support.interop.our_nodes import our_controller, told
from support.interop.real_kafka import (
    CLUSTER_ID,
    QUIET,
    STORAGE_TOOL,
    Nodes,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_controller,
)
from support.kafka_jars import KAFKA_VERSION, NEWER_VERSION, OLDER_VERSION

OURS: Final = "ours"
RELEASES: Final = (OURS, OLDER_VERSION, KAFKA_VERSION, NEWER_VERSION)
NEWEST: Final = {OURS: "4.4", OLDER_VERSION: "3.9", KAFKA_VERSION: "4.3", NEWER_VERSION: "4.4"}
"""The release whose level is the newest that each of them knows."""
NODE: Final = 1
GHOST: Final = 99
COMMON: Final = "3.9"
"""The release with a level that all know: a record of a later one stands after it in a log that no cluster writes."""
SECONDS: Final = 240
ALICE: Final = ("--add-scram", "SCRAM-SHA-256=[name=alice,password=secret]")
NAMES: Final = {level: name for name, level in METADATA_VERSIONS.items()}
THROWN: Final = re.compile(r"(?:Exception|Error): (.+)")
TWICE: Final = re.compile(
    r"Tried to apply FeatureLevelRecord .*featureLevel=(\d+)\), but this controller only .*"
    r"|No MetadataVersion with feature level (\d+).*"
)
"""Two threads of Kafka meet the record of a level that it does not know, and either may be the last that speaks."""
NO_CAUSE: Final = re.compile("Encountered fatal fault|Error while|Unexpected error")


def settings(root: Path) -> QuorumLayout:
    """A quorum of one controller."""
    return QuorumLayout(root, CLUSTER_ID, dict(zip((NODE,), free_ports(1), strict=True)), QUIET)


def format_with(release: str, layout: QuorumLayout) -> None:
    """Format a directory with the tool of a release, for the newest level that it knows, and with a user."""
    words = ("-t", CLUSTER_ID, "-c", str(layout.properties(NODE)), "--release-version", NEWEST[release], *ALICE)
    if release == OURS:
        told("format", *words)
    else:
        found_or_skipped(release).tool(STORAGE_TOOL, "format", *words)


def command_of(release: str, layout: QuorumLayout) -> Callable[[int], list[str]]:
    """The command line of a controller of a release."""
    return our_controller(layout) if release == OURS else kafka_controller(found_or_skipped(release), layout)


def written(layout: QuorumLayout) -> Iterator[Message]:
    """The records in the log of the node, as far as they are known here."""
    for batch in batches_in(layout.partition(NODE)):
        if not batch.is_control:
            for record in records(batch):
                found = decode_record(record.value or b"").record
                if found is not None:
                    yield found


def registrations(layout: QuorumLayout) -> int:
    """How often the node has registered, which a controller does once it is active."""
    return sum(isinstance(one, RegisterControllerRecord) and one.controller_id == NODE for one in written(layout))


def started(release: str, layout: QuorumLayout) -> str | None:
    """Start a node until it has registered, and stop it; the reason if it ends before that."""
    before = registrations(layout) if layout.partition(NODE).exists() else 0
    nodes = Nodes(layout, command_of(release, layout), name=f"by-{release}-")
    try:
        nodes.start(NODE)
        process = nodes.processes[NODE]
        eventually(
            lambda: process.popen.poll() is not None or registrations(layout) > before, "it leads or ends", SECONDS
        )
        if process.popen.poll() is None:
            nodes.stop()
            return None
        process.wait_until_closed(SECONDS)
        return reason_in(release, process.text)
    finally:
        nodes.kill()


def reason_in(release: str, text: str) -> str:
    """The sentence with which a process has ended."""
    if release == OURS:
        [line] = [line for line in text.splitlines() if line.startswith("kraft: error: ")]
        found = line.removeprefix("kraft: error: ")
    else:
        thrown = [match[1] for match in THROWN.finditer(text) if not NO_CAUSE.search(match[1])]
        found = thrown[-1] if thrown else text.splitlines()[-1]
        found = TWICE.sub(r"No MetadataVersion with feature level \1\2", found)
    return re.sub(r" \(/\S+.*\)$", "", found).strip()


def begun(release: str, layout: QuorumLayout) -> str:
    """The outcome of the first start of a directory."""
    reason = started(release, layout)
    if reason is not None:
        return f"ends: {reason}"
    first = list(written(layout))
    levels = {one.name: one.feature_level for one in first if isinstance(one, FeatureLevelRecord)}
    level = NAMES[levels.pop(METADATA_VERSION)]
    users = [one.name for one in first if isinstance(one, UserScramCredentialRecord)]
    rest = f"{len(levels)} other features" if levels else "no other feature"
    return f"starts at {level}, {rest}, {'the user' if users else 'no user'}"


def went_on(release: str, layout: QuorumLayout) -> str:
    """The outcome of a start on a log."""
    reason = started(release, layout)
    return "leads" if reason is None else f"ends: {reason}"


def of_directory(release: str, other: str, root: Path) -> str:
    """A directory that the tool of the other release has formatted, first started by this one."""
    layout = settings(root)
    format_with(other, layout)
    return begun(release, layout)


def of_level(release: str, other: str, root: Path) -> str:
    """A log that the other release has written at its newest level, then started by this one."""
    layout = settings(root)
    format_with(other, layout)
    assert started(other, layout) is None
    return went_on(release, layout)


def newest_record(release: str) -> tuple[Message, int]:
    """The latest addition to the records up to a release, and its version."""
    if release == OLDER_VERSION:
        return RegisterControllerRecord(controller_id=GHOST, incarnation_id=Uuid(b"g" * 16)), 0
    if release == KAFKA_VERSION:
        broker = RegisterBrokerRecord(
            broker_id=101,
            incarnation_id=Uuid(b"b" * 16),
            broker_epoch=5,
            end_points=(BrokerEndpoint(name="PLAINTEXT", host="gone.example", port=9092, security_protocol=0),),
            fenced=True,
            log_dirs=(Uuid(b"d" * 16),),
        )
        return broker, 4
    return UnregisterControllerRecord(controller_id=GHOST), 0


def of_record(release: str, other: str, root: Path) -> str:
    """The newest record of the other release after a level that both know, in the log that this one starts with."""
    layout = settings(root)
    told("format", "-c", str(layout.properties(NODE)), "-t", CLUSTER_ID, "--release-version", COMMON)
    assert started(OURS, layout) is None
    last = batches_in(layout.partition(NODE))[-1]
    ghost = RegisterControllerRecord(controller_id=GHOST, incarnation_id=Uuid(b"h" * 16))
    with (layout.partition(NODE) / file_name(0)).open("ab") as log:
        values = [encode_record(ghost, 0), encode_record(*newest_record(other))]
        log.write(build_batch(last.next_offset, last.epoch, last.max_timestamp, values))
    return went_on(release, layout)


CELLS: Final[dict[str, tuple[str, Callable[[str, str, Path], str]]]] = {
    "directory": ("formatted by", of_directory),
    "level": ("log at the newest level of", of_level),
    "record": ("newest record of", of_record),
}

HEAD: Final = """\
# Releases beside each other

The tables say what a controller of one release does with data that another release has made. There are three kinds of
data:

- a directory that is formatted for the newest level that its release knows, with a SCRAM user, and not started yet;
- a log at that level;
- the newest kind of record of that release, in a log at a level that all releases know. No cluster writes such a log.

Each row was tried, with one controller that is the only voter: it *leads*, or it *ends* with the sentence that is
quoted.

`tests/support/interop/release_table.py` prints this page. `test_release_table.py`, a soak test, tries each row again.

What to keep in mind:

- A directory that is formatted for 4.4 holds its first records in the snapshot of offset 0. A controller of 4.3.1
  ignores them and says nothing: it starts with metadata.version alone, and without the users.
- No release before 4.4 reads a log at 4.4-IV2, and no level below that can be set again. Lower levels may be set as far
  as Kafka allows: from 4.4-IV0 to 4.3-IV0, but not from 4.3-IV0 down.
"""


def row(kind: str, release: str, other: str, root: Path) -> str:
    """One row of the page."""
    root.mkdir(parents=True, exist_ok=True)
    words, tried = CELLS[kind]
    return f"| {words} {other} | {release} | {tried(release, other, root)} |"


def page() -> str:
    """The whole page."""
    lines = [HEAD]
    with tempfile.TemporaryDirectory(prefix="releases-") as scratch:
        for kind in CELLS:
            lines.append(f"## By {kind}\n\n| what | started by | outcome |\n| --- | --- | --- |")
            for other, release in product(RELEASES, RELEASES):
                lines.append(row(kind, release, other, Path(scratch) / f"{kind}-{release}-{other}"))
                print(lines[-1], file=sys.stderr, flush=True)
            lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(), end="")
