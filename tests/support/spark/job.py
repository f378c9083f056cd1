"""A Spark application of its own, started by tests: one JSON object of settings in, one of results out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from metadata_log.spark import KraftDataSource, prepare_environment, views


def session(settings: dict[str, Any]) -> SparkSession:
    builder = SparkSession.builder.master(settings["master"]).appName("tests")
    fixed = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.sql.warehouse.dir": f"{settings['root']}/warehouse",
    }
    for name, value in {**fixed, **settings.get("conf", {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read(spark: SparkSession, settings: dict[str, Any]) -> dict[str, Any]:
    """The rows of a fleet, and the Python that read them."""
    records = spark.read.format("kraft").options(**settings.get("options", {})).load(settings["path"])
    by_cluster = {row["cluster"]: row["count"] for row in records.groupBy("cluster").count().collect()}
    leaders = views(spark, settings["path"]).leader_history().count() if settings.get("history") else None
    tasks = records.rdd.getNumPartitions()
    return {"records": by_cluster, "leaders": leaders, "tasks": tasks}


def follow(spark: SparkSession, settings: dict[str, Any]) -> dict[str, Any]:
    """Write what comes into Parquet files until nothing has come for a while, or for ever."""
    source = spark.readStream.format("kraft").options(**settings.get("options", {})).load(settings["path"])
    writer = source.select("cluster", "offset", "epoch", "damage").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", settings["checkpoint"]).option("path", settings["out"])
    if settings.get("every"):
        query = writer.trigger(processingTime=settings["every"]).start()
        print("started", flush=True)
        query.awaitTermination()
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.read.parquet(settings["out"]).collect()
    return {"rows": sorted([row["cluster"], row["offset"], row["epoch"], row["damage"]] for row in rows)}


def sql(spark: SparkSession, settings: dict[str, Any]) -> dict[str, Any]:
    """The rows of the last of some statements."""
    rows = [spark.sql(statement).collect() for statement in settings["statements"]]
    return {"rows": [list(row) for row in rows[-1]]}


def main() -> None:
    settings = json.loads(sys.argv[1])
    prepare_environment(Path(settings["root"]))
    spark = session(settings)
    try:
        for path in settings.get("ship", []):
            spark.sparkContext.addPyFile(path)
        if settings.get("register", True):
            spark.dataSource.register(KraftDataSource)
        print(json.dumps({"read": read, "follow": follow, "sql": sql}[settings["do"]](spark, settings)), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
