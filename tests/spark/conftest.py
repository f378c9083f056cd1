"""One Spark session for all tests that need one: two threads, no UI, UTC; started when the first of them runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from metadata_log.spark import prepare_environment
from support.interop.real_kafka import QUICK_START

ROOT = Path(__file__).parent.parent.parent
SETTINGS = {
    # The sessions are short: no code earns what the second compiler costs.
    "spark.driver.extraJavaOptions": " ".join(QUICK_START),
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.python.filterPushdown.enabled": "true",
}


@pytest.fixture(scope="session")
def spark_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for what Spark leaves behind; its workers find this tree's packages."""
    prepare_environment(tmp_path_factory.mktemp("java"))
    inherited = os.environ.get("PYTHONPATH")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([inherited] if inherited else [])])
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(spark_environment: Path) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.config("spark.sql.warehouse.dir", str(spark_environment / "warehouse")).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
