"""A member of a share group as a process, by librdkafka, which can be killed and paused: a line of JSON for each record
that it is given, that it is about to accept, and that the group is done with.

    python -m support.scenarios.share_worker BOOTSTRAP TOPIC GROUP accept|hold

`hold` acknowledges nothing. A line has the time of the machine's steady clock, so that lines of processes compare.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Final

from confluent_kafka import KafkaException, ShareConsumer

POLL_SECONDS: Final = 0.5


def tell(**line: object) -> None:
    """Print a line."""
    print(json.dumps({"at": time.monotonic(), **line}), flush=True)


def main() -> None:
    """Consume until the process is killed."""
    bootstrap, topic, group, how = sys.argv[1:]
    consumer = ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit", "log_level": 0}
    )
    consumer.subscribe([topic])
    while True:
        given: dict[tuple[int, int], tuple[int, int]] = {}
        for record in consumer.poll(POLL_SECONDS) or ():
            if record.error() is not None:
                continue
            value = int(record.value() or b"")
            count = record.delivery_count() or 0
            tell(given=value, count=count)
            given[record.partition() or 0, record.offset() or 0] = value, count
            if how == "accept":
                consumer.acknowledge(record)
        if not given:
            continue
        if how == "hold":
            signal.pause()
        for value, count in given.values():
            tell(tried=value, count=count)
        try:
            outcome = consumer.commit_sync()
        except KafkaException:
            continue
        done = {part.partition for part, error in outcome.items() if error is None}
        for (partition, _), (value, count) in given.items():
            if partition in done:
                tell(accepted=value, count=count)


if __name__ == "__main__":
    main()
