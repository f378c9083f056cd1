"""Handles a closed output pipe, as with `head`, which is not an error."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class OutputClosed(Exception):
    """The reader of standard output has closed the pipe."""


@contextmanager
def closed_output_is_no_error() -> Iterator[None]:
    """Raise `OutputClosed` for a broken pipe inside the block if standard output, not a connection, is closed."""
    try:
        yield
    except BrokenPipeError as failed:
        if not output_is_closed():
            raise
        raise OutputClosed from failed
    except BaseExceptionGroup as group:  # nurseries wrap it
        if group.subgroup(BrokenPipeError) is None or not output_is_closed():
            raise
        raise OutputClosed from group


def output_is_closed() -> bool:
    """Whether the reader of standard output has closed the pipe."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # no standard output, or one without a file descriptor
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def discard_output() -> None:
    """Discard output that is still buffered, so that the interpreter does not fail at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
