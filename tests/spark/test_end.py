"""The end of a run of tests with a Spark session."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from support import ROOT

TESTS = (
    "tests/kraft/cli/test_cli_serve.py::test_a_port_in_use_is_one_clear_line",
    "tests/spark/test_end.py::test_a_session_counts",
)
SECONDS = 300


def test_a_session_counts(spark: SparkSession) -> None:
    """The run below needs a session, which ends after its last test."""
    assert spark.range(3).count() == 3


@pytest.mark.spark_cluster
def test_a_run_ends_with_its_summary() -> None:
    """Py4j logs that it closes its connections when no test captures output any more; nothing else may write then."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(r"2 passed in [\d.]+s.*", done.stdout.splitlines()[-1]), done.stdout
    assert done.stderr == ""
