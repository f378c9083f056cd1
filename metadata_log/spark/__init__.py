"""Kafka's metadata logs in Apache Spark: the data source `kraft`, batch and streaming, and its views as methods."""

from importlib import import_module
from typing import TYPE_CHECKING

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

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


__all__ = ["KraftDataSource", "prepare_environment", "views"]
