"""Makes texts from logs and untrusted peers safe for a terminal, a page or a log line.

Names, values, client ids and reasons come from clients. A control character can move a terminal's cursor or change its
colours and title, a line break forges a line, and a bidirectional override reverses a text (CVE-2021-42574).
"""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = r"\x00-\x09\x0b-\x1f\x7f-\x9f"
_INVISIBLE: Final = (
    r"\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's format characters, line and paragraph separators, and characters without a glyph."""
_HALVES: Final = r"\ud800-\udfff"
"""Halves of surrogate pairs, which Python uses for the bytes of a file name that are not UTF-8."""
_NOT_IN_LINES: Final = f"[{_CONTROL}{_INVISIBLE}{_HALVES}]"
_NOT_IN_A_LINE: Final = f"[\n{_NOT_IN_LINES[1:]}"
"""Patterns that `re` compiles, and then keeps, for the first text that needs them."""
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """A text as one line of visible characters; JSON stays JSON with the same content.

    Invisible characters are escaped as in JSON: `\\n`, `\\u001b`, and above U+FFFF as a surrogate pair.
    """
    return text if text.isprintable() else re.sub(_NOT_IN_A_LINE, _escaped, text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines: trusted line breaks stay."""
    return text if text.replace("\n", "").isprintable() else re.sub(_NOT_IN_LINES, _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    if code > 0xFFFF:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return _SHORT.get(character) or f"\\u{code:04x}"
