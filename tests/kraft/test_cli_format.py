"""`kraft format`: what it writes is what Kafka's storage tool writes; what it refuses, it refuses in time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import CLUSTER_ID, run, write_config

from metadata_log.disk import OsDisk
from metadata_log.log_dir import read_bootstrap, read_meta_properties
from metadata_log.records.frame import decode_record
from metadata_log.records.metadata import FeatureLevelRecord


def levels(directory: Path) -> dict[str, int]:
    values = read_bootstrap(OsDisk(), str(directory)) or ()
    found = [decode_record(value).record for value in values]
    return {record.name: record.feature_level for record in found if isinstance(record, FeatureLevelRecord)}


def test_a_directory_is_formatted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = write_config(tmp_path, port=1)
    done = run(capsys, "format", "-c", str(config), "--cluster-id", CLUSTER_ID)
    directory = tmp_path / "log"
    assert done.code == 0
    assert done.out == f"Formatting metadata directory {directory} with metadata.version 4.3-IV0.\n"
    assert done.err == ""
    meta = read_meta_properties(OsDisk(), str(directory))
    assert meta is not None
    assert (meta.cluster_id, meta.node_id) == (CLUSTER_ID, 1)
    assert levels(directory)["metadata.version"] == 30


def test_release_and_features_are_chosen(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = write_config(tmp_path, port=1)
    words = [
        "-c",
        str(config),
        "-t",
        "x",
        "-r",
        "4.0",
        "-f",
        "transaction.version=1",
        "-f",
        "group.version=0",
        "--json",
    ]
    done = run(capsys, "format", *words)
    assert json.loads(done.out) == {
        "clusterId": "x",
        "metadataVersion": "4.0-IV3",
        "directories": [{"path": str(tmp_path / "log"), "formatted": True}],
    }
    assert levels(tmp_path / "log") == {"metadata.version": 25, "transaction.version": 1}


def test_a_formatted_directory_is_left_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = write_config(tmp_path, port=1)
    run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID)
    before = (tmp_path / "log/meta.properties").read_bytes()
    again = run(capsys, "format", "-c", str(config), "-t", "other")
    assert (again.code, "already formatted" in again.err) == (1, True)
    assert "--ignore-formatted" in again.err
    ignored = run(capsys, "format", "-c", str(config), "-t", "other", "--ignore-formatted")
    assert (ignored.code, "stays as it is" in ignored.out) == (0, True)
    assert (tmp_path / "log/meta.properties").read_bytes() == before


def test_every_log_directory_is_formatted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = write_config(tmp_path, port=1, log_dirs=f"{tmp_path}/a,{tmp_path}/b", metadata_log_dir=f"{tmp_path}/m")
    assert run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID).code == 0
    assert all((tmp_path / name / "meta.properties").exists() for name in "abm")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--standalone"], 2, "dynamic quorums"),
        (["--initial-controllers", "1@h:1:x"], 2, "dynamic quorums"),
        (["--no-initial-controllers"], 2, "dynamic quorums"),
        (["--release-version", "9.9"], 1, "unknown metadata.version '9.9'"),
        (["--feature", "nope=1"], 1, "unsupported feature: nope"),
        (["--feature", "nope"], 2, "'nope' is not FEATURE=LEVEL"),
        (["--feature", "kraft.version=1"], 1, "kraft.version cannot be 1 with static voters"),
        (["--cluster-id", " "], 2, "the cluster id is empty"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    config = write_config(tmp_path, port=1)
    done = run(capsys, "format", "-c", str(config), "--cluster-id", CLUSTER_ID, *words)
    assert done.code == code
    assert said in done.err
    assert "hint: " in done.err
    assert not (tmp_path / "log").exists()
