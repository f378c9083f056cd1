"""`kraft check` as a user sees it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from click.testing import CliRunner

from kraft.cli.files.check import check_command
from kraft.cli.main import report
from metadata_log.errors import MetadataLogError
from support.real_data import unpack


def test_a_real_quorum_is_reported_as_legal(tmp_path: Path) -> None:
    nodes = unpack("clusters", "dynamic3/nodes", tmp_path)
    found = CliRunner().invoke(check_command, [str(nodes / name) for name in ("c1", "c2", "c3", "c4")])
    assert found.exit_code == 0
    assert found.output.splitlines() == [
        "4 directories: no invariant is violated.",
        "7 leaders known, of epochs 1 to 8.",
        "282 batches compared between logs, 0 changes of partitions looked at.",
        "Everything below offset 921 was committed, as a snapshot proves.",
    ]
    segment = max((nodes / "c4" / "__cluster_metadata-0").glob("*.log"))
    os.truncate(segment, segment.stat().st_size - 3)
    for arguments in ([], ["--json"]):
        found = CliRunner().invoke(check_command, [*arguments, str(nodes / "c4")])
        assert found.exit_code == 0
        assert str(segment) in (json.loads(found.output)["notChecked"][0]["where"] if arguments else found.output)


def test_a_violated_invariant_is_reported_with_exit_code_1(tmp_path: Path) -> None:
    nodes = unpack("clusters", "failover/nodes", tmp_path)
    quorum_state = nodes / "c1" / "__cluster_metadata-0" / "quorum-state"
    state = json.loads(quorum_state.read_text())
    quorum_state.write_text(json.dumps(state | {"leaderEpoch": 0}))
    found = CliRunner().invoke(check_command, ["--json", str(nodes / "c1")])
    assert found.exit_code == 1
    told = json.loads(found.output)
    assert not told["isLegal"]
    (finding,) = told["findings"]
    assert finding["rule"] == "MonotonicEpoch"
    assert finding["where"] == f"node 1 ({nodes / 'c1'})"


def test_a_path_that_is_no_log_directory_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(check_command, [str(tmp_path)])
    assert isinstance(found.exception, MetadataLogError)
    assert report(found.exception) == 1
