"""The trace of a run: its last lines are kept for failures, and its digest identifies the run."""

from __future__ import annotations

import errno
import hashlib
import re
from collections import deque
from typing import Final

TAIL_LINES: Final = 60
DIGEST_LINES: Final = 64
"""The number of lines that the digest takes at once, for speed."""
_SYSTEM_ERROR: Final = re.compile(r"\[Errno (\d+)\]")


class Trace:
    """Collects the lines of a trace; keeps all of them only on request."""

    def __init__(self, *, keep_all: bool = False) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._fresh: list[str] = []
        self._lines: deque[str] = deque(maxlen=None if keep_all else TAIL_LINES)

    def add(self, now_ms: int, node_id: int, what: str) -> None:
        """Add a line for a node; node 0 is the world."""
        fresh = self._fresh
        fresh.append(f"{now_ms} {node_id} {what}")
        if len(fresh) == DIGEST_LINES:
            self._take_in()

    def _take_in(self) -> None:
        text = "".join(self._fresh)
        if "[Errno " in text:
            self._fresh = [_SYSTEM_ERROR.sub(_name_of, line) for line in self._fresh]
            text = "".join(self._fresh)
        self._digest.update(text.encode())
        self._lines.extend(self._fresh)
        self._fresh.clear()

    @property
    def digest(self) -> str:
        """The digest of all lines so far, in hexadecimal."""
        self._take_in()
        return self._digest.hexdigest()

    @property
    def text(self) -> str:
        """The kept lines."""
        self._take_in()
        return "\n".join(self._lines)


def _name_of(error: re.Match[str]) -> str:
    """The name of a system error: its number is another one on other systems, as in a browser."""
    return f"[{errno.errorcode.get(int(error[1]), error[1])}]"
