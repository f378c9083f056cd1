"""Small text files by Java's rules (Java: `BufferedReader.readLine`, `String.trim`, `Integer.parseInt`).

Python's `splitlines`, `strip` and `isdigit` accept more line ends, blanks and digits than Java, so that Python and
Kafka would disagree about some files.
"""

from __future__ import annotations

import re
from typing import Final

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_WHOLE_NUMBER: Final = re.compile(r"([+-]?)(?=\d)0*+(\d{0,19})")
"""Leading zeros do not count. Python refuses to parse thousands of digits, even zeros."""
_BLANKS: Final = "".join(map(chr, range(ord(" ") + 1)))


def lines(text: str) -> list[str]:
    """The lines of a text; no empty line follows the last line end."""
    parts = _LINE_END.split(text)
    return parts if parts[-1] else parts[:-1]


def trim(text: str) -> str:
    """The text without blanks and control characters at both ends."""
    return text.strip(_BLANKS)


def whole_number(text: str, bits: int = 32) -> int | None:
    """The number of a text, with or without a sign; None for any other text, and for a number beyond `bits` bits."""
    match = _WHOLE_NUMBER.fullmatch(text)
    if match is None:
        return None
    value = int(match[1] + (match[2] or "0"))
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def utf8(data: bytes) -> str:
    """Bytes as text (`new String(bytes, UTF_8)`): what is no UTF-8 becomes U+FFFD, a half of a surrogate pair one."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")
