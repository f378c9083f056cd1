"""A program that reads and writes topics is tested against a real broker, which starts inside the test.

In a checkout:

    $ python3 -m pytest -qq examples/test_fruit_shop.py
    .                                                                        [100%]
"""

import json

from confluent_kafka import Consumer, Producer

from kraft.testing import Kafka


def bill(config: dict[str, str], orders: int) -> None:
    """The program: read orders, write a bill for each."""
    reader = Consumer({**config, "group.id": "billing", "auto.offset.reset": "earliest"})
    writer = Producer(config)
    reader.subscribe(["orders"])
    for message in reader.consume(orders, timeout=20):
        order = json.loads(message.value() or b"{}")
        writer.produce("bills", key=message.key(), value=str(order["pieces"] * 30))
    writer.flush()
    reader.close()


def test_each_order_has_a_bill(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    kafka.create_topic("bills")
    kafka.produce("orders", [("ann", '{"pieces": 3}'), ("bob", '{"pieces": 1}')])
    with kafka.assert_produces("bills", [("ann", "90"), ("bob", "30")]):
        bill(kafka.client_config("confluent-kafka"), orders=2)
