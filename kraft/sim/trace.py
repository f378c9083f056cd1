"""What happened in a run, line by line: the tail is kept for failures, the digest tells two runs apart."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Final

TAIL_LINES: Final = 60


class Trace:
    """Takes lines; keeps all of them only if asked to."""

    def __init__(self, *, keep_all: bool = False) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._lines: deque[str] = deque(maxlen=None if keep_all else TAIL_LINES)

    def add(self, now_ms: int, node_id: int, what: str) -> None:
        """Note that something happened at a node; 0 stands for the world around."""
        line = f"{now_ms} {node_id} {what}"
        self._digest.update(line.encode())
        self._lines.append(line)

    @property
    def digest(self) -> str:
        """A fingerprint of every line so far."""
        return self._digest.hexdigest()

    @property
    def text(self) -> str:
        """The lines that were kept."""
        return "\n".join(self._lines)
