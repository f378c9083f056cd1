"""One night in one Spark job: bring the tables up to date, and end with 1 if the gate does not open.

Usage: spark-submit nightly_job.py PATHS LAKE [GATE [FORMAT]]
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import SparkSession

from metadata_log.spark.lakes.publish import materialize_into
from metadata_log.spark.lakes.rows import Delta, Iceberg, Lake, local_catalog
from metadata_log.spark.materialize import find_fleet, make_job, new_run_id, run_in_spark
from metadata_log.tables.cluster import Gate


def main(paths: str, lake: str, gate: str = "fail", form: str = "parquet") -> int:
    """Materialise the clusters at `paths` in the tasks of the session; returns the exit code.

    Args:
        paths: A glob of archives or log directories, as each worker sees it.
        lake: The directory of the tables, as each worker sees it.
        gate: What damage and gaps do: fail, warn or settle.
        form: The format of the tables: parquet, delta or iceberg. The driver writes the last two.
    """
    spark = SparkSession.builder.appName("kraft nightly").getOrCreate()
    formats: dict[str, Lake] = {
        "delta": Delta(lake),
        "iceberg": Iceberg("fleet", "kraft", local_catalog(os.path.abspath(lake))),
    }
    place = formats.get(form)
    job = make_job(lake, run=new_run_id(datetime.now(UTC)), gate=Gate(gate), is_staged=place is not None)
    fleet, work = find_fleet([paths], {}), partial(run_in_spark, spark)
    run = work(fleet, job) if place is None else materialize_into(place, fleet, job, work=work)
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
