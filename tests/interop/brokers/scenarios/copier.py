"""A program that copies records: it consumes as a member of a group, and commits offset and copy in one transaction.

    python copier.py LOG BOOTSTRAP GROUP PROTOCOL TRANSACTIONAL_ID OUTPUT INPUT…

It prints `copied N` after each transaction, how a transaction ended that did not commit, and where it waits. It ends
with an error where a client may only begin again, as whoever starts it does. LOG has what its producer asks and hears.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

SECONDS: Final = 10
"""The time of one call; what has not ended by then is called again."""
TRANSACTION_MS: Final = 15_000
SESSION_MS: Final = 6000
READ: Final = 100


def copied(record: Message) -> bytes:
    """The copy of a record: where it comes from, and its value."""
    value = record.value()
    assert isinstance(value, bytes)
    return f"{record.topic()}:{record.partition()}:{record.offset()}:{value.decode()}".encode()


def ended(producer: Producer, *, commits: bool) -> None:
    """End a transaction, however often the client has to ask."""
    end = producer.commit_transaction if commits else producer.abort_transaction
    while True:
        try:
            end(SECONDS)
        except KafkaException as refused:
            error: KafkaError = refused.args[0]
            if not error.retriable():
                raise
            print(f"again {error.name()}", flush=True)
        else:
            return


def rewind(consumer: Consumer) -> None:
    """Go back to what is committed: the records of an aborted transaction are read again."""
    for place in consumer.committed(consumer.assignment(), SECONDS):
        offset = OFFSET_BEGINNING if place.offset == OFFSET_INVALID else place.offset
        consumer.seek(TopicPartition(place.topic, place.partition, offset))


def copy(consumer: Consumer, producer: Producer, output: str, read: Sequence[Message]) -> None:
    """Copy records in one transaction, with the offsets after them."""
    places: dict[tuple[str, int], int] = {}
    producer.begin_transaction()
    for record in read:
        topic, partition, offset = record.topic(), record.partition(), record.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        places[topic, partition] = offset + 1
        producer.produce(output, copied(record), partition=0)
    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in places.items()]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
    ended(producer, commits=True)


def main(log: str, bootstrap: str, group: str, protocol: str, name: str, output: str, *inputs: str) -> None:
    """Copy until a signal to stop."""
    # librdkafka writes to the descriptor, from threads of its own; what Python has to say stays in the output.
    sys.stderr = sys.stdout
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    common = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500}
    of_protocol: dict[str, str | int] = (
        {"session.timeout.ms": SESSION_MS, "partition.assignment.strategy": "roundrobin"}
        if protocol == "classic"
        else {}
    )
    producer = Producer(
        {
            **common,
            "transactional.id": name,
            "transaction.timeout.ms": TRANSACTION_MS,
            "debug": "broker,eos,protocol",
        }
    )
    while True:
        try:
            producer.init_transactions(SECONDS)
        except KafkaException as refused:
            if not refused.args[0].retriable():
                raise
        else:
            break
    consumer = Consumer(
        {
            **common,
            **of_protocol,
            "log_level": 0,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    # With functions of its own the assignment changes within a call of this thread, and never beside it.
    consumer.subscribe(list(inputs), on_assign=lambda *_: None, on_revoke=lambda *_: None)
    print("copies", flush=True)
    while not stopped.is_set():
        found = consumer.consume(READ, timeout=0.2)
        read = [one for one in found if one.error() is None]
        if not read:
            print("waits", flush=True)
            continue
        try:
            copy(consumer, producer, output, read)
        except KafkaException as refused:
            error: KafkaError = refused.args[0]
            if not error.txn_requires_abort():
                raise
            print(f"aborts {error.name()}", flush=True)
            ended(producer, commits=False)
            rewind(consumer)
        else:
            print(f"copied {len(read)}", flush=True)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
