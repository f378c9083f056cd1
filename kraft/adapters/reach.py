"""How a program reaches a store by a URL, for the settings of programs that have room for one line.

- `kraft:///etc/app/c1.properties`: this process runs the node of a properties file. Its directory must be formatted.
- `kraft://host:port,host:port`: this process is a client of the nodes at these addresses, by `kraft.connect_store`: it
  has no vote, no directory and no port. TLS and logins need a properties file.

Whoever opens the same URL in one process has the same store: one node for all of them, which ends with the last one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Final
from urllib.parse import urlsplit

import kraft.sync
from kraft.config import Config, UsageError

SCHEME: Final = "kraft"


class _Shared:
    """A store that several users of this process have open."""

    def __init__(self, url: str) -> None:
        self.manager = _node_at(url)
        self.store = self.manager.__enter__()
        self.users = 0


_shared: dict[tuple[int, str], _Shared] = {}
"""By process, as a fork has no node, and URL."""
_shared_lock = Lock()


@contextmanager
def store_at(url: str) -> Iterator[kraft.sync.Store]:
    """Open the store at a URL for the duration of the block.

    Raises:
        UsageError: The URL names no store.
        ConfigError: The properties file or an address is wrong.
        NoController: Nobody answers at the addresses within 30 seconds.
        MetadataLogError: The directory is not formatted, or damaged.
        OSError: A port is in use, or the disk has failed.
    """
    key = (os.getpid(), url)
    with _shared_lock:
        shared = _shared.get(key)
        if shared is None:
            shared = _shared[key] = _Shared(url)
        shared.users += 1
    try:
        yield shared.store
    finally:
        with _shared_lock:
            shared.users -= 1
            is_last = not shared.users
            if is_last:
                del _shared[key]
        if is_last:
            shared.manager.__exit__(None, None, None)


def _node_at(url: str) -> AbstractContextManager[kraft.sync.Store]:
    parts = urlsplit(url)
    if parts.scheme == SCHEME and parts.netloc:
        return kraft.sync.connect_store(parts.netloc)
    if parts.scheme == SCHEME and parts.path.strip("/"):
        return kraft.sync.open_store(Config.load(parts.path))
    raise UsageError(f"this is no URL of a store: {url!r}", hint="kraft://HOST:PORT,… or kraft:///PROPERTIES-FILE")
