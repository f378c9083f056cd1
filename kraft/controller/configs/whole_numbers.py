"""Parses whole numbers in configurations as Java does (`Integer.parseInt`, `Long.parseLong`)."""

from __future__ import annotations

import re
from typing import Final

_WHOLE: Final = re.compile(r"([+-]?)(?=[0-9])0*+([0-9]{0,19})")
"""Leading zeros do not count. The other digits are at most as many as a LONG has: Python refuses to parse thousands of
digits, even zeros.
"""


def whole_number(text: str) -> int | None:
    """The number in a text; None if the text is not a number or exceeds a LONG."""
    found = _WHOLE.fullmatch(text)
    if found is None:
        return None
    number = int(found[1] + (found[2] or "0"))
    return number if -(2**63) <= number < 2**63 else None
