"""quorum-state files: byte for byte as Kafka writes them, and refused where Kafka refuses."""

from __future__ import annotations

import pytest

from metadata_log.errors import DecodeError, UnsupportedVersion
from metadata_log.log.quorum_state_file import (
    StoredElection,
    format_quorum_state,
    parse_quorum_state,
    read_quorum_state,
    write_quorum_state,
)
from metadata_log.memory_disk import MemoryDisk
from metadata_log.types import Uuid
from support.real_data import archive, json_lines

LINES = json_lines("batches", "quorum_state.jsonl")


def test_texts_of_kafka() -> None:
    """Every election state that Kafka wrote gives the same text, and the text gives the state."""
    versions = set()
    for line in LINES:
        if "file_text" not in line:
            continue
        directory_id, version = line.get("voted_directory_id"), line["kraft_version"]
        state = StoredElection(
            leader_epoch=line["epoch"],
            leader_id=-1 if line["leader_id"] is None else line["leader_id"],
            voted_id=-1 if line["voted_id"] is None else line["voted_id"],
            voted_directory_id=Uuid.parse(directory_id) if directory_id and version else Uuid.ZERO,
            current_voters=() if version else tuple(line["voters"]),
            data_version=version,
        )
        assert format_quorum_state(state) == line["file_text"].encode()
        assert parse_quorum_state(line["file_text"].encode()) == state
        versions.add(version)
    assert versions == {0, 1}


def test_texts_that_kafka_reads_or_refuses() -> None:
    for line in LINES:
        if "input_text" not in line:
            continue
        if line["ok"]:
            parse_quorum_state(line["input_text"].encode())
        else:
            with pytest.raises(DecodeError) as caught:
                parse_quorum_state(line["input_text"].encode(), where="dir/quorum-state")
            assert "dir/quorum-state" in str(caught.value)
            assert caught.value.hint


STATE = b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1%b}'


@pytest.mark.parametrize("more", [',"x":"\u2028\x85\x7f"', ',\t"x":1e400', ',"leaderId":1'])
def test_characters_that_kafka_takes(more: str) -> None:
    """Line ends are those of Java: what else Python splits a text at may stand in a string."""
    assert parse_quorum_state(STATE % more.encode()).leader_epoch == 3
    assert parse_quorum_state(b" \t" + STATE % b"" + b"\r\nanother line").leader_epoch == 3


@pytest.mark.parametrize("blank", ["\x1f", "\x0b", "\xa0", "\u3000", "\ufeff", "\n"])
def test_non_json_white_space_is_refused(blank: str) -> None:
    with pytest.raises(DecodeError):
        parse_quorum_state(blank.encode() + STATE % b"")


@pytest.mark.parametrize("more", [b',"x":NaN', b',"x":-Infinity', b',"x":"\xff"', b',"x":"\x1f"', b',"x":"\r"'])
def test_values_that_kafka_refuses(more: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_quorum_state(STATE % more)


def test_unknown_version_is_named() -> None:
    with pytest.raises(UnsupportedVersion, match="data_version is 2"):
        parse_quorum_state(b'{"leaderId":1,"leaderEpoch":3,"data_version":2}')


@pytest.mark.parametrize("text", [b"\xff\xfe", b"[" * 100_000, b'{"data_version":true}', b'{"data_version":1e400}'])
def test_hostile_texts(text: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_quorum_state(text)


@pytest.mark.parametrize("node", ["c1", "c2", "c3"])
def test_real_nodes(node: str) -> None:
    """The file of a real node is read, and written again the same."""
    content = archive("static3")[f"nodes/{node}/__cluster_metadata-0/quorum-state"]
    disk = MemoryDisk()
    disk.mkdir("d")
    assert read_quorum_state(disk, "d") is None
    disk.open("d/quorum-state", create=True).append(content)
    state = read_quorum_state(disk, "d")
    assert state is not None
    assert state.current_voters == (1, 2, 3)
    write_quorum_state(disk, "d", state)
    disk.fsync_dir("")
    disk.crash()
    assert disk.read("d/quorum-state") == content
