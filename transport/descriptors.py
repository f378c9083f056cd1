"""Spare file descriptors, for the moment when the process reaches its descriptor limit."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import Final

SPARE_DESCRIPTORS: Final = 8
OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
CANNOT_ACCEPT: Final = "listener %s cannot accept: %s"
ACCEPT_PAUSE_SECONDS: Final = 0.1
"""How long peers wait in the backlog when no descriptor is left."""

_FOR_FILES: Final = 256
"""Descriptors that connections of peers leave to files, to this node's own connections and to libraries."""


def raise_limit() -> None:
    """Raise this process's limit of open files as far as the system lets it, as the JVM does (`-XX:+MaxFDLimit`).

    A broker holds three files for each segment, and a login shell or a service manager allows 1024 by default.
    """
    try:
        import resource
    except ImportError:  # where there is no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # a system may refuse a limit that it calls allowed
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_allowed() -> int:
    """The most connections of peers that leave the process enough descriptors for its files."""
    try:
        import resource
    except ImportError:  # where there is no such limit
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(soft - _FOR_FILES, soft // 2)


class SpareDescriptors:
    """A few open descriptors. When the system refuses a new one, closing a spare allows one more connection."""

    def __init__(self) -> None:
        self._wanted = SPARE_DESCRIPTORS
        self._held: list[int] = []

    def fill(self) -> None:
        """Open the missing descriptors, as far as the system allows."""
        while len(self._held) < self._wanted:
            try:
                self._held.append(os.open(os.devnull, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)))
            except OSError:
                return

    def spend(self) -> bool:
        """Close one descriptor; returns whether there was one."""
        if not self._held:
            return False
        os.close(self._held.pop())
        return True

    def close(self) -> None:
        """Close all descriptors."""
        self._wanted = 0
        while self.spend():
            pass
