"""Checks of files and configurations beyond the cases of the corpus: damage by Kafka's own words, settings, hosts."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from doctor_cases import configs_of
from kraft.cli.doctor.command import doctor_command
from kraft.config.errors import CommandFailed
from kraft.operate.doctor.diagnose import diagnose
from kraft.operate.doctor.facts.finding import Finding
from kraft.operate.doctor.facts.node import Facts, HostFacts
from kraft.operate.doctor.gather import gather
from kraft.operate.doctor.read_log import read_log
from metadata_log.disk import OsDisk, OsFile
from metadata_log.records import remote_log_metadata as remote
from metadata_log.records.metadata import ConfigRecord
from metadata_log.records.remote_storage import SegmentState, encode_remote
from metadata_log.types import Uuid
from support.broker.request_brokers import batch, replayed
from support.kraft.damaged import CASES as DAMAGED
from support.kraft.damaged import damaged
from support.real_data import unpack


def examine(*words: str) -> dict[str, dict[str, Any]]:
    """The findings of `kraft doctor --offline` by their ids; of several with one id, the first."""
    done = CliRunner().invoke(doctor_command, ["--offline", "--json", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    found: dict[str, dict[str, Any]] = {}
    for one in json.loads(done.stdout)["findings"]:
        found.setdefault(one["id"], one)
    return found


def with_settings(name: str, target: Path, **settings: str) -> str:
    """The first properties file of a case with more settings; underscores stand for dots."""
    config = Path(configs_of(name, target)[0])
    lines = [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]
    config.write_text("\n".join([config.read_text(), *lines]) + "\n")
    return str(config)


@pytest.mark.parametrize(
    ("case", "check", "severity"),
    [
        ("offset-gap", "log-gap", "fatal"),
        ("offset-overlap", "log-gap", "fatal"),
        ("segment-missing", "log-gap", "fatal"),
        ("bitflip-middle-batch", "log-gap", "fatal"),
        ("bitflip-last-batch", "log-torn-tail", "warn"),
        ("torn-write", "log-torn-tail", "warn"),
        ("truncated-last-batch", "log-torn-tail", "warn"),
        ("snapshot-bitflip", "snapshot-damaged", "fatal"),
        ("snapshot-empty", "snapshot-damaged", "fatal"),
        ("snapshot-footer-missing", "snapshot-damaged", "fatal"),
        ("snapshot-header-missing", "snapshot-damaged", "fatal"),
        ("snapshot-truncated", "snapshot-damaged", "fatal"),
        ("unknown-record-type", "unknown-record", "fatal"),
        ("unknown-record-version", "unknown-record", "warn"),
        ("quorum-state-empty", "quorum-state-unreadable", "fatal"),
        ("quorum-state-garbage", "quorum-state-unreadable", "fatal"),
        ("quorum-state-unknown-version", "quorum-state-unreadable", "fatal"),
        ("quorum-state-epoch-behind-log", "quorum-state-behind-log", "warn"),
        ("meta-properties-version-2", "meta-version", "fatal"),
        ("meta-properties-no-directory-id", "directory-id-missing", "warn"),
    ],
)
def test_damage_that_kafka_was_started_on_is_found(case: str, check: str, severity: str, tmp_path: Path) -> None:
    found = examine(str(damaged(case, tmp_path)))
    assert found[check]["severity"] == severity
    assert str(tmp_path) in found[check]["read"][0]


@pytest.mark.parametrize(("role", "severity"), [("controller", "fatal"), ("broker", "warn")])
def test_a_lost_directory_id_is_fatal_for_a_voter_alone(role: str, severity: str, tmp_path: Path) -> None:
    config = with_settings("directory-id-missing-dynamic", tmp_path, process_roles=role)
    assert examine("-c", config)["directory-id-missing"]["severity"] == severity


@pytest.mark.parametrize("case", ["control", "index-missing", "index-garbage", "leader-epoch-checkpoint-garbage"])
def test_files_that_a_node_builds_again_are_no_finding(case: str, tmp_path: Path) -> None:
    found = examine(str(damaged(case, tmp_path)))
    assert "fatal" not in {one["severity"] for one in found.values()}
    assert not {"log-gap", "log-torn-tail", "snapshot-damaged", "unknown-record"} & found.keys()


@pytest.mark.parametrize("case", sorted(DAMAGED))
def test_every_damaged_directory_can_be_examined(case: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(doctor_command, ["--offline", "--json", str(damaged(case, tmp_path))])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in {0, 1, 2}
    assert len(json.loads(done.stdout)["nodes"]) == 1


@pytest.mark.parametrize("seed", range(40))
def test_random_bytes_in_any_file_end_in_findings_and_not_in_an_error(seed: int, tmp_path: Path) -> None:
    """The seed is the parameter of the test."""
    rng = Random(seed)
    configs = configs_of(rng.choice(["healthy-static", "two-quorums", "stray-dirs"]), tmp_path)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size)
    for path in rng.sample(files, min(12, len(files))):
        content = bytearray(path.read_bytes())
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content[: rng.randint(1, len(content))] if rng.random() < 0.2 else content)
    words = [word for config in configs for word in ("-c", config)]
    done = CliRunner().invoke(doctor_command, ["--offline", "--json", "--before", "start", *words])
    assert done.exception is None or isinstance(done.exception, (SystemExit, CommandFailed)), done.exception


def test_a_batch_that_a_running_node_is_writing_is_no_torn_tail(tmp_path: Path) -> None:
    """The file grows while the doctor reads: the reader looks at the size before and after."""
    data = Path(configs_of("log-torn-tail", tmp_path)[1]).parent / "data" / "__cluster_metadata-0"

    class Growing(OsDisk):
        """A disk on which the segment grows after each read of the end."""

        def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
            found = super().open(path, create=create, writable=writable)
            if path.endswith(".log"):
                with Path(path).open("ab") as file:
                    file.write(b"\0")
            return found

    assert read_log(OsDisk(), str(data)).torn is not None
    assert read_log(Growing(), str(data)).torn is None


def test_snapshots_without_segments_are_named(tmp_path: Path) -> None:
    node = unpack("static3", "nodes/c1", tmp_path)
    for path in (node / "__cluster_metadata-0").glob("*.log"):
        path.unlink()
    for path in (node / "__cluster_metadata-0").glob("*.*index"):
        path.unlink()
    found = examine(str(node))
    assert found["log-missing"]["evidence"] == "the newest snapshot ends at offset 5210, and there is no segment"


def test_a_cluster_id_that_is_no_uuid_is_named(tmp_path: Path) -> None:
    config = Path(configs_of("healthy-dynamic-one", tmp_path)[0])
    meta = config.parent / "data" / "meta.properties"
    lines = [line for line in meta.read_text().splitlines() if not line.startswith("cluster.id")]
    meta.write_text("\n".join([*lines, "cluster.id=my-cluster"]))
    assert examine("-c", str(config))["cluster-id-garbage"]["evidence"] == "cluster.id is 'my-cluster'"


def test_another_order_of_log_dirs_is_named(tmp_path: Path) -> None:
    config = Path(configs_of("healthy-dynamic-one", tmp_path)[0])
    other = config.parent / "other"
    other.mkdir()
    meta = (config.parent / "data" / "meta.properties").read_text()
    (other / "meta.properties").write_text(meta.replace("directory.id=", "directory.id=A", 1)[:-1])
    config.write_text(config.read_text().replace("log.dirs=data", "log.dirs=other,data"))
    finding = examine("-c", str(config))["log-dir-missing-metadata"]
    assert finding["severity"] == "fatal"
    assert finding["remedy"].startswith(f"Set metadata.log.dir={config.parent / 'data'}")


@pytest.mark.parametrize(
    ("settings", "check", "evidence"),
    [
        ({"metadata_max_retention_bytes": "1000"}, "metadata-retention", "metadata.max.retention.bytes is 1000"),
        ({"metadata_max_retention_ms": "60000"}, "metadata-retention", "metadata.max.retention.ms is 60000"),
        ({"unclean_leader_election_enable": "true"}, "unclean-enabled", "unclean.leader.election.enable is true for"),
        ({"broker_session_timeout_ms": "4000"}, "session-timeouts", "broker.session.timeout.ms is 4000"),
        (
            {"controller_quorum_request_timeout_ms": "9000"},
            "quorum-timeouts",
            "controller.quorum.fetch.timeout.ms is 2000, below controller.quorum.request.timeout.ms (9000)",
        ),
        (
            {"advertised_listeners": "CONTROLLER://127.0.0.1:9093"},
            "advertised-loopback",
            "CONTROLLER://127.0.0.1:9093 is for this host only",
        ),
        ({"listener_security_protocol_map": "CONTROLLER:PLAINTEXT"}, "plaintext-controller", "is PLAINTEXT"),
    ],
)
def test_settings_are_judged(settings: dict[str, str], check: str, evidence: str, tmp_path: Path) -> None:
    config = with_settings("healthy-static", tmp_path, **settings)
    assert evidence in examine("-c", config)[check]["evidence"]


@pytest.mark.parametrize(
    ("settings", "check"),
    [
        ({"metadata_max_retention_ms": "-1"}, "metadata-retention"),
        ({"controller_quorum_fetch_timeout_ms": "2000"}, "quorum-timeouts"),
        ({"broker_session_timeout_ms": "9000"}, "session-timeouts"),
        ({"listener_security_protocol_map": "CONTROLLER:SSL"}, "plaintext-controller"),
        ({"controller_quorum_auto_join_enable": "false"}, "auto-join-on-static"),
    ],
)
def test_usual_settings_are_no_finding(settings: dict[str, str], check: str, tmp_path: Path) -> None:
    assert check not in examine("-c", with_settings("healthy-static", tmp_path, **settings))


def test_time_outs_that_differ_between_voters_are_named(tmp_path: Path) -> None:
    first, second, *_ = configs_of("healthy-static", tmp_path)
    with Path(second).open("a") as file:
        file.write("\ncontroller.quorum.fetch.timeout.ms=6000\n")
    finding = examine("-c", first, "-c", second)["quorum-timeouts"]
    assert finding["evidence"] == ("controller.quorum.fetch.timeout.ms differs: node 1 has 2000, node 3 has 6000")


def test_brokers_with_another_controller_listener_are_named(tmp_path: Path) -> None:
    configs = configs_of("healthy-static", tmp_path)
    broker = Path(configs[2])
    broker.write_text(broker.read_text().replace("CONTROLLER:PLAINTEXT", "CONTROLLER:SSL"))
    found = examine(*[word for config in configs for word in ("-c", config)])
    assert found["controller-listener-mismatch"]["evidence"] == (
        "node 1, node 3, node 102: CONTROLLER with PLAINTEXT; node 101: CONTROLLER with SSL"
    )


def test_a_removed_voter_that_joins_by_itself_is_named(tmp_path: Path) -> None:
    """In dynamic3, voters were removed; the configuration of each controller says what its node does afterwards."""
    nodes = unpack("clusters", "dynamic3/nodes", tmp_path)
    for path in nodes.iterdir():
        config = path / "node.properties"
        config.write_text(config.read_text().replace("DIR", str(nodes)))
    words = [word for name in ("c1", "c2", "c3", "c4") for word in ("-c", str(nodes / name / "node.properties"))]
    found = examine(*words)
    joins = {"auto-join-rejoin"} & found.keys()
    voters = gather([word for word in words if word != "-c"], []).facts.quorum.ids
    removed = {1, 2, 3, 4} - set(voters)
    assert bool(joins) == any(
        "auto.join.enable=true" in (nodes / f"c{one}" / "node.properties").read_text() for one in removed
    )


def test_a_directory_that_its_owner_cannot_write_is_fatal(tmp_path: Path) -> None:
    config = Path(configs_of("healthy-dynamic-one", tmp_path)[0])
    data = config.parent / "data"
    data.chmod(0o500)
    try:
        found = examine("-c", str(config))
    finally:
        data.chmod(0o700)
    assert found["file-modes"]["severity"] == "fatal"
    assert found["file-modes"]["remedy"] == f"chmod 700 {data}"


def test_a_closed_directory_keeps_readable_files_from_other_users(tmp_path: Path) -> None:
    config = Path(configs_of("healthy-dynamic-one", tmp_path)[0])
    data = config.parent / "data"
    partition = data / "__cluster_metadata-0"
    segments = sorted(partition.glob("*.log"))
    for path, mode in ((data, 0o755), (partition, 0o755), *((segment, 0o644) for segment in segments)):
        path.chmod(mode)
    for snapshot in partition.glob("*.checkpoint"):
        snapshot.chmod(0o400)
    assert _readable(config) == [str(segment) for segment in segments]
    for closed in (data, partition):
        closed.chmod(0o700)
        assert _readable(config) == []
        closed.chmod(0o755)


def _readable(config: Path) -> list[str]:
    (node,) = gather([str(config)], []).facts.nodes
    host = node.directories[0].host
    assert host is not None
    return [file.path for file in host.readable_by_others]


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    facts = gather(configs_of("healthy-dynamic-one", tmp_path), []).facts
    (node,) = facts.nodes
    host = HostFacts(free_bytes=5 << 20, total_bytes=10 << 30, free_inodes=1, total_inodes=1000)
    full = tuple(_replaced(directory, host=host) for directory in node.directories)
    found = {one.id: one for one in diagnose(Facts(nodes=(_replaced(node, directories=full),))).findings}
    assert found["disk-headroom"].evidence == "5.0 MiB are free, and 1.0 GiB should be; 1 of 1000 inodes are free"


def _replaced(value: Any, **changes: Any) -> Any:
    return type(value)(**{**{name: getattr(value, name) for name in value.__struct_fields__}, **changes})


def test_hosts_without_an_address_are_fatal_for_a_majority(tmp_path: Path) -> None:
    facts = gather(configs_of("healthy-static", tmp_path), []).facts
    known = {"node1.example": ("192.0.2.1",), "node2.example": (), "node3.example": ()}
    found = [one for one in diagnose(_replaced(facts, names=known)).findings if one.id == "voter-endpoint-unresolvable"]
    assert [(str(one.severity), one.subjects) for one in found] == [
        ("fatal", ("node2.example",)),
        ("fatal", ("node3.example",)),
    ]
    known["node3.example"] = ("192.0.2.1",)
    found = [one for one in diagnose(_replaced(facts, names=known)).findings if one.id == "voter-endpoint-unresolvable"]
    assert [(str(one.severity), one.evidence) for one in found] == [
        ("error", "The host of voter 2, node2.example, has no address"),
        ("error", "voters 1, 3 have the same address and port"),
    ]


def test_strays_that_were_renamed_are_only_a_note(tmp_path: Path) -> None:
    configs = configs_of("healthy-static", tmp_path)
    data = Path(configs[2]).parent / "data"
    shutil.copytree(data / "alpha-0", data / "gone-0.0123456789abcdef0123456789abcdef-stray")
    found = examine(*[word for config in configs for word in ("-c", config)])
    assert found["stray-dirs"]["severity"] == "info"
    assert found["stray-dirs"]["subjects"] == ["gone-0"]


def test_producer_ids_beyond_the_metadata_are_fatal(tmp_path: Path) -> None:
    configs = configs_of("healthy-static", tmp_path)
    data = Path(configs[2]).parent / "data"
    entry = struct.pack(">qhiqiqiq", 1 << 40, 0, 5, 5, 0, 0, -1, -1)
    (data / "alpha-0" / "00000000000000000006.snapshot").write_bytes(struct.pack(">hIi", 1, 0, 1) + entry)
    found = examine(*[word for config in configs for word in ("-c", config)])
    assert found["producer-id-regress"]["severity"] == "fatal"
    assert f"producer id {1 << 40}" in found["producer-id-regress"]["evidence"]
    assert found["producer-id-regress"]["subjects"] == ["alpha-0"]


def test_what_is_local_and_what_is_remote_is_told(tmp_path: Path) -> None:
    config = Path(configs_of("healthy-static", tmp_path)[2])
    data, found = config.parent / "data", gather([str(config)], []).facts
    assert found.image is not None
    enabled = ConfigRecord(resource_type=2, resource_name="alpha", name="remote.storage.enable", value="true")
    image = replace(found.image, image=replayed(found.image.image, enabled))
    alpha = image.image.topics["alpha"].id

    def told() -> list[Finding]:
        facts = replace(gather([str(config)], []).facts, image=image)
        return [one for one in diagnose(facts).findings if one.id == "tiered-storage"]

    (unknown,) = told()
    assert unknown.severity == "info"
    assert "alpha-0: local from 0 (" in unknown.evidence
    assert "nothing known to be remote; no partition of __remote_log_metadata is here to say" in unknown.evidence

    (data / "alpha-0" / f"{500:020}.log").write_bytes(batch(b"v"))
    (data / "log-start-offset-checkpoint").write_text("0\n1\nalpha 0 100\n")
    whole, gone = ((0, 199), (200, 449), (450, 499)), ((0, 99),)
    topic = data / "__remote_log_metadata-3"
    topic.mkdir()
    shutil.copy(data / "alpha-0" / "leader-epoch-checkpoint", topic)

    def copied(*segments: tuple[int, int], started: tuple[tuple[int, int], ...] = ()) -> None:
        values = []
        for number, (first, last) in enumerate((*segments, *gone, *started)):
            of = remote.RemoteLogSegmentMetadataRecordTopicIdPartitionEntry("alpha", alpha, 0)
            named = remote.RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry(of, Uuid(bytes([9] * 15 + [number])))
            epochs = (remote.RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry(0, first),)
            values.append(
                encode_remote(
                    remote.RemoteLogSegmentMetadataRecord(
                        named, first, last, segment_leader_epochs=epochs, segment_size_in_bytes=1 << 20
                    )
                )
            )
            states = [SegmentState.COPY_SEGMENT_FINISHED] * ((first, last) not in started)
            states += [SegmentState.DELETE_SEGMENT_FINISHED] * ((first, last) in gone)
            for state in states:
                update = remote.RemoteLogSegmentMetadataUpdateRecord(
                    remote.RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry(
                        remote.RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry("alpha", alpha, 0), named.id
                    ),
                    remote_log_segment_state=state,
                )
                values.append(encode_remote(update))
        (topic / f"{0:020}.log").write_bytes(batch(*values))

    copied(*whole)
    (one,) = told()
    assert one.subjects == ("alpha-0", "alpha-1", "alpha-2")
    assert re.search(
        r"alpha-0: local from 500 \(.*, log start 100\), remote 0 to 499 \(3 segments, 3\.0 MiB\)", one.evidence
    ), one.evidence
    copied(whole[0], whole[2], started=(whole[1],))
    lost, known = told()
    assert (lost.severity, known.severity) == ("error", "info")
    assert "the offsets 200 to 449 of alpha-0" in lost.evidence
    assert "remote 0 to 199 and 450 to 499 (2 segments, 2.0 MiB)" in known.evidence


def test_a_scram_user_without_a_credential_is_fatal(tmp_path: Path) -> None:
    config = with_settings(
        "healthy-static",
        tmp_path,
        sasl_mechanism_controller_protocol="SCRAM-SHA-512",
        sasl_jaas_config='org.example.ScramLoginModule required username="ctl" password="p";',
    )
    found = examine("-c", config)
    assert found["scram-missing"]["subjects"] == ["ctl"]
    assert found["scram-missing"]["remedy"].startswith("kraft users set ctl --mechanism SCRAM-SHA-512 ")


def test_one_directory_given_twice_is_one_node(tmp_path: Path) -> None:
    config = configs_of("healthy-dynamic-one", tmp_path)[0]
    data = os.path.join(os.path.dirname(config), "data")
    found = gather([config], [data, f"{data}/"])
    assert [node.name for node in found.facts.nodes] == ["node 1"]
    assert found.unreadable == ()


def test_the_directory_of_the_partition_alone_is_a_node(tmp_path: Path) -> None:
    config = configs_of("healthy-static", tmp_path)[0]
    partition = os.path.join(os.path.dirname(config), "data", "__cluster_metadata-0")
    found = gather([], [partition])
    assert [node.id for node in found.facts.nodes] == [1]
    assert "meta-missing" not in {one.id for one in diagnose(found.facts).findings}


def test_log_directories_of_one_broker_are_one_node(tmp_path: Path) -> None:
    configs = configs_of("healthy-static", tmp_path)
    data = Path(configs[2]).parent / "data"
    second = tmp_path / "second"
    second.mkdir()
    meta = [line for line in (data / "meta.properties").read_text().splitlines() if "directory.id" not in line]
    (second / "meta.properties").write_text("\n".join([*meta, "directory.id=8riq9ydYGGlAB8Q4GKASkg"]))
    (second / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    found = gather([], [str(data), str(second)])
    (node,) = found.facts.nodes
    assert [directory.path for directory in node.directories] == [str(data), str(second)]
    assert "node-id-duplicate" not in {one.id for one in diagnose(found.facts).findings}
