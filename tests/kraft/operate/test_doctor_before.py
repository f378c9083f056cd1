"""`kraft doctor --before`: whether a step would break the quorum, from files alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from doctor_cases import configs_of
from kraft.cli.doctor.command import doctor_command
from metadata_log.types import random_uuid
from support.real_data import unpack


def before(*words: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(doctor_command, ["--offline", "--json", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout)


def reasons(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Severity and evidence of the reasons against the step."""
    name = f"before-{report['before']['operation']}"
    return [(one["severity"], one["evidence"]) for one in report["findings"] if one["id"] == name]


def configs(name: str, target: Path) -> list[str]:
    return [word for config in configs_of(name, target) for word in ("-c", config)]


@pytest.fixture(name="three")
def three_controllers(tmp_path: Path) -> dict[int, str]:
    """The directories of three static controllers with one log: copies of a real one, each with ids of its own."""
    (config, *_) = configs_of("healthy-static", tmp_path)
    data = Path(config).parent / "data"
    found = {}
    for number in (1, 2, 3):
        copy = shutil.copytree(data, tmp_path / f"copy-{number}")
        lines = (copy / "meta.properties").read_text().splitlines()
        kept = [line for line in lines if not line.startswith(("node.id", "directory.id"))]
        directory_id = random_uuid(Random(number))
        text = "\n".join([*kept, f"node.id={number}", f"directory.id={directory_id}"])
        (copy / "meta.properties").write_text(text)
        found[number] = str(copy)
    return found


@pytest.mark.parametrize(
    ("words", "case", "code", "severity", "text"),
    [
        ("start", "empty-voters-majority", 2, "fatal", "empty-voter"),
        ("start 101", "stray-dirs", 2, "fatal", "stray-dirs"),
        ("format 1", "empty-voters-majority", 2, "fatal", "would have a log"),
        ("remove-voter 1", "healthy-dynamic-one", 2, "fatal", "1 is the only voter"),
        ("add-voter 1", "directory-id-not-voter", 2, "fatal", "is still a voter with directory"),
        ("upgrade", "ghost-registration", 1, "error", "neither a voter nor a given node"),
        ("decommission 999", "under-replicated", 1, "error", "broker 999 is not registered"),
        ("decommission 101", "under-replicated", 2, "error", "n broker 101"),
    ],
)
def test_a_step_that_would_break_the_cluster_is_not_safe(
    tmp_path: Path, words: str, case: str, code: int, severity: str, text: str
) -> None:
    found, report = before("--before", *words.split(), *configs(case, tmp_path))
    assert (found, report["before"]["safe"]) == (code, False)
    assert any(text in evidence for of, evidence in reasons(report) if of == severity)


def test_voters_without_a_record_are_named_before_a_start(tmp_path: Path) -> None:
    _, report = before("--before", "start", *configs("empty-voters-majority", tmp_path))
    (empty,) = [one for one in report["findings"] if one["id"] == "empty-voter"]
    assert (empty["severity"], empty["nodes"]) == ("fatal", ["node 2", "node 3"])
    assert empty["evidence"] == "voters 2, 3 of 1, 2, 3 are formatted and have no record"


def test_a_start_of_sound_nodes_is_safe(tmp_path: Path) -> None:
    code, report = before("--before", "start", *configs("healthy-static", tmp_path))
    assert report["before"]["safe"]
    assert reasons(report) == []
    assert code in {0, 1}


def test_a_restart_is_safe_while_the_other_voters_have_caught_up(three: dict[int, str]) -> None:
    _, report = before("--before", "restart", "1", *three.values())
    assert report["before"] == {"operation": "restart", "node": 1, "safe": True}


def test_a_restart_is_refused_if_another_voter_is_behind(three: dict[int, str]) -> None:
    (Path(three[3]) / "__cluster_metadata-0" / "00000000000000000000.log").write_bytes(b"")
    code, report = before("--before", "restart", "1", *three.values())
    assert code == 2
    assert not report["before"]["safe"]
    told = "without voter 1 a majority needs 2 voters that have caught up: voter 2 has caught up, voter 3 is behind"
    assert reasons(report) == [("fatal", told)]


def test_a_restart_is_not_proved_safe_if_other_voters_were_not_given(three: dict[int, str]) -> None:
    code, report = before("--before", "restart", "1", three[1])
    assert code in {1, 2}
    assert [severity for severity, text in reasons(report) if "is not known" in text] == ["error"]


def test_a_format_of_the_best_copy_is_fatal(three: dict[int, str]) -> None:
    best = {number: path for number, path in three.items() if number == 1}
    code, report = before("--before", "format", "1", *best.values())
    assert code == 2
    assert any("the best copy" in text for severity, text in reasons(report) if severity == "fatal")


def test_voters_of_a_static_quorum_cannot_be_removed(three: dict[int, str]) -> None:
    code, report = before("--before", "remove-voter", "2", *three.values())
    assert code == 2
    assert reasons(report) == [("fatal", "the quorum is static (kraft.version 0): voters cannot be removed")]


def test_a_voter_of_a_dynamic_quorum_can_be_removed_with_a_warning(tmp_path: Path) -> None:
    nodes = unpack("clusters", "dynamic3/nodes", tmp_path)
    directories = [str(nodes / name) for name in ("c1", "c2", "c3", "c4")]
    _, everything = before("--before", "remove-voter", "99", *directories)
    ((severity, evidence),) = reasons(everything)
    assert severity == "error"
    voters = [int(word) for word in evidence.rpartition("voters ")[2].split(", ")]
    _, report = before("--before", "remove-voter", str(voters[0]), *directories)
    assert any("voters remain" in text for severity, text in reasons(report) if severity == "warn")


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("4.3", []),
        ("4.2", [("mv-downgrade-impossible", "fatal")]),
        ("3.9", [("mv-downgrade-impossible", "fatal")]),
    ],
)
def test_a_downgrade_that_would_lose_metadata_is_refused(
    release: str, expected: list[tuple[str, str]], three: dict[int, str]
) -> None:
    """The log has metadata.version 30, which is that of 4.3, and its records are new in 4.3."""
    _, report = before("--before", "downgrade", "--release-version", release, *three.values())
    found = [(one["id"], one["severity"]) for one in report["findings"] if "downgrade" in one["id"]]
    assert found == expected
    assert report["before"]["safe"] is (not expected)


# ----------------------------------------------------------------------------------------- restored volumes, settings


def test_the_restore_of_a_copy_with_the_newest_records_is_safe(three: dict[int, str]) -> None:
    code, report = before("--before", "restore", "2", *three.values())
    assert (code, report["before"]["safe"], reasons(report)) == (0, True, [])


def test_the_restore_of_a_directory_with_the_id_of_another_node_is_fatal(three: dict[int, str]) -> None:
    meta = [Path(three[number]) / "meta.properties" for number in (2, 3)]
    other = next(line for line in meta[1].read_text().splitlines() if line.startswith("directory.id="))
    own = next(line for line in meta[0].read_text().splitlines() if line.startswith("directory.id="))
    meta[0].write_text(meta[0].read_text().replace(own, other))
    code, report = before("--before", "restore", "2", *three.values())
    assert code == 2
    assert reasons(report) == [("fatal", f"the directory id {other.partition('=')[2]} is in use: node 3")]


def test_the_restore_of_an_older_epoch_forgets_votes(three: dict[int, str]) -> None:
    state = Path(three[1]) / "__cluster_metadata-0" / "quorum-state"
    epoch = json.loads(state.read_text())["leaderEpoch"]
    state.write_text(state.read_text().replace(f'"leaderEpoch":{epoch}', f'"leaderEpoch":{epoch + 5}'))
    code, report = before("--before", "restore", "2", *three.values())
    assert code == 1
    ((severity, evidence),) = reasons(report)
    assert severity == "error"
    assert f"the quorum has reached epoch {epoch + 5}" in evidence


def test_the_restore_of_a_shorter_copy_names_the_best_one(three: dict[int, str]) -> None:
    (segment, *_) = sorted((Path(three[2]) / "__cluster_metadata-0").glob("*.log"))
    segment.write_bytes(segment.read_bytes()[:-1])
    _, report = before("--before", "restore", "2", *three.values())
    assert any(three[1] in evidence or three[3] in evidence for _, evidence in reasons(report))


@pytest.mark.parametrize(
    ("voters", "severities"),
    [
        ("1@node1.example:9093,2@node2.example:9093,3@node3.example:9093", []),
        ("1@node1.example:9093,2@node2.example:9093,4@node4.example:9093", ["fatal"]),
        ("1@node1.example:9093,2@node2.example:9093", []),
        ("4@node4.example:9093", ["fatal"]),
        ("", ["fatal"]),
    ],
    ids=["same", "one exchanged", "one less", "disjoint", "none"],
)
def test_voters_without_a_common_majority_are_fatal(tmp_path: Path, voters: str, severities: list[str]) -> None:
    config = Path(configs_of("healthy-static", tmp_path)[0])
    lines = [line for line in config.read_text().splitlines() if not line.startswith("controller.quorum.voters")]
    config.write_text("\n".join([*lines, f"controller.quorum.voters={voters}"]))
    code, report = before("--before", "quorum-config", "-c", str(config))
    assert [severity for severity, _ in reasons(report)] == severities
    assert report["before"]["safe"] is not bool(severities)
    assert (code == 2) is bool(severities)


def test_voters_have_no_effect_in_a_dynamic_quorum(tmp_path: Path) -> None:
    config = Path(configs_of("healthy-dynamic-one", tmp_path)[0])
    config.write_text(config.read_text() + "\ncontroller.quorum.voters=1@localhost:9093\n")
    _, report = before("--before", "quorum-config", "-c", str(config))
    assert [severity for severity, _ in reasons(report)] == ["warn"]
    assert report["before"]["safe"]
