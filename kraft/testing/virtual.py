"""Tests in virtual time: whatever waits, the clock jumps to what comes next, so that a minute takes a moment."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import trio
from trio.testing import MockClock

P = ParamSpec("P")
T = TypeVar("T")


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """A decorator: the function runs in a Trio loop of its own, in virtual time.

    Only what waits by Trio's clock is fast. A `Cluster` and `kraft.client` on it do; sockets and threads do not.
    """

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return trio.run(partial(test, *args, **kwargs), clock=MockClock(autojump_threshold=0))

    return run
