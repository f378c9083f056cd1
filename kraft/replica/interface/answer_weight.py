"""How much of a turn an answer takes, so that thousands of answers are told a portion at a time.

The unit is what a short answer takes: to encode it and to hand it to the system, some 15 microseconds.
"""

from __future__ import annotations

from typing import Final

from kraft.limits import ITEMS_PER_ANSWER, MOST_TOLD
from metadata_log.serde import Message

_LOOKED_AT: Final = 64
"""How many items are searched for items of their own."""


def weight_of_refusal(request: Message) -> int:
    """The weight of an answer that repeats the items of its request, and is made when it is sent."""
    return 1 + _items(request) // ITEMS_PER_ANSWER


def weight_of_answer(response: Message) -> int:
    """The weight of a finished answer."""
    return min(weight_of_refusal(response), MOST_TOLD)


def _items(message: Message) -> int:
    """The items of a message, and an estimate of the items within these."""
    count = 0
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if type(value) is list and value:
            count += len(value)
            if isinstance(value[0], Message):
                looked_at = value[:_LOOKED_AT]
                within = sum([_direct(one) for one in looked_at])
                count += within * len(value) // len(looked_at)
    return count


def _direct(message: Message) -> int:
    values = [getattr(message, name) for name in message.__struct_fields__]
    return sum([len(value) for value in values if type(value) is list])
