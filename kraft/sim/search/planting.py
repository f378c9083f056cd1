"""Where bugs that are planted on purpose come from: the package `planted_bugs`, which stands beside the tests. No wheel
has it, so that there is no bug to plant where Trio-kraft is installed from a wheel.
"""

# ruff: noqa: D102
from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol


class Bug(Protocol):
    """A planted bug, for a search, a list of bugs and a saved schedule."""

    @property
    def name(self) -> str: ...
    @property
    def what(self) -> str: ...
    @property
    def scope(self) -> str: ...
    @property
    def budget(self) -> int: ...
    @property
    def faults(self) -> tuple[str, ...] | None: ...
    @property
    def profile(self) -> str: ...


def bugs() -> Mapping[str, Bug]:
    """All bugs that can be planted, by name; none without the package."""
    package = _package()
    mutants: Mapping[str, Bug] = {} if package is None else package.MUTANTS
    return mutants


def planted(name: str | None) -> AbstractContextManager[Any]:
    """A block in which the code of this process has the bug of this name; None for sound code.

    Raises:
        KeyError: There is no bug of this name.
    """
    if name is None:
        return nullcontext()
    package = _package()
    if package is None:
        raise KeyError(name)
    block: AbstractContextManager[Any] = package.planted(name)
    return block


def _package() -> ModuleType | None:
    try:
        return import_module("planted_bugs")
    except ModuleNotFoundError:
        return None
