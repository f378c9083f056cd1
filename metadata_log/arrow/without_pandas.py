"""Keeps pandas out of a process that has no use for it."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

import pyarrow as pa


class _Nowhere(MetaPathFinder):
    """Finds no pandas."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not looked for here", name=fullname)
        return None


def without_pandas() -> None:
    """Let pyarrow do without pandas, which it loads for its first array where pandas is installed: 0.3 s of processor.

    It is for the process of a command. In another program pyarrow would then take the missing values of pandas (`NaT`)
    for unknown objects. `to_pandas` works in any case: pyarrow looks for pandas again where it cannot do without. Does
    nothing where pandas is loaded, or Spark, which works with it.
    """
    if not sys.modules.keys().isdisjoint(("pandas", "pyspark")):
        return
    nowhere = _Nowhere()
    sys.meta_path.insert(0, nowhere)
    try:
        pa.array([0])  # pyarrow looks once, and remembers what it saw
    finally:
        sys.meta_path.remove(nowhere)
