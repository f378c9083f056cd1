"""The former names of mutants, which still work for one release."""

from __future__ import annotations

from typing import Final
from warnings import warn

FORMER_NAMES: Final = {
    "nobody-needs-a-snapshot": "records-instead-of-a-snapshot",
    "sessions-for-anybody": "sessions-without-registration",
}
"""By former name the present one."""


def present_name(name: str) -> str:
    """The present name of a mutant; a former name warns with `DeprecationWarning`."""
    present = FORMER_NAMES.get(name)
    if present is None:
        return name
    warn(f"the mutant {name} is called {present}; the former name ends with the next release", DeprecationWarning, 3)
    return present
