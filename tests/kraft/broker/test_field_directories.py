"""Log directories as people report them, tried with a broker of ours, `kraft dump --verify` and `kraft doctor`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraft.broker.opening import broker_options
from kraft.cli.doctor.command import doctor_command
from kraft.config import Config
from kraft.operate.recover.inventory import read_partitions
from kraft.partitions.replicas import DataDirectory, DataSettings, ReplicaManager
from metadata_log import replay
from metadata_log.disk import OsDisk
from metadata_log.errors import MetadataLogError
from support.broker.data_brokers import load
from support.field_directories import CASES, ENDS, TOPICS, Case, outcome, page, properties, unpacked
from support.kraft.command_line import run

NOW_MS = 1_795_703_000_000
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "damaged-directories.md"
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def outcome_of_ours(root: Path) -> str:
    """The outcome of a broker of ours on these directories."""
    config, disk = Config.load(str(properties(root, 19093, 19092))), OsDisk()
    before = {path.name for path in (*(root / "data").iterdir(), *(root / "spare").iterdir())}
    try:
        options = broker_options(config, disk)
        image = replay(str(root / "meta"))
    except MetadataLogError:
        return ENDS
    found = tuple(
        DataDirectory(one, path, is_clean=one in options.clean_directories)
        for one, path in zip(options.directories, config.log_dirs, strict=True)
    )
    manager = ReplicaManager(disk, DataSettings(broker_id=1, directories=found))
    load(manager, image, NOW_MS)
    ends: dict[str, int | None] = {}
    for topic in image.topics.by_id.values():
        manager.on_partition((topic.id, 0), topic.partitions[0], NOW_MS, options.directories[0])
        part = manager.partitions.get((topic.id, 0))
        assert part is not None
        ends[topic.name] = None if part.is_offline else part.log.end_offset
    manager.shrink(NOW_MS + 300_000)
    assert manager.failed_directories == {}
    manager.close(broker_epoch=1)
    after = {path.name for path in (*(root / "data").iterdir(), *(root / "spare").iterdir())}
    assert not [name for name in after if name.endswith("-delete")]
    return outcome(ends, sum(name.endswith("-stray") for name in after - before))


@each_case
def test_a_broker_of_ours_does_what_the_page_says(case: Case, tmp_path: Path) -> None:
    assert outcome_of_ours(unpacked(case, tmp_path)) == case.ours


@each_case
def test_verify_reports_what_a_start_would_trip_over(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = unpacked(case, tmp_path)
    done = run(capsys, "dump", "--verify", str(root / "data"))
    assert (done.code, case.verify in done.err) == (int(bool(case.verify)), True), done.err
    assert {topic for topic in TOPICS if f"{root}/data/{topic}-0/" in done.out} >= TOPICS.keys() - {"orders"}


@each_case
def test_doctor_reports_what_a_start_would_trip_over(case: Case, tmp_path: Path) -> None:
    root = unpacked(case, tmp_path)
    done = CliRunner().invoke(doctor_command, ["--offline", "--json", "-c", str(properties(root, 19093, 19092))])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    found = {one["id"]: one for one in json.loads(done.stdout)["findings"] if one["severity"] in {"fatal", "error"}}
    assert set(found) - {"file-modes", "offline-partitions", "broker-never-returned"} >= ({case.doctor} - {""})
    if not case.doctor:
        assert not found.keys() & {one.doctor for one in CASES}


def test_a_plan_of_recovery_reads_the_partitions_beside_plain_files(tmp_path: Path) -> None:
    [case] = [one for one in CASES if one.name == "heap-dump"]
    found = read_partitions(OsDisk(), str(unpacked(case, tmp_path) / "data"))
    assert [one.topic for one in found] == sorted(TOPICS)


def test_the_page_lists_the_cases() -> None:
    assert PAGE.read_text() == page()
