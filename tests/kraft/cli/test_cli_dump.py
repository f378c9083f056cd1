"""`kraft dump` on the directories of real nodes: what it prints, what it hides, and how it reports damage."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kraft.cli.files.dump import dump_command
from metadata_log.disk import OsDisk
from metadata_log.reading.file_kinds import files_in
from support.real_data import unpack

SEGMENT = "__cluster_metadata-0/00000000000000004847.log"


def dump(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(dump_command, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def dump_json(*arguments: str | Path) -> list[dict[str, Any]]:
    result = dump("--json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return unpack("static3", "nodes/c1", tmp_path)


def test_noops_are_left_out(node: Path) -> None:
    found = dump_json("--records", node / SEGMENT)
    names = {record["name"] for record in found}
    assert "NoOpRecord" not in names
    assert "ConfigRecord" in names
    assert {record["name"] for record in dump_json("--type", "NoOpRecord", node / SEGMENT)} == {"NoOpRecord"}


def test_filters(node: Path) -> None:
    found = dump_json("--type", "partitionrecord", "--type", "TopicRecord", "--since", "300", "--until", "699", node)
    logged = [record for record in found if record["file"].endswith(".log")]
    assert {record["name"] for record in logged} == {"PartitionRecord", "TopicRecord"}
    assert all(300 <= record["offset"] < 700 for record in logged)
    text = dump("--records", "--since", "5307", "--until", "5307", node / SEGMENT).stdout.splitlines()
    assert text[2:] == ['  5307 ProducerIdsRecord v0 {"brokerId": 103, "brokerEpoch": 3731, "nextProducerId": 5000}']


def test_a_time_range_includes_both_ends(node: Path) -> None:
    every = dump_json("--records", "--noop", node / SEGMENT)
    times = sorted({record["timestamp"] for record in every if record["timestamp"] > 0})
    first, last = times[len(times) // 3], times[len(times) // 2]
    since, until = (datetime.fromtimestamp(ms / 1000, UTC).isoformat() for ms in (first, last))
    found = dump_json("--records", "--noop", "--since", since, "--until", until, node / SEGMENT)
    assert found == [record for record in every if first <= record["timestamp"] <= last]
    assert 0 < len(found) < len(every)
    assert dump_json("--records", "--noop", "--until", since, node / SEGMENT)[-1]["timestamp"] == first


def test_the_whole_directory(node: Path) -> None:
    """Every kind of file has its say, and a real node's directory gives no complaint."""
    result = dump(node)
    assert (result.exit_code, result.stderr) == (0, "")
    for line in (
        'cluster_id: "c92P2-zHd3OC2pYwL82DeQ"',
        "leader_epoch: 14",
        "current_voters: [1, 2, 3]",
        'topic_id: "AAAAAAAAAAAAAAAAAAAAAQ"',
        "offset 873 at byte 8650",
    ):
        assert line in result.stdout.splitlines()
    kinds = {line["kind"] for line in dump_json(node) if "kind" in line}
    assert {"offset index", "time index", "quorum-state", "meta.properties", "leader-epoch-checkpoint"} <= kinds


@pytest.mark.parametrize("options", [(), ("--records",), ("--verify",), ("--hex",)])
def test_damage(node: Path, options: tuple[str, ...]) -> None:
    """Damage is an error with file and byte, exit code 1, and the rest of the file is still shown."""
    unpack("damaged", "cases/bitflip-middle-batch", node)
    result = dump(*options, node / SEGMENT)
    assert result.exit_code == 1
    [error] = result.stderr.splitlines()
    assert error.startswith("kraft: error: the batch's bytes give CRC 0xc2051cd5 where 0xd1a784a2 is stored")
    assert error.endswith(f"({node / SEGMENT}, byte 32167, offset 5271)")
    assert "5308" in result.stdout or "offsets 4847..5316" in result.stdout
    if options == ("--hex",):
        return
    lines = [json.loads(line) for line in dump("--json", *options, node / SEGMENT).stdout.splitlines()]
    assert [line["position"] for line in lines if "damage" in line] == [32167]


def test_unfinished_batch(node: Path) -> None:
    """The end of a running node's log is a warning; only `--verify` counts it as damage."""
    unpack("damaged", "cases/truncated-last-batch", node)
    result = dump(node / SEGMENT)
    assert result.exit_code == 0
    assert result.stderr.startswith("kraft: warning: a batch of 72 bytes ends after 52")
    assert "hint: A running node may be writing this batch" in result.stderr
    assert dump("--verify", node / SEGMENT).exit_code == 1


def test_damaged_small_file(node: Path) -> None:
    unpack("damaged", "cases/quorum-state-unknown-version", node)
    path = node / "__cluster_metadata-0/quorum-state"
    result = dump(path)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"kraft: error: data_version is 2, and only 0 and 1 are known ({path})")
    assert "hint: " in result.stderr


def test_unknown_records_are_shown(node: Path) -> None:
    """A type from the future is shown by its number and bytes, and is no damage."""
    unpack("damaged", "cases/unknown-record-type", node)
    last = dump_json("--records", node / SEGMENT)[-1]
    assert last["name"] == f"record type {last['type']}"
    assert set(last["json"]) == {"hex"}


def test_a_file_removed_during_the_dump_is_skipped(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running node removes files between our listing and our reading: no error, and the others are shown."""
    gone = node / "__cluster_metadata-0" / "00000000000000000001-0000000001.checkpoint"
    gone.touch()

    def listed(disk: OsDisk, named: str) -> list[str]:
        paths = files_in(disk, named)
        gone.unlink()
        return paths

    monkeypatch.setattr("kraft.cli.files.dump.files_in", listed)
    result = dump(node)
    assert (result.exit_code, result.stderr) == (
        0,
        f"kraft: warning: the file was removed while the directory was read ({gone})\n",
    )
    assert f"# {node / SEGMENT}: segment" in result.stdout.splitlines()


def test_hex_of_every_kind(node: Path) -> None:
    """Also of small files, indexes and damaged batches: the bytes of all files of a directory, each once."""
    unpack("damaged", "cases/bitflip-middle-batch", node)
    files: dict[str, str] = {}
    for line in dump("--hex", "--show-secrets", node).stdout.splitlines():
        if line.startswith("# "):
            name = line.removeprefix("# ").rpartition(": ")[0]
            files[name] = ""
        elif line.startswith("  "):
            files[name] += line.split(maxsplit=2)[1]
    assert files
    assert files == {name: Path(name).read_bytes().hex() for name in files}
    assert len(files) == sum(path.is_file() and path.name != "node.properties" for path in node.rglob("*"))


def test_a_packed_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    packed = tmp_path / "00000000000000000000.log.gz"
    packed.write_bytes(gzip.compress(b"anything"))
    result = dump(packed)
    assert result.exit_code == 1
    assert "this is not a file of a metadata log" in result.stderr
    assert "hint: " in result.stderr
    assert "Only `kraft fleet` reads packed files: unpack them (gunzip, unzip)." in result.stderr


@pytest.mark.parametrize("name", ["TopicRecord", "topicrecord", "2"])
def test_a_type_by_name_or_number(node: Path, name: str) -> None:
    found = dump_json("--type", name, node)
    assert {line["name"] for line in found} == {"TopicRecord"}
    shown = dump("--type", name, node).stdout
    assert shown.count("# ") == len({line["file"] for line in found})
