"""Tables of Delta Lake and Iceberg, written through Spark: one commit replaces some rows of a table by others.

Each commit carries the number of its publication, so a commit that is tried again changes nothing. The jars are the
session's: `--packages` fetches them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from metadata_log.spark.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_APPLICATION: Final = "kraft-materialize"
_NUMBER: Final = "kraft.publication"
ALL_ROWS: Final = "cluster IS NOT NULL"
"""The condition that every row of a table meets."""
_JARS: Final = {
    "delta": {
        "4.0": "io.delta:delta-spark_2.13:4.0.1",
        "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    "iceberg": {
        "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
        "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    },
}
"""The newest release of each format for each Spark, as of November 2026. Neither has one for Spark 4.3."""


class Delta(Struct, frozen=True):
    """Tables of Delta Lake, one directory each.

    Args:
        location: The directory above the tables: a path, or a URL that the session can write.
    """

    location: str

    def table(self, name: str) -> str:
        """A table in SQL."""
        return f"delta.`{self.path(name)}`"

    def path(self, name: str) -> str:
        """The directory of a table."""
        return f"{self.location.rstrip('/')}/{name}"

    def write(self, name: str, frame: DataFrame, condition: str, number: int, partitions: tuple[str, ...]) -> None:
        """Replace the rows that meet a condition; all rows of the frame meet the condition too."""
        writer = frame.write.format("delta").mode("overwrite").partitionBy(*partitions)
        writer = writer.option("replaceWhere", condition).option("txnAppId", _APPLICATION).option("txnVersion", number)
        writer.save(self.path(name))


class Iceberg(Struct, frozen=True):
    """Tables of Iceberg in a catalog of the session.

    Args:
        namespace: The catalog and the namespace, such as `kraft.fleet`.
    """

    namespace: str

    def table(self, name: str) -> str:
        """A table in SQL."""
        return f"{self.namespace}.{name}"


Lake = Delta | Iceberg
_CLASSES: Final[dict[type[Lake], str]] = {
    Delta: "io.delta.sql.DeltaSparkSessionExtension",
    Iceberg: "org.apache.iceberg.spark.SparkCatalog",
}
"""A class of the jar of each format."""


def package(kind: str, spark_version: str) -> str:
    """The Maven coordinates of a format for a version of Spark; raises `SourceError` if no release is known."""
    release = ".".join(spark_version.split(".")[:2])
    if release not in _JARS[kind]:
        known = ", ".join(f"{version} ({jar})" for version, jar in _JARS[kind].items())
        raise SourceError(
            f"no jar of {kind} for Spark {release} is known",
            hint=f"Name one with --packages, or install one of these releases of PySpark: {known}.",
        )
    return _JARS[kind][release]


def newest_package(kind: str) -> str:
    """The Maven coordinates of the newest release of a format that is known."""
    *_, newest = _JARS[kind].values()
    return newest


def settings(lake: Lake, location: str) -> dict[str, str]:
    """The settings of a session for a format: its extensions and its catalog."""
    match lake:
        case Delta():
            return {
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            }
        case Iceberg(namespace=namespace):
            catalog = f"spark.sql.catalog.{namespace.partition('.')[0]}"
            return {
                "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
                catalog: "org.apache.iceberg.spark.SparkCatalog",
                f"{catalog}.type": "hadoop",
                f"{catalog}.warehouse": location,
            }


def check_session(spark: SparkSession, lake: Lake) -> None:
    """Raise `SourceError` if the session lacks the classes or the settings of a format."""
    if not has_jar(spark, lake):
        kind = type(lake).__name__.lower()
        raise SourceError(
            f"this Spark session has no jars of {kind}: the class {_CLASSES[type(lake)]} is missing",
            hint=f"Start the session with --packages {package(kind, spark.version)}, or with the jar in --jars.",
        )
    for name in settings(lake, ""):
        if name.endswith((".type", ".warehouse")):
            continue
        if spark.conf.get(name, None) is None:
            value = settings(lake, "")[name]
            raise SourceError(f"this Spark session lacks the setting {name}", hint=f"Set {name}={value} at its start.")


def has_jar(spark: SparkSession, lake: Lake) -> bool:
    """Whether a session with a JVM of its own has the classes of a format."""
    machine = spark.sparkContext._jvm
    assert machine is not None
    return bool(machine.org.apache.spark.util.Utils.classIsLoadable(_CLASSES[type(lake)]))


def has_table(spark: SparkSession, lake: Lake, name: str) -> bool:
    """Whether a table is there; Spark's catalog raises an error for a directory without a table of Delta Lake."""
    match lake:
        case Delta():
            machine = spark.sparkContext._jvm
            assert machine is not None
            found = machine.io.delta.tables.DeltaTable.isDeltaTable(spark._jsparkSession, lake.path(name))
            return bool(found)
        case Iceberg():
            return spark.catalog.tableExists(lake.table(name))


def replace_rows(
    spark: SparkSession,
    lake: Lake,
    name: str,
    frame: DataFrame,
    condition: str,
    number: int,
    partitions: tuple[str, ...],
) -> None:
    """Replace the rows of a table that meet a condition, in one commit; nothing if the publication is in the table.

    Args:
        spark: The session.
        lake: The format and the place.
        name: The table; made if missing.
        frame: The new rows; each meets the condition.
        condition: The rows to be replaced, in SQL.
        number: The number of the publication.
        partitions: The columns by which a new table is partitioned; none for a small table of one file.
    """
    spread = frame.repartition(*partitions) if partitions else frame.coalesce(1)
    match lake:
        case Delta():
            lake.write(name, spread, condition, number, partitions)
        case Iceberg():
            _replace_in_iceberg(spark, lake, name, spread, condition, number, partitions)


def _replace_in_iceberg(
    spark: SparkSession,
    lake: Iceberg,
    name: str,
    frame: DataFrame,
    condition: str,
    number: int,
    partitions: tuple[str, ...],
) -> None:
    from pyspark.sql import functions as sql

    table = lake.table(name)
    if not has_table(spark, lake, name):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake.namespace}")
        columns = [sql.col(column) for column in partitions]
        maker = frame.limit(0).writeTo(table).using("iceberg")
        (maker.partitionedBy(columns[0], *columns[1:]) if columns else maker).create()
    known = spark.sql(f"SELECT max(CAST(summary['{_NUMBER}'] AS BIGINT)) FROM {table}.snapshots").collect()[0][0]
    if known is None or known < number:
        writer = frame.writeTo(table).option(f"snapshot-property.{_NUMBER}", str(number))
        writer.overwrite(sql.expr(condition))


def take_back(spark: SparkSession, lake: Lake, name: str, condition: str) -> None:
    """Remove rows of a table of Iceberg, which cannot replace a part of a file, in a commit of its own."""
    if has_table(spark, lake, name):
        spark.sql(f"DELETE FROM {lake.table(name)} WHERE {condition}")


def compact(spark: SparkSession, lake: Lake, name: str) -> None:
    """Merge the small files of each partition, as the format does it. The rows stay."""
    match lake:
        case Delta():
            spark.sql(f"OPTIMIZE {lake.table(name)}")
        case Iceberg(namespace=namespace):
            catalog, _, inner = namespace.partition(".")
            spark.sql(
                f"CALL {catalog}.system.rewrite_data_files(table => '{inner}.{name}',"
                " options => map('min-input-files', '2'))"
            )


def text(value: str) -> str:
    """A literal of SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
