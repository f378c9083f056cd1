"""`kraft doctor` as a user sees it: text, SARIF, explanations, exit codes, errors."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import click
import pytest

from doctor_cases import configs_of
from doctor_page import page
from kraft.cli.main import kraft
from kraft.config import Config, ConfigError
from kraft.config.config import judged
from kraft.config.properties import parse_properties
from kraft.operate.doctor.facts.catalog import CATALOG
from support.kraft.command_line import run

COMMAND = re.compile(r"kraft ([a-z][a-z -]*[a-z])")
LATER = {"recover"}
"""Commands that remedies may name before they exist."""


DIFFERENCES = (Path(__file__).parents[3] / "docs/differences.md").read_text("utf-8")


def test_findings_come_with_the_worst_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    configs = configs_of("stray-dirs", tmp_path)
    words = [word for config in configs for word in ("-c", config)]
    report = json.loads(run(capsys, "doctor", "--offline", "--json", *words).out)
    order = ["fatal", "error", "warn", "info"]
    ranks = [order.index(one["severity"]) for one in report["findings"]]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) > 1


@pytest.mark.parametrize("name", ["two-quorums", "file-modes", "under-replicated"])
def test_sarif_has_a_rule_and_a_place_for_each_finding(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    words = [word for config in configs_of(name, tmp_path) for word in ("-c", config)]
    log = json.loads(run(capsys, "doctor", "--offline", "--sarif", *words).out)
    report = json.loads(run(capsys, "doctor", "--offline", "--json", *words).out)
    assert log["version"] == "2.1.0"
    (told,) = log["runs"]
    rules = told["tool"]["driver"]["rules"]
    assert [one["ruleId"] for one in told["results"]] == [one["id"] for one in report["findings"]]
    for result, finding in zip(told["results"], report["findings"], strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning", "note"}
        assert (result["level"] == "error") == (finding["severity"] in {"fatal", "error"})
        assert finding["evidence"] in result["message"]["text"]
        assert len(result["locations"]) == len(finding["read"])
        for location in result["locations"]:
            assert location["physicalLocation"]["artifactLocation"]["uri"].startswith(str(tmp_path))


def test_a_place_in_a_properties_file_has_its_line_in_sarif(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (config,) = configs_of("session-timeouts", tmp_path)
    lines = Path(config).read_text().splitlines()
    line = lines.index("broker.session.timeout.ms=1000") + 1
    log = json.loads(run(capsys, "doctor", "--offline", "--sarif", "-c", config).out)
    (found,) = [one for one in log["runs"][0]["results"] if one["ruleId"] == "session-timeouts"]
    assert found["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": config},
        "region": {"startLine": line},
    }


def test_no_secret_is_shown_in_any_form(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (config,) = configs_of("file-modes", tmp_path)
    for form in ([], ["--json"], ["--sarif"]):
        done = run(capsys, "doctor", "--offline", *form, "-c", config)
        assert "file-modes" in done.out
        assert "not-a-secret" not in done.out + done.err


# ----------------------------------------------------------------------------------------------------------- explain


@pytest.mark.parametrize("check", sorted(CATALOG))
def test_every_check_is_explained(capsys: pytest.CaptureFixture[str], check: str) -> None:
    done = run(capsys, "doctor", "explain", check)
    assert done.code == 0
    assert done.out.startswith(f"{check} (")
    facts = json.loads(run(capsys, "doctor", "explain", check, "--json").out)
    assert facts["id"] == check
    assert all(facts.values())


@pytest.mark.parametrize("check", sorted(CATALOG))
def test_remedies_name_commands_that_exist(check: str) -> None:
    for found in COMMAND.finditer(CATALOG[check].remedy):
        command: click.Command = kraft
        words = found[1].split()
        if words[0] in LATER and kraft.get_command(click.Context(kraft), words[0]) is None:
            continue
        while isinstance(command, click.Group) and words:
            below = command.get_command(click.Context(command), words.pop(0))
            assert below is not None, f"{check}: {found[0]}"
            command = below


# ------------------------------------------------------------------------------------------------------------ errors


def test_paths_that_cannot_be_read_end_with_exit_code_3(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    segment = tmp_path / "kept" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(bytes(100))
    done = run(capsys, "doctor", "--offline", str(segment), str(tmp_path / "absent"), str(tmp_path))
    assert done.code == 3
    assert done.err.splitlines()[0] == (
        f"kraft: error: nothing could be read: {segment}: this is no properties file. "
        f"A segment or a snapshot is read with its log directory; {tmp_path / 'absent'}: No such file or directory; "
        f"{tmp_path}: this is no log directory of a node"
    )


def test_one_path_that_cannot_be_read_is_a_warning_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (config,) = configs_of("healthy-dynamic-one", tmp_path)
    absent = tmp_path / "absent.properties"
    done = run(capsys, "doctor", "--offline", "--json", "-c", config, "-c", str(absent))
    assert done.code == 1
    assert done.err == f"kraft: warning: {absent} cannot be read: No such file or directory\n"
    assert json.loads(done.out)["unreadable"] == [{"path": str(absent), "why": "No such file or directory"}]


def test_the_reference_page_is_printed_from_the_descriptions() -> None:
    """The head of `doctor_page` has the command that writes the page anew."""
    assert (Path(__file__).parents[3] / "docs" / "reference" / "doctor-checks.md").read_text() == page()


def test_a_file_is_judged_by_the_validator_of_serve_and_by_kafkas_rules(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A file that Kafka refuses is fatal, a warning about Kafka, or a known difference."""
    stored = json.loads(lzma.decompress((Path(__file__).parents[2] / "data/config_verdicts.json.xz").read_bytes()))
    unseen = []
    for name, case in stored.items():
        verdict = judged(parse_properties(case["properties"], source=name), name) if name != "windows-path-u" else None
        if verdict is None:
            continue
        of_classes = any(word in str(verdict.not_supported) for word in (".class", ".assignors"))
        warned = bool(verdict.not_for_kafka) or of_classes  # Kafka looks for classes that do not exist
        if case["kafka"] == "refused" and verdict.refused is None and not warned and f"`{name}`" not in DIFFERENCES:
            unseen.append(name)
        if case["kafka"] == "read" and verdict.refused is not None:
            assert f"`{name}`" in DIFFERENCES, name
        try:
            Config.parse(case["properties"])
        except ConfigError:
            assert verdict.refused is not None or verdict.not_supported is not None, name
    assert unseen == []


@pytest.mark.parametrize(
    ("line", "check", "severity", "found"),
    [
        ("log.retention.hours=0", "config-refused", "fatal", "log.retention.hours=0: allowed is -1 for no limit"),
        ("num.network.threads=abc", "config-refused", "fatal", "num.network.threads=abc: allowed is a whole number"),
        ("create.topic.policy.class.name=com.example.P", "config-not-supported", "warn", "an empty value only"),
        ("process.roles=Broker", "config-refused", "fatal", "there is no role 'Broker'"),
        ("log.dirs=d,,e", "config-refused", "fatal", "an entry is empty; allowed is entries, separated by commas"),
        ("max.connections.per.ip.overrides=[::1]:5", "config-refused", "fatal", "'[::1]' is not a host"),
        ("listeners=CONTROLLER://nowhere at all:1", "config-refused", "fatal", "is not NAME://host:port"),
        ("broker.rack=${env:KRAFT_DOCTOR_NONE}", "config-not-supported", "warn", "there is no config provider 'env'"),
    ],
)
def test_a_setting_with_which_a_node_does_not_start_is_found(
    line: str, check: str, severity: str, found: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = Path(configs_of("healthy-static", tmp_path)[0])
    with config.open("a") as file:
        file.write(f"\n{line}\n")
    report = json.loads(run(capsys, "doctor", "--offline", "--json", "-c", str(config)).out)
    (finding,) = [one for one in report["findings"] if one["id"].startswith("config-")]
    assert (finding["id"], finding["severity"]) == (check, severity)
    assert found in finding["evidence"]
    assert finding["read"][0].startswith(f"{config}:")


def test_a_key_that_nobody_knows_is_found_with_the_one_that_it_may_mean(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = Path(configs_of("healthy-static", tmp_path)[0])
    lines = len(config.read_text().splitlines())
    with config.open("a") as file:
        file.write("\nlistner=CONTROLLER://a:1\nlog.dirz=/x\nacme.reporter=y\nacme.interval=3\n")
    report = json.loads(run(capsys, "doctor", "--offline", "--json", "-c", str(config)).out)
    found = [one for one in report["findings"] if one["id"] == "setting-unknown"]
    assert [(one["severity"], one["evidence"]) for one in found] == [
        ("warn", "there is no setting listner; did you mean listeners?"),
        ("warn", "there is no setting log.dirz; did you mean log.dirs?"),
        ("info", "neither Kafka nor kraft serve has a setting acme.reporter, acme.interval"),
    ]
    assert found[0]["read"] == [f"{config}:{lines + 2}: listner"]


def test_a_file_without_settings_names_line_and_remedy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "c1.properties"
    config.write_text("node.id=1\nlog.dirs=C:\\users\\kafka\n")
    done = run(capsys, "doctor", "--offline", "-c", str(config))
    assert done.code == 3
    assert f"\\users is not a \\u escape ({config}:2). Write a backslash as two of them" in done.err
