"""Records are written, acknowledged and read again, by the client that comes with the package.

In a checkout:

    $ python3 examples/send_and_read.py
    written at offset 0
    tree 1: a medlar
"""

import trio

from kraft.client import ConsumerSettings, open_client
from kraft.testing import Kafka
from transport import Endpoint


async def main(address: str) -> None:
    host, _, port = address.rpartition(":")
    async with open_client([Endpoint(host, int(port))]) as client:
        async with client.producer("fruit") as producer:
            delivery = await producer.send(b"a medlar", key=b"tree 1")
            print("written at offset", (await delivery.wait()).offset)
        async with client.consumer("fruit", ConsumerSettings(partitions=(0,))) as consumer:
            async for record in consumer:
                print(f"{(record.key or b'').decode()}: {(record.value or b'').decode()}")


if __name__ == "__main__":
    with Kafka() as kafka:  # a broker inside this process; any broker of Kafka will do
        kafka.create_topic("fruit")
        trio.run(main, kafka.bootstrap_servers)
