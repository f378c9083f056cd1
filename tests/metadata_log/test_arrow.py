"""Arrow: the raw view and the typed ones say what the reader says, of every file that Kafka wrote and of damaged ones."""

from __future__ import annotations

from pathlib import Path

from real_data import unpack

from metadata_log.arrow import (
    read_records,
    read_typed,
    schema_of,
)


def test_a_real_directory(tmp_path: Path) -> None:
    """The first thing a user does."""
    node = unpack("static3", "nodes/c1", tmp_path / "c1")
    reader = read_records(str(node))
    assert reader.schema == schema_of("records")
    table = reader.read_all()
    assert table["offset"].to_pylist() == list(range(table.num_rows))
    assert set(table["cluster"].to_pylist()) == {"c92P2-zHd3OC2pYwL82DeQ"}
    assert table["damage"].null_count == table.num_rows
    topics = read_typed(str(node), "TopicRecord").read_all()
    assert topics.schema == schema_of("TopicRecord")
    assert topics["offset"].to_pylist() == [
        row["offset"] for row in table.select(["offset", "type"]).to_pylist() if row["type"] == "TopicRecord"
    ]
