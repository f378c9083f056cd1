"""Entry point for Spark, which finds installed packages named `pyspark_*` and registers their `DefaultSource`."""

from metadata_log.spark.source import KraftDataSource as DefaultSource

__all__ = ["DefaultSource"]
