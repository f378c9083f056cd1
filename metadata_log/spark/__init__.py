"""Kafka's metadata logs in Apache Spark: the data source `kraft`, batch and streaming, and its views as methods."""

from typing import TYPE_CHECKING

from metadata_log.lazy_names import lazy_names

if TYPE_CHECKING:
    from metadata_log.spark.java import prepare_environment
    from metadata_log.spark.methods import views
    from metadata_log.spark.source import KraftDataSource
else:
    _HOMES = {
        "KraftDataSource": "metadata_log.spark.source",
        "prepare_environment": "metadata_log.spark.java",
        "views": "metadata_log.spark.methods",
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)


__all__ = ["KraftDataSource", "prepare_environment", "views"]
