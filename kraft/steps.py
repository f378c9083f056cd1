"""Long work in steps of some ten microseconds each, so that it spans several turns."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TypeVar

from kraft.limits import CHEAP_PER_STEP, ITEMS_PER_STEP
from metadata_log.serde import Message

T = TypeVar("T")
R = TypeVar("R")

Answering = Generator[None, None, Message]
"""An answer in steps, so that an answer about a million partitions delays no heartbeat."""


def made_of(things: Iterable[T], make: Callable[[T], R]) -> Generator[None, None, list[R]]:
    """One entry of a response for each of the things, some in a step."""
    made: list[R] = []
    for number, thing in enumerate(things, 1):
        made.append(make(thing))
        if number % ITEMS_PER_STEP == 0:
            yield None
    return made


def with_pauses(items: Iterable[T]) -> Iterator[T | None]:
    """Elements that are only examined, with an occasional None, at which the work may pause."""
    for number, item in enumerate(items):
        yield item
        if number % CHEAP_PER_STEP == 0:
            yield None
