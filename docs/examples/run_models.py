"""Run the models of `docs/examples/models` over materialised tables with Spark, then their tests.

Usage: python run_models.py LAKE CLUSTERS
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

MODELS = Path(__file__).parent / "models"


def run_models(spark: SparkSession, lake: str, names: str) -> dict[str, DataFrame]:
    """Register the tables and the models as views; returns the models by name. A model reads those before it.

    Args:
        spark: The session.
        lake: The directory of the tables of `kraft fleet materialize`.
        names: The table of the view `clusters`, in Parquet.

    Raises:
        ValueError: A test of the models found rows.
    """
    for table in ("retention", "unavailability", "incidents"):
        spark.read.parquet(f"{lake}/{table}").createOrReplaceTempView(table)
    spark.read.parquet(names).createOrReplaceTempView("cluster_names")
    models = {}
    for path in sorted(MODELS.glob("[0-9]_*.sql")):
        name = re.sub(r"^\d_", "", path.stem)
        models[name] = spark.sql(path.read_text())
        models[name].createOrReplaceTempView(name)
    for path in sorted(MODELS.glob("test_*.sql")):
        if wrong := spark.sql(path.read_text()).limit(3).collect():
            raise ValueError(f"{path.stem}: {wrong}")
    return models


if __name__ == "__main__":
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.sparkContext.setLogLevel("ERROR")
    run_models(session, *sys.argv[1:])["availability_by_day"].orderBy("cluster_name", "day").show(truncate=False)
