"""Processes of Spark: a job with a driver of its own, a master, a worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from support import ROOT
from support.interop.real_kafka import Process

JOB = Path(__file__).parent / "job.py"
LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}
JOB_SECONDS = 900


def run_job(settings: dict[str, Any], *, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a job to its end; its last line is its result."""
    environment = {"PYTHONPATH": str(ROOT), **os.environ, **LOOPBACK} if env is None else env
    command = [sys.executable, str(JOB), json.dumps(settings)]
    done = subprocess.run(
        command, env=environment, cwd=settings["root"], capture_output=True, text=True, timeout=JOB_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@contextmanager
def spark_class(name: str, *arguments: str, log: Path, home: Path | None = None) -> Iterator[Process]:
    """A process of Spark while the block lasts; `home` is another Spark than that of this interpreter."""
    home = home or Path(pyspark.__file__).parent
    environment = {**LOOPBACK, "SPARK_HOME": str(home), "SPARK_LOCAL_HOSTNAME": "127.0.0.1"}
    process = Process([f"{home}/bin/spark-class", name, *arguments], log, env=environment)
    try:
        yield process
    finally:
        process.stop()
