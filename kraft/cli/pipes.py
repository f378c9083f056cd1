"""Output into a pipe whose reader has enough, as `head` does: that is no error."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class OutputClosed(Exception):
    """The reader of standard output has closed it."""


@contextmanager
def closed_output_is_no_error() -> Iterator[None]:
    """Raise `OutputClosed` for a broken pipe inside the block if that pipe is standard output, and not a connection."""
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
    """Whether nothing reads standard output any more."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # there is none, or no file is behind it
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def discard_output() -> None:
    """Send what is still to be printed nowhere, so that the interpreter does not fail over it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
