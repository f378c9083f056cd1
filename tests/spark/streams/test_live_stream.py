"""A stream over a cluster that is being written: triggers by the clock, a driver that is killed, and a restart."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from metadata_log.arrow import read_records
from support import ROOT
from support.interop.kafka_or_skip import found_or_skipped
from support.interop.real_kafka import (
    CLUSTER_ID,
    KafkaInstallation,
    Process,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_controller,
    kafka_format,
    running,
)
from support.spark.fleets import write_log
from support.spark.spark_processes import JOB, LOOPBACK, run_job

pytestmark = [pytest.mark.spark_cluster, pytest.mark.kafka]
PATIENCE_SECONDS = 400
FEW, MANY = {"maxOffsetsPerTrigger": 20}, {"maxOffsetsPerTrigger": 10_000}
"""What one trigger takes: while the controller writes, so that there are several, and after that.

A slow machine needs 15 s for a trigger, in which the controller writes 30 records: triggers of 20 would leave hundreds.
"""


@pytest.fixture
def kafka() -> KafkaInstallation:
    return found_or_skipped()


def triggers(checkpoint: Path) -> int:
    """How many triggers of a query are done."""
    return len(list((checkpoint / "commits").glob("[0-9]*")))


def test_each_record_once_while_a_real_controller_writes(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Apache Kafka's active controller writes a NoOp record every 500 ms. The driver is killed in between."""
    (port,) = free_ports(1)
    layout = QuorumLayout(tmp_path / "fleet", CLUSTER_ID, {1: port})
    layout.root.mkdir()
    kafka_format(kafka, layout)
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    settings = {
        "do": "follow",
        "master": "local[2]",
        "root": str(tmp_path),
        "path": f"{layout.root}/c*",
        "out": str(out),
        "checkpoint": str(checkpoint),
        "options": MANY,
    }
    with running(layout, kafka_controller(kafka, layout, log="error"), name="kafka"):
        environment = {**LOOPBACK, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(JOB), json.dumps({**settings, "options": FEW, "every": "1 second"})]
        job = Process(command, tmp_path / "job.log", env=environment)
        try:
            job.wait_for("^started", PATIENCE_SECONDS)
            eventually(lambda: triggers(checkpoint) > 1, "the stream writes", PATIENCE_SECONDS)
            write_log(layout.root / "c-new", [1, 1, 2], cluster="new")
            done = triggers(checkpoint)
            eventually(lambda: triggers(checkpoint) > done + 1, "the stream goes on", PATIENCE_SECONDS)
            # Later lines may be complaints of workers about the end of the driver.
            assert "Traceback" not in job.text
        finally:
            job.kill()
        # The JVM of a driver that is killed outlives it for a while, and two queries must not share a checkpoint.
        job.wait_until_closed(PATIENCE_SECONDS)
    again = run_job(settings)
    written = [
        [batch["cluster"], batch["offset"], batch["epoch"], None]
        for path in (layout.log_dir(1), layout.root / "c-new")
        for batch in read_records(str(path), columns=["cluster", "offset", "epoch"]).read_all().to_pylist()
    ]
    assert again["rows"] == sorted(written)
    assert len(written) > 20
    assert run_job(settings) == again
