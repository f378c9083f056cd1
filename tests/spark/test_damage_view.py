"""The view `damage`: what cannot be read, as rows in every mode; every other view raises it under FAILFAST."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from metadata_log.log.segment import file_name
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.releases import unknown_record_text
from metadata_log.spark.errors import SourceError
from support.spark.counted_store import PROTOCOL, CountedStore
from support.spark.fleets import log_bytes, write_log
from support.spark.in_process import read, reader, table

MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A sound log, one with a length that no batch has, and a directory that holds no log."""
    write_log(tmp_path / "a", [1, 1], cluster="sound")
    partition = write_log(tmp_path / "b", [1, 1], cluster="huge")
    content = bytearray(log_bytes([1, 1]) + log_bytes([2], base=4))
    last = len(log_bytes([1, 1]))
    content[last + 8 : last + 12] = (0x7FFFFFF0).to_bytes(4, "big")
    (partition / file_name(0)).write_bytes(content)
    (tmp_path / "c").mkdir()
    return tmp_path


@pytest.mark.parametrize("mode", MODES)
def test_damage_gives_rows_in_every_mode(fleet: Path, mode: str) -> None:
    found = read(f"{fleet}/*", view="damage", mode=mode)
    told = {(row["cluster"], row["offset"]): row["damage"] for row in found}
    assert set(told) == {("huge", 4), ("c", None)}
    assert "2147483644 bytes" in told["huge", 4]
    assert "is no metadata log" in told["c", None]
    assert table(reader(f"{fleet}/*", StructType([]), view="damage", mode=mode)).num_rows == 2


def test_the_same_damage_fails_other_views(fleet: Path) -> None:
    for view in ("records", "partition_history"):
        with pytest.raises(SourceError, match="is no metadata log"):
            read(f"{fleet}/*", view=view)
        with pytest.raises(Exception, match="2147483644 bytes"):
            read(f"{fleet}/b", view=view)
    (row,) = [row for row in read(f"{fleet}/b", view="retention", mode="PERMISSIVE") if not row["known"]]
    assert (row["kind"], row["from_offset"]) == ("damage", 4)


def test_records_of_a_later_release_are_rows_and_histories_say_which(tmp_path: Path) -> None:
    """In any mode the raw view has their bytes; a history goes on under PERMISSIVE, and `retention` names them."""
    partition = write_log(tmp_path, [1], cluster="future")
    level = encode_record(FeatureLevelRecord(name="metadata.version", feature_level=99), 0)
    batches = build_batch(0, 1, 0, [level]) + build_batch(1, 1, 0, [b"\x01\x63\x00what it says"])
    (partition / file_name(0)).write_bytes(batches)
    rows = read(tmp_path, view="records")
    assert [row["value"] for row in rows if row["type"] == "record type 99"] == [b"\x01\x63\x00what it says"]
    with pytest.raises(Exception, match=rf"{re.escape(unknown_record_text(99, 0, 99))} .*offset 1"):
        read(tmp_path, view="feature_history")
    assert [row["level"] for row in read(tmp_path, view="feature_history", mode="PERMISSIVE")] == [99]
    (row,) = [row for row in read(tmp_path, view="retention", mode="PERMISSIVE") if not row["known"]]
    assert (row["kind"], row["from_offset"], row["text"]) == ("unknown-record", 1, unknown_record_text(99, 0, 99))


@pytest.mark.parametrize("mode", MODES)
def test_a_missing_log_is_damage_beside_others_and_alone(fleet: Path, mode: str) -> None:
    paths = f'["{fleet}/a", "{fleet}/gone"]'
    for given in ({"paths": paths}, {"path": f"{fleet}/gone"}):
        rows = read_options(given, view="damage", mode=mode)
        assert [row["damage"] for row in rows if "nothing is found" in str(row["damage"])]
    if mode == "FAILFAST":
        with pytest.raises(SourceError, match="nothing is found"):
            read_options({"paths": paths}, view="records")
    else:
        assert len(read_options({"paths": paths}, view="records", mode=mode)) == (5 if mode == "PERMISSIVE" else 4)


def read_options(given: dict[str, str], **options: str) -> list[dict[str, object]]:
    from metadata_log.spark.options import parse_options
    from metadata_log.spark.rows import spark_schema
    from metadata_log.spark.scan import KraftReader

    parsed = parse_options({**given, **options})
    found: list[dict[str, object]] = table(KraftReader(parsed, spark_schema(parsed))).to_pylist()
    return found


def test_a_refused_directory_is_damage(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store refuses a prefix; root, which runs these tests, is refused by no disk."""
    listed = CountedStore.ls

    def refuse(store: CountedStore, path: str, detail: bool = True, **options: Any) -> Any:
        if "/b" in path:
            raise PermissionError(13, "Access Denied", path)
        return listed(store, path, detail=detail, **options)

    CountedStore.clear()
    CountedStore().put(str(fleet), "/fleet", recursive=True)
    monkeypatch.setattr(CountedStore, "ls", refuse)
    try:
        told = {row["cluster"]: row["damage"] for row in read(f"{PROTOCOL}://fleet/*", view="damage")}
        assert set(told) == {"b", "c"}
        assert "Access Denied" in told["b"]
        with pytest.raises(SourceError, match="Access Denied"):
            read(f"{PROTOCOL}://fleet/b")
    finally:
        CountedStore.clear()


def test_spark_shows_the_view(fleet: Path, spark: SparkSession) -> None:
    found = spark.read.format("kraft").option("view", "damage").load(f"{fleet}/*")
    assert found.count() == 2
    assert found.where("cluster = 'huge'").count() == 1


def test_damage_in_segments_in_front_of_the_first_offset_is_not_reported(tmp_path: Path) -> None:
    """The segments begin at 0, 4 and 8; each has a damaged second batch."""
    for base in (0, 4, 8):
        partition = write_log(tmp_path / "a", [1, 1], cluster="a", base=base)
        path = partition / file_name(base)
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)

    def found(view: str, **options: Any) -> list[int | None]:
        rows = read(f"{tmp_path}/a", view=view, mode="PERMISSIVE", **options)
        return [row["offset"] for row in rows if row["damage"] is not None]

    for view in ("records", "damage"):
        assert found(view) == [2, 6, 10]
        # The segment that holds the first offset is read as a whole.
        assert found(view, fromOffset="7") == [6, 10]
        assert found(view, fromOffset="8") == [10]
