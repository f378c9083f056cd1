"""The one error of a block of tasks, without the exception groups of its nurseries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_cause() -> Iterator[None]:
    """Raise the one error that ends the block, without the groups around it; several errors stay a group."""
    try:
        yield
    except BaseExceptionGroup as group:
        cause: BaseException = group
        while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
            cause = cause.exceptions[0]
        raise cause from None
