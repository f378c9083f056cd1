"""Tables of Spark's catalog over metadata logs: `CREATE TABLE t USING kraft OPTIONS (path …, view …)`.

Spark tells a Python data source the options of a table only when the table is created. A query of the table gets the
columns that the catalog has stored, and the options of the query alone. So the columns of a new table carry the options
of the table, in the metadata of the first column (decision 0063).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from metadata_log.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_PROVIDER: Final = "provider"
"""The key that Spark adds for a new table, and for no query."""
_LOCATION: Final = "location"
PATHS: Final = ("path", "paths")
"""The options that say where the logs are."""
_OPTION: Final = "option."
"""Spark repeats each option of a table with this prefix; a property of the table has no such repetition."""
_STORED: Final = "kraft.options"
_LOCAL: Final = "file:/"


def is_table(given: Mapping[str, str]) -> bool:
    """Whether Spark gives these options to create a table."""
    return any(name.lower() == _PROVIDER for name in given)


def options_of_table(given: Mapping[str, str]) -> dict[str, str]:
    """The options of a new table, without Spark's own keys and without the table's properties.

    Args:
        given: All that Spark gives: options, properties, and keys such as `owner` and `is_managed_location`.

    Returns:
        The options by their names in lower case. `LOCATION` is the option `path`, as Spark itself has it.
    """
    by_lower = {name.lower(): value for name, value in given.items()}
    chosen = {name: value for name, value in by_lower.items() if f"{_OPTION}{name}" in by_lower or name in PATHS}
    if _LOCATION in by_lower:
        # Spark makes a URI of the location.
        path = by_lower[_LOCATION]
        chosen["path"] = unquote(path) if path.startswith(_LOCAL) else path
    return chosen


def check_paths(paths: Sequence[str]) -> None:
    """Raise `OptionError` for a relative path: the catalog does not keep the directory that the path begins in."""
    from metadata_log.spark.storage import is_remote

    for path in paths:
        if not (is_remote(path) or path.startswith(("/", _LOCAL))):
            raise OptionError(
                f"the path {path!r} of a table is relative, and each query would begin in the directory of its Spark",
                hint=f"Give an absolute path, such as {os.path.abspath(path)}",
            )


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns of a table that carry its options."""
    from pyspark.sql.types import StructField, StructType

    first, *others = schema.fields
    carried = {**(first.metadata or {}), _STORED: json.dumps(dict(options))}
    return StructType([StructField(first.name, first.dataType, first.nullable, carried), *others])


def stored_options(schema: StructType) -> dict[str, str]:
    """The options that the columns of a table carry; empty for the columns of a query without a table."""
    for field in schema.fields:
        text = (field.metadata or {}).get(_STORED)
        if text is not None:
            return {str(name): str(value) for name, value in json.loads(text).items()}
    return {}
