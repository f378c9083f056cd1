"""Records of a newer Kafka in the tables: the rows around them are written, and what may lack something is named."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest

from metadata_log.log.segment import file_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import frame
from metadata_log.records.frame import RECORD_TYPES
from metadata_log.records.metadata import RegisterControllerRecord
from metadata_log.tables.cluster import ClusterOutcome, Gate, Job, Status, materialize_cluster
from nightly_logs import DIRECTORY, Night, pieces
from table_rows import ROOT, content, files, table_rows

CLUSTER = "c"
VIEWS = ("controller_history", "feature_history", "quorum_epochs", "retention")
TYPE = 27
"""RegisterControllerRecord, which an old version would not know."""


def run(night: Night, disk: MemoryDisk, *, run_id: str, version: str = "1", gate: Gate = Gate.FAIL) -> ClusterOutcome:
    job = Job(root=ROOT, run=run_id, version=version, views=VIEWS, gate=gate)
    return materialize_cluster(night.disk(), DIRECTORY, CLUSTER, disk, job)


def whole() -> Night:
    return Night({file_name(0): b"".join(piece.data for piece in pieces("dynamic3"))}, False, False)


@pytest.mark.parametrize("gate", list(Gate))
def test_records_of_a_newer_kafka_end_no_table_and_are_told(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    log = whole()
    disk, undisturbed = MemoryDisk(), MemoryDisk()
    run(log, undisturbed, run_id="night-1")
    wanted = table_rows(undisturbed)
    with monkeypatch.context() as older:
        older.delitem(RECORD_TYPES, TYPE)
        older.setattr(frame, "_frames", {})
        first = run(log, disk, run_id="night-1", gate=gate)
        [unread] = first.unread
        assert (first.status, first.damage, first.to_offset) == (Status.NEW, None, pieces("dynamic3")[-1].end)
        assert (unread.type, unread.records > 1) == (TYPE, True)
        assert "controller_history" in unread.views
        assert not {"quorum_epochs", "controller_gaps", "retention"} & set(unread.views)
        assert f"written by a newer Kafka (record type {TYPE}, metadata.version {unread.level}); upgrade" in str(unread)
        again = run(log, disk, run_id="night-2", gate=gate)
        assert (again.status, again.steps, again.unread) == (Status.NOTHING, 0, [unread])
        marks = {
            (view, row["lineage_offset"] > unread.from_offset, row["lineage_unread_offset"])
            for path in files(disk)
            if (view := path.split("/")[2]) in ("quorum_epochs", "feature_history")
            for row in pq.read_table(io.BytesIO(content(disk, path))).to_pylist()
        }
        assert ("feature_history", True, unread.from_offset) in marks
        assert not {mark for view, is_behind, mark in marks if mark is not None and view == "quorum_epochs"}
        lost = wanted - table_rows(disk)
        assert {row.split()[0] for row in lost if "retention" not in row} == {"controller_history"}
    same = run(log, disk, run_id="night-3", gate=gate)
    assert same.status is Status.NOTHING
    upgraded = run(log, disk, run_id="night-4", version="2", gate=gate)
    assert (upgraded.status, upgraded.from_offset, upgraded.unread) == (Status.NEW, 0, [])
    assert table_rows(disk) == wanted
    assert run(log, disk, run_id="night-5", version="2", gate=gate).status is Status.NOTHING
    assert RECORD_TYPES[TYPE] is RegisterControllerRecord
