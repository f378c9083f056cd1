"""Logs that are not what the tables know: replaced, restored, cut at either end, or of a directory with another id."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from metadata_log.disk import make_directory
from metadata_log.log.segment import file_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.tables.cluster import ClusterOutcome, Gate, Identity, Job, Status, close_cluster, materialize_cluster
from nightly_logs import DIRECTORY, Night, Piece, lost_tail, pieces
from table_rows import ROOT, everything, rows_of_log, table_rows

CLUSTER = "c"
FEW = ("broker_history", "topic_history", "retention", "quorum_epochs", "controller_history", "unavailability")
LOG = pieces("dynamic3")[:150]
OTHER = pieces("old39")[:100]


def job(**settings: Any) -> Job:
    return Job(root=ROOT, run="run", version="1", views=FEW, **settings)


def run(night: Night, disk: MemoryDisk, **settings: Any) -> ClusterOutcome:
    return materialize_cluster(night.disk(), DIRECTORY, CLUSTER, disk, job(**settings))


def night(log: tuple[Piece, ...], tail: bytes = b"") -> Night:
    return Night({file_name(log[0].base): b"".join(piece.data for piece in log) + tail}, False, False)


def rows_of(one: Night) -> Counter[str]:
    return rows_of_log(one.disk(), DIRECTORY, CLUSTER, FEW)


def stops(one: Night, disk: MemoryDisk, kind: Identity) -> None:
    """The gate stops, and no byte of the tables changes."""
    before = everything(disk)
    for _ in range(2):
        outcome = run(one, disk)
        assert (outcome.status, outcome.change and outcome.change.kind) == (Status.STOPPED, kind)
    assert everything(disk) == before


def warns(one: Night, disk: MemoryDisk, kind: Identity, gate: Gate) -> None:
    """The gate warns once, and the next run with any gate has nothing to say."""
    outcome = run(one, disk, gate=gate)
    assert outcome.change is not None
    assert outcome.change.kind is kind
    again = run(one, disk)
    assert (again.status, again.change) == (Status.NOTHING, None)


@pytest.mark.parametrize("gate", [Gate.WARN, Gate.SETTLE])
def test_another_log_of_the_same_id_stops_or_follows_the_closed_rows_of_the_first(gate: Gate) -> None:
    disk = MemoryDisk()
    run(night(LOG), disk)
    before = table_rows(disk)
    for shorter in (OTHER, OTHER[:40]):
        stops(night(shorter), disk, Identity.ANOTHER_LOG)
    warns(night(OTHER[:-9]), disk, Identity.ANOTHER_LOG, gate)
    run(night(OTHER), disk)
    of_first = table_rows(disk) - rows_of(night(OTHER))
    assert table_rows(disk) == of_first + rows_of(night(OTHER))
    open_rows = [row for row in before if "'valid_to': None" in row]
    assert open_rows
    assert of_first >= before - Counter(open_rows) - Counter(row for row in before if row.startswith("retention"))
    assert not [row for row in of_first if "'valid_to': None" in row]
    assert [row for row in of_first if "other records from its beginning on" in row]
    run(night(OTHER), disk, rebuild=True)
    assert table_rows(disk) == of_first + rows_of(night(OTHER))


@pytest.mark.parametrize("gate", [Gate.WARN])
def test_a_log_that_lost_its_end_stops_or_takes_the_tables_back(gate: Gate) -> None:
    disk = MemoryDisk()
    run(night(LOG[:-20]), disk)
    run(night(LOG), disk)
    stops(night(LOG[:-5]), disk, Identity.TRIMMED)
    warns(night(LOG[:-5]), disk, Identity.TRIMMED, gate)
    assert table_rows(disk) == rows_of(night(LOG[:-5]))
    run(night(LOG), disk)
    assert table_rows(disk) == rows_of(night(LOG))


@pytest.mark.parametrize("gate", [Gate.WARN, Gate.SETTLE])
def test_a_restored_backup_that_went_on_stops_or_takes_the_tables_back(gate: Gate) -> None:
    disk = MemoryDisk()
    run(night(LOG[:-20]), disk)
    run(night(LOG), disk)
    cut = LOG[:-40]
    for reached in (LOG[-21], LOG[-1]):
        restored = night(cut, lost_tail(Random(1), cut, (reached.end - cut[-1].end) // 2 + 1))
        stops(restored, disk, Identity.RESTORED)
    warns(restored, disk, Identity.RESTORED, gate)
    assert table_rows(disk) == rows_of(restored)


def test_a_log_that_lost_what_the_tables_lack_is_told() -> None:
    disk = MemoryDisk()
    run(night(LOG[:30]), disk)
    outcome = run(night(LOG[40:]), disk)
    assert (outcome.change and outcome.change.kind, outcome.records) == (Identity.TRIMMED, 0)
    assert "the log goes on at offset" in (outcome.damage or "")
    assert table_rows(disk) == rows_of(night(LOG[:30]))


def test_a_closed_cluster_has_no_open_rows_and_goes_on_once_its_log_is_found_again() -> None:
    disk = MemoryDisk()
    run(night(LOG[:-20]), disk)
    closed = close_cluster(CLUSTER, disk, job(), "d")
    assert (closed.status, closed.open_rows, closed.change and closed.change.kind) == (
        Status.CLOSED,
        0,
        Identity.NEW_ID,
    )
    rows = table_rows(disk)
    assert not [row for row in rows if "'valid_to': None" in row]
    assert [row for row in rows if "has the log of cluster d since run run" in row]
    assert run(night(LOG), disk).change is None
    assert table_rows(disk) == rows_of(night(LOG))


def test_the_log_of_another_cluster_in_a_known_directory_stops_or_warns() -> None:
    disk = MemoryDisk()
    follows = {CLUSTER: "former"}
    stopped = run(night(LOG), disk, follows=follows)
    assert (stopped.status, stopped.change and stopped.change.kind) == (Status.STOPPED, Identity.NEW_ID)
    assert not table_rows(disk)
    warned = run(night(LOG), disk, follows=follows, gate=Gate.WARN)
    assert (warned.status, warned.change and warned.change.kind) == (Status.NEW, Identity.NEW_ID)
    assert table_rows(disk) == rows_of(night(LOG))


class Story:
    """A directory over many nights, as its tables should tell it: the logs that were there, each with its rows."""

    def __init__(self, seed: int) -> None:
        print(f"seed {seed}")
        self.rng = Random(seed)
        self.disk = MemoryDisk()
        make_directory(self.disk, ROOT)
        self.cluster = "c0"
        self.number = 0
        self.source = self.rng.choice((LOG, OTHER))
        self.log = self.source[: self.rng.randint(1, 60)]
        self.former: Counter[str] = Counter()
        """The rows of former logs and former clusters."""
        self.kinds: Counter[str] = Counter()

    def rows(self, log: tuple[Piece, ...]) -> Counter[str]:
        return rows_of_log(night(log).disk(), DIRECTORY, self.cluster, FEW)

    def run(self, gate: Gate, follows: dict[str, str]) -> ClusterOutcome:
        return materialize_cluster(
            night(self.log).disk(), DIRECTORY, self.cluster, self.disk, job(gate=gate, follows=follows)
        )

    def grown(self, log: tuple[Piece, ...], rise: int | None = None) -> tuple[Piece, ...]:
        """The log with further batches: those of the real log while it is a part of that, or made ones."""
        if rise is None and log == self.source[: len(log)] and len(log) < len(self.source):
            return self.source[: len(log) + self.rng.randint(1, len(self.source) - len(log))]
        tail = lost_tail(self.rng, log, self.rng.randint(1, 20))
        return (
            *log,
            *(
                Piece(tail[one.position : one.end_position], one.base_offset, one.next_offset, one.epoch).raised(
                    rise or 0
                )
                for one in scan(tail)
            ),
        )

    def shortened(self) -> tuple[Piece, ...]:
        return self.log[: self.rng.randint(1, len(self.log) - 1)]

    def one_night(self) -> None:
        rng, before, follows = self.rng, self.log, dict[str, str]()
        events = ["grow", "grow", "leader", "restore", "trim", "replace", "rename"]
        event = rng.choice(events if len(self.log) > 1 else ["grow", "replace", "rename"])
        wanted: set[Identity | None] = {None}
        if event == "grow":
            self.log = self.grown(self.log)
        elif event == "leader":
            kept = self.shortened()
            self.log = self.grown(kept, rise=before[-1].epoch - kept[-1].epoch + 1)
        elif event == "restore":
            self.log, wanted = self.grown(self.shortened(), rise=0), {Identity.RESTORED, Identity.TRIMMED}
        elif event == "trim":
            self.log, wanted = self.shortened(), {Identity.TRIMMED}
        elif event == "replace":
            self.source = OTHER if self.log[0] == LOG[0] else LOG
            self.log, wanted = self.source[: rng.randint(1, len(self.source))], {Identity.ANOTHER_LOG}
        elif event == "rename":
            self.source = OTHER if self.log[0] == LOG[0] else LOG
            self.number += 1
            follows[f"c{self.number}"] = self.cluster
            self.cluster = f"c{self.number}"
            self.log, wanted = self.source[: rng.randint(1, len(self.source))], {Identity.NEW_ID}
        self.check(event, wanted, follows)

    def check(self, event: str, wanted: set[Identity | None], follows: dict[str, str]) -> None:
        """The gate stops and changes nothing, or the tables are those of the log and of all that was before."""
        rows_before, bytes_before = table_rows(self.disk), everything(self.disk)
        if wanted != {None} and self.rng.random() < 0.5:
            stopped = self.run(Gate.FAIL, follows)
            assert (stopped.status, stopped.change and stopped.change.kind in wanted) == (Status.STOPPED, True), event
            made = {path for path in everything(self.disk) if path not in bytes_before}
            assert all(path.endswith("/lock") for path in made)
            assert {path: data for path, data in everything(self.disk).items() if path not in made} == bytes_before
        for cluster in follows.values():
            close_cluster(cluster, self.disk, job(), self.cluster)
        gate = Gate.FAIL if wanted == {None} else self.rng.choice((Gate.WARN, Gate.SETTLE))
        outcome = self.run(gate, follows)
        kind = outcome.change.kind if outcome.change is not None else None
        assert kind in wanted, (event, outcome)
        self.kinds[kind or event] += 1
        now = table_rows(self.disk)
        if kind in (Identity.NEW_ID, Identity.ANOTHER_LOG):
            self.former = now - self.rows(self.log)
            still = {row: count for row, count in self.former.items() if "'valid_to': None" in row}
            assert not still
            closed = {row for row in rows_before if "'valid_to': None" not in row and not row.startswith("retention")}
            assert closed <= set(self.former)
        assert now == self.former + self.rows(self.log), event
        assert self.run(Gate.FAIL, {}).status is Status.NOTHING


def test_nights_with_changes_of_identity_give_the_rows_of_all_logs() -> None:
    story = Story(Random().randrange(2**32))
    story.check("first", {None}, {})
    for _ in range(3):
        story.one_night()


@pytest.mark.soak
def test_a_thousand_nights_with_changes_of_identity_give_the_rows_of_all_logs() -> None:
    first = Random().randrange(2**32)
    kinds: Counter[str] = Counter()
    for seed in range(first, first + 200):
        story = Story(seed)
        story.check("first", {None}, {})
        for _ in range(5):
            story.one_night()
        kinds += story.kinds
    print(dict(kinds))
    assert min(kinds[kind] for kind in ("grow", "leader", *Identity)) > 20
    assert sum(kinds.values()) > 1_000
