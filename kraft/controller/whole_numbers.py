"""Whole numbers in configurations as Java reads them (`Integer.parseInt`, `Long.parseLong`)."""

from __future__ import annotations

import re
from typing import Final

_WHOLE: Final = re.compile(r"([+-]?)(?=[0-9])0*+([0-9]{0,19})")
"""Zeros in front do not count. Without them there are no more digits than a LONG has: Python refuses to read thousands,
zeros or not.
"""


def whole_number(text: str) -> int | None:
    """The number that a text says; None if it says none, or one that no LONG holds."""
    found = _WHOLE.fullmatch(text)
    if found is None:
        return None
    number = int(found[1] + (found[2] or "0"))
    return number if -(2**63) <= number < 2**63 else None
