"""The order of answers about many groups, and names that a request repeats.

Kafka asks its coordinators in the order of a `java.util.HashMap` of partitions, and lists what a coordinator has in the
order of a `TimelineHashMap`. Clients that compare answers, Kafka's own tests among them, see these orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Final, TypeVar

from kraft.handling.coordinators import java_hash
from kraft.handling.steps import Handling

T = TypeVar("T")
_FIRST_SIZE: Final = 16
_GOLDEN: Final = -7046029254386353131
"""The factor of Knuth's Fibonacci hashing, by which a `TimelineHashMap` chooses a slot."""
_MASK: Final = 0xFFFFFFFF
_FEW: Final = 200
_SLOT_BITS: Final = 64 - 9
_LONG: Final = (1 << 64) - 1


def with_repeats(names: Iterable[T], most: int) -> list[T]:
    """The names in their order; of those that are there again the first `most`.

    Kafka answers a name as often as a request names it. An answer may be a thousand times as long as the name, so that
    the repetitions have a bound here.
    """
    seen: set[T] = set()
    kept: list[T] = []
    for name in names:
        if name in seen:
            if not most:
                continue
            most -= 1
        seen.add(name)
        kept.append(name)
    return kept


def by_coordinator(names: Iterable[str], number_of: Callable[[str], int], topic: str) -> list[str]:
    """The names in the order in which Kafka's answer has them: those of one partition after those of another."""
    of_partitions: dict[int, list[str]] = {}
    size = _FIRST_SIZE
    for name in names:
        # A `HashMap` grows with the first name after it has become three quarters full.
        size *= 1 + (len(of_partitions) > size * 3 // 4)
        of_partitions.setdefault(number_of(name), []).append(name)
    # `computeIfAbsent` puts a key before the others of its slot.
    newest_first = list(of_partitions)[::-1]
    newest_first.sort(key=lambda number: _spread_hash(topic, number) & (size - 1))
    return [name for number in newest_first for name in of_partitions[number]]


def in_partition_order(numbers: Iterable[int], topic: str) -> list[int]:
    """Partitions in the order of the `ConcurrentHashMap` in which Kafka has their coordinators."""
    of_topic = sorted(numbers)
    size = _FIRST_SIZE
    while len(of_topic) >= size * 3 // 4:
        size *= 2
    return sorted(of_topic, key=lambda number: _spread_hash(topic, number) & (size - 1))


def in_timeline_order(keys: Sequence[T], order: Callable[[T], int]) -> Handling[list[T]]:
    """The keys by `timeline_order` or a like order, in steps that each sort a 512th of many keys."""
    if len(keys) <= _FEW:
        return sorted(keys, key=order)
    slots: dict[int, list[tuple[int, T]]] = {}
    for count, key in enumerate(keys, 1):
        place = order(key)
        slots.setdefault(place >> _SLOT_BITS, []).append((place, key))
        if count % _FEW == 0:
            yield None
    ordered: list[T] = []
    for slot in sorted(slots):
        yield None
        ordered += [key for _, key in sorted(slots[slot], key=itemgetter(0))]
    return ordered


def timeline_order(name: str) -> int:
    """By this a `TimelineHashMap` orders its texts, whatever its size, but for those that share a slot."""
    return _GOLDEN * java_hash(name) & _LONG


def newest_first_in_slots(count: int) -> Callable[[str, int], int]:
    """By this a `TimelineHashMap` that never had more than `count` entries orders its texts, with the number of each in
    the order in which they came: of those that share a slot the newest comes first.
    """
    bits = 1
    while count * 3 > 4 << bits:
        bits += 1
    below = (1 << (64 - bits)) - 1
    return lambda name, number: (timeline_order(name) & ~below) + below - number


def timeline_order_of_number(number: int) -> int:
    """As `timeline_order`, for keys that are whole numbers."""
    return _GOLDEN * number & _LONG


def in_hash_map_order(names: Iterable[str]) -> list[str]:
    """Texts in the order of a `java.util.HashMap` into which those of a `TimelineHashMap` were put."""
    return in_slot_order(sorted(names, key=timeline_order))


def in_slot_order(names: Sequence[str]) -> list[str]:
    """Texts in the order of a `java.util.HashMap` into which they were put in this order."""
    size = _FIRST_SIZE
    while len(names) > size * 3 // 4:
        size *= 2
    return sorted(names, key=lambda name: _spread(java_hash(name)) & (size - 1))


def _spread_hash(topic: str, number: int) -> int:
    """The number that a Java map makes of `TopicPartition.hashCode`."""
    return _spread(31 * (31 + number) + java_hash(topic))


def _spread(value: int) -> int:
    """The number that a Java map makes of a hash."""
    value &= _MASK
    return value ^ (value >> 16)
