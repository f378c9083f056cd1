"""Members of share groups, by librdkafka, which say how each record ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Message, ShareConsumer

SECONDS = 40


@contextmanager
def member(topic: str, config: dict[str, Any]) -> Iterator[ShareConsumer]:
    """A member of a group."""
    consumer = ShareConsumer({"share.acknowledgement.mode": "explicit", **config})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def polled(consumer: ShareConsumer, until: Callable[[], bool], take: Callable[[Message], None]) -> None:
    """Poll until a condition holds."""
    end = time.monotonic() + SECONDS
    while not until():
        assert time.monotonic() < end, "the records do not come"
        for record in consumer.poll(0.2) or ():
            assert record.error() is None, record.error()
            take(record)
