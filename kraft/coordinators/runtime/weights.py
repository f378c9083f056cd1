"""How much memory something takes that clients choose: never less than it does, as far as Python's own sizes go."""

from __future__ import annotations

from typing import Final

_TEXT_BYTES: Final = 80
_WIDEST: Final = 4
"""The bytes of each character, if one of them is beyond ASCII: a single one may make all of them so wide."""


def text_bytes(text: str | None) -> int:
    """The memory of a text, in bytes."""
    if text is None:
        return 0
    return _TEXT_BYTES + len(text) if text.isascii() else _TEXT_BYTES + _WIDEST * len(text)
