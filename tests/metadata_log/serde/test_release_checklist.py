"""The checklist from Kafka 4.3.1 to 4.4.0 has what a comparison by hand found."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from metadata_log.releases import NEWEST_RELEASE, SUPPORTED_RELEASES

DATA: Final = Path(__file__).parents[2] / "data"
NEWEST: Final = DATA / "schemas.json.gz"
BEFORE: Final = DATA / "schemas-4.3.1.json.gz"

SPECIFIED: Final = (
    r"metadata_versions\.json 4\.4-IV0: production False -> True",
    r"metadata_versions\.json 4\.4-IV1: new: did_metadata_change True, .*level 32, .*production True.*",
    r"features\.json share\.version: levels, more: bootstrap_metadata_version 4\.4-IV0, level 2",
    r"record_types\.json 29: new: highest 0, lowest 0, name UnregisterControllerRecord",
    r"apis\.json 28: latest 5 -> 6",
    r"TxnOffsetCommitRequest: validVersions 0-5 -> 0-6",
    r"TxnOffsetCommitRequest\.Topics\.Name: ignorable none -> True",
    r"TxnOffsetCommitRequest\.GenerationId: gone: .*",
    r"StreamsGroupHeartbeatResponse\.AcceptableRecoveryLag: type int32 -> int64",
    r"StreamsGroupHeartbeatResponse: fields in another order",
    r"apis\.json 94: new: .*forwardable True, latest 0, .*name UnregisterController, .*",
    r"errors\.json 124: message .* -> The coordinator rejected the request because the state epoch did not match\.",
    r"settings\.json topic remote\.copy\.lag\.ms: new: allowed \[-1,\.\.\.\], .*default 0, .*type LONG",
    r"metrics\.json kafka\.server:type=group-coordinator-metrics offset-count: new",
)
"""A line of each kind."""


@pytest.fixture(scope="module")
def lines() -> list[str]:
    command = [sys.executable, "-m", "metadata_log.serde.declare", str(NEWEST), "--since", str(BEFORE), "--diff"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.removeprefix("- [ ] ") for line in told.splitlines() if line.startswith("- [ ] ")]


def test_the_facts_are_those_of_the_supported_releases() -> None:
    """A new release has facts of its own, and this comparison becomes one of an older pair."""
    assert NEWEST_RELEASE == "4.4.0"
    assert BEFORE.name.removeprefix("schemas-").removesuffix(".json.gz") == SUPPORTED_RELEASES[-2]


def test_a_line_of_each_kind_is_there_and_none_twice(lines: list[str]) -> None:
    assert [pattern for pattern in SPECIFIED if not any(re.fullmatch(pattern, line) for line in lines)] == []
    assert len(set(lines)) == len(lines)
