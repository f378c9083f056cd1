"""`kraft dump` of the topics of coordinators prints what Kafka's own tool prints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraft.cli.files.coordinator_lines import decoder_of_directory, shown_pair
from kraft.cli.files.dump import dump_command
from metadata_log.records.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from metadata_log.records.coordinator import CONSUMER_OFFSETS, encode_key, encode_value
from metadata_log.records.record import Record
from support.real_data import archive, unpack

SEGMENT = "00000000000000000000.log"
PARTITIONS = sorted({path.split("/")[1] for path in archive("coordinators") if path.startswith("logs/__")})


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("coordinators", "logs", tmp_path_factory.mktemp("coordinators") / "logs")


def dumped(*arguments: str) -> str:
    result = CliRunner().invoke(dump_command, ["--records", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_lines_are_those_of_kafkas_tool(partition: str, logs: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(logs.parent)
    expected = archive("coordinators")[f"expected/{partition}.{SEGMENT}.dump.txt"].decode()
    assert dumped(f"logs/{partition}/{SEGMENT}") == expected


@pytest.mark.parametrize("partition", range(4))
@pytest.mark.parametrize("version", ["4.4.0", "4.3.1"])
def test_the_lines_of_share_partitions_are_those_of_kafkas_tool(
    version: str, partition: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, files = f"__share_group_state-{partition}", archive("share/state_logs")
    logs = unpack("share/state_logs", f"{version}/logs", tmp_path / "logs")
    monkeypatch.chdir(tmp_path)
    expected = files[f"{version}/expected/{name}.{SEGMENT}.dump.txt"].decode()
    assert dumped(f"logs/{name}/{SEGMENT}") == expected
    shutil.copy(logs / name / SEGMENT, tmp_path / SEGMENT)
    assert dumped("--share-group-state-decoder", SEGMENT).splitlines()[1:] == expected.splitlines()[1:]


def test_a_segment_elsewhere_is_decoded_on_request(logs: Path, tmp_path: Path):
    for partition, option in (
        ("__consumer_offsets-0", "--offsets-decoder"),
        ("__transaction_state-0", "--transaction-log-decoder"),
    ):
        copy = tmp_path / SEGMENT
        shutil.copy(logs / partition / SEGMENT, copy)
        there = dumped(str(logs / partition / SEGMENT)).splitlines()[1:]
        assert dumped(option, str(copy)).splitlines()[1:] == there


def test_json_has_the_name_and_the_value(logs: Path):
    lines = [json.loads(line) for line in dumped("--json", str(logs / "__consumer_offsets-0" / SEGMENT)).splitlines()]
    first = next(line for line in lines if line.get("name") == "OffsetCommit")
    assert first["key"] == {"group": "A-jcoop", "topic": "t1", "partition": 5}
    assert first["value"]["offset"] == 0
    assert first["value_version"] == 4
    tombstone = next(line for line in lines if line.get("name") and line["value_version"] is None)
    assert tombstone["value"] is None


def test_metadata_options_are_refused_beside_a_decoder(logs: Path):
    path = str(logs / "__consumer_offsets-0")
    result = CliRunner().invoke(dump_command, ["--offsets-decoder", "--type", "TopicRecord", path])
    assert result.exit_code != 0
    assert "an internal topic has no records of the metadata log" in str(result.exception or result.output)


def test_names_of_directories():
    assert decoder_of_directory("__consumer_offsets-12") is not None
    assert decoder_of_directory("__remote_log_metadata-0") is not None
    assert decoder_of_directory("__consumer_offsets") is None
    assert decoder_of_directory("__consumer_offsets-12.aa-delete") is None
    assert decoder_of_directory("orders-0") is None


def test_what_cannot_be_decoded_is_said_in_the_place_of_the_key():
    assert shown_pair(CONSUMER_OFFSETS, Record(7, 0, 0, b"\x00\x63", b"", ())) == (
        "Unknown record type 99 at offset 7, skipping.",
        None,
    )
    key, value = shown_pair(CONSUMER_OFFSETS, Record(7, 0, 0, b"\x00\x02\x00\x01g", b"\x00\x09", ()))
    assert key is not None
    assert key.startswith("Error at offset 7, skipping. GroupMetadataValue has no version 9")
    assert value is None
    assert shown_pair(CONSUMER_OFFSETS, Record(7, 0, 0, None, b"", ()))[1] is None


def test_bytes_of_members_that_are_no_consumer_protocol_stay_as_they_are():
    member = MemberMetadata(member_id="m\x1f", subscription=b"\xff\xff", assignment=b"\x00\x00\x00")
    value = GroupMetadataValue(protocol_type="consumer", members=(member,))
    key = encode_key(GroupMetadataKey(group="é\\u001f"))
    shown_key, shown = shown_pair(CONSUMER_OFFSETS, Record(0, 0, 0, key, encode_value(value), ()))
    assert shown_key == '{"type":"2","data":{"group":"é\\\\u001f"}}'
    assert shown is not None
    assert '"memberId":"m\\u001F"' in shown
    assert '"subscription":"//8=","assignment":"AAAA"' in shown
