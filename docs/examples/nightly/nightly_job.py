"""One night in one Spark job: bring the tables up to date, and end with 1 if the gate does not open.

Usage: spark-submit nightly_job.py PATHS LAKE [GATE]
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from metadata_log.spark.materialize import find_fleet, make_job, new_run_id, run_in_spark
from metadata_log.tables.cluster import Gate


def main(paths: str, lake: str, gate: str = "fail") -> int:
    """Materialise the clusters at `paths` in the tasks of the session; returns the exit code.

    Args:
        paths: A glob of archives or log directories, as each worker sees it.
        lake: The directory of the tables, as each worker sees it.
        gate: What damage and gaps do: fail, warn or settle.
    """
    spark = SparkSession.builder.appName("kraft nightly").getOrCreate()
    job = make_job(lake, run=new_run_id(datetime.now(UTC)), gate=Gate(gate))
    run = run_in_spark(spark, find_fleet([paths], {}), job)
    for outcome in run.outcomes:
        what = outcome.text or outcome.damage or f"{outcome.records} records"
        print(f"{outcome.cluster} {outcome.status}: {what}")
    spark.stop()
    return 0 if run.is_sound else 1


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    # Databricks takes an exit with 0 for a failure of the task.
    if code:
        sys.exit(code)
