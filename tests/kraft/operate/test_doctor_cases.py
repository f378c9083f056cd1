"""`kraft doctor` on directories of Apache Kafka: each deliberate change is found, sound directories are not fatal."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from doctor_cases import CASES, configs_of
from kraft.cli.doctor.command import doctor_command
from support.real_data import unpack

EXIT_CODES = {"fatal": 2, "error": 1, "warn": 0, "info": 0}


def examine(*words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of `kraft doctor --offline --json`."""
    done = CliRunner().invoke(doctor_command, ["--offline", "--json", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout)


def with_options(configs: list[str]) -> list[str]:
    return list(chain.from_iterable(("-c", config) for config in configs))


@pytest.mark.parametrize("name", CASES)
def test_each_case_shows_its_findings_and_no_forbidden_one(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    code, report = examine(*with_options(configs_of(name, tmp_path)))
    found = {one["id"] for one in report["findings"]}
    assert set(case["must"]) <= found
    assert not set(case["absent"]) & found
    assert code == max((EXIT_CODES[one["severity"]] for one in report["findings"]), default=0)
    fatal = {one["id"] for one in report["findings"] if one["severity"] == "fatal"}
    assert fatal <= set(case["must"])
    if "subject" in case:
        (finding,) = [one for one in report["findings"] if one["id"] in case["must"]]
        assert finding["subject"] == case["subject"]


def test_configurations_may_follow_each_other_without_their_option(tmp_path: Path) -> None:
    first, *others = configs_of("cluster-id-mismatch", tmp_path)
    code, report = examine("-c", first, *others)
    assert code == 2
    assert [node["id"] for node in report["nodes"]] == [1, 3]
    assert "cluster-id-mismatch" in {one["id"] for one in report["findings"]}


@pytest.mark.parametrize("cluster", ["dynamic3", "failover", "old39"])
def test_sound_directories_have_no_fatal_finding(cluster: str, tmp_path: Path) -> None:
    nodes = unpack("clusters", f"{cluster}/nodes", tmp_path)
    every = sorted(str(path) for path in nodes.iterdir())
    for directories in (every, [path for path in every if "/c" in path], *([path] for path in every)):
        code, report = examine(*directories)
        assert [one for one in report["findings"] if one["severity"] == "fatal"] == []
        assert code in {0, 1}


@pytest.mark.parametrize("cluster", ["dynamic3", "failover", "old39"])
def test_sound_configurations_have_no_fatal_finding(cluster: str, tmp_path: Path) -> None:
    nodes = unpack("clusters", f"{cluster}/nodes", tmp_path)
    for path in sorted(nodes.iterdir()):
        config = path / "node.properties"
        config.write_text(config.read_text().replace("DIR", str(nodes)))
    _, report = examine(*with_options([str(path / "node.properties") for path in sorted(nodes.iterdir())]))
    assert [one for one in report["findings"] if one["severity"] == "fatal"] == []
    assert {one["id"] for one in report["skipped"]} == {
        "no-leader",
        "voter-endpoint-unreachable",
        "voter-endpoint-unresolvable",
        "voter-lag",
    }


@pytest.mark.parametrize(("name", "prefix"), [("static3", "nodes/c1"), ("big", "")])
def test_a_sound_controller_alone_has_no_fatal_finding(name: str, prefix: str, tmp_path: Path) -> None:
    _, report = examine(str(unpack(name, prefix, tmp_path)))
    assert [one for one in report["findings"] if one["severity"] == "fatal"] == []
