"""Missing parts of logs, and queries for missing things: rows or errors, by `mode`, and never silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest

from metadata_log.errors import MetadataLogError
from metadata_log.spark.errors import OptionError, SourceError
from support.real_data import unpack
from support.spark.fleets import PARTITION, write_log
from support.spark.in_process import read, reader, table

MIDDLE = "00000000000000002908"
LAST = "00000000000000004847"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return unpack("static3", "nodes/c1", tmp_path / "c1")


def remove(node: Path, *patterns: str) -> None:
    for pattern in patterns:
        found = list((node / PARTITION).glob(pattern))
        assert found
        for file in found:
            file.unlink()


CASES = {
    "the middle": ((f"{MIDDLE}.*",), "begins at offset 4072 where 2908 comes next"),
    "the last": ((f"{LAST}.*",), "the log ends at offset 4847, and the snapshot"),
    "the beginning": (("00000000000000000000.*", "*.checkpoint"), "no snapshot holds what came before"),
    "all": (("*.log",), "there is no segment of the log"),
}


def damages(rows: list[dict[str, Any]]) -> list[str]:
    return [row["damage"] for row in rows if row["damage"] is not None]


@pytest.mark.parametrize(("patterns", "words"), CASES.values(), ids=list(CASES))
@pytest.mark.parametrize("where", ["here", "in a store"])
def test_missing_segments_fail_or_are_reported_by_mode(
    node: Path, where: str, patterns: tuple[str, ...], words: str
) -> None:
    """FAILFAST fails on missing segments, PERMISSIVE reports them in a row, DROPMALFORMED drops them silently."""
    remove(node, *patterns)
    path = str(node)
    if where == "in a store":
        path = f"memory://missing-{node.parent.name}"
        fsspec.filesystem("memory").put(str(node), path, recursive=True)
    with pytest.raises(MetadataLogError, match=words):
        read(path)
    told = damages(read(path, mode="PERMISSIVE"))
    assert len(told) == 1
    assert words in told[0]
    assert damages(read(path, mode="DROPMALFORMED")) == []


@pytest.mark.parametrize(("patterns", "words"), CASES.values(), ids=list(CASES))
def test_histories_report_missing_segments(node: Path, patterns: tuple[str, ...], words: str) -> None:
    remove(node, *patterns)
    with pytest.raises(MetadataLogError, match=r"2908|4847|offset 736|segment"):
        read(str(node), view="topic_history")
    told = [row["text"] for row in read(str(node), view="retention", mode="PERMISSIVE") if row["kind"] == "damage"]
    assert told


def test_unknown_clusters_types_and_points_are_errors(tmp_path: Path) -> None:
    write_log(tmp_path / "a", [1, 1, 2, 2], cluster="east")
    write_log(tmp_path / "b", [1], cluster="west")
    both = f"{tmp_path}/*"
    with pytest.raises(OptionError, match="there is no cluster 'eats' at these paths; did you mean east"):
        table(reader(both, cluster="eats"))
    with pytest.raises(OptionError, match="there is no record type 'TopicRecrd'; did you mean TopicRecord"):
        reader(both, type="TopicRecrd")
    beyond: tuple[dict[str, Any], ...] = (
        {"fromOffset": "8"},
        {"since": "2030-01-01T00:00:00Z"},
        {"asOfOffset": "5"},
        {"asOfTimestamp": "1970-01-01T00:00:05Z"},
        {"asOfOffset": "99", "view": "topics_state"},
    )
    for options in beyond:
        with pytest.raises(SourceError, match="is beyond its end"):
            table(reader(both, **options))
        if "view" not in options:
            assert any("is beyond its end" in text for text in damages(read(both, mode="PERMISSIVE", **options)))
    assert [row["offset"] for row in read(both, fromOffset="7")] == [7]
    assert [row["offset"] for row in read(both, asOfOffset="1", cluster="west")] == [0, 1]


def test_secrets_are_hidden_unless_asked_for(node: Path) -> None:
    """The raw view and the typed views, too."""
    for view, column in (("UserScramCredentialRecord", "salt"), ("records", "value")):
        hidden = [row for row in read(str(node), view=view) if row[column] == b"(redacted)"]
        shown = {row["offset"]: row[column] for row in read(str(node), view=view, showSecrets="true")}
        assert hidden
        assert all(shown[row["offset"]] != b"(redacted)" for row in hidden)
