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
from support.real_data import archive, unpack

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


def test_the_leaders_of_a_partition_and_why_it_moved(capsys: pytest.CaptureFixture[str], failover: Path) -> None:
    lines = lines_of(history(capsys, failover, "--topic", "audit-1-0"))
    assert [line[:42] for line in lines[:4]] == [
        "       42  2026-11-21T08:22:04.880Z     e1",
        "      342  2026-11-21T08:22:12.677Z     e1",
        "      601  2026-11-21T08:22:25.521Z     e1",
        "      708  2026-11-21T08:22:26.151Z     e1",
    ]
    assert [line[55:] for line in lines[:4]] == [
        "leader 101, replicas [101,102,103], ISR [101,102,103] — the topic was created; the first live replica leads",
        "leader 101 → 102, ISR [101,102,103] → [102,103] — broker 101 was fenced: its session timed out; "
        "102 leads: the first live in-sync replica in the order of the replicas",
        "ISR [102,103] → [101,102,103] — the leader 102 reported: 101 joined the ISR, having caught up",
        "leader 102 → 101 — a preferred election, asked for or by the periodic balancing of leaders; "
        "101 leads: the first of the replicas, and in sync",
    ]
    assert all(line[44:].startswith("audit-1-0: ") for line in lines)


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


def test_elections_are_listed_with_their_causes(capsys: pytest.CaptureFixture[str], static3: Path) -> None:
    lines = lines_of(history(capsys, static3, "--elections"))
    controllers = [line for line in lines if "  controller " in line]
    assert len(controllers) == 13
    assert controllers[1].endswith(
        "controller 3: active in epoch 2 — controller 3 was elected for epoch 2 with the votes of 2, 3, 2.1 s after "
        "the last record of the epoch before"
    )
    unclean = [line for line in lines if "UNCLEAN" in line]
    assert unclean
    assert all("records may be lost" in line for line in unclean)
    assert any("preferred — a preferred election" in line for line in lines)
    one = lines_of(history(capsys, static3, "--elections", "--topic", "orders-3"))
    assert one
    assert all(" orders-3: leader " in line for line in one)


def test_gaps_are_the_times_at_which_controllers_were_killed(
    capsys: pytest.CaptureFixture[str], static3: Path, failover: Path
) -> None:
    lines = lines_of(history(capsys, static3, "--gaps"))
    assert lines[0].split() == ["from", "to", "seconds", "offset", "epochs", "controllers", "why"]
    assert lines[1].startswith("2026-11-21T08:14:53.245Z  2026-11-21T08:14:55.343Z  2.098    1543    1 → 2    1 → 3")
    assert lines[-1] == "12 gaps, 16.0 s in all, the longest 5.3 s"
    [gap] = [json.loads(line) for line in lines_of(history(capsys, failover, "--gaps", "--json"))]
    assert (gap["leader_before"], gap["leader_after"], gap["epoch_before"], gap["epoch"]) == (2, 1, 1, 3)
    none = lines_of(history(capsys, static3, "--gaps", "--until", "1000"))
    assert none == ["There was no such gap: a controller was active all the time."]


def test_unavailable_partitions_are_listed_with_lost_brokers_and_totals(
    capsys: pytest.CaptureFixture[str], failover: Path
) -> None:
    lines = lines_of(history(capsys, failover, "--unavailable"))
    assert lines[-1] == (
        "31 times without a leader, 174.7 s over all partitions; 111 times below min.insync.replicas, 665.9 s"
    )
    of_partition = [line for line in lines if " alerts-4-0 " in line]
    assert [" ".join(line.split()) for line in of_partition] == [
        f"2026-11-21T08:23:12.076Z 2026-11-21T08:23:17.711Z 5.635 1837 alerts-4-0 {kind} "
        "101 (session-timeout, 0.5 s before), 102 (session-timeout) "
        "broker 102 was fenced: its session timed out; no replica can lead: 102 was the last"
        for kind in ("below min ISR", "no leader")
    ]
    rows = [line.split() for line in lines]
    assert ["metrics-0", "5", "5", "28.2", "5.6", "5", "28.2", "5.6"] in rows
    cause = "session-timeout of 101 and 102"
    assert [*cause.split(), "111", "31", "174.7", "5.6", "111", "665.9", "6.1"] in rows
    of_topic = lines_of(history(capsys, failover, "--unavailable", "--topic", "alerts-4"))
    assert of_topic[-1].startswith("4 times without a leader, 22.5 s")
    later = history(capsys, failover, "--unavailable", "--since", "2026-11-21T08:23:19Z")
    assert later.out == "No partition was without a leader or below min.insync.replicas.\n"
    began = lines_of(history(capsys, failover, "--unavailable", "--until", "1837"))
    assert began[-1].startswith("1 time without a leader, 0.0 s")
    assert any(line.split()[1] == "still" for line in began)


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


def test_secret_values_are_hidden(capsys: pytest.CaptureFixture[str], static3: Path) -> None:
    state: dict[str, Any] = json.loads(archive("history")["static3/state.json"])
    assert "alice" in state["describeScram"]
    out = history(capsys, static3, "--json").out
    assert "stored_key" not in out
    assert '"view": "scram_history"' in out


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


def test_history_warns_of_an_unfinished_last_batch(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done = history(capsys, damaged("truncated-last-batch", tmp_path))
    assert done.code == 0
    assert done.err.startswith("kraft: warning: a batch of 72 bytes ends after 52")


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


def test_history_writes_an_html_page(capsys: pytest.CaptureFixture[str], static3: Path, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    page = tmp_path / "page.html"
    [line] = lines_of(history(capsys, static3, "--since", "4000", "--html", page))
    assert "orders-3" in page.read_text()
    assert str(static3) in page.read_text()
    [line] = lines_of(history(capsys, static3, "--topic", "orders", "--html", page))
    assert "Only topic orders." in page.read_text()
    assert line.startswith(f"{page}: ")
    assert page.read_text().lstrip().lower().startswith("<!doctype html")


def test_the_title_of_a_history_page_is_an_option(
    capsys: pytest.CaptureFixture[str], static3: Path, tmp_path: Path
) -> None:
    pytest.importorskip("jinja2")
    page = tmp_path / "page.html"
    lines_of(history(capsys, static3, "--since", "4000", "--html", page, "--title", "The night of the 21st"))
    assert "<title>The night of the 21st</title>" in page.read_text()
    assert "<h1>The night of the 21st</h1>" in page.read_text()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--gaps", "--topic", "x"], "--gaps does not apply to a topic or a broker"),
        (["--gaps", "--elections"], "--gaps, --elections and --unavailable exclude each other"),
        (["--since", "soon"], "'soon' is neither an offset"),
        (["--broker", "x"], "'x' is not a valid integer"),
        (["--html", "x", "--parquet", "y"], "--html and --parquet exclude each other"),
        (["--title", "x"], "--title is the title of a page: add --html OUT"),
    ],
)
def test_history_refuses_invalid_arguments(
    capsys: pytest.CaptureFixture[str], static3: Path, words: list[str], error: str
) -> None:
    done = history(capsys, static3, *words)
    assert (done.code, done.out) == (2, "")
    assert error in done.err
