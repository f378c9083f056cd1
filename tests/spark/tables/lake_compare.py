"""Runs with another PySpark than the other tests: compares tables of Delta Lake or Iceberg with those of Parquet.

One JSON object of settings in, the number of rows of each view out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lake_job import CONF, rows, rows_of_parquet

from metadata_log.spark.java import prepare_environment
from metadata_log.spark.lakes.lake import Delta, Iceberg, Lake
from metadata_log.spark.lakes.lake_session import lake_session


def main() -> None:
    settings = json.loads(sys.argv[1])
    out, wanted = settings["out"], settings["wanted"]
    prepare_environment(Path(settings["root"]))
    lake: Lake = Delta(out) if settings["format"] == "delta" else Iceberg("kraft.fleet")
    with lake_session(lake, out, master="local[2]", conf=CONF) as spark:
        counts = {}
        for view in settings["views"]:
            found = rows(spark.sql(f"SELECT * FROM {lake.table(view)}"))
            assert found == rows_of_parquet(spark, f"{wanted}/{view}"), view
            counts[view] = len(found)
        print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
