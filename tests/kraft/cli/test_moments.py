"""The moments that options take, and the times that records may have, which is each int64."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kraft.cli.cluster.record_lines import formatter, json_line, record_of_json
from kraft.cli.moments import parse_moment
from kraft.client import ConsumedRecord
from metadata_log.log.segment import file_name
from metadata_log.reading.timeline import At, moment_text
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import FeatureLevelRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from metadata_log.types import Uuid
from support.kraft.command_line import Done, run

NOW = datetime(2026, 11, 26, 16, 30, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", "2026-11-26T16:30:15.000Z"),
        ("-30s", "2026-11-26T16:29:45.000Z"),
        ("-10m", "2026-11-26T16:20:15.000Z"),
        ("-1h30m", "2026-11-26T15:00:15.000Z"),
        ("-2d", "2026-11-24T16:30:15.000Z"),
        ("-1w", "2026-11-19T16:30:15.000Z"),
        ("today", "2026-11-26T00:00:00.000Z"),
        ("yesterday", "2026-11-25T00:00:00.000Z"),
        ("yesterday 14:00", "2026-11-25T14:00:00.000Z"),
        ("today 9:05", "2026-11-26T09:05:00.000Z"),
        ("14:00", "2026-11-26T14:00:00.000Z"),
        ("9:05:07.5", "2026-11-26T09:05:07.500Z"),
        ("2026-11-20", "2026-11-20T00:00:00.000Z"),
        ("2026-11-20T10:00", "2026-11-20T10:00:00.000Z"),
        ("2026-11-20 12:00:00.5+02:00", "2026-11-20T10:00:00.500Z"),
        ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00.000Z"),
    ],
)
def test_a_time_is_one_of_utc(text: str, moment: str) -> None:
    assert moment_text(parse_moment(text, NOW)) == moment


@pytest.mark.parametrize("text", ["0", "12345", "20261126", "1430"])
def test_a_number_is_an_offset(text: str) -> None:
    assert parse_moment(text, NOW) == At(offset=int(text))


@pytest.mark.parametrize("text", ["", "-1", "-m", "25:00", "14:61", "tomorrow", "²", "-99999999w", "yesterday x"])
def test_other_words_are_refused_with_the_forms(text: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^{text!r} is (neither an offset nor a time, such as .* -10m|before the calendar)"
    ):
        parse_moment(text, NOW)


OPTIONS = (
    ("history", "NODE", "--since"),
    ("history", "NODE", "--until"),
    ("replay", "NODE", "--at"),
    ("shell", "NODE", "--at"),
    ("dump", "NODE", "--since"),
    ("dump", "NODE", "--until"),
    ("diff", "NODE", "NODE", "--at-a"),
    ("diff", "NODE", "NODE", "--at-b"),
    ("watch", "--bootstrap-controller", "127.0.0.1:1", "--timeout", "0.1", "--since"),
    ("consume", "t", "--bootstrap-server", "127.0.0.1:1", "--timeout", "0.1", "--from"),
    ("fleet", "history", "leaders", "NODE", "--option", "since="),
)


@pytest.mark.parametrize("words", OPTIONS, ids=lambda words: " ".join((words[0], words[-1])))
def test_every_option_with_a_time_takes_the_same_forms(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    *before, option = [word.replace("NODE", str(tmp_path)) for word in words]
    for text in ("-10m", "yesterday", "14:00", "2026-11-20", "12"):
        if option.endswith("="):
            continue
        done = run(capsys, *before, option, text)
        assert "neither an offset" not in done.err, (text, done.err)
        assert "no start" not in done.err, (text, done.err)
    typed = (option + "soon",) if option.endswith("=") else (option, "soon")
    done = run(capsys, *before, *typed)
    assert done.code == 2, done.err
    assert "'soon' is neither an offset nor a time, such as 12345" in done.err


# Each command takes the times that a record may have, which is each int64; a real log held some of them.


TIMES = (-(2**63), -62_135_596_800_001, -1, 0, 1_795_387_491_636, 253_402_300_799_999, 253_402_300_800_000, 2**63 - 1)
TOPIC = Uuid.parse("abcdefghijklmnopqrstug")


@pytest.fixture(params=TIMES)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A metadata log with a topic: its leader was lost at the time, and is back."""
    at: int = request.param
    values = (
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        TopicRecord(name="orders", topic_id=TOPIC),
        PartitionRecord(
            partition_id=0, topic_id=TOPIC, replicas=(1, 2), isr=(1, 2), leader=1, directories=(TOPIC, TOPIC)
        ),
    )
    lost = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=-1)
    back = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=2)
    batches = [
        build_batch(0, 1, 1_795_387_491_636, [encode_record(one, 2 if one is values[2] else 0) for one in values]),
        build_batch(3, 1, at, [encode_record(lost, 2)]),
        build_batch(4, 2, at, [encode_record(back, 2)]),
        build_batch(5, 2, at, [encode_record(values[0], 0)]),
    ]
    partition = tmp_path / "log" / "__cluster_metadata-0"
    partition.mkdir(parents=True)
    (partition / file_name(0)).write_bytes(b"".join(batches))
    (partition.parent / "meta.properties").write_text("version=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id=1\n")
    return partition.parent


def test_commands_take_the_times_of_a_log(capsys: pytest.CaptureFixture[str], directory: Path, tmp_path: Path) -> None:
    archive, page = str(tmp_path / "archive"), tmp_path / "page.html"
    assert sound(run(capsys, "dump", "--records", str(directory))).count("PartitionChangeRecord") == 2
    assert sound(run(capsys, "dump", "--records", "--json", str(directory)))
    assert sound(run(capsys, "dump", "--verify", str(directory / "__cluster_metadata-0" / file_name(0))))
    for words in ((), ("--json",), ("--elections",), ("--gaps",), ("--unavailable",), ("--topic", "orders")):
        sound(run(capsys, "history", str(directory), *words))
    sound(run(capsys, "history", "--html", str(page), str(directory)))
    assert "orders" in page.read_text()
    sound(run(capsys, "history", "--parquet", str(tmp_path / "rows"), str(directory)))
    assert "6 records" in sound(run(capsys, "archive", "--from", str(directory), "--to", archive, "--verify"))
    assert "orders" in sound(run(capsys, "replay", str(directory)))


def sound(done: Done) -> str:
    """The output of a command that took the files as they are."""
    assert "Error" not in done.err
    assert done.code == 0, done.err
    return done.out


@pytest.mark.parametrize("timestamp_ms", TIMES)
def test_a_copy_of_records_as_json_keeps_their_times(timestamp_ms: int) -> None:
    line = json_line("orders", ConsumedRecord(0, 0, timestamp_ms, False, b"k", b"v", (), 0))
    copied = record_of_json(line, key=None, headers=(), partition=None)
    assert copied.timestamp_ms == timestamp_ms
    assert formatter("{timestamp}")("orders", ConsumedRecord(0, 0, timestamp_ms, False, None, None, (), 0))
