"""Packages with lazily loaded names (PEP 562), so that an import loads only the modules that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from warnings import warn


def lazy_names(
    package: str,
    homes: Mapping[str, str],
    renamed: Mapping[str, str] | None = None,
    moved: Mapping[str, str] | None = None,
) -> Callable[[str], object]:
    """The `__getattr__` of a package.

    Args:
        package: The name of the package, for the text of the error.
        homes: By name the module that defines it.
        renamed: By deprecated name the new one. Each use of a deprecated name warns with `DeprecationWarning`.
        moved: By deprecated name the module in another package that defines it now. Each use warns, too.

    Returns:
        A function that imports the module of a name and returns its attribute of that name. It raises `AttributeError`
        for a name that has no home.
    """
    deprecated, elsewhere = renamed or {}, moved or {}

    def attribute(name: str) -> object:
        if name in deprecated:
            warn(f"{package}.{name} is deprecated: use {package}.{deprecated[name]}", DeprecationWarning, stacklevel=2)
            name = deprecated[name]
        if name in elsewhere:
            home = elsewhere[name]
            warn(f"{package}.{name} is deprecated: import {name} from {home}", DeprecationWarning, stacklevel=2)
            return getattr(import_module(home), name)
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return attribute
