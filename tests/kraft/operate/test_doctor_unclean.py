"""`kraft doctor --before unclean-election`: what would be lost, on histories and partition logs of real clusters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from doctor_cases import configs_of
from kraft.cli.doctor.command import doctor_command
from kraft.operate.doctor.facts.node import ReplicaEnd
from kraft.operate.doctor.read_log import read_image_facts
from kraft.operate.doctor.unclean_election import common_end
from metadata_log.disk import OsDisk
from metadata_log.image import MetadataImage, ResourceType
from metadata_log.log.epochs import EpochHistory
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import BrokerRegistrationChangeRecord, ConfigRecord, PartitionChangeRecord
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch
from support.kraft.recovery_data import unpack_cluster
from support.real_data import unpack

BOTH_DEAD, CRASHED = 1979, 2099
"""Offsets in the history of the cluster `failover`: brokers 101 and 102 are dead; the ELR is empty since a crash."""


def before(*words: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(doctor_command, ["--offline", "--json", "--before", "unclean-election", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout)


def reasons(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in report["findings"] if one["id"] == "before-unclean-election"]


def cut(directory: Path, end: int) -> Path:
    """Remove what the metadata log holds from an offset on, as if the controller had stopped then."""
    log = directory / "__cluster_metadata-0"
    for name in log.iterdir():
        if name.suffix in {".checkpoint", ".index", ".timeindex"} and int(name.name[:20]) > 0:
            name.unlink()
    (segment,) = log.glob("*.log")
    content = segment.read_bytes()
    kept = [batch.end_position for batch in scan(content, where=str(segment)) if batch.next_offset <= end]
    segment.write_bytes(content[: kept[-1]])
    return directory


def image_of(directory: Path) -> MetadataImage:
    found = read_image_facts(OsDisk(), f"{directory}/__cluster_metadata-0", lambda batches: None)
    assert found is not None
    return found.image


def append(directory: Path, *records: tuple[Message, int]) -> None:
    """Add a batch of records, each with its version, to the metadata log, as a controller would write them."""
    segment = sorted((directory / "__cluster_metadata-0").glob("*.log"))[-1]
    content = segment.read_bytes()
    *_, last = scan(content, where=str(segment))
    values = [encode_record(record, version) for record, version in records]
    segment.write_bytes(content + build_batch(last.next_offset, last.epoch, last.max_timestamp, values))


def fence(image: MetadataImage, broker: int, *, unfence: bool = False) -> tuple[Message, int]:
    epoch = image.brokers.by_id[broker].epoch
    return BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=epoch, fenced=-1 if unfence else 1), 0


def test_partitions_of_dead_brokers_name_the_brokers_to_start(tmp_path: Path) -> None:
    nodes = unpack("clusters", "failover/nodes", tmp_path)
    code, report = before(str(cut(nodes / "c1", BOTH_DEAD)))
    (reason,) = reasons(report)
    assert (code, report["before"]["safe"], reason["severity"]) == (1, False, "error")
    assert len(reason["subjects"]) == 31
    assert reason["evidence"].startswith(
        "31 partitions would have no leader, as no replica is alive: "
        "alerts-4-0 (isr [], elr [102], last known leader 102, leader epoch 4), alerts-4-5 (isr"
    )
    assert reason["remedy"].startswith("Start broker 102: ")


def test_a_dead_last_known_leader_is_started_first(tmp_path: Path) -> None:
    nodes = unpack("clusters", "failover/nodes", tmp_path)
    _, report = before(str(cut(nodes / "c1", CRASHED)))
    (reason,) = reasons(report)
    assert "alerts-4-0 (isr [], elr [], last known leader 102, " in reason["evidence"]
    assert reason["remedy"].startswith("Start broker 102: ")


def test_an_alive_replica_outside_the_elr_would_lose_records(tmp_path: Path) -> None:
    nodes = unpack("clusters", "failover/nodes", tmp_path)
    directory = cut(nodes / "c1", BOTH_DEAD)
    append(directory, fence(image_of(directory), 101, unfence=True))
    code, report = before(str(directory))
    fatal, *_ = reasons(report)
    assert (code, fatal["severity"]) == (2, "fatal")
    assert (
        "alerts-4-0 (isr [], elr [102], last known leader 102, leader epoch 4, broker 101 would lead)"
        in (fatal["evidence"])
    )
    assert fatal["evidence"].endswith("The lost offsets are not known without the log directories of brokers 101, 102")
    assert fatal["remedy"].startswith("Start broker 102: ")
    assert fatal["remedy"].endswith("kraft elect unclean --topic-partition alerts-4:0")


class Wedged(NamedTuple):
    """Two brokers of a real cluster in which alpha-0 has lost its leader, and the records of that log."""

    one: Path
    two: Path
    end: int
    last_base: int
    """The base offset of the last batch of alpha-0."""

    @property
    def directories(self) -> tuple[str, str]:
        return str(self.one), str(self.two)


@pytest.fixture(name="wedged")
def _wedged(tmp_path: Path) -> Wedged:
    folder = unpack_cluster("static", tmp_path)
    one, two = folder / "b101", folder / "b102"
    image = image_of(one)
    topic = image.topics["alpha"]
    assert set(topic.partitions[0].replicas) == {101, 102}
    change = PartitionChangeRecord(
        partition_id=0, topic_id=topic.id, isr=(), leader=-1, eligible_leader_replicas=(102,)
    )
    for directory in (one, two):
        append(directory, fence(image, 102), (change, 2))
    segment = two / "alpha-0" / "00000000000000000000.log"
    batches = list(scan(segment.read_bytes(), where=str(segment)))
    assert batches
    return Wedged(one, two, batches[-1].next_offset, batches[-1].base_offset)


def test_the_lost_offsets_are_those_that_only_the_complete_replica_has(wedged: Wedged) -> None:
    segment = wedged.one / "alpha-0" / "00000000000000000000.log"
    content = segment.read_bytes()
    kept = [one.end_position for one in scan(content, where="") if one.next_offset <= wedged.last_base]
    segment.write_bytes(content[: kept[-1] if kept else 0])
    code, report = before(*wedged.directories)
    fatal, *_ = reasons(report)
    assert (code, fatal["severity"], fatal["subjects"]) == (2, "fatal", ["alpha-0"])
    lost = f"offsets {wedged.last_base} to {wedged.end - 1} of broker 102 would be lost"
    assert f"broker 101 would lead, {lost})" in fatal["evidence"]
    assert "not known" not in fatal["evidence"]


def test_equal_logs_lose_nothing(wedged: Wedged) -> None:
    _, report = before(*wedged.directories)
    (reason,) = reasons(report)
    assert (reason["severity"], report["before"]["safe"]) == ("warn", True)
    assert f"all {wedged.end} offsets of broker 102 are there" in reason["evidence"]
    assert reason["remedy"] == "kraft elect unclean --topic-partition alpha:0"


def test_an_alive_replica_of_the_elr_makes_the_election_clean(wedged: Wedged) -> None:
    back = fence(image_of(wedged.one), 102, unfence=True)
    for directory in (wedged.one, wedged.two):
        append(directory, back)
    _, report = before(*wedged.directories)
    (reason,) = reasons(report)
    assert (reason["severity"], report["before"]["safe"]) == ("info", True)
    assert "broker 102 would lead" in reason["evidence"]


def test_a_topic_with_unclean_elections_needs_no_command(wedged: Wedged) -> None:
    config = ConfigRecord(
        resource_type=ResourceType.TOPIC, resource_name="alpha", name="unclean.leader.election.enable", value="true"
    )
    for directory in (wedged.one, wedged.two):
        append(directory, (config, 0))
    _, report = before(*wedged.directories)
    (reason,) = reasons(report)
    assert "unclean.leader.election.enable is true: the controller does that by itself" in reason["evidence"]


def test_without_a_partition_that_lacks_a_leader_nothing_changes(tmp_path: Path) -> None:
    _, report = before(*[word for config in configs_of("healthy-static", tmp_path) for word in ("-c", config)])
    (reason,) = reasons(report)
    assert (reason["severity"], report["before"]["safe"]) == ("info", True)
    assert reason["evidence"].startswith("no partition is without a leader")


def test_a_log_that_cannot_be_read_has_no_known_end(wedged: Wedged) -> None:
    segment = wedged.two / "alpha-0" / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    content[16] = 9
    segment.write_bytes(bytes(content))
    _, report = before(*wedged.directories)
    fatal, *_ = reasons(report)
    assert "The lost offsets are not known" in fatal["evidence"]


def epochs(*entries: tuple[int, int]) -> EpochHistory:
    return EpochHistory(tuple(OffsetAndEpoch(epoch=epoch, offset=offset) for epoch, offset in entries))


@pytest.mark.parametrize(
    ("leader", "follower", "common"),
    [
        (([(0, 0)], 10), ([(0, 0)], 15), 10),
        (([(0, 0)], 15), ([(0, 0)], 10), 10),
        (([(0, 0)], 10), ([(0, 0), (1, 8)], 15), 8),
        (([(0, 0), (1, 5)], 10), ([(0, 0), (2, 7)], 15), 5),
        (([(0, 0), (3, 6)], 10), ([(0, 0), (1, 4), (2, 8)], 15), 4),
        (([], 0), ([(0, 0)], 15), 0),
    ],
)
def test_a_follower_truncates_where_the_epochs_part(
    leader: tuple[list[tuple[int, int]], int], follower: tuple[list[tuple[int, int]], int], common: int
) -> None:
    """By the rules of KIP-101, worked out by hand."""
    one, other = (
        ReplicaEnd(broker=number, epochs=epochs(*entries), log_end=end)
        for number, (entries, end) in enumerate((leader, follower))
    )
    assert common_end(one, other) == common
