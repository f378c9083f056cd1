"""Found by Spark: it looks for installed packages named `pyspark_*` and registers what they call `DefaultSource`."""

from metadata_log.spark.source import KraftDataSource as DefaultSource

__all__ = ["DefaultSource"]
