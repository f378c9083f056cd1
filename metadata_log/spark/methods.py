"""The views of some metadata logs as methods: a thin wrapper around `spark.read.format("kraft").option("view", …)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from metadata_log.spark.directories import check_anything_is_there
from metadata_log.spark.errors import OptionError
from metadata_log.spark.options import nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


class Views:
    """Every view of the logs at some paths, as in `views(spark, path).partitions_state(asOfOffset=1234)`.

    The method of a view takes the options of the source as keywords and returns a DataFrame. The session setting
    `spark.sql.python.filterPushdown.enabled` sets the option `pushFilters`. The name of an unknown view raises
    `AttributeError`.
    """

    def __init__(self, spark: SparkSession, paths: Sequence[str]) -> None:
        self._spark = spark
        self._paths = list(paths)

    def read(self, view: str, **options: str | float | bool) -> DataFrame:
        """Read a view by its name.

        Args:
            view: The name: `records`, a record type, or a history.
            options: The options of the source under Spark's names, such as `asOfOffset=1234`.

        Returns:
            The rows of the view; Spark reads the logs when the DataFrame is evaluated.

        Raises:
            OptionError: The view, an option or a value is unknown. Spark may wrap the error.
            SourceError: Nothing at all is at the paths. Spark Connect says so when the DataFrame is evaluated.
        """
        from metadata_log.arrow.schema import DAMAGE

        if view != DAMAGE and (where := _directory_of(self._spark)) is not None:
            check_anything_is_there(self._paths, where)
        reader = self._spark.read.format("kraft").option("view", view)
        if self._spark.conf.get(_PUSHDOWN, "false") == "true":
            reader = reader.option("pushFilters", True)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load(self._paths if len(self._paths) != 1 else self._paths[0])

    def __getattr__(self, view: str) -> Callable[..., DataFrame]:
        from metadata_log.spark.rows import view_names

        if view not in view_names():
            raise AttributeError(f"there is no view {view!r}{nearest(view, view_names())}")
        return lambda **options: self.read(view, **options)

    def __dir__(self) -> list[str]:
        from metadata_log.spark.rows import view_names

        return sorted({*super().__dir__(), *view_names()})


def views(spark: SparkSession, *paths: str) -> Views:
    """Register the source `kraft` in the session and return the views of some logs.

    Args:
        spark: The session.
        paths: Directories, files and globs; at least one.

    Returns:
        An object with one method for each view.

    Raises:
        OptionError: No path is given.
    """
    if not paths:
        raise OptionError("no path is given: views(spark, path, …) takes directories, files and globs")
    register(spark)
    return Views(spark, paths)


def _directory_of(spark: SparkSession) -> str | None:
    """Where the relative paths of a session begin; None if its files may be on another machine (Spark Connect)."""
    jvm = getattr(spark, "_jvm", None)
    return None if jvm is None else str(jvm.java.lang.System.getProperty("user.dir"))


def register(spark: SparkSession) -> None:
    """Register the source `kraft` in a session that lacks it."""
    from metadata_log.spark.source import KraftDataSource

    if not _is_registered(spark):
        spark.dataSource.register(KraftDataSource)


def _is_registered(spark: SparkSession) -> bool:
    """Whether the session knows the source: Spark warns about a source that replaces another one.

    A session of Spark Connect cannot tell; its server gives no such warning.
    """
    session = getattr(spark, "_jsparkSession", None)
    return session is not None and bool(session.sessionState().dataSourceManager().dataSourceExists("kraft"))
