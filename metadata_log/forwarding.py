"""Module names that are deprecated: for one release they forward to the modules that have taken their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from warnings import warn


def forward(old: str, new: str, renamed: Mapping[str, str] | None = None) -> Callable[[str], object]:
    """Return the `__getattr__` (PEP 562) of the module `old`, which takes every name from the module `new`.

    `renamed` gives the new names of those that are called otherwise there. Each use warns with `DeprecationWarning`. A
    name that `new` does not have raises `AttributeError`.
    """

    def attribute(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        module = import_module(new)
        there = name if hasattr(module, name) else (renamed or {}).get(name, name)
        found: object = getattr(module, there)
        warn(f"{old} is deprecated: import {there} from {new}", DeprecationWarning, stacklevel=2)
        return found

    return attribute
