"""`kraft history`: the stories of real clusters, with offset, time, epoch and cause; elections, gaps, damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraft.cli.files.history_lines import Filter
from kraft.cli.files.unavailable import intervals
from metadata_log.history.views import VIEWS, View
from support.kraft.command_line import Done, run
from support.kraft.damaged import damaged
from support.real_data import unpack

LAST = "__cluster_metadata-0/00000000000000004847.log"


@pytest.fixture(scope="module")
def static3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("static3", "nodes/c1", tmp_path_factory.mktemp("static3"))


@pytest.fixture(scope="module")
def failover(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("clusters", "failover/nodes/c1", tmp_path_factory.mktemp("failover"))


def history(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Done:
    return run(capsys, "history", *map(str, words))


def lines_of(done: Done) -> list[str]:
    assert (done.code, done.err) == (0, "")
    return done.out.splitlines()


def test_a_topic_is_shown_with_its_partitions_and_configurations(
    capsys: pytest.CaptureFixture[str], static3: Path
) -> None:
    lines = [line[44:] for line in lines_of(history(capsys, static3, "--topic", "invoices"))]
    told = {line.partition(":")[0] for line in lines}
    assert {"topic invoices", "invoices-0", "invoices-6"} <= told
    assert all(subject in ("topic invoices",) or subject.startswith("invoices-") for subject in told)
    assert "topic invoices: cleanup.policy = compact (was delete,compact)" in lines
    assert "topic invoices: segment.bytes removed" in lines
    assert any(line.startswith("topic invoices: 4 → 7 partitions — ") for line in lines)


def test_offsets_ascend_and_every_line_has_its_epoch(capsys: pytest.CaptureFixture[str], static3: Path) -> None:
    lines = lines_of(history(capsys, static3))
    offsets = [int(line[:9]) for line in lines]
    assert offsets == sorted(offsets)
    epochs = [int(line[37:42].strip().removeprefix("e")) for line in lines]
    assert epochs == sorted(epochs)
    assert set(epochs) == set(range(1, 14))
    for words in (
        "controller 3: active in epoch 2 — controller 3 was elected",
        "broker 104: unregistered",
        "user audit: SCRAM-SHA-256 credential removed",
        "quota of client-id=<default>, user=catalog: producer_byte_rate = 1000000000",
        "User:alice: removed: DENY ALL on GROUP g- (PREFIXED) from host *",
        "feature transaction.version: level 2 → 1",
    ):
        assert any(words in line for line in lines), words


def test_a_broker(capsys: pytest.CaptureFixture[str], static3: Path) -> None:
    lines = [line[44:] for line in lines_of(history(capsys, static3, "--broker", "104"))]
    assert lines[0].startswith("broker 104: registered, fenced, broker epoch 4418")
    assert lines[1].startswith("broker 104: unfenced")
    assert lines[-1] == "broker 104: unregistered"
    moved = [line for line in lines if line.startswith("orders-2: ")]
    assert "replicas [102,103,101] → [104,101,102,103], adding [] → [104], removing [] → [103]" in moved[0]
    assert len(moved) == 3


def test_a_range_of_times_or_offsets(capsys: pytest.CaptureFixture[str], static3: Path) -> None:
    everything = lines_of(history(capsys, static3))
    some = lines_of(history(capsys, static3, "--since", "100", "--until", "288"))
    assert some == [line for line in everything if 100 <= int(line[:9]) <= 288]
    times = ("--since", "2026-11-21T08:14:26.419Z", "--until", "2026-11-21T08:14:28.180Z")
    found = lines_of(history(capsys, static3, *times))
    assert {line[11:30] for line in found} == {f"2026-11-21T08:14:2{second}" for second in (6, 7, 8)}
    later = history(capsys, static3, "--since", "2030-01-01T00:00:00Z")
    assert (later.code, later.out) == (1, "")
    assert "--since 2030-01-01T00:00:00.000Z is beyond the end: the last record has offset 5316" in later.err


def test_json_output_has_the_rows_of_the_history(capsys: pytest.CaptureFixture[str], failover: Path) -> None:
    rows = [json.loads(line) for line in lines_of(history(capsys, failover, "--topic", "audit-1-0", "--json"))]
    assert {row["view"] for row in rows} == {"partition_history"}
    assert [row["valid_from_offset"] for row in rows[:4]] == [42, 342, 601, 708]
    assert rows[1] == {
        "view": "partition_history",
        "cluster": rows[0]["cluster"],
        **rows[1],
        "leader": 102,
        "isr": [102, 103],
        "valid_from": "2026-11-21T08:22:12.677Z",
        "valid_to_offset": 601,
        "cause": rows[1]["cause"],
        "cause_broker": 101,
    }
    assert rows[-1]["valid_to"] is None


def test_unavailable_partitions_as_json_have_the_rows_of_the_view_and_totals(
    capsys: pytest.CaptureFixture[str], failover: Path
) -> None:
    found = [json.loads(line) for line in lines_of(history(capsys, failover, "--unavailable", "--json"))]
    rows = [one for one in found if one.get("view") == "unavailability"]
    totals = [one for one in found if "total_by" in one]
    assert len(rows) + len(totals) == len(found)
    assert {tuple(one["broker"] for one in row["lost_brokers"]) for row in rows} == {(101, 102)}
    assert rows[0]["lost_brokers"][0]["cause"] == "session-timeout"
    for key in ("topic", "cause"):
        of_key = [one for one in totals if one["total_by"] == key]
        for kind in ("leaderless", "below-min-isr"):
            of_kind = [row["seconds"] for row in rows if row["kind"] == kind]
            assert sum(one[kind]["times"] for one in of_key) == len(of_kind)
            assert sum(one[kind]["seconds"] for one in of_key) == pytest.approx(sum(of_kind))
            assert max(one[kind]["longest_seconds"] for one in of_key) == max(of_kind)
    of_102 = lines_of(history(capsys, failover, "--unavailable", "--json", "--broker", "102"))
    assert len(of_102) == len(found)
    assert lines_of(history(capsys, failover, "--unavailable", "--json", "--broker", "103")) == []


def of_view(view: str, **values: object) -> tuple[View, tuple[Any, ...]]:
    """A row of partition 0 of topic t; columns without a value are None."""
    known = {"topic": "t", "topic_id": "T", "partition": 0, "cause": "c", "cause_text": "text", **values}
    return VIEWS[view], tuple(known.get(name) for name in VIEWS[view].names)


def span(begin: int, end: int | None) -> dict[str, Any]:
    return {"valid_from_offset": begin, "valid_from": begin, "valid_to_offset": end, "valid_to": end}


def test_lost_brokers_are_those_fenced_or_unregistered_at_the_beginning() -> None:
    rows = [
        of_view("isr_history", replicas=(1, 2, 3, 4, 5), isr=(1,), **span(40, None)),
        of_view("fencing", broker=2, **{**span(10, 20), "cause": "session-timeout"}, end_cause="broker-unfenced"),
        of_view("fencing", broker=3, **{**span(11, 30), "cause": "session-timeout"}, end_cause="broker-unregistered"),
        of_view("fencing", broker=4, **{**span(12, 60), "cause": "controlled-shutdown"}, end_cause="broker-unfenced"),
        of_view("fencing", broker=5, **{**span(50, None), "cause": "session-timeout"}),
        of_view("fencing", broker=9, **{**span(1, None), "cause": "session-timeout"}),
        of_view("unavailability", kind="below-min-isr", seconds=1.0, **{**span(45, None), "cause": "config-set"}),
    ]
    [found] = intervals(rows, Filter(), lambda facts: True)
    assert [(one.broker, one.since_ms, one.cause) for one in found.lost] == [
        (4, 12, "controlled-shutdown"),
        (3, 30, "broker-unregistered"),
    ]
    assert found.cause == "controlled-shutdown of 4, broker-unregistered of 3, config-set"


@pytest.mark.parametrize(
    ("case", "words", "tells_on"),
    [
        ("bitflip-last-batch", f"{LAST}, byte 36123, offset 5316)", False),
        ("bad-frame-version", f"{LAST}, byte 36262, offset 5317)", False),
        (
            "unknown-record-type",
            f"a record of type 99 in version 0 is not known, nor what it changes (PATH/{LAST}, byte",
            False,
        ),
        ("record-for-missing-topic", f"{LAST}, offset 5317)", False),
        ("segment-missing", "the log goes on at offset 4072, and nothing is known from offset 2908 to there", True),
    ],
)
def test_history_reports_damage_and_shows_no_wrong_rows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, static3: Path, case: str, words: str, tells_on: bool
) -> None:
    done = history(capsys, damaged(case, tmp_path))
    assert done.code == 1
    assert words.replace("PATH", str(tmp_path)) in done.err
    sound = lines_of(history(capsys, static3))
    found = done.out.splitlines()
    if tells_on:
        assert "The history continues with a snapshot, after offset 4270" in done.err
        assert [line for line in found if int(line[:9]) < 2908] == [line for line in sound if int(line[:9]) < 2908]
        assert not [line for line in found if 2908 <= int(line[:9]) <= 4270]
    else:
        assert found == [line for line in sound if int(line[:9]) < 5316]


def test_a_history_that_begins_with_a_snapshot_is_announced(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done = history(capsys, damaged("log-missing-snapshot-present", tmp_path))
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("The history begins with a snapshot, after offset 316, 2026-11-21T08:14:31.059Z")
    assert "kraft: error: there is no segment of the log, and the snapshot 00000000000000005210-0000000008" in done.err


def test_parquet_files(capsys: pytest.CaptureFixture[str], static3: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "out"
    lines = lines_of(history(capsys, static3, "--topic", "orders", "--parquet", out))
    assert [Path(line.partition(":")[0]).name for line in lines] == [
        "config_history.parquet",
        "partition_history.parquet",
        "topic_history.parquet",
    ]
    table = parquet.read_table(out / "partition_history.parquet").to_pylist()
    assert {row["topic"] for row in table} == {"orders"}
    told = [json.loads(line) for line in lines_of(history(capsys, static3, "--topic", "orders", "--json"))]
    assert len(table) == sum(row["view"] == "partition_history" for row in told)
