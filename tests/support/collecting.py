"""Makes the collection cheap: each process of a run imports all test files, which was a fifth of the short run.

A fresh clone has no compiled modules. Processes that start together would each compile all files, and rewrite the
assertions of the tests, which takes longer than to import them: here one does it, and then the others begin.
"""

from __future__ import annotations

import fcntl
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path

from support import TESTS


def is_compiled() -> bool:
    """Whether an earlier run has left compiled tests."""
    return Path(cache_from_source(str(TESTS / "transport" / "conftest.py"))).parent.exists()


@contextmanager
def after_the_first() -> Iterator[None]:
    """Let the first process that comes here go alone, and then all others together."""
    with Path(__file__).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """What a block makes lives until the end: no collection looks at it, neither in the block nor later."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
