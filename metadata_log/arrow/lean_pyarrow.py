"""Loads pyarrow without pandas and NumPy, in a process that has no use for them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Final

_LEFT_OUT: Final = ("numpy", "pandas")


class _Nowhere(MetaPathFinder):
    """Finds none of the two."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname in _LEFT_OUT:
            raise ModuleNotFoundError(f"{fullname} is not looked for here", name=fullname)
        return None


def load_lean_pyarrow() -> None:
    """Load pyarrow, and let it do without NumPy and pandas, which cost a process more to load than pyarrow itself.

    pyarrow loads NumPy at its start and pandas a moment later, where they are installed. It is for the process of
    a command, before anything else loads pyarrow. In another program pyarrow would then take the values of both for
    unknown objects. `to_pandas` works in any case: pyarrow looks for pandas again where it cannot do without. Does
    nothing where NumPy or pandas is loaded, or Spark, which works with them.
    """
    if sys.modules.keys().isdisjoint((*_LEFT_OUT, "pyspark")):
        with _left_out():
            import pyarrow as pa

            # pyarrow looks for pandas on two occasions, and remembers what it saw.
            pa.array([0])
            assert not pa.lib._pandas_api.have_pandas


def load_lean_compute() -> None:
    """Load the functions of Arrow without NumPy too, if pyarrow was loaded without."""
    if "pyarrow" in sys.modules and "numpy" not in sys.modules:
        with _left_out():
            import_module("pyarrow.compute")


@contextmanager
def _left_out() -> Iterator[None]:
    nowhere = _Nowhere()
    sys.meta_path.insert(0, nowhere)
    try:
        yield
    finally:
        sys.meta_path.remove(nowhere)
