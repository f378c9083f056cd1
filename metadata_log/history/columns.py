"""The description of a view: its name, its columns, and their types and meanings."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

ColumnType = Literal[
    "int8",
    "int16",
    "int32",
    "int64",
    "float64",
    "bool",
    "string",
    "binary",
    "uuid",
    "timestamp",
    "int32[]",
    "int64[]",
    "string[]",
    "uuid[]",
    "map<string,string>",
]
"""The types of columns. In rows a `uuid` is its text form, a `timestamp` milliseconds since 1970 UTC as int, a list a
tuple, and a map a dict."""


class Column(Struct, frozen=True):
    """One column of a view."""

    name: str
    type: ColumnType
    doc: str = ""
    nullable: bool = True


class View(Struct, frozen=True):
    """One view: rows of tuples in the order of `columns`.

    `key` names the columns that identify an object: of one key, at most one row is valid at an offset.
    """

    name: str
    doc: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)
