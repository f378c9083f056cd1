"""The judge of Kafka's ducktape tests: its manifest, its reading of reports, what it keeps, and how its lab is left."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from support.eventually import eventually
from support.judges import ducktape, ducktape_lab
from support.judges.ducktape import main
from support.judges.ducktape_table import (
    MANIFEST,
    Parametrization,
    Result,
    Side,
    chosen,
    keep,
    manifest,
    newest,
    not_run,
    read_report,
    read_results,
    row,
    sitting,
    verdict,
)
from support.judges.table import KINDS, Row

_BRIDGE = ["unshare", "--net", "--mount", "--pid", "--fork", "ip", "link", "add", "lab0", "type", "bridge"]
BOUNCE = Parametrization("sanity_checks/test_bounce.py::TestBounce.test_simple_run", 4, {"quorum_size": 1})
RANGE = Parametrization(
    "tests/client/consumer_test.py::A.test_x", 6, {"by": "org.apache.kafka.clients.consumer.RangeAssignor", "on": True}
)
KNOWN_TO_FAIL = msgspec.structs.replace(BOUNCE, failed="release: other words")


def passed(one: Parametrization, *, commit: str = "abc", side: Side = "ours") -> Result:
    return Result(one.label, side, commit, "2026-11-29T10:00:00+00:00", True, 42.4)


def failed(one: Parametrization, why: str = "TimeoutError('x')") -> Result:
    return msgspec.structs.replace(passed(one), passed=False, why=why)


def test_each_parametrization_is_there_once_with_the_nodes_that_it_asks_for() -> None:
    known = manifest()
    labels = [one.label for one in known]
    assert len(set(labels)) == len(known) >= 40
    assert all(re.fullmatch(r"[a-z_/]+\.py::\w+\.\w+", one.test) and 2 <= one.nodes <= 12 for one in known)
    assert not any(one.failed and one.sometimes for one in known)
    reasons = [one.failed or one.sometimes for one in known if one.failed or one.sometimes]
    assert all(reason.partition(":")[0] in KINDS for reason in reasons)


def test_labels_are_those_of_ducktape_and_words_those_of_a_table() -> None:
    assert BOUNCE.label == 'sanity_checks/test_bounce.py::TestBounce.test_simple_run@{"quorum_size": 1}'
    assert (RANGE.short, RANGE.words) == ("consumer_test test_x", "by=RangeAssignor, on=true")


def test_parts_of_labels_choose_and_unknown_ones_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert chosen([BOUNCE, RANGE], ["consumer_test"]) == [RANGE]
    assert chosen([BOUNCE, RANGE], []) == [BOUNCE, RANGE]
    with pytest.raises(SystemExit) as stopped:
        main(["no_such_test"])
    assert stopped.value.code == 2
    assert "no_such_test" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ([{"test_status": "PASS", "summary": ""}], (True, "")),
        ([{"test_status": "FAIL", "summary": "TimeoutError('slow')\nTraceback"}], (False, "TimeoutError('slow')")),
        (
            [{"test_status": "FAIL", "summary": "RemoteCommandError({'ssh_config': {'host': 'a'}}, 'ls', 1, b'no')"}],
            (False, "command failed: 'ls', 1, b'no'"),
        ),
        ([], (False, "ducktape found no such test")),
    ],
)
def test_a_report_is_read(tmp_path: Path, results: list[dict[str, str]], said: tuple[bool, str]) -> None:
    report = tmp_path / "report.json"
    assert read_report(report) == (False, "ducktape wrote no report")
    report.write_text(json.dumps({"results": results}))
    assert read_report(report) == said


def test_results_are_kept_one_by_one_and_a_torn_line_is_no_result(tmp_path: Path) -> None:
    path = tmp_path / "out" / "results.jsonl"
    assert read_results(path) == []
    for result in (failed(BOUNCE), passed(BOUNCE), passed(RANGE, side="jvm"), passed(RANGE, commit="def")):
        keep(path, result)
    with path.open("ab") as file:
        file.write(b'{"label": "torn')
    kept = read_results(path)
    assert len(kept) == 4
    assert newest(kept, "ours", "abc") == {BOUNCE.label: passed(BOUNCE)}
    assert set(newest(kept, "ours")) == {BOUNCE.label, RANGE.label}


@pytest.mark.parametrize(
    ("one", "result", "told"),
    [
        (BOUNCE, passed(BOUNCE), ""),
        (BOUNCE, failed(BOUNCE), f"{BOUNCE.label}: TimeoutError('x')"),
        (KNOWN_TO_FAIL, failed(BOUNCE), ""),
        (KNOWN_TO_FAIL, passed(BOUNCE), f"{BOUNCE.label} passes: take the reason out of the manifest"),
        (KNOWN_TO_FAIL, passed(BOUNCE, side="jvm"), ""),
        (msgspec.structs.replace(BOUNCE, sometimes="test: a race"), failed(BOUNCE), ""),
        (msgspec.structs.replace(BOUNCE, sometimes="test: a race"), passed(BOUNCE), ""),
    ],
)
def test_what_is_otherwise_is_told(one: Parametrization, result: Result, told: str) -> None:
    assert verdict(one, result) == told


def test_a_row_says_why_a_test_failed() -> None:
    assert row(BOUNCE, passed(BOUNCE)) == "| test_bounce test_simple_run | quorum_size=1 | passed | 42 s |  |"
    assert row(BOUNCE, failed(BOUNCE, "a|b")).endswith(r"| failed | 42 s | unexplained: a\|b |")
    assert row(KNOWN_TO_FAIL, failed(BOUNCE)).endswith("| failed | 42 s | release: other words |")


def test_the_page_has_a_row_for_each_test_and_says_what_passed_late() -> None:
    three = msgspec.structs.replace(BOUNCE, parameters={"quorum_size": 3})
    results = [failed(BOUNCE), passed(BOUNCE), failed(three), passed(RANGE, commit="def"), passed(RANGE, side="jvm")]
    made = sitting([BOUNCE, three, RANGE], results, "ours", "4.2.0", "Two cores.")
    assert (made.judge, made.version, made.date, made.commit) == ("ducktape", "4.2.0", "2026-11-29", "abc")
    assert made.conditions == "Two cores. 1 passed only in a later run."
    assert made.not_run == not_run()
    assert all(why.startswith("harness: ") for why in made.not_run.values())
    assert made.rows == [
        Row("consumer_test test_x", 1, {}, 42, "def"),
        Row("test_bounce test_simple_run", 1, {"quorum_size=3": "unexplained: TimeoutError('x')"}, 85),
    ]


def test_what_is_missing_is_named_at_once(tmp_path: Path) -> None:
    assert f"{tmp_path} is no source tree of Apache Kafka" in ducktape_lab.missing(tmp_path)


def test_beside_kafkas_node_the_metadata_is_that_of_its_release(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("4.2.0, with programs of 4.3.1")
    assert ducktape_lab.release(tmp_path) == "4.3"


def test_the_command_lists_and_shows_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = manifest()
    results = tmp_path / "results.jsonl"
    keep(results, passed(known[0]))
    monkeypatch.setattr(ducktape, "RESULTS", results)
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [one.label for one in known]
    assert main(["--print", known[0].test]) == 0
    assert "1 passed, 0 failed" in capsys.readouterr().out


def test_a_lab_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    """Its nodes reach each other by name, and are processes of a namespace that ends with the lab."""
    if shutil.which("unshare") is None or subprocess.run(_BRIDGE, capture_output=True, check=False).returncode:
        pytest.skip("no namespaces with bridges here")
    (tmp_path / "opt").mkdir()
    mark = f"sleep {time.time_ns()}"
    said = f"nsenter -t $(cat {tmp_path}/nodes/worker1/pid) -n getent hosts worker2 && {mark}"
    command = [str(ducktape_lab.SCRIPTS / "lab.sh"), str(tmp_path), "2", str(tmp_path), "bash", "-c", said]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout is not None
        assert lab.stdout.readline().split() == ["10.9.0.2", "worker2"]
        lab.kill()
    eventually(lambda: not any(mark in _command(each) for each in Path("/proc").glob("[0-9]*")), "the end of the lab")


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def test_the_manifest_says_what_it_is() -> None:
    assert MANIFEST.read_text().startswith("# The parametrizations of Kafka's ducktape tests")
