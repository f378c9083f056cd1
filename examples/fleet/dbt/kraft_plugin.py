"""The plugin of dbt-duckdb that reads the tables, whatever their format."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
from dbt.adapters.duckdb.plugins import BasePlugin
from dbt.adapters.duckdb.utils import SourceConfig

sys.path.append(str(Path(__file__).parent.parent))

from lake_tables import read_table


class Plugin(BasePlugin):
    """Reads a source by its name."""

    def load(self, source_config: SourceConfig) -> pa.Table:
        """All rows of a table of `KRAFT_LAKE`, in the format `KRAFT_FORMAT`."""
        return read_table(os.environ["KRAFT_LAKE"], source_config.identifier, os.environ.get("KRAFT_FORMAT", "parquet"))
