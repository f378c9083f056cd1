"""Packages with lazily loaded names (PEP 562), so that an import loads only the modules that it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package; `dir` and `help` show names that are not loaded yet, too.

    Args:
        package: The name of the package, for the text of the error.
        homes: By name the module that defines it.

    Returns:
        A function that imports the module of a name and returns its attribute of that name, and one that returns the
        names. The first raises `AttributeError` for a name that has no home.
    """

    def attribute(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return attribute, public_dir(package, homes)


def public_dir(package: str, homes: Iterable[str] = ()) -> Callable[[], list[str]]:
    """The `__dir__` of a public module: its `__all__` and the names that every module has, and not what it imports."""

    def names() -> list[str]:
        own = vars(sys.modules[package])
        public = own.get("__all__", homes)
        return sorted({*public, *(name for name in own if name.startswith("__"))})

    return names
