"""Run the models of `examples/fleet/dbt` over materialised tables with DuckDB alone, then their tests.

Usage: python run_models.py LAKE [FORMAT]
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
from jinja2 import Template
from lake_tables import read_table

PROJECT = Path(__file__).parent / "dbt"


def run_models(lake: str, form: str = "parquet") -> duckdb.DuckDBPyConnection:
    """A connection in which each model is a table.

    Args:
        lake: The directory of the tables of `kraft fleet materialize --clusters`.
        form: The format of the tables.

    Raises:
        ValueError: A test of the models found rows.
    """
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    waiting = {path.stem: path.read_text() for path in sorted((PROJECT / "models").glob("*.sql"))}
    done: set[str] = set()

    def source(_: str, name: str) -> str:
        connection.register(f"source_{name}", read_table(lake, name, form))
        return f"source_{name}"

    def ref(name: str) -> str:
        if name not in done:
            done.add(name)
            connection.execute(f"CREATE TABLE {name} AS {rendered(waiting[name])}")
        return name

    def rendered(text: str) -> str:
        return Template(text).render(source=source, ref=ref)

    for name in waiting:
        ref(name)
    for path in sorted((PROJECT / "tests").glob("*.sql")):
        if wrong := connection.execute(rendered(path.read_text())).fetchmany(3):
            raise ValueError(f"{path.stem}: {wrong}")
    return connection


if __name__ == "__main__":
    run_models(*sys.argv[1:]).table("availability_by_day").order("cluster_name, day").show()
