"""`kraft format`: what it writes is what Kafka's storage tool writes; what it refuses, it refuses in time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import parse_meta_properties, read_bootstrap, read_meta_properties
from metadata_log.records.batch import scan
from metadata_log.records.frame import decode_record
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.records.record import records
from metadata_log.types import Uuid
from support.kraft.command_line import CLUSTER_ID, run, write_config
from support.real_data import archive

ID = "pg3mKBxfeN4_YYsakj8Duw"
RESERVED = "AAAAAAAAAAAAAAAAAAAABA"
CLUSTERS = archive("clusters")
CASES: list[dict[str, Any]] = json.loads(CLUSTERS["format/cases.json"])
REFUSALS = {
    "error-standalone-with-voters": "the configuration has static voters",
    "error-no-quorum-option": "controller.quorum.voters is not set on this controller",
    "error-feature-unknown": "unsupported feature: nope",
    "error-release-unknown": "unknown metadata.version '9.9'",
    "error-static-kraft-1": "kraft.version cannot be 1 with static voters",
    "error-standalone-kraft-0": "kraft.version cannot be 0 in a dynamic quorum",
    "error-scram-bad": "either password or saltedpassword",
}


def levels(directory: Path) -> dict[str, int]:
    found = [decode_record(value).record for _, value in read_bootstrap(OsDisk(), str(directory))]
    return {record.name: record.feature_level for record in found if isinstance(record, FeatureLevelRecord)}


def test_a_directory_is_formatted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = write_config(tmp_path, port=1)
    done = run(capsys, "format", "-c", str(config), "--cluster-id", CLUSTER_ID)
    directory = tmp_path / "log"
    assert done.code == 0
    assert done.out == f"Formatting metadata directory {directory} with metadata.version 4.4-IV2.\n"
    assert done.err == ""
    meta = read_meta_properties(OsDisk(), str(directory))
    assert meta is not None
    assert (meta.cluster_id, meta.node_id) == (CLUSTER_ID, 1)
    assert levels(directory) == {
        "metadata.version": 33,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 2,
        "streams.version": 1,
        "transaction.version": 2,
    }


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


def test_a_formatted_directory_is_not_formatted_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = write_config(tmp_path, port=1)
    run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID)
    before = (tmp_path / "log/meta.properties").read_bytes()
    again = run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID)
    assert (again.code, "already formatted" in again.err) == (1, True)
    assert "--ignore-formatted" in again.err
    ignored = run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID, "--ignore-formatted")
    assert (ignored.code, "stays as it is" in ignored.out) == (0, True)
    assert (tmp_path / "log/meta.properties").read_bytes() == before


@pytest.mark.parametrize("words", [[], ["--ignore-formatted"]])
def test_a_directory_of_another_node_or_cluster_is_refused_and_nothing_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    """As kafka-storage does; the new directory beside it is not formatted either."""
    config = write_config(tmp_path, port=1)
    run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID)
    both = write_config(tmp_path, port=1, log_dirs=f"{tmp_path}/new,{tmp_path}/log")
    done = run(capsys, "format", "-c", str(both), "-t", "other", *words)
    assert (done.code, done.out) == (1, "")
    assert f"the directory belongs to cluster {CLUSTER_ID}, not to other ({tmp_path}/log/meta.properties" in done.err
    two = write_config(
        tmp_path,
        port=1,
        log_dirs=f"{tmp_path}/new,{tmp_path}/log",
        node_id="2",
        controller_quorum_voters="2@127.0.0.1:1",
    )
    done = run(capsys, "format", "-c", str(two), "-t", CLUSTER_ID, *words)
    assert (done.code, done.out) == (1, "")
    assert "the directory belongs to node 1, not to node 2" in done.err
    assert not (tmp_path / "new").exists()


def test_without_the_option_nothing_is_written_beside_a_formatted_directory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run(capsys, "format", "-c", str(write_config(tmp_path, port=1)), "-t", CLUSTER_ID)
    both = write_config(tmp_path, port=1, log_dirs=f"{tmp_path}/new,{tmp_path}/log")
    done = run(capsys, "format", "-c", str(both), "-t", CLUSTER_ID)
    assert (done.code, "already formatted" in done.err) == (1, True)
    assert not (tmp_path / "new").exists()
    done = run(capsys, "format", "-c", str(both), "-t", CLUSTER_ID, "-g")
    assert (done.code, (tmp_path / "new" / "meta.properties").exists()) == (0, True)


def test_two_directories_with_one_id_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run(capsys, "format", "-c", str(write_config(tmp_path, port=1)), "-t", CLUSTER_ID)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    both = write_config(tmp_path, port=1, log_dirs=f"{tmp_path}/copy,{tmp_path}/log")
    done = run(capsys, "format", "-c", str(both), "-t", CLUSTER_ID, "-g")
    assert (done.code, f"which {tmp_path}/copy has, too" in done.err) == (1, True)


def test_a_directory_that_cannot_be_read_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Kafka's tool formats the others, and the node starts without this one."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "meta.properties").write_text("version=1\nnode.id=1\n")
    config = write_config(tmp_path, port=1, log_dirs=f"{tmp_path}/new,{tmp_path}/bad")
    done = run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID, "-g")
    assert (done.code, "cluster.id is missing" in done.err) == (1, True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"listeners": "SSL://127.0.0.1:1", "controller_listener_names": "SSL"},
            "listener SSL has the protocol SSL, and no certificate",
        ),
        ({"process_roles": "controller,broker", "controller_listener_names": "OTHER"}, "OTHER is not among the listen"),
    ],
)
def test_format_refuses_each_configuration_that_serve_refuses(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    config = write_config(tmp_path, port=1, **settings)
    done = run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID)
    assert (done.code, said in done.err) == (1, True), done.err
    assert not (tmp_path / "log").exists()
    if "process_roles" not in settings:
        assert run(capsys, "serve", "-c", str(config)).err == done.err


@pytest.mark.parametrize("command", [["format", "-t", CLUSTER_ID], ["serve"]])
def test_the_configuration_file_is_an_argument_or_an_option(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str]
) -> None:
    path = tmp_path / "node.properties"
    path.write_text("process.roles=nothing\n")
    for words in ([str(path)], ["-c", str(path)], ["--config", str(path)]):
        done = run(capsys, *command, *words)
        assert (done.code, "there is no role 'nothing'" in done.err) == (1, True)
    assert run(capsys, *command, str(path), "-c", str(path)).code == 2
    assert run(capsys, *command).code == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--standalone"], 2, "has static voters"),
        (["--initial-controllers", f"1@h:1:{ID}"], 2, "has static voters"),
        (["--initial-controllers", ""], 2, "no voter is named"),
        (["--initial-controllers", "1@h:1:x"], 2, "is not id@host:port:directory-id"),
        (["--initial-controllers", f"1@h:99999:{ID}"], 2, "is not host:port"),
        (["--initial-controllers", f"1@h:1:{RESERVED}"], 2, "is reserved"),
        (["--initial-controllers", f"1@h:1:{ID},1@h:2:{CLUSTER_ID}"], 2, "voter id appears twice"),
        (["--initial-controllers", f"1@h:1:{ID},2@h:2:{ID}"], 2, "voter directory id appears twice"),
        (["--standalone", "--no-initial-controllers"], 2, "only one of --standalone"),
        (["--add-scram", "SCRAM-SHA-256=[name=x]"], 1, "either password or saltedpassword"),
        (["--add-scram", "SCRAM-SHA-256=[name=x,password=secret]", "-r", "3.4"], 1, "need metadata.version 3.5-IV2"),
        (["--no-initial-controllers"], 2, "has static voters"),
        (["--release-version", "9.9"], 1, "unknown metadata.version '9.9'"),
        (["--feature", "nope=1"], 1, "unsupported feature: nope"),
        (["--feature", "nope"], 2, "'nope' is not FEATURE=LEVEL"),
        (["--feature", "kraft.version=1"], 1, "kraft.version cannot be 1 with static voters"),
        (["--cluster-id", " "], 2, "the cluster id is empty"),
    ],
)
def test_invalid_options_are_refused_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    config = write_config(tmp_path, port=1)
    done = run(capsys, "format", "-c", str(config), "--cluster-id", CLUSTER_ID, *words)
    assert done.code == code
    assert said in done.err
    assert "hint: " in done.err
    assert not (tmp_path / "log").exists()


def canonical(content: bytes, directory_id: Uuid) -> list[object]:
    """All of a checkpoint but for times and the node's own directory id."""
    found: list[object] = []
    for batch in scan(content):
        facts = (batch.base_offset, batch.size_bytes, batch.epoch, batch.attributes, batch.last_offset_delta)
        producer = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        contents = []
        for record in records(batch):
            value = (record.value or b"").replace(directory_id, bytes(16))
            is_header = batch.is_control and record.key == b"\x00\x00\x00\x03"
            contents.append((record.key, value[:2] + value[10:] if is_header else value))
        found.append((facts, producer, contents))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_every_case_of_kafkas_storage_tool(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, case: dict[str, Any]
) -> None:
    """The same options give the same files and the same words; what kafka-storage refuses, we do."""
    directory = tmp_path / "log"
    path = tmp_path / "node.properties"
    settings = case["config"] | {"log.dirs": str(directory)}
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    release = "3.9-IV0" if case["kafka_version"].startswith("3.9") else "4.3"
    words = ["-r", release, "-c", str(path), "-t", case["cluster_id"], *(case["options"] or [])]
    done = run(capsys, "format", *words)
    if case["exit_code"]:
        assert done.code in {1, 2}
        assert REFUSALS[case["case"]] in done.err
        assert "hint: " in done.err
        assert not directory.exists()
        return
    told = "kraft: warning: cluster id " if case["case"].endswith("cluster-id-not-a-uuid") else ""
    assert (done.code, done.err[: len(told)], done.err.count("\n")) == (0, told, bool(told))
    assert done.out.splitlines() == [line.replace("DIR", str(directory)) for line in case["messages"]]
    prefix = f"format/nodes/{case['case']}/"
    theirs = {name.removeprefix(prefix): content for name, content in CLUSTERS.items() if name.startswith(prefix)}
    ours = {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}
    assert sorted(ours) == sorted(theirs)
    real = parse_meta_properties(theirs["meta.properties"])
    meta = parse_meta_properties(ours["meta.properties"])
    assert (meta.cluster_id, meta.node_id) == (real.cluster_id, real.node_id)
    assert meta.directory_id is not None
    assert real.directory_id is not None
    for name, content in theirs.items():
        if name.endswith(".checkpoint"):
            assert canonical(ours[name], meta.directory_id) == canonical(content, real.directory_id), name
            assert ours[name] != content, "times differ"


def test_initial_voters_are_written_only_to_the_metadata_directory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = write_config(
        tmp_path, port=1, log_dirs=f"{tmp_path}/a,{tmp_path}/b", metadata_log_dir=f"{tmp_path}/m", **dynamic()
    )
    done = run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID, "-I", f"1@h:1:{ID}")
    version = "with metadata.version 4.4-IV2."
    assert done.out.splitlines() == [
        f"Formatting dynamic metadata voter directory {tmp_path}/m {version}",
        f"Formatting data directory {tmp_path}/a {version}",
        f"Formatting data directory {tmp_path}/b {version}",
    ]
    found = {name: read_meta_properties(OsDisk(), str(tmp_path / name)) for name in "mab"}
    assert [str(meta.directory_id) == ID for meta in found.values() if meta] == [True, False, False]
    assert [(tmp_path / name / "__cluster_metadata-0").exists() for name in "mab"] == [True, False, False]


def test_a_voter_needs_an_address(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = write_config(tmp_path, port=1, listeners="CONTROLLER://:9093", **dynamic())
    done = run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID, "--standalone")
    assert (done.code, "could not reach the voter" in done.err) == (2, True)
    assert "advertised.listeners" in done.err


def test_a_broker_cannot_be_an_initial_voter(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = write_config(tmp_path, port=1, process_roles="broker", listeners="PLAINTEXT://h:9092", **dynamic())
    done = run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID, "--standalone")
    assert (done.code, "only a controller can be the first voter" in done.err) == (2, True)
    assert run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID).code == 0
    among = write_config(tmp_path, port=1, process_roles="broker", log_dirs=f"{tmp_path}/other")
    done = run(capsys, "format", "-c", str(among), "-t", CLUSTER_ID)
    assert (done.code, "node.id 1 is among the voters" in done.err) == (1, True)


def dynamic() -> dict[str, str]:
    """Settings of a dynamic quorum, for `write_config`."""
    return {"controller_quorum_voters": "", "controller_quorum_bootstrap_servers": "h:9093"}


@pytest.mark.parametrize("level", ["9" * 5000, "32768", "\N{FULLWIDTH DIGIT ONE}", "-1", ""])
def test_a_level_that_is_no_number_of_16_bits_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, level: str
) -> None:
    config = write_config(tmp_path, port=1)
    done = run(capsys, "format", str(config), "--cluster-id", CLUSTER_ID, "--feature", f"share.version={level}")
    assert (done.code, done.err.partition(" (")[2].splitlines()[0]) == (2, "--feature)")
    assert f"'share.version={level}' is not FEATURE=LEVEL" in done.err
    assert not (tmp_path / "log").exists()
    live = ("features", "upgrade", "--feature", f"share.version={level}", "--bootstrap-controller", "127.0.0.1:1")
    refused = run(capsys, *live)
    assert refused.code == 2
    assert "--feature" in refused.err


def test_a_voter_id_that_no_node_can_have_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = write_config(
        tmp_path, port=1, controller_quorum_voters="", controller_quorum_bootstrap_servers="127.0.0.1:1"
    )
    done = run(capsys, "format", str(config), "-t", CLUSTER_ID, "-I", f"2147483648@h:1:{ID}")
    assert done.code == 2
    assert "2147483648 is no node id: those end at 2147483647 (--initial-controllers)" in done.err
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("second", ["file", "file/below", "link"])
def test_nothing_is_formatted_if_one_path_is_no_directory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, second: str
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    config = write_config(tmp_path, port=1, log_dirs=f"{tmp_path}/log,{tmp_path}/{second}")
    done = run(capsys, "format", str(config), "--cluster-id", CLUSTER_ID)
    assert done.code == 1
    assert f"this is no directory ({tmp_path}/{second.partition('/')[0]})" in done.err
    assert "log.dirs" in done.err
    assert not (tmp_path / "log").exists()


def test_a_path_with_a_zero_byte_is_refused_with_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = write_config(tmp_path, port=1, log_dirs=f"{tmp_path}/a\\u0000b")
    done = run(capsys, "format", str(config), "--cluster-id", CLUSTER_ID)
    assert done.code == 1
    assert f"a path holds a zero byte ({config}:6)" in done.err


def test_a_cluster_id_that_no_tool_made_is_taken_with_a_warning(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As `kafka-storage` takes it; a node with another id is refused later, and the words say where ids come from."""
    config = str(write_config(tmp_path, port=1))
    assert "hint: Make one with `kraft random-uuid`" in run(capsys, "format", config).err
    done = run(capsys, "format", config, "--cluster-id", "abc")
    assert (done.code, done.err.count("warning")) == (0, 1)
    assert "cluster id abc is not 16 bytes in URL-safe base64, as the ids of `kraft random-uuid` are" in done.err
    refused = run(capsys, "format", config, "--cluster-id", ID)
    assert f"the directory belongs to cluster abc, not to {ID}" in refused.err
    assert "`kraft random-uuid`" in refused.err
