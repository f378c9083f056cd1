"""What tables cost, as a count that a busy machine does not change."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from metadata_log.disk import OsDisk
from metadata_log.history.views import DERIVED_VIEWS, HISTORY_VIEWS
from metadata_log.tables.cluster import ClusterOutcome, Job, materialize_cluster
from metadata_log.types import PARTITION_DIRECTORY
from support.real_data import unpack

MOST_CALLS = 20.0
"""Calls of Python functions for each row, in all views but the states. It was 36 when each row was an object that each
view made by itself."""
MOST_BUILT_IN = 15.0
"""Calls of functions in C; it was 28."""


def made(log: str, out: Path, *views: str) -> ClusterOutcome:
    job = Job(root=str(out), run="run", version="1", views=views)
    return materialize_cluster(OsDisk(), log, "c", OsDisk(), job)


def test_a_row_of_a_table_costs_few_calls(tmp_path: Path) -> None:
    """A log of small batches, all views, files included; the first time prepares what a process needs once."""
    log = str(unpack("static3", "nodes/c1", tmp_path / "log") / PARTITION_DIRECTORY)
    made(log, tmp_path / "first", "topic_history", "unclean_elections")
    calls: Counter[str] = Counter()

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        calls[event] += 1

    former = sys.getprofile()
    sys.setprofile(count)
    try:
        outcome = made(log, tmp_path / "second", *HISTORY_VIEWS, *DERIVED_VIEWS)
    finally:
        sys.setprofile(former)
    assert outcome.open_rows is not None
    rows = outcome.closed_rows + outcome.open_rows
    assert rows > 10_000
    assert calls["call"] / rows < MOST_CALLS
    assert calls["c_call"] / rows < MOST_BUILT_IN


_COMMAND = """
import json, sys
from kraft.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted({"numpy", "pandas", "pyarrow"} & sys.modules.keys())))
"""


def test_a_command_loads_pyarrow_alone(tmp_path: Path) -> None:
    """NumPy and pandas took longer to load than everything else of a night with nothing new."""
    log, out = str(unpack("static3", "nodes/c1", tmp_path / "log")), str(tmp_path / "out")
    words = ("fleet", "materialize", "--out", out, "--jobs", "1", log)
    for night in ("new", "nothing new"):
        told = subprocess.run([sys.executable, "-c", _COMMAND, *words], capture_output=True, check=True, text=True)
        assert night in told.stdout
        assert json.loads(told.stdout.splitlines()[-1]) == ["pyarrow"], night
