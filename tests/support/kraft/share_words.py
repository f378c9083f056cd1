"""What a member of a share group says about its records, each kind of word in turn."""

from __future__ import annotations

from collections import Counter

from kraft.client import ShareConsumer


async def say_each_word(consumer: ShareConsumer, deliveries: int) -> Counter[int]:
    """Accept, release and reject records with numbers for values, in turn; accept each that comes again.

    Args:
        consumer: A member that says explicitly what becomes of its records.
        deliveries: How many of them there are to be.

    Returns:
        How often each number came.
    """
    seen: Counter[int] = Counter()
    while seen.total() < deliveries:
        for record in await consumer.batch():
            number = int(record.value or b"")
            seen[number] += 1
            assert record.delivery_count == seen[number]
            if seen[number] > 1 or number % 3 == 0:
                consumer.accept(record)
            elif number % 3 == 1:
                consumer.release(record)
            else:
                consumer.reject(record)
    assert await consumer.commit() == ()
    return seen
